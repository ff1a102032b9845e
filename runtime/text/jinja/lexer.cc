// SPDX-License-Identifier: Apache-2.0
// The template lexer.
#include "runtime/text/jinja/lexer.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <utility>

#include "kernels/base/status.h"
#include "runtime/text/utf8.h"

namespace snapkv::runtime::jinja {
namespace {

bool IsBlank(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }
bool IsDigit(char c) { return c >= '0' && c <= '9'; }
bool IsNameStart(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool IsNamePart(char c) { return IsNameStart(c) || IsDigit(c); }

// \r\n and \r become \n; one \n at the end goes.
std::string NormalizeLines(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      out += '\n';
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    } else {
      out += source[i];
    }
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(NormalizeLines(source)), rest_(source_) {}

  absl::StatusOr<std::vector<Token>> Run() {
    while (pos_ < rest_.size()) {
      const size_t tag = FindTag();
      if (tag == std::string_view::npos) {
        AddText(rest_.substr(pos_));
        Advance(rest_.size());
        break;
      }
      RETURN_IF_ERROR(LexTag(tag));
    }
    Add(Token::Kind::kEnd, "");
    return std::move(tokens_);
  }

 private:
  char At(size_t pos) const { return pos < rest_.size() ? rest_[pos] : '\0'; }
  bool StartsWith(size_t pos, std::string_view text) const { return rest_.substr(pos, text.size()) == text; }

  void Advance(size_t to) {
    line_ += static_cast<int>(std::count(rest_.begin() + pos_, rest_.begin() + to, '\n'));
    pos_ = to;
  }

  void Add(Token::Kind kind, std::string text) { tokens_.push_back({kind, line_, std::move(text), 0, 0}); }
  void AddText(std::string_view text) {
    if (!text.empty()) Add(Token::Kind::kText, std::string(text));
  }

  // The next {{, {% or {#.
  size_t FindTag() const {
    for (size_t at = rest_.find('{', pos_); at != std::string_view::npos; at = rest_.find('{', at + 1)) {
      const char second = At(at + 1);
      if (second == '{' || second == '%' || second == '#') return at;
    }
    return std::string_view::npos;
  }

  // The text before a tag, stripped as the tag demands.
  std::string_view TextBefore(size_t tag) const {
    std::string_view text = rest_.substr(pos_, tag - pos_);
    const char sign = At(tag + 2);
    if (sign == '-') {
      while (!text.empty() && IsBlank(text.back())) text.remove_suffix(1);
      return text;
    }
    if (sign == '+' || At(tag + 1) == '{') return text;
    const size_t line_break = text.rfind('\n');
    const bool line_starts_before = pos_ == 0 || rest_[pos_ - 1] == '\n';
    if (line_break == std::string_view::npos && !line_starts_before) return text;
    const size_t line_start = line_break == std::string_view::npos ? 0 : line_break + 1;
    const bool blank = std::all_of(text.begin() + line_start, text.end(), IsBlank);
    return blank ? text.substr(0, line_start) : text;
  }

  // Where the text after a tag's end begins. `sign` stood before the end.
  size_t SkipAfter(size_t end, char sign, bool trims_newline) const {
    if (sign == '-') {
      while (end < rest_.size() && IsBlank(rest_[end])) ++end;
    } else if (trims_newline && sign != '+' && At(end) == '\n') {
      ++end;
    }
    return end;
  }

  absl::Status LexTag(size_t tag) {
    AddText(TextBefore(tag));
    Advance(tag);
    const char kind = At(tag + 1);
    const bool signed_begin = At(tag + 2) == '-' || (At(tag + 2) == '+' && kind != '{');
    const size_t inside = tag + 2 + (signed_begin ? 1 : 0);
    if (kind == '#') return SkipComment(inside);
    if (kind == '%') {
      ASSIGN_OR_RETURN(const bool raw, LexRaw(inside));
      if (raw) return absl::OkStatus();
    }
    Add(kind == '%' ? Token::Kind::kBlockBegin : Token::Kind::kVariableBegin, "");
    Advance(inside);
    return LexInside(kind == '%');
  }

  absl::Status SkipComment(size_t inside) {
    const size_t end = rest_.find("#}", inside);
    if (end == std::string_view::npos) return ErrorAt(line_, "a comment '{#' is never closed by '#}'");
    const char sign = end > inside ? rest_[end - 1] : '\0';
    Advance(SkipAfter(end + 2, sign, /*trims_newline=*/true));
    return absl::OkStatus();
  }

  size_t SkipBlanks(size_t pos) const {
    while (pos < rest_.size() && IsBlank(rest_[pos])) ++pos;
    return pos;
  }

  // {% raw %} ... {% endraw %}; false when the tag is another one.
  absl::StatusOr<bool> LexRaw(size_t inside) {
    size_t pos = SkipBlanks(inside);
    if (!StartsWith(pos, "raw") || IsNamePart(At(pos + 3))) return false;
    pos = SkipBlanks(pos + 3);
    const char sign = At(pos) == '-' ? '-' : '\0';
    if (sign == '-') ++pos;
    if (!StartsWith(pos, "%}")) return false;
    const size_t begin = SkipAfter(pos + 2, sign, /*trims_newline=*/false);
    for (size_t tag = rest_.find("{%", begin); tag != std::string_view::npos;
         tag = rest_.find("{%", tag + 1)) {
      size_t end = tag + 2;
      if (At(end) == '-' || At(end) == '+') ++end;
      end = SkipBlanks(end);
      if (!StartsWith(end, "endraw")) continue;
      end = SkipBlanks(end + 6);
      char end_sign = '\0';
      if (At(end) == '-' || At(end) == '+') end_sign = rest_[end++];
      if (!StartsWith(end, "%}")) continue;
      Advance(begin);
      AddText(TextBefore(tag));
      Advance(SkipAfter(end + 2, end_sign, /*trims_newline=*/true));
      return true;
    }
    return ErrorAt(line_, "'{% raw %}' is never closed by '{% endraw %}'");
  }

  // Tokens up to the end of the tag.
  absl::Status LexInside(bool block) {
    const std::string_view end = block ? "%}" : "}}";
    const int begin_line = line_;
    std::string open;  // brackets; inside them '}}' is no end
    while (true) {
      Advance(SkipBlanks(pos_));
      if (pos_ >= rest_.size()) {
        return ErrorAt(begin_line, absl::StrCat("'", block ? "{%" : "{{", "' is never closed by '",
                                                std::string(end), "'"));
      }
      if (open.empty()) {
        const char sign = rest_[pos_] == '-' || (block && rest_[pos_] == '+') ? rest_[pos_] : '\0';
        const size_t at = pos_ + (sign == '\0' ? 0 : 1);
        if (StartsWith(at, end)) {
          Add(block ? Token::Kind::kBlockEnd : Token::Kind::kVariableEnd, "");
          Advance(SkipAfter(at + 2, sign, block));
          return absl::OkStatus();
        }
      }
      RETURN_IF_ERROR(LexToken());
      RETURN_IF_ERROR(TrackBrackets(&open));
    }
  }

  absl::Status TrackBrackets(std::string* open) {
    const Token& token = tokens_.back();
    if (token.kind != Token::Kind::kOperator) return absl::OkStatus();
    const char c = token.text[0];
    if (c == '(' || c == '[' || c == '{') {
      open->push_back(c);
      return absl::OkStatus();
    }
    if (c != ')' && c != ']' && c != '}') return absl::OkStatus();
    const char wanted = c == ')' ? '(' : c == ']' ? '[' : '{';
    if (open->empty() || open->back() != wanted) {
      return ErrorAt(line_, absl::StrCat("'", token.text, "' closes no bracket"));
    }
    open->pop_back();
    return absl::OkStatus();
  }

  absl::Status LexToken() {
    const char c = rest_[pos_];
    if (IsNameStart(c)) {
      size_t end = pos_;
      while (IsNamePart(At(end))) ++end;
      Add(Token::Kind::kName, std::string(rest_.substr(pos_, end - pos_)));
      Advance(end);
      return absl::OkStatus();
    }
    if (IsDigit(c)) return LexNumber();
    if (c == '"' || c == '\'') return LexString();
    static constexpr std::array<std::string_view, 26> kOperators = {
        "//", "**", "==", "!=", ">=", "<=", "+", "-", "*", "/", "%", "~", "[",
        "]",  "(",  ")",  "{",  "}",  ">",  "<", "=", ".", ":", "|", ",", ";"};
    for (const std::string_view op : kOperators) {
      if (!StartsWith(pos_, op)) continue;
      Add(Token::Kind::kOperator, std::string(op));
      Advance(pos_ + op.size());
      return absl::OkStatus();
    }
    const Utf8Step step = ReadUtf8(rest_, pos_);
    return ErrorAt(line_, absl::StrCat("unexpected character '", std::string(rest_.substr(pos_, step.length)),
                                       "' in a tag"));
  }

  // Digits with single underscores between them.
  size_t SkipDigits(size_t pos) const {
    while (IsDigit(At(pos)) || (At(pos) == '_' && IsDigit(At(pos + 1)))) ++pos;
    return pos;
  }

  absl::Status LexNumber() {
    size_t end = SkipDigits(pos_);
    bool is_float = false;
    // After a dot (as in a.0.1) a number is an index, never a fraction.
    const bool after_dot = pos_ > 0 && rest_[pos_ - 1] == '.';
    if (!after_dot && At(end) == '.' && IsDigit(At(end + 1))) {
      is_float = true;
      end = SkipDigits(end + 1);
    }
    const size_t exponent = end + (At(end + 1) == '+' || At(end + 1) == '-' ? 2 : 1);
    if (!after_dot && (At(end) == 'e' || At(end) == 'E') && IsDigit(At(exponent))) {
      is_float = true;
      end = SkipDigits(exponent);
    }
    std::string digits(rest_.substr(pos_, end - pos_));
    digits.erase(std::remove(digits.begin(), digits.end(), '_'), digits.end());
    if (IsNamePart(At(end))) {
      return ErrorAt(line_, absl::StrCat("bad number '", digits, std::string(1, At(end)),
                                         "': only decimal numbers are supported"));
    }
    Token token = {is_float ? Token::Kind::kFloat : Token::Kind::kInt, line_, digits, 0, 0};
    const char* last = digits.data() + digits.size();
    const auto result = is_float ? std::from_chars(digits.data(), last, token.float_value)
                                 : std::from_chars(digits.data(), last, token.int_value);
    if (result.ec != std::errc() || result.ptr != last) {
      return ErrorAt(line_, absl::StrCat("the number ", digits, " is out of range"));
    }
    tokens_.push_back(std::move(token));
    Advance(end);
    return absl::OkStatus();
  }

  absl::Status LexString() {
    const char quote = rest_[pos_];
    const int begin_line = line_;
    std::string text;
    size_t pos = pos_ + 1;
    while (true) {
      if (pos >= rest_.size()) return ErrorAt(begin_line, "a string is never closed");
      const char c = rest_[pos];
      if (c == quote) break;
      if (c != '\\') {
        text += c;
        ++pos;
        continue;
      }
      RETURN_IF_ERROR(LexEscape(&pos, &text));
    }
    Add(Token::Kind::kString, std::move(text));
    Advance(pos + 1);
    return absl::OkStatus();
  }

  // A backslash at *pos: Python's escapes, unknown ones stay as they are.
  absl::Status LexEscape(size_t* pos, std::string* text) {
    const char c = At(*pos + 1);
    static constexpr std::string_view kNames = "abfnrtv\\'\"";
    static constexpr std::string_view kValues = "\a\b\f\n\r\t\v\\'\"";
    if (const size_t index = kNames.find(c); index != std::string_view::npos && c != '\0') {
      *text += kValues[index];
      *pos += 2;
      return absl::OkStatus();
    }
    if (c == '\n') {  // a continued line
      *pos += 2;
      return absl::OkStatus();
    }
    if (c >= '0' && c <= '7') return LexCode(pos, 1, 3, 8, text);
    if (c == 'x') return LexCode(pos, 2, 2, 16, text);
    if (c == 'u') return LexCode(pos, 2, 4, 16, text);
    if (c == 'U') return LexCode(pos, 2, 8, 16, text);
    *text += '\\';
    *pos += 1;
    return absl::OkStatus();
  }

  // A code point of up to `digits` digits, *pos + prefix on; hexadecimal ones need all their digits.
  absl::Status LexCode(size_t* pos, size_t prefix, size_t digits, int base, std::string* text) {
    const std::string_view code = rest_.substr(std::min(*pos + prefix, rest_.size()), digits);
    uint32_t value = 0;
    const auto result = std::from_chars(code.data(), code.data() + code.size(), value, base);
    const auto used = static_cast<size_t>(result.ptr - code.data());
    if (used == 0 || (base == 16 && used != digits) || value > 0x10FFFF ||
        (value >= 0xD800 && value < 0xE000)) {
      return ErrorAt(line_, "a string has a bad \\x, \\u or \\U escape");
    }
    AppendUtf8(value, text);
    *pos += prefix + used;
    return absl::OkStatus();
  }

  const std::string source_;
  const std::string_view rest_;  // all of source_
  size_t pos_ = 0;
  int line_ = 1;
  std::vector<Token> tokens_;
};

}  // namespace

absl::Status ErrorAt(int line, const std::string& message) {
  return InvalidArgument("chat template, line ", line, ": ", message);
}

absl::StatusOr<std::vector<Token>> Lex(std::string_view source) { return Lexer(source).Run(); }

}  // namespace snapkv::runtime::jinja
