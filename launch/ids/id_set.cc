// SPDX-License-Identifier: Apache-2.0
// Ids as hashes.
#include "launch/ids/id_set.h"

#include <cstring>

#include "runtime/hash/sha256.h"

namespace snapkv::launch {

IdSet::Key IdSet::Hash(std::string_view id) {
  const auto digest = runtime::Sha256(id);
  Key key{};
  std::memcpy(key.data(), digest.data(), sizeof(key));
  return key;
}

std::string IdSet::AddUnique(const std::string& id) {
  if (Add(id)) return id;
  for (int64_t n = 2;; ++n) {
    std::string other = id + "#" + std::to_string(n);
    if (Add(other)) return other;
  }
}

}  // namespace snapkv::launch
