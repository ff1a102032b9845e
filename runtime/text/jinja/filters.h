// SPDX-License-Identifier: Apache-2.0
// The template language's filters (x | name) and tests (x is name).
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "runtime/text/jinja/arguments.h"
#include "runtime/text/jinja/operations.h"
#include "runtime/text/jinja/value.h"

namespace snapkv::runtime::jinja {

// Errors: no such filter (named), wrong arguments, a value of the wrong kind, the budget.
absl::StatusOr<Value> ApplyFilter(const std::string& name, const Value& value, const Arguments& arguments,
                                  Budget* budget);

// Errors: no such test (named), wrong arguments, the budget.
absl::StatusOr<bool> ApplyTest(const std::string& name, const Value& value, const ValueList& arguments,
                               Budget* budget);

}  // namespace snapkv::runtime::jinja
