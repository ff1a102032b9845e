// SPDX-License-Identifier: Apache-2.0
// UTF-8: one decoding step, validation with the offset of the first bad byte, and Latin-1 conversion.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace snapkv::runtime {

inline constexpr char32_t kReplacementCharacter = 0xFFFD;

// What stands at one place of a byte string.
struct Utf8Step {
  enum class Kind {
    kOk,   // a well-formed sequence: code_point and length are its own
    kBad,  // ill-formed whatever follows; length = the bytes that one U+FFFD replaces (Unicode 3.9, U+FFFD
           // substitution of maximal subparts)
    kTruncated,  // a good beginning that the end of the text cuts off; length = what is there
  };
  Kind kind;
  int length;  // 1..4
  char32_t code_point;
};

// Reads the sequence at text[pos]; pos < text.size(). Refuses overlong forms, surrogates and values above
// 10FFFF.
Utf8Step ReadUtf8(std::string_view text, size_t pos);

// The offset of the first byte that begins an ill-formed (or truncated) sequence; nullopt when all is well.
std::optional<size_t> ValidateUtf8(std::string_view text);

// Appends a code point that is a Unicode scalar value; anything else is appended as U+FFFD.
void AppendUtf8(char32_t code_point, std::string* out);

// Every byte is one code point (ISO 8859-1). Cannot fail; the result is at most twice as long.
std::string Latin1ToUtf8(std::string_view latin1);

// The text with every ill-formed part replaced by U+FFFD.
std::string ReplaceInvalidUtf8(std::string_view text);

}  // namespace snapkv::runtime
