// SPDX-License-Identifier: Apache-2.0
// SHA-256 of a string.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace snapkv::runtime {

std::array<uint8_t, 32> Sha256(std::string_view bytes);

// 64 lower-case hexadecimal digits.
std::string Sha256Hex(std::string_view bytes);

}  // namespace snapkv::runtime
