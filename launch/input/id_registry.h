// SPDX-License-Identifier: Apache-2.0
// IdRegistry: the ids of all documents so far, in 16 bytes each however long they are.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "absl/container/flat_hash_set.h"

namespace snapkv::launch {

// Remembers half of the SHA-256 of each id, so no two ids are ever taken for each other. Not thread-safe.
class IdRegistry {
 public:
  // False: the id is there already.
  bool Add(std::string_view id);

  // Adds `id` or, if that is there already, the first of id#2, id#3, ... that is not; returns what was added.
  std::string AddUnique(const std::string& id);

 private:
  absl::flat_hash_set<std::pair<uint64_t, uint64_t>> seen_;
};

}  // namespace snapkv::launch
