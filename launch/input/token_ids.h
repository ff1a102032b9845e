// SPDX-License-Identifier: Apache-2.0
// A prompt given as token ids.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/base/status.h"

namespace snapkv::launch {

// The JSON array in the file `path` ("-": stdin), at least one id, each in [0, vocab). Errors name the file
// and the element.
absl::StatusOr<std::vector<int32_t>> ReadTokenIds(const std::string& path, int64_t vocab);

}  // namespace snapkv::launch
