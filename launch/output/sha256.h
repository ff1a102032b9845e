// SPDX-License-Identifier: Apache-2.0
// SHA-256 of a string.
#pragma once

#include <string>

namespace snapkv::launch {

// 64 lower-case hexadecimal digits.
std::string Sha256Hex(const std::string& bytes);

}  // namespace snapkv::launch
