// SPDX-License-Identifier: Apache-2.0
// --stats: one JSON file with every rank's phases, bytes, memory and kernels.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "comm/bootstrap.h"
#include "runtime/engine/context.h"

namespace snapkv::launch {

// This rank's part.
nlohmann::ordered_json RankReport(const runtime::RankContext& context, comm::World& world);

// Collects every rank's part on rank 0 and writes it to `path` there. Every rank calls it.
absl::Status WriteStats(comm::World& world, const std::string& path, const nlohmann::ordered_json& mine,
                        const nlohmann::ordered_json& run);

}  // namespace snapkv::launch
