// SPDX-License-Identifier: Apache-2.0
// The functions that every template can call.
#include "runtime/text/jinja/functions.h"

#include <limits>
#include <string>
#include <utility>

#include "kernels/base/status.h"

namespace snapkv::runtime::jinja {

absl::StatusOr<Value> Functions::Call(std::string_view name, const Arguments& arguments) const {
  if (name == "raise_exception") return Raise(arguments);
  if (name == "strftime_now") return StrftimeNow(arguments);
  if (name == "namespace") return MakeNamespace(arguments);
  if (name == "range") return Range(arguments);
  return MakeDict(arguments);
}

absl::StatusOr<Value> Functions::Raise(const Arguments& arguments) const {
  ASSIGN_OR_RETURN(const BoundArguments args, Bind("function 'raise_exception'", arguments, {"message"}, 1));
  ASSIGN_OR_RETURN(const std::string message, ToString(args[0], budget));
  return InvalidArgument("the template refuses the messages: ", message);
}

absl::StatusOr<Value> Functions::StrftimeNow(const Arguments& arguments) const {
  ASSIGN_OR_RETURN(const BoundArguments args, Bind("function 'strftime_now'", arguments, {"format"}, 1));
  ASSIGN_OR_RETURN(const std::string format, args.StringOr(0, ""));
  constexpr size_t kMaxBytes = 256;
  std::tm local{};
  if (localtime_r(&now, &local) == nullptr) return Internal("the current time has no calendar date");
  char text[kMaxBytes];
  // The mark tells an empty result from one that is too long.
  const size_t length = std::strftime(text, kMaxBytes, (format + "|").c_str(), &local);
  if (length == 0)
    return InvalidArgument("function 'strftime_now': the result is longer than ", kMaxBytes, " bytes");
  return MakeString(std::string(text, length - 1), budget);
}

absl::StatusOr<Value> Functions::MakeNamespace(const Arguments& arguments) const {
  NamespaceData data;
  if (arguments.positional.size() > 1 ||
      (arguments.positional.size() == 1 && !arguments.positional[0].is_dict())) {
    return InvalidArgument("function 'namespace' takes named arguments, or one dict");
  }
  if (!arguments.positional.empty()) {
    RETURN_IF_ERROR(budget->ChargeElements(arguments.positional[0].as_dict().size()));
    for (const auto& [key, value] : arguments.positional[0].as_dict()) {
      if (!key.is_string()) return InvalidArgument("function 'namespace' needs a dict with string keys");
      data.attributes.emplace_back(key.as_string(), value);
    }
  }
  for (const auto& [name, value] : arguments.named) data.attributes.emplace_back(name, value);
  RETURN_IF_ERROR(budget->ChargeElements(1));
  return Value::Namespace(&namespaces->emplace_back(std::move(data)));
}

absl::StatusOr<Value> Functions::Range(const Arguments& arguments) const {
  if (!arguments.named.empty() || arguments.positional.empty() || arguments.positional.size() > 3) {
    return InvalidArgument("function 'range' takes 1 to 3 integers");
  }
  for (const Value& value : arguments.positional) {
    if (!value.is_integral())
      return InvalidArgument("function 'range' takes integers, not ", value.KindName());
  }
  const auto& given = arguments.positional;
  const int64_t begin = given.size() == 1 ? 0 : given[0].as_int();
  const int64_t end = given.size() == 1 ? given[0].as_int() : given[1].as_int();
  const int64_t step = given.size() == 3 ? given[2].as_int() : 1;
  if (step == 0) return InvalidArgument("function 'range': the step is 0");
  uint64_t count = 0;
  if (step > 0 ? begin < end : begin > end) {
    // Unsigned differences cannot overflow.
    const uint64_t span = step > 0 ? static_cast<uint64_t>(end) - static_cast<uint64_t>(begin)
                                   : static_cast<uint64_t>(begin) - static_cast<uint64_t>(end);
    const uint64_t stride =
        step > 0 ? static_cast<uint64_t>(step) : uint64_t{0} - static_cast<uint64_t>(step);
    count = (span - 1) / stride + 1;
  }
  RETURN_IF_ERROR(budget->ChargeElements(count));
  ValueList items;
  items.reserve(count);
  for (uint64_t i = 0; i < count; ++i) {
    items.push_back(
        Value::Int(static_cast<int64_t>(static_cast<uint64_t>(begin) + i * static_cast<uint64_t>(step))));
  }
  return Value::List(std::move(items));
}

absl::StatusOr<Value> Functions::MakeDict(const Arguments& arguments) const {
  if (!arguments.positional.empty()) return InvalidArgument("function 'dict' takes named arguments only");
  const uint64_t size = arguments.named.size();
  RETURN_IF_ERROR(budget->Charge(size * size));
  ValueDict entries;
  for (const auto& [name, value] : arguments.named) entries.emplace_back(Value::String(name), value);
  return Value::Dict(std::move(entries));
}

}  // namespace snapkv::runtime::jinja
