// SPDX-License-Identifier: Apache-2.0
// How template values print: as Python's str and repr, and as its json.dumps.
#include <utf8proc.h>

#include <charconv>
#include <cmath>
#include <string>

#include "kernels/base/status.h"
#include "runtime/text/jinja/value.h"
#include "runtime/text/utf8.h"

namespace snapkv::runtime::jinja {
namespace {

void AppendHex(uint32_t value, int digits, std::string* out) {
  for (int i = digits - 1; i >= 0; --i) out->push_back("0123456789abcdef"[(value >> (4 * i)) & 15]);
}

// Python's repr of a float: the shortest digits that read back the same, in scientific notation below 1e-4
// and from 1e16 on.
void AppendFloat(double value, std::string* out) {
  if (std::isnan(value)) {
    *out += "nan";
    return;
  }
  if (std::isinf(value)) {
    *out += value < 0 ? "-inf" : "inf";
    return;
  }
  char buffer[64];
  const auto scientific =
      std::to_chars(buffer, buffer + sizeof(buffer), value, std::chars_format::scientific);
  const std::string text(buffer, scientific.ptr);
  const size_t e = text.find('e');
  const int exponent = std::stoi(text.substr(e + 1));
  if (exponent < -4 || exponent >= 16) {
    *out += text;
    return;
  }
  const auto fixed = std::to_chars(buffer, buffer + sizeof(buffer), value, std::chars_format::fixed);
  const std::string plain(buffer, fixed.ptr);
  *out += plain;
  if (plain.find('.') == std::string::npos) *out += ".0";
}

bool IsPrintable(char32_t code_point) {
  if (code_point == ' ') return true;
  switch (utf8proc_category(static_cast<int32_t>(code_point))) {
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_ZS:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
      return false;
    default:
      return true;
  }
}

void AppendReprChar(char32_t code_point, char quote, std::string* out) {
  if (code_point == static_cast<char32_t>(quote) || code_point == '\\') {
    *out += '\\';
    AppendUtf8(code_point, out);
  } else if (code_point == '\n') {
    *out += "\\n";
  } else if (code_point == '\r') {
    *out += "\\r";
  } else if (code_point == '\t') {
    *out += "\\t";
  } else if (IsPrintable(code_point)) {
    AppendUtf8(code_point, out);
  } else if (code_point <= 0xFF) {
    *out += "\\x";
    AppendHex(code_point, 2, out);
  } else if (code_point <= 0xFFFF) {
    *out += "\\u";
    AppendHex(code_point, 4, out);
  } else {
    *out += "\\U";
    AppendHex(code_point, 8, out);
  }
}

void AppendStringRepr(const std::string& text, std::string* out) {
  const bool double_quotes = text.find('\'') != std::string::npos && text.find('"') == std::string::npos;
  const char quote = double_quotes ? '"' : '\'';
  *out += quote;
  for (size_t pos = 0; pos < text.size();) {
    const Utf8Step step = ReadUtf8(text, pos);
    AppendReprChar(step.code_point, quote, out);
    pos += step.length;
  }
  *out += quote;
}

absl::Status AppendRepr(const Value& value, std::string* out) {
  if (value.is_string()) {
    AppendStringRepr(value.as_string(), out);
    return absl::OkStatus();
  }
  if (value.is_undefined()) {
    *out += "Undefined";
    return absl::OkStatus();
  }
  return AppendStr(value, out);
}

absl::Status AppendListRepr(const Value& list, std::string* out) {
  *out += list.is_tuple() ? '(' : '[';
  bool first = true;
  for (const Value& item : list.as_list()) {
    if (!first) *out += ", ";
    first = false;
    RETURN_IF_ERROR(AppendRepr(item, out));
  }
  if (list.is_tuple() && list.as_list().size() == 1) *out += ',';
  *out += list.is_tuple() ? ')' : ']';
  return absl::OkStatus();
}

absl::Status AppendDictRepr(const Value& dict, std::string* out) {
  *out += '{';
  bool first = true;
  for (const auto& [key, item] : dict.as_dict()) {
    if (!first) *out += ", ";
    first = false;
    RETURN_IF_ERROR(AppendRepr(key, out));
    *out += ": ";
    RETURN_IF_ERROR(AppendRepr(item, out));
  }
  *out += '}';
  return absl::OkStatus();
}

void AppendJsonString(const std::string& text, std::string* out) {
  *out += '"';
  for (const char c : text) {
    switch (c) {
      case '"':
        *out += "\\\"";
        break;
      case '\\':
        *out += "\\\\";
        break;
      case '\n':
        *out += "\\n";
        break;
      case '\r':
        *out += "\\r";
        break;
      case '\t':
        *out += "\\t";
        break;
      case '\b':
        *out += "\\b";
        break;
      case '\f':
        *out += "\\f";
        break;
      default:
        if (static_cast<uint8_t>(c) < 0x20) {
          *out += "\\u";
          AppendHex(static_cast<uint8_t>(c), 4, out);
        } else {
          *out += c;
        }
    }
  }
  *out += '"';
}

absl::Status AppendJsonScalar(const Value& value, std::string* out) {
  switch (value.kind()) {
    case Value::Kind::kNone:
      *out += "null";
      return absl::OkStatus();
    case Value::Kind::kBool:
      *out += value.as_bool() ? "true" : "false";
      return absl::OkStatus();
    case Value::Kind::kFloat:
      if (std::isnan(value.as_double())) {
        *out += "NaN";
      } else if (std::isinf(value.as_double())) {
        *out += value.as_double() < 0 ? "-Infinity" : "Infinity";
      } else {
        AppendFloat(value.as_double(), out);
      }
      return absl::OkStatus();
    case Value::Kind::kInt:
      *out += std::to_string(value.as_int());
      return absl::OkStatus();
    case Value::Kind::kString:
      AppendJsonString(value.as_string(), out);
      return absl::OkStatus();
    default:
      return InvalidArgument("tojson cannot express ", value.KindName());
  }
}

class JsonWriter {
 public:
  JsonWriter(int indent, std::string* out) : indent_(indent), out_(out) {}

