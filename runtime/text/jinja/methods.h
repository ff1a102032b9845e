// SPDX-License-Identifier: Apache-2.0
// Methods of strings, lists and dicts, as Python has them; those that change their object are not there.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "runtime/text/jinja/arguments.h"
#include "runtime/text/jinja/operations.h"
#include "runtime/text/jinja/value.h"

namespace snapkv::runtime::jinja {

bool HasMethod(const Value& base, std::string_view name);

// base.name(arguments). Errors: no such method (named), wrong arguments, the budget.
absl::StatusOr<Value> CallMethod(const Value& base, const std::string& name, const Arguments& arguments,
                                 Budget* budget);

}  // namespace snapkv::runtime::jinja
