// SPDX-License-Identifier: Apache-2.0
// Python's string operations, with utf8proc's character tables.
#include "runtime/text/jinja/strings.h"

#include <utf8proc.h>

#include <algorithm>

#include "runtime/text/utf8.h"

namespace snapkv::runtime::jinja {
namespace {

// The start of the code point that ends before `end`.
size_t PreviousStart(std::string_view text, size_t end) {
  size_t pos = end - 1;
  while (pos > 0 && (static_cast<uint8_t>(text[pos]) & 0xC0) == 0x80) --pos;
  return pos;
}

template <class Predicate>
std::string_view StripIf(std::string_view text, Side side, Predicate drops) {
  size_t begin = 0;
  size_t end = text.size();
  while (side != Side::kRight && begin < end) {
    const Utf8Step step = ReadUtf8(text, begin);
    if (!drops(step.code_point)) break;
    begin += step.length;
  }
  while (side != Side::kLeft && begin < end) {
    const size_t start = PreviousStart(text, end);
    if (!drops(ReadUtf8(text, start).code_point)) break;
    end = start;
  }
  return text.substr(begin, end - begin);
}

// Every code point through `map(code_point, index)`.
template <class Map>
std::string MapCodePoints(std::string_view text, Map map) {
  std::string out;
  out.reserve(text.size());
  for (size_t pos = 0; pos < text.size();) {
    const Utf8Step step = ReadUtf8(text, pos);
    AppendUtf8(map(step.code_point), &out);
    pos += step.length;
  }
  return out;
}

char32_t ToUpper(char32_t c) { return static_cast<char32_t>(utf8proc_toupper(static_cast<int32_t>(c))); }
char32_t ToLower(char32_t c) { return static_cast<char32_t>(utf8proc_tolower(static_cast<int32_t>(c))); }
char32_t ToTitle(char32_t c) { return static_cast<char32_t>(utf8proc_totitle(static_cast<int32_t>(c))); }

utf8proc_category_t Category(char32_t c) { return utf8proc_category(static_cast<int32_t>(c)); }

bool IsLineEnd(char32_t c) {
  return (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029;
}

}  // namespace

bool IsSpace(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}

size_t CountCodePoints(std::string_view text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(),
                                           [](char c) { return (static_cast<uint8_t>(c) & 0xC0) != 0x80; }));
}

std::vector<std::string_view> CodePoints(std::string_view text) {
  std::vector<std::string_view> out;
  for (size_t pos = 0; pos < text.size();) {
    const auto length = static_cast<size_t>(ReadUtf8(text, pos).length);
    out.push_back(text.substr(pos, length));
    pos += length;
  }
  return out;
}

std::string_view Strip(std::string_view text, Side side) { return StripIf(text, side, IsSpace); }

std::string_view StripChars(std::string_view text, std::string_view chars, Side side) {
  std::vector<char32_t> set;
  for (size_t pos = 0; pos < chars.size();) {
    const Utf8Step step = ReadUtf8(chars, pos);
    set.push_back(step.code_point);
    pos += step.length;
  }
  std::sort(set.begin(), set.end());
  return StripIf(text, side, [&](char32_t c) { return std::binary_search(set.begin(), set.end(), c); });
}

std::vector<std::string_view> SplitSpaces(std::string_view text, int64_t max, bool from_right) {
  std::vector<std::string_view> out;
  text = Strip(text, Side::kBoth);
  while (!text.empty()) {
    if (max >= 0 && static_cast<int64_t>(out.size()) == max) {
      out.push_back(text);
      break;
    }
    size_t cut = from_right ? text.size() : 0;
    while (from_right ? cut > 0 : cut < text.size()) {
      const size_t at = from_right ? PreviousStart(text, cut) : cut;
      const Utf8Step step = ReadUtf8(text, at);
      if (IsSpace(step.code_point)) break;
      cut = from_right ? at : at + step.length;
    }
    out.push_back(from_right ? text.substr(cut) : text.substr(0, cut));
    text = from_right ? Strip(text.substr(0, cut), Side::kRight) : Strip(text.substr(cut), Side::kLeft);
  }
  if (from_right) std::reverse(out.begin(), out.end());
  return out;
}

