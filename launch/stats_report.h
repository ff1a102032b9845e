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

// The whole file's text on rank 0, from every rank's part; "" elsewhere. Every rank calls it.
absl::StatusOr<std::string> CollectStats(comm::World& world, const nlohmann::ordered_json& mine,
                                         const nlohmann::ordered_json& run);

}  // namespace snapkv::launch
