// SPDX-License-Identifier: Apache-2.0
// IdSet: ids of documents, in 16 bytes each however long they are.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/container/flat_hash_set.h"

namespace snapkv::launch {

// Remembers half of the SHA-256 of each id, so no two ids are ever taken for each other. A set of a million
// needs 40 MB at most. Not thread-safe.
class IdSet {
 public:
  // False: the id is there already.
  bool Add(std::string_view id) { return hashes_.insert(Hash(id)).second; }
  bool Has(std::string_view id) const { return hashes_.contains(Hash(id)); }

  // Adds `id` or, if that is there already, the first of id#2, id#3, ... that is not; returns what was added.
  std::string AddUnique(const std::string& id);

 private:
  using Key = std::array<uint64_t, 2>;
  static Key Hash(std::string_view id);
  absl::flat_hash_set<Key> hashes_;
};

}  // namespace snapkv::launch
