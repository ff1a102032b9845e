// SPDX-License-Identifier: Apache-2.0
// SHA-256 by OpenSSL. Only this file includes it.
#include "runtime/hash/sha256.h"

#include <openssl/evp.h>

#include "kernels/base/log.h"

namespace snapkv::runtime {

std::array<uint8_t, 32> Sha256(std::string_view bytes) {
  std::array<uint8_t, 32> digest{};
  CHECK(EVP_Digest(bytes.data(), bytes.size(), digest.data(), nullptr, EVP_sha256(), nullptr) == 1);
  return digest;
}

std::string Sha256Hex(std::string_view bytes) {
  std::string hex;
  for (const uint8_t byte : Sha256(bytes)) {
    constexpr char kDigits[] = "0123456789abcdef";
    hex += kDigits[byte >> 4];
    hex += kDigits[byte & 15];
  }
  return hex;
}

}  // namespace snapkv::runtime
