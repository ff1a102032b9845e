// SPDX-License-Identifier: Apache-2.0
// Ids as hashes, by OpenSSL.
#include "launch/input/id_registry.h"

#include <openssl/evp.h>

#include <array>
#include <cstring>

#include "kernels/base/log.h"

namespace snapkv::launch {

bool IdRegistry::Add(std::string_view id) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  CHECK(EVP_Digest(id.data(), id.size(), digest.data(), nullptr, EVP_sha256(), nullptr) == 1);
  std::pair<uint64_t, uint64_t> half;
  std::memcpy(&half.first, digest.data(), sizeof(half.first));
  std::memcpy(&half.second, digest.data() + sizeof(half.first), sizeof(half.second));
  return seen_.insert(half).second;
}

std::string IdRegistry::AddUnique(const std::string& id) {
  if (Add(id)) return id;
  for (int64_t n = 2;; ++n) {
    std::string other = id + "#" + std::to_string(n);
    if (Add(other)) return other;
  }
}

}  // namespace snapkv::launch
