// SPDX-License-Identifier: Apache-2.0
// The fields of a JSONL record: reading one value with its type and range checked, and the messages.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "launch/input/document.h"
#include "launch/input/json_line.h"

namespace snapkv::launch {

// All return an error that names the field, shows the value, says what was expected, and has the value's
// column; `out` is set only without an error. `name` is the field's for messages, e.g. "body.stop".

// An error with this reason (INVALID_ARGUMENT) at a column.
DocumentError RecordError(const std::string& reason, int64_t column, const std::string& message);
DocumentError BadField(const std::string& name, const JsonValue& value, const std::string& expected);
DocumentError MissingField(const std::string& name, const JsonValue& object, const std::string& expected);
// `known`: what there is instead.
DocumentError UnknownField(const std::string& name, const JsonValue& value, const std::string& known);

// An integer (no fraction, no exponent) in [least, most].
DocumentError ReadInteger(const std::string& name, const JsonValue& value, int64_t least, int64_t most,
                          int64_t& out);
DocumentError ReadUnsigned(const std::string& name, const JsonValue& value, uint64_t& out);

struct RealRange {
  double least;
  double most;
  bool least_excluded = false;
  bool most_excluded = false;
};
DocumentError ReadReal(const std::string& name, const JsonValue& value, const RealRange& range, double& out);

// A string without NUL characters; may be empty.
DocumentError ReadString(const std::string& name, const JsonValue& value, std::string& out);
// One string or an array of at most `most`; none may be empty. Replaces what is in `out`.
DocumentError ReadStops(const std::string& name, const JsonValue& value, size_t most,
                        std::vector<std::string>& out);
// An array of integers from 0 to 2^31-1. Replaces what is in `out`.
DocumentError ReadTokenIds(const std::string& name, const JsonValue& value, std::vector<int32_t>& out);

inline constexpr size_t kMaxIdBytes = 512;
// What is wrong with a document's id, or nullptr: empty, over kMaxIdBytes, with control characters (C0, DEL,
// C1). `id` is UTF-8.
const char* IdFault(std::string_view id);
// DOCUMENT_ID_INVALID for anything but a string without fault.
DocumentError ReadId(const std::string& name, const JsonValue& value, std::string& out);

// Members of an object that are read by a function each.
template <class Target>
struct Field {
  const char* name;
  DocumentError (*read)(const std::string& name, JsonValue& value, Target& target);
};

// Reads the members of `object` in their order; the first error counts. `prefix` goes before the names.
template <class Target, size_t n>
DocumentError ReadFields(const Field<Target> (&fields)[n], const std::string& prefix, JsonValue& object,
                         Target& target) {
  for (JsonValue& member : object.in) {
    const Field<Target>* field = nullptr;
    for (const Field<Target>& f : fields) {
      if (member.key == f.name) field = &f;
    }
    if (field == nullptr) {
      std::string known;
      for (const Field<Target>& f : fields) known += (known.empty() ? "" : ", ") + std::string(f.name);
      return UnknownField(prefix + member.key, member, known);
    }
    DocumentError error = field->read(prefix + member.key, member, target);
    if (!error.ok()) return error;
  }
  return {};
}

}  // namespace snapkv::launch
