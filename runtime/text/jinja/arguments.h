// SPDX-License-Identifier: Apache-2.0
// Arguments of a call, and matching them to parameter names.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/text/jinja/value.h"

namespace snapkv::runtime::jinja {

struct Arguments {
  ValueList positional;
  std::vector<std::pair<std::string, Value>> named;
};

// One entry per parameter; nullopt: not given.
class BoundArguments {
 public:
  explicit BoundArguments(std::vector<std::optional<Value>> values) : values_(std::move(values)) {}
  bool has(size_t i) const { return values_[i].has_value(); }
  const Value& operator[](size_t i) const { return *values_[i]; }  // only when has(i)
  bool TruthyOr(size_t i, bool fallback) const { return has(i) ? values_[i]->Truthy() : fallback; }
  // Errors name the parameter's kind: a value of another one.
  absl::StatusOr<int64_t> IntOr(size_t i, int64_t fallback) const;
  absl::StatusOr<std::string> StringOr(size_t i, const std::string& fallback) const;

 private:
  std::vector<std::optional<Value>> values_;
};

// `what` names the callee in errors, e.g. "filter 'join'". Errors: too many arguments, an unknown name, a
// parameter given twice, one of the first `required` missing.
absl::StatusOr<BoundArguments> Bind(const std::string& what, const Arguments& arguments,
                                    const std::vector<std::string>& parameters, size_t required);

}  // namespace snapkv::runtime::jinja
