// SPDX-License-Identifier: Apache-2.0
// The functions that every template can call.
#pragma once

#include <array>
#include <ctime>
#include <deque>
#include <string_view>

#include "absl/status/statusor.h"
#include "runtime/text/jinja/arguments.h"
#include "runtime/text/jinja/operations.h"
#include "runtime/text/jinja/value.h"

namespace snapkv::runtime::jinja {

inline constexpr std::array<const char*, 5> kFunctionNames = {"raise_exception", "strftime_now", "namespace",
                                                              "range", "dict"};

// What the functions need from a rendering.
struct Functions {
  std::time_t now;
  Budget* budget;
  std::deque<NamespaceData>* namespaces;  // where namespace(...) puts its object

  // `name` is one of kFunctionNames. Errors: raise_exception's message; wrong arguments; the budget.
  absl::StatusOr<Value> Call(std::string_view name, const Arguments& arguments) const;

 private:
  absl::StatusOr<Value> Raise(const Arguments& arguments) const;
  absl::StatusOr<Value> StrftimeNow(const Arguments& arguments) const;
  absl::StatusOr<Value> MakeNamespace(const Arguments& arguments) const;
  absl::StatusOr<Value> Range(const Arguments& arguments) const;
  absl::StatusOr<Value> MakeDict(const Arguments& arguments) const;
};

}  // namespace snapkv::runtime::jinja
