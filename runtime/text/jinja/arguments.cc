// SPDX-License-Identifier: Apache-2.0
// Matching call arguments to parameters.
#include "runtime/text/jinja/arguments.h"

#include <algorithm>

#include "kernels/base/status.h"

namespace snapkv::runtime::jinja {

absl::StatusOr<int64_t> BoundArguments::IntOr(size_t i, int64_t fallback) const {
  if (!has(i) || values_[i]->is_none()) return fallback;
  if (values_[i]->is_integral()) return values_[i]->as_int();
  return InvalidArgument("argument ", i + 1, " is ", values_[i]->KindName(), ", not an integer");
}

absl::StatusOr<std::string> BoundArguments::StringOr(size_t i, const std::string& fallback) const {
  if (!has(i) || values_[i]->is_none()) return fallback;
  if (values_[i]->is_string()) return values_[i]->as_string();
  return InvalidArgument("argument ", i + 1, " is ", values_[i]->KindName(), ", not a string");
}

absl::StatusOr<BoundArguments> Bind(const std::string& what, const Arguments& arguments,
                                    const std::vector<std::string>& parameters, size_t required) {
  std::vector<std::optional<Value>> values(parameters.size());
  if (arguments.positional.size() > parameters.size()) {
    return InvalidArgument(what, " takes at most ", parameters.size(), " arguments, not ",
                           arguments.positional.size());
  }
  std::copy(arguments.positional.begin(), arguments.positional.end(), values.begin());
  for (const auto& [name, value] : arguments.named) {
    const auto parameter = std::find(parameters.begin(), parameters.end(), name);
    if (parameter == parameters.end()) return InvalidArgument(what, " has no parameter '", name, "'");
    auto& slot = values[parameter - parameters.begin()];
    if (slot.has_value()) return InvalidArgument(what, " is given '", name, "' twice");
    slot = value;
  }
  for (size_t i = 0; i < required; ++i) {
    if (!values[i].has_value()) return InvalidArgument(what, " needs the argument '", parameters[i], "'");
  }
  return BoundArguments(std::move(values));
}

}  // namespace snapkv::runtime::jinja
