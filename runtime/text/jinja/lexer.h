// SPDX-License-Identifier: Apache-2.0
// Cuts a template into text and tokens, with the white-space control of Jinja's trim_blocks and
// lstrip_blocks.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace snapkv::runtime::jinja {

struct Token {
  enum class Kind {
    kText,           // text to print as it is
    kVariableBegin,  // {{
    kVariableEnd,
    kBlockBegin,  // {%
    kBlockEnd,
    kName,
    kInt,
    kFloat,
    kString,  // `text` is unescaped
    kOperator,
    kEnd,
  };
  Kind kind;
  int line;  // from 1
  std::string text;
  int64_t int_value = 0;
  double float_value = 0;
};

// The tokens of a whole template; the last one is kEnd. As Jinja with trim_blocks and lstrip_blocks: line
// ends become \n, one \n at the very end is dropped, the first \n after a block or comment is dropped, blanks
// before a block or comment that begins a line are dropped; '-' in a tag strips all white space on its side,
// '+' strips nothing. Comments vanish, {% raw %} is text. Errors name the line: unclosed tag, comment, raw
// block or string, unknown character, a number out of range.
absl::StatusOr<std::vector<Token>> Lex(std::string_view source);

// "chat template, line N: ..." with InvalidArgument.
absl::Status ErrorAt(int line, const std::string& message);

}  // namespace snapkv::runtime::jinja
