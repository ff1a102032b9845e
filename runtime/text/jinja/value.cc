// SPDX-License-Identifier: Apache-2.0
// Template values: construction with bounded nesting, truth, equality and order.
#include "runtime/text/jinja/value.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/base/status.h"

namespace snapkv::runtime::jinja {
namespace {

uint64_t SaturatingAdd(uint64_t a, uint64_t b) {
  return a > std::numeric_limits<uint64_t>::max() - b ? std::numeric_limits<uint64_t>::max() : a + b;
}

int Sign(bool less, bool greater) { return greater ? 1 : less ? -1 : 0; }

// An int and a float compare exactly: 2**53 + 1 is not 2.0**53.
int CompareNumbers(const Value& a, const Value& b) {
  if (a.is_integral() && b.is_integral()) return Sign(a.as_int() < b.as_int(), a.as_int() > b.as_int());
  if (a.is_float() && b.is_float()) return Sign(a.as_double() < b.as_double(), a.as_double() > b.as_double());
  if (a.is_float()) return -CompareNumbers(b, a);
  const double right = b.as_double();
  if (right >= 9223372036854775808.0) return -1;
  if (right < -9223372036854775808.0) return 1;
  const double whole = std::floor(right);
  const auto integer = static_cast<int64_t>(whole);
  if (a.as_int() != integer) return a.as_int() < integer ? -1 : 1;
  return right > whole ? -1 : 0;
}

bool IsNan(const Value& value) { return value.is_float() && std::isnan(value.as_double()); }

bool EqualDicts(const Value& a, const Value& b) {
  if (a.as_dict().size() != b.as_dict().size()) return false;
  return std::all_of(a.as_dict().begin(), a.as_dict().end(), [&](const auto& entry) {
    const Value* other = b.Find(entry.first);
    return other != nullptr && Equal(entry.second, *other);
  });
}

}  // namespace

Value Value::Undefined(std::string name) {
  return Value(Data(UndefinedTag{std::make_shared<const std::string>(std::move(name))}));
}

Value Value::String(std::string value) {
  return Value(Data(std::make_shared<const std::string>(std::move(value))));
}

absl::Status Value::Measure(const Value& child, int* depth, uint64_t* weight) {
  *depth = std::max(*depth, child.depth() + 1);
  *weight = SaturatingAdd(*weight, child.weight());
  if (*depth > kMaxNesting) return InvalidArgument("lists or dicts are nested deeper than ", kMaxNesting);
  return absl::OkStatus();
}

absl::StatusOr<Value> Value::List(ValueList items, bool is_tuple) {
  int depth = 1;
  uint64_t weight = 1;
  for (const Value& item : items) RETURN_IF_ERROR(Measure(item, &depth, &weight));
  return Value(Data(std::make_shared<const ListData>(ListData{std::move(items), is_tuple, depth, weight})));
}

absl::StatusOr<Value> Value::Dict(ValueDict entries) {
  int depth = 1;
  uint64_t weight = 1;
  ValueDict unique;
  for (auto& [key, value] : entries) {
    if (!key.is_string() && !key.is_number() && !key.is_none()) {
      return InvalidArgument(key.KindName(), " cannot be the key of a dict");
    }
    RETURN_IF_ERROR(Measure(key, &depth, &weight));
    RETURN_IF_ERROR(Measure(value, &depth, &weight));
    const auto same = std::find_if(unique.begin(), unique.end(),
                                   [&key = key](const auto& entry) { return Equal(entry.first, key); });
    if (same != unique.end()) {
      same->second = std::move(value);
    } else {
      unique.emplace_back(std::move(key), std::move(value));
    }
  }
  return Value(Data(std::make_shared<const DictData>(DictData{std::move(unique), depth, weight})));
}

const char* Value::KindName() const {
  switch (kind()) {
    case Kind::kUndefined:
      return "an undefined value";
    case Kind::kNone:
      return "none";
    case Kind::kBool:
      return "a boolean";
    case Kind::kInt:
      return "an integer";
    case Kind::kFloat:
      return "a float";
    case Kind::kString:
      return "a string";
    case Kind::kList:
      return is_tuple() ? "a tuple" : "a list";
    case Kind::kDict:
      return "a dict";
    case Kind::kNamespace:
      return "a namespace";
    case Kind::kLoop:
      return "a loop variable";
    case Kind::kMacro:
      return "a macro";
    case Kind::kFunction:
      return "a function";
  }
  return "a value";
}

bool Value::is_tuple() const {
  return is_list() && std::get<std::shared_ptr<const ListData>>(data_)->is_tuple;
}

const std::string& Value::undefined_name() const {
  static const std::string kNameless = "value";
  const auto& name = std::get<UndefinedTag>(data_).name;
  return name == nullptr ? kNameless : *name;
}

const ValueList& Value::as_list() const { return std::get<std::shared_ptr<const ListData>>(data_)->items; }
const ValueDict& Value::as_dict() const { return std::get<std::shared_ptr<const DictData>>(data_)->entries; }

int Value::depth() const {
  if (is_list()) return std::get<std::shared_ptr<const ListData>>(data_)->depth;
  if (is_dict()) return std::get<std::shared_ptr<const DictData>>(data_)->depth;
  return 0;
}

uint64_t Value::weight() const {
  if (is_string()) return 1 + as_string().size();
  if (is_list()) return std::get<std::shared_ptr<const ListData>>(data_)->weight;
  if (is_dict()) return std::get<std::shared_ptr<const DictData>>(data_)->weight;
  return 1;
}

const Value* Value::Find(const Value& key) const {
  for (const auto& [name, value] : as_dict()) {
    if (Equal(name, key)) return &value;
  }
  return nullptr;
}

const Value* Value::Find(std::string_view key) const {
  for (const auto& [name, value] : as_dict()) {
    if (name.is_string() && name.as_string() == key) return &value;
  }
  return nullptr;
}

bool Value::Truthy() const {
  switch (kind()) {
    case Kind::kUndefined:
    case Kind::kNone:
      return false;
    case Kind::kBool:
      return as_bool();
    case Kind::kInt:
      return as_int() != 0;
    case Kind::kFloat:
      return as_double() != 0;
    case Kind::kString:
      return !as_string().empty();
    case Kind::kList:
      return !as_list().empty();
    case Kind::kDict:
      return !as_dict().empty();
    default:
      return true;
  }
}

bool Equal(const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) return !IsNan(a) && !IsNan(b) && CompareNumbers(a, b) == 0;
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Value::Kind::kUndefined:
    case Value::Kind::kNone:
      return true;
    case Value::Kind::kString:
      return a.as_string() == b.as_string();
    case Value::Kind::kList:
      return a.is_tuple() == b.is_tuple() && std::equal(a.as_list().begin(), a.as_list().end(),
                                                        b.as_list().begin(), b.as_list().end(), Equal);
    case Value::Kind::kDict:
      return EqualDicts(a, b);
    case Value::Kind::kNamespace:
      return a.as_namespace() == b.as_namespace();
    case Value::Kind::kLoop:
      return a.as_loop() == b.as_loop();
    case Value::Kind::kMacro:
      return a.as_macro() == b.as_macro();
    default:
      return a.as_function() == b.as_function();
  }
}

absl::StatusOr<int> Compare(const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) {
    if (IsNan(a) || IsNan(b)) return InvalidArgument("cannot order NaN");
    return CompareNumbers(a, b);
  }
  // UTF-8 orders as its code points do.
  if (a.is_string() && b.is_string()) {
    const int order = a.as_string().compare(b.as_string());
    return Sign(order<0, order> 0);
  }
  if (a.is_list() && b.is_list() && a.is_tuple() == b.is_tuple()) {
    const size_t common = std::min(a.as_list().size(), b.as_list().size());
    for (size_t i = 0; i < common; ++i) {
      if (!Equal(a.as_list()[i], b.as_list()[i])) return Compare(a.as_list()[i], b.as_list()[i]);
    }
    return Sign(a.as_list().size() < b.as_list().size(), a.as_list().size() > b.as_list().size());
  }
  return InvalidArgument("cannot order ", a.KindName(), " and ", b.KindName());
}

}  // namespace snapkv::runtime::jinja