  absl::Status Write(const Value& value, int level) {
    if (value.is_list()) return WriteList(value, level);
    if (value.is_dict()) return WriteDict(value, level);
    return AppendJsonScalar(value, out_);
  }

 private:
  void NewLine(int level) {
    if (indent_ < 0) return;
    *out_ += '\n';
    out_->append(static_cast<size_t>(indent_) * level, ' ');
  }
  void Separate(bool first) { *out_ += first ? "" : indent_ < 0 ? ", " : ","; }

  absl::Status WriteList(const Value& value, int level) {
    if (value.as_list().empty()) {
      *out_ += "[]";
      return absl::OkStatus();
    }
    *out_ += '[';
    bool first = true;
    for (const Value& item : value.as_list()) {
      Separate(first);
      first = false;
      NewLine(level + 1);
      RETURN_IF_ERROR(Write(item, level + 1));
    }
    NewLine(level);
    *out_ += ']';
    return absl::OkStatus();
  }

  absl::Status WriteDict(const Value& value, int level) {
    if (value.as_dict().empty()) {
      *out_ += "{}";
      return absl::OkStatus();
    }
    *out_ += '{';
    bool first = true;
    for (const auto& [key, item] : value.as_dict()) {
      Separate(first);
      first = false;
      NewLine(level + 1);
      if (key.is_string()) {
        AppendJsonString(key.as_string(), out_);
      } else {
        *out_ += '"';
        RETURN_IF_ERROR(AppendJsonScalar(key, out_));
        *out_ += '"';
      }
      *out_ += ": ";
      RETURN_IF_ERROR(Write(item, level + 1));
    }
    NewLine(level);
    *out_ += '}';
    return absl::OkStatus();
  }

  int indent_;
  std::string* out_;
};

}  // namespace

absl::Status AppendStr(const Value& value, std::string* out) {
  switch (value.kind()) {
    case Value::Kind::kUndefined:
      return absl::OkStatus();
    case Value::Kind::kNone:
      *out += "None";
      return absl::OkStatus();
    case Value::Kind::kBool:
      *out += value.as_bool() ? "True" : "False";
      return absl::OkStatus();
    case Value::Kind::kInt:
      *out += std::to_string(value.as_int());
      return absl::OkStatus();
    case Value::Kind::kFloat:
      AppendFloat(value.as_double(), out);
      return absl::OkStatus();
    case Value::Kind::kString:
      *out += value.as_string();
      return absl::OkStatus();
    case Value::Kind::kList:
      return AppendListRepr(value, out);
    case Value::Kind::kDict:
      return AppendDictRepr(value, out);
    default:
      return InvalidArgument(value.KindName(), " cannot be printed");
  }
}

absl::Status AppendJson(const Value& value, int indent, std::string* out) {
  return JsonWriter(indent, out).Write(value, 0);
}

}  // namespace snapkv::runtime::jinja
