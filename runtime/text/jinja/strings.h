// SPDX-License-Identifier: Apache-2.0
// Python's string operations on UTF-8, counted in code points. All arguments must be valid UTF-8.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace snapkv::runtime::jinja {

// What str.isspace() and a strip() without arguments mean by white space.
bool IsSpace(char32_t code_point);

size_t CountCodePoints(std::string_view text);
std::vector<std::string_view> CodePoints(std::string_view text);

enum class Side { kLeft, kRight, kBoth };
// Removes white space.
std::string_view Strip(std::string_view text, Side side);
// Removes every leading or trailing code point that occurs in `chars`.
std::string_view StripChars(std::string_view text, std::string_view chars, Side side);

// At most `max` cuts, from the left or from the right; max < 0: no bound.
std::vector<std::string_view> SplitSpaces(std::string_view text, int64_t max, bool from_right);
// `separator` is not empty.
std::vector<std::string_view> SplitBy(std::string_view text, std::string_view separator, int64_t max,
                                      bool from_right);
// At every line end that Python's str.splitlines knows; line ends are dropped unless `keep_ends`.
std::vector<std::string_view> SplitLines(std::string_view text, bool keep_ends);

// At most `max` replacements from the left; max < 0: all. An empty `from` stands between all code points. The
// result may have up to max_bytes; false when it would be longer.
bool Replace(std::string_view text, std::string_view from, std::string_view to, int64_t max, size_t max_bytes,
             std::string* out);

// Simple (one to one) case mappings; only the capital of U+00DF is SS.
std::string Upper(std::string_view text);
std::string Lower(std::string_view text);
// The first code point to title case, the rest to lower case.
std::string Capitalize(std::string_view text);
// Every letter that follows a non-letter to title case, the other letters to lower case.
std::string Title(std::string_view text);

bool IsUpperCase(char32_t code_point);
bool IsLowerCase(char32_t code_point);
bool IsLetter(char32_t code_point);
bool IsDecimalDigit(char32_t code_point);

}  // namespace snapkv::runtime::jinja
