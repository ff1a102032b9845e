// SPDX-License-Identifier: Apache-2.0
// One line of JSON as a small tree that knows where each value stands.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "launch/input/document.h"

namespace snapkv::launch {

// A value of a line. Which members count depends on `kind`.
struct JsonValue {
  enum class Kind : uint8_t { kNull, kBool, kInteger, kUnsigned, kReal, kString, kArray, kObject };
  Kind kind = Kind::kNull;
  bool boolean = false;
  int64_t column = 0;              // of its first byte, from 1
  int64_t key_column = 0;          // of an object's member: where its key begins
  int64_t integer = 0;             // kInteger: negative
  uint64_t natural = 0;            // kUnsigned: 0..2^64-1
  double real = 0;                 // kReal: has a fraction or an exponent, or is too large for the others
  std::string text = {};           // kString: UTF-8; kReal: as it is written
  std::string key = {};            // of an object's member
  std::vector<JsonValue> in = {};  // kArray: elements; kObject: members as they are written, keys are unique

  bool is_string() const { return kind == Kind::kString; }
  bool is_array() const { return kind == Kind::kArray; }
  bool is_object() const { return kind == Kind::kObject; }
  bool is_null() const { return kind == Kind::kNull; }
  // The member `name` of an object, or nullptr.
  JsonValue* Find(std::string_view name);
  const JsonValue* Find(std::string_view name) const;
};

// For a message: strings quoted, escaped and cut short, "an array", "an object", others as they are.
std::string Shown(const JsonValue& value);
std::string ShownText(std::string_view text);

inline constexpr int kMaxJsonDepth = 64;
// Far more than any record needs; a line of 32 MiB could hold 16 million, at over 100 bytes each.
inline constexpr int64_t kMaxJsonValues = 100'000;

// Parses a line that must be a JSON object. Not kept, at any size: the value of the outermost member
// `ignored`. Error: LINE_INVALID with the column: NUL bytes, ill-formed UTF-8, malformed JSON, another value
// than an object, more than kMaxJsonDepth levels or kMaxJsonValues values, the same key twice in one object.
DocumentError ParseJsonLine(std::string_view line, std::string_view ignored, JsonValue& value);

}  // namespace snapkv::launch
