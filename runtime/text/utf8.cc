// SPDX-License-Identifier: Apache-2.0
// UTF-8 decoding after table 3-7 (well-formed byte sequences) of the Unicode standard.
#include "runtime/text/utf8.h"

#include <cstring>

namespace snapkv::runtime {
namespace {

// What a lead byte demands: the sequence length and the range of its second byte. length 0: no lead byte.
struct Lead {
  int length;
  uint8_t second_min;
  uint8_t second_max;
};

Lead LeadOf(uint8_t byte) {
  if (byte < 0x80) return {1, 0, 0};
  if (byte < 0xC2) return {0, 0, 0};  // continuation bytes, and C0/C1, which only overlong forms would use
  if (byte < 0xE0) return {2, 0x80, 0xBF};
  if (byte == 0xE0) return {3, 0xA0, 0xBF};  // no overlong forms
  if (byte == 0xED) return {3, 0x80, 0x9F};  // no surrogates
  if (byte < 0xF0) return {3, 0x80, 0xBF};
  if (byte == 0xF0) return {4, 0x90, 0xBF};  // no overlong forms
  if (byte < 0xF4) return {4, 0x80, 0xBF};
  if (byte == 0xF4) return {4, 0x80, 0x8F};  // not above 10FFFF
  return {0, 0, 0};
}

}  // namespace

Utf8Step ReadUtf8(std::string_view text, size_t pos) {
  const auto first = static_cast<uint8_t>(text[pos]);
  const Lead lead = LeadOf(first);
  if (lead.length == 1) return {Utf8Step::Kind::kOk, 1, first};
  if (lead.length == 0) return {Utf8Step::Kind::kBad, 1, kReplacementCharacter};
  char32_t code_point = first & (0xFF >> (lead.length + 1));
  for (int i = 1; i < lead.length; ++i) {
    if (pos + i >= text.size()) return {Utf8Step::Kind::kTruncated, i, kReplacementCharacter};
    const auto byte = static_cast<uint8_t>(text[pos + i]);
    const uint8_t low = i == 1 ? lead.second_min : 0x80;
    const uint8_t high = i == 1 ? lead.second_max : 0xBF;
    if (byte < low || byte > high) return {Utf8Step::Kind::kBad, i, kReplacementCharacter};
    code_point = (code_point << 6) | (byte & 0x3F);
  }
  return {Utf8Step::Kind::kOk, lead.length, code_point};
}

std::optional<size_t> ValidateUtf8(std::string_view text) {
  size_t pos = 0;
  while (pos < text.size()) {
    // Documents are mostly ASCII: eight bytes at a time.
    uint64_t word;
    if (text.size() - pos >= sizeof(word)) {
      std::memcpy(&word, text.data() + pos, sizeof(word));
      if ((word & 0x8080808080808080ULL) == 0) {
        pos += sizeof(word);
        continue;
      }
    }
    const Utf8Step step = ReadUtf8(text, pos);
    if (step.kind != Utf8Step::Kind::kOk) return pos;
    pos += step.length;
  }
  return std::nullopt;
}

void AppendUtf8(char32_t code_point, std::string* out) {
  if (code_point > 0x10FFFF || (code_point >= 0xD800 && code_point <= 0xDFFF)) {
    code_point = kReplacementCharacter;
  }
  const auto byte = [out](char32_t value) { out->push_back(static_cast<char>(value)); };
  if (code_point < 0x80) {
    byte(code_point);
  } else if (code_point < 0x800) {
    byte(0xC0 | (code_point >> 6));
    byte(0x80 | (code_point & 0x3F));
  } else if (code_point < 0x10000) {
    byte(0xE0 | (code_point >> 12));
    byte(0x80 | ((code_point >> 6) & 0x3F));
    byte(0x80 | (code_point & 0x3F));
  } else {
    byte(0xF0 | (code_point >> 18));
    byte(0x80 | ((code_point >> 12) & 0x3F));
    byte(0x80 | ((code_point >> 6) & 0x3F));
    byte(0x80 | (code_point & 0x3F));
  }
}

std::string Latin1ToUtf8(std::string_view latin1) {
  std::string out;
  out.reserve(latin1.size());
  for (const char c : latin1) AppendUtf8(static_cast<uint8_t>(c), &out);
  return out;
}

std::string ReplaceInvalidUtf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t pos = 0; pos < text.size();) {
    const Utf8Step step = ReadUtf8(text, pos);
    if (step.kind == Utf8Step::Kind::kOk) {
      out.append(text, pos, step.length);
    } else {
      AppendUtf8(kReplacementCharacter, &out);
    }
    pos += step.length;
  }
  return out;
}

}  // namespace snapkv::runtime
