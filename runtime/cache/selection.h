// SPDX-License-Identifier: Apache-2.0
// Selection: the prompt positions a layer keeps, per selecting head; the same on every rank.
#pragma once

#include <cstdint>
#include <vector>

namespace snapkv::runtime {

// positions[h]: kept global positions of head h, ascending. One entry per KV head, or per query head for
// GroupMode::kNone. The last W positions of the prompt are always among them.
struct Selection {
  std::vector<std::vector<int32_t>> positions;
};

}  // namespace snapkv::runtime
