// SPDX-License-Identifier: Apache-2.0
// Names that nobody can guess.
#pragma once

#include <cstdint>
#include <random>
#include <string>

namespace snapkv::service {

// 128 random bits as 32 hexadecimal digits, from the operating system.
inline std::string RandomId() {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::random_device device;
  std::string id;
  for (int word = 0; word < 4; ++word) {
    uint32_t bits = device();
    for (int digit = 0; digit < 8; ++digit, bits >>= 4) id += kDigits[bits & 15];
  }
  return id;
}

}  // namespace snapkv::service
