// SPDX-License-Identifier: Apache-2.0
// Types and ranges of the fields of a record.
#include "launch/input/record_fields.h"

#include "kernels/base/status.h"
#include "runtime/text/utf8.h"

namespace snapkv::launch {
namespace {

std::string RangeText(const RealRange& range) {
  return absl::StrCat("a number ", range.least_excluded ? "above " : "from ", range.least,
                      range.most_excluded ? " to below " : " to ", range.most);
}

double NumberOf(const JsonValue& value) {
  switch (value.kind) {
    case JsonValue::Kind::kInteger:
      return static_cast<double>(value.integer);
    case JsonValue::Kind::kUnsigned:
      return static_cast<double>(value.natural);
    default:
      return value.real;
  }
}

}  // namespace

DocumentError RecordError(const std::string& reason, int64_t column, const std::string& message) {
  return {InvalidArgument(message), reason, 0, column};
}

DocumentError BadField(const std::string& name, const JsonValue& value, const std::string& expected) {
  return RecordError("PARAMETER_INVALID", value.column,
                     absl::StrCat("field '", name, "' is ", Shown(value), ", expected ", expected));
}

DocumentError MissingField(const std::string& name, const JsonValue& object, const std::string& expected) {
  return RecordError("PARAMETER_INVALID", object.column,
                     absl::StrCat("field '", name, "' is missing, expected ", expected));
}

DocumentError UnknownField(const std::string& name, const JsonValue& value, const std::string& known) {
  return RecordError("PARAMETER_INVALID", value.key_column,
                     absl::StrCat("field ", ShownText(name), " is not known; known are ", known));
}

DocumentError ReadInteger(const std::string& name, const JsonValue& value, int64_t least, int64_t most,
                          int64_t& out) {
  const bool natural = value.kind == JsonValue::Kind::kUnsigned && value.natural <= uint64_t{INT64_MAX};
  const int64_t number = natural ? static_cast<int64_t>(value.natural) : value.integer;
  if ((!natural && value.kind != JsonValue::Kind::kInteger) || number < least || number > most) {
    return BadField(name, value, absl::StrCat("an integer from ", least, " to ", most));
  }
  out = number;
  return {};
}

DocumentError ReadUnsigned(const std::string& name, const JsonValue& value, uint64_t& out) {
  if (value.kind == JsonValue::Kind::kInteger && value.integer == 0) {  // "-0"
    out = 0;
    return {};
  }
  if (value.kind != JsonValue::Kind::kUnsigned) {
    return BadField(name, value, absl::StrCat("an integer from 0 to ", UINT64_MAX));
  }
  out = value.natural;
  return {};
}

DocumentError ReadReal(const std::string& name, const JsonValue& value, const RealRange& range, double& out) {
  const bool number = value.kind == JsonValue::Kind::kInteger || value.kind == JsonValue::Kind::kUnsigned ||
                      value.kind == JsonValue::Kind::kReal;
  const double real = NumberOf(value);
  const bool low = range.least_excluded ? real <= range.least : real < range.least;
  const bool high = range.most_excluded ? real >= range.most : real > range.most;
  if (!number || low || high) return BadField(name, value, RangeText(range));
  out = real == 0 ? 0 : real;  // no minus zero
  return {};
}

DocumentError ReadString(const std::string& name, const JsonValue& value, std::string& out) {
  if (!value.is_string()) return BadField(name, value, "a string");
  if (value.text.find('\0') != std::string::npos) return BadField(name, value, "a string without \\u0000");
  out = value.text;
  return {};
}

DocumentError ReadStops(const std::string& name, const JsonValue& value, size_t most,
                        std::vector<std::string>& out) {
  constexpr char kExpected[] = "a string that is not empty";
  std::vector<std::string> stops;
  if (!value.is_array()) {
    stops.emplace_back();
    if (!value.is_string() || value.text.empty()) {
      return BadField(name, value, absl::StrCat(kExpected, ", or an array of such strings"));
    }
    DocumentError error = ReadString(name, value, stops.back());
    if (!error.ok()) return error;
  } else {
    if (value.in.size() > most) {
      return RecordError("PARAMETER_INVALID", value.column,
                         absl::StrCat("field '", name, "' is an array of ", value.in.size(),
                                      ", expected at most ", most, " strings"));
    }
    for (size_t i = 0; i < value.in.size(); ++i) {
      const std::string element = absl::StrCat(name, "[", i, "]");
      stops.emplace_back();
      if (!value.in[i].is_string() || value.in[i].text.empty()) {
        return BadField(element, value.in[i], kExpected);
      }
      DocumentError error = ReadString(element, value.in[i], stops.back());
      if (!error.ok()) return error;
    }
  }
  out = std::move(stops);
  return {};
}

DocumentError ReadTokenIds(const std::string& name, const JsonValue& value, std::vector<int32_t>& out) {
  if (!value.is_array()) return BadField(name, value, "an array of token ids");
  std::vector<int32_t> ids;
  for (size_t i = 0; i < value.in.size(); ++i) {
    int64_t id = 0;
    DocumentError error = ReadInteger(absl::StrCat(name, "[", i, "]"), value.in[i], 0, INT32_MAX, id);
    if (!error.ok()) return error;
    ids.push_back(static_cast<int32_t>(id));
  }
  out = std::move(ids);
  return {};
}

const char* IdFault(std::string_view id) {
  if (id.empty()) return "is empty";
  if (id.size() > kMaxIdBytes) return "is longer than 512 bytes";
  for (size_t pos = 0; pos < id.size();) {
    const runtime::Utf8Step step = runtime::ReadUtf8(id, pos);
    if (step.code_point < 0x20 || (step.code_point >= 0x7F && step.code_point < 0xA0)) {
      return "has control characters";
    }
    pos += static_cast<size_t>(step.length);
  }
  return nullptr;
}

DocumentError ReadId(const std::string& name, const JsonValue& value, std::string& out) {
  static_assert(kMaxIdBytes == 512);  // the messages say so
  constexpr char kReason[] = "DOCUMENT_ID_INVALID";
  if (!value.is_string()) {
    return RecordError(kReason, value.column,
                       absl::StrCat("field '", name, "' is ", Shown(value), ", expected a string"));
  }
  if (const char* fault = IdFault(value.text); fault != nullptr) {
    return RecordError(kReason, value.column,
                       absl::StrCat("field '", name, "' is ", ShownText(value.text), ", which ", fault,
                                    "; expected 1 to 512 bytes without control characters"));
  }
  out = value.text;
  return {};
}

}  // namespace snapkv::launch
