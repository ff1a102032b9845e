// SPDX-License-Identifier: Apache-2.0
// What operators, attributes and indices do with values, and the budget that bounds a rendering.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/text/jinja/value.h"

namespace snapkv::runtime::jinja {

// Counts the work of a rendering: one per step, per byte of text made or walked over, and kElementCost per
// list element made. It bounds time, memory and output of a hostile template.
class Budget {
 public:
  static constexpr uint64_t kElementCost = 64;

  explicit Budget(uint64_t limit) : limit_(limit), left_(limit) {}
  // ResourceExhausted when the budget is used up.
  absl::Status Charge(uint64_t work);
  absl::Status ChargeElements(uint64_t count);
  // For finding `pattern_bytes` in `text_bytes`: the search compares the pattern at every place in the worst
  // case.
  absl::Status ChargeSearch(uint64_t text_bytes, uint64_t pattern_bytes);
  uint64_t left() const { return left_; }

 private:
  uint64_t limit_;
  uint64_t left_;
};

// The messages of all errors below lack the line: the renderer adds it.

// `op`: + - * / // % ** ~. Errors: kinds that do not go together, division by zero, integers beyond 64 bits.
absl::StatusOr<Value> Binary(std::string_view op, const Value& a, const Value& b, Budget* budget);
// `op`: + -.
absl::StatusOr<Value> Unary(std::string_view op, const Value& a);
// `op`: == != < <= > >= in "not in".
absl::StatusOr<bool> CompareBy(std::string_view op, const Value& a, const Value& b, Budget* budget);

// base.name and base[key]: undefined when there is no such thing; an error when the base itself is undefined.
absl::StatusOr<Value> GetAttribute(const Value& base, const std::string& name);
absl::StatusOr<Value> GetItem(const Value& base, const Value& key, Budget* budget);
// Python's slice; an undefined or none bound is left out.
absl::StatusOr<Value> GetSlice(const Value& base, const Value& begin, const Value& end, const Value& step,
                               Budget* budget);

// The elements that a for loop sees: list items, dict keys, code points of a string, nothing of an undefined
// value. Error: the value cannot be iterated over.
absl::StatusOr<ValueList> Elements(const Value& value, Budget* budget);
// len(): code points of a string. Error: the value has no length.
absl::StatusOr<int64_t> Length(const Value& value, Budget* budget);
// AppendStr, charged.
absl::StatusOr<std::string> ToString(const Value& value, Budget* budget);
absl::StatusOr<Value> MakeList(ValueList items, Budget* budget, bool is_tuple = false);
absl::StatusOr<Value> MakeString(std::string text, Budget* budget);

}  // namespace snapkv::runtime::jinja