std::vector<std::string_view> SplitBy(std::string_view text, std::string_view separator, int64_t max,
                                      bool from_right) {
  std::vector<std::string_view> out;
  while (max < 0 || static_cast<int64_t>(out.size()) < max) {
    const size_t at = from_right ? text.rfind(separator) : text.find(separator);
    if (at == std::string_view::npos) break;
    const size_t after = at + separator.size();
    out.push_back(from_right ? text.substr(after) : text.substr(0, at));
    text = from_right ? text.substr(0, at) : text.substr(after);
  }
  out.push_back(text);
  if (from_right) std::reverse(out.begin(), out.end());
  return out;
}

std::vector<std::string_view> SplitLines(std::string_view text, bool keep_ends) {
  std::vector<std::string_view> out;
  size_t begin = 0;
  for (size_t pos = 0; pos < text.size();) {
    const Utf8Step step = ReadUtf8(text, pos);
    size_t next = pos + step.length;
    if (IsLineEnd(step.code_point)) {
      if (step.code_point == '\r' && next < text.size() && text[next] == '\n') ++next;
      out.push_back(text.substr(begin, (keep_ends ? next : pos) - begin));
      begin = next;
    }
    pos = next;
  }
  if (begin < text.size()) out.push_back(text.substr(begin));
  return out;
}

bool Replace(std::string_view text, std::string_view from, std::string_view to, int64_t max, size_t max_bytes,
             std::string* out) {
  out->clear();
  int64_t done = 0;
  size_t pos = 0;
  while (max < 0 || done < max) {
    const size_t at = from.empty() ? pos : text.find(from, pos);
    if (at == std::string_view::npos) break;
    out->append(text, pos, at - pos);
    out->append(to);
    ++done;
    if (out->size() > max_bytes) return false;
    pos = at + from.size();
    if (!from.empty()) continue;
    if (pos >= text.size()) break;
    const auto length = static_cast<size_t>(ReadUtf8(text, pos).length);
    out->append(text, pos, length);
    pos += length;
  }
  if (pos < text.size()) out->append(text.substr(pos));
  return out->size() <= max_bytes;
}

std::string Upper(std::string_view text) {
  // The one letter in wide use whose capital is two.
  std::string sharp_s;
  AppendUtf8(0xDF, &sharp_s);
  std::string out;
  const auto parts = SplitBy(text, sharp_s, -1, false);
  for (size_t i = 0; i < parts.size(); ++i) {
    if (i > 0) out += "SS";
    out += MapCodePoints(parts[i], ToUpper);
  }
  return out;
}
std::string Lower(std::string_view text) { return MapCodePoints(text, ToLower); }

std::string Capitalize(std::string_view text) {
  bool first = true;
  return MapCodePoints(text, [&first](char32_t c) {
    const char32_t mapped = first ? ToTitle(c) : ToLower(c);
    first = false;
    return mapped;
  });
}

std::string Title(std::string_view text) {
  bool in_word = false;
  return MapCodePoints(text, [&in_word](char32_t c) {
    const char32_t mapped = in_word ? ToLower(c) : ToTitle(c);
    in_word = IsUpperCase(c) || IsLowerCase(c) || Category(c) == UTF8PROC_CATEGORY_LT;
    return mapped;
  });
}

bool IsUpperCase(char32_t c) { return Category(c) == UTF8PROC_CATEGORY_LU; }
bool IsLowerCase(char32_t c) { return Category(c) == UTF8PROC_CATEGORY_LL; }
bool IsLetter(char32_t c) {
  const auto category = Category(c);
  return category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO;
}
bool IsDecimalDigit(char32_t c) { return Category(c) == UTF8PROC_CATEGORY_ND; }

}  // namespace snapkv::runtime::jinja
