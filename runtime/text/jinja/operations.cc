// SPDX-License-Identifier: Apache-2.0
// Operators, attributes, indices and slices.
#include "runtime/text/jinja/operations.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "kernels/base/status.h"
#include "runtime/text/jinja/methods.h"
#include "runtime/text/jinja/strings.h"

namespace snapkv::runtime::jinja {
namespace {

absl::Status Undefined(const Value& value) {
  return InvalidArgument("'", value.undefined_name(), "' is undefined");
}

absl::Status BadOperands(std::string_view op, const Value& a, const Value& b) {
  if (a.is_undefined()) return Undefined(a);
  if (b.is_undefined()) return Undefined(b);
  return InvalidArgument("operator '", std::string(op), "' cannot take ", a.KindName(), " and ",
                         b.KindName());
}

absl::Status Overflow() { return InvalidArgument("an integer leaves the range of 64 bits"); }

absl::StatusOr<Value> PowerOfIntegers(int64_t base, int64_t exponent) {
  if (exponent < 0) return Value::Float(std::pow(static_cast<double>(base), static_cast<double>(exponent)));
  int64_t result = 1;
  while (exponent > 0) {
    if ((exponent & 1) != 0 && __builtin_mul_overflow(result, base, &result)) return Overflow();
    exponent >>= 1;
    if (exponent > 0 && __builtin_mul_overflow(base, base, &base)) return Overflow();
  }
  return Value::Int(result);
}

// Division that rounds down, as Python's // and % do.
absl::StatusOr<Value> DivideIntegers(std::string_view op, int64_t a, int64_t b) {
  if (b == 0) return InvalidArgument("division by zero");
  if (op == "/") return Value::Float(static_cast<double>(a) / static_cast<double>(b));
  if (b == -1) {
    int64_t negated = 0;
    if (op == "%") return Value::Int(0);
    if (__builtin_sub_overflow(int64_t{0}, a, &negated)) return Overflow();
    return Value::Int(negated);
  }
  const bool rounds_down = a % b != 0 && ((a < 0) != (b < 0));
  return Value::Int(op == "//" ? a / b - (rounds_down ? 1 : 0) : a % b + (rounds_down ? b : 0));
}

absl::StatusOr<Value> BinaryIntegers(std::string_view op, int64_t a, int64_t b) {
  int64_t result = 0;
  bool overflow = false;
  if (op == "+") {
    overflow = __builtin_add_overflow(a, b, &result);
  } else if (op == "-") {
    overflow = __builtin_sub_overflow(a, b, &result);
  } else if (op == "*") {
    overflow = __builtin_mul_overflow(a, b, &result);
  } else if (op == "**") {
    return PowerOfIntegers(a, b);
  } else {
    return DivideIntegers(op, a, b);
  }
  if (overflow) return Overflow();
  return Value::Int(result);
}

absl::StatusOr<Value> BinaryFloats(std::string_view op, double a, double b) {
  if (op == "+") return Value::Float(a + b);
  if (op == "-") return Value::Float(a - b);
  if (op == "*") return Value::Float(a * b);
  if (op == "**") return Value::Float(std::pow(a, b));
  if (b == 0) return InvalidArgument("division by zero");
  if (op == "/") return Value::Float(a / b);
  if (op == "//") return Value::Float(std::floor(a / b));
  double rest = std::fmod(a, b);
  if (rest != 0 && (rest < 0) != (b < 0)) rest += b;
  return Value::Float(rest);
}

absl::StatusOr<Value> Repeat(const Value& sequence, int64_t count, Budget* budget) {
  const uint64_t times = count < 0 ? 0 : static_cast<uint64_t>(count);
  const uint64_t size = sequence.is_string() ? sequence.as_string().size() : sequence.as_list().size();
  if (size > 0 && times > budget->left() / size) return budget->Charge(std::numeric_limits<uint64_t>::max());
  if (sequence.is_string()) {
    RETURN_IF_ERROR(budget->Charge(times * size));
    std::string text;
    for (uint64_t i = 0; size > 0 && i < times; ++i) text += sequence.as_string();
    return Value::String(std::move(text));
  }
  RETURN_IF_ERROR(budget->ChargeElements(times * size));
  ValueList items;
  for (uint64_t i = 0; size > 0 && i < times; ++i) {
    items.insert(items.end(), sequence.as_list().begin(), sequence.as_list().end());
  }
  return Value::List(std::move(items), sequence.is_tuple());
}

absl::StatusOr<Value> AddLists(const Value& a, const Value& b, Budget* budget) {
  ValueList items = a.as_list();
  items.insert(items.end(), b.as_list().begin(), b.as_list().end());
  return MakeList(std::move(items), budget, a.is_tuple());
}

absl::StatusOr<bool> Contains(const Value& container, const Value& item, Budget* budget) {
  switch (container.kind()) {
    case Value::Kind::kUndefined:
      return false;
    case Value::Kind::kString:
      if (!item.is_string()) break;
      RETURN_IF_ERROR(budget->ChargeSearch(container.as_string().size(), item.as_string().size()));
      return container.as_string().find(item.as_string()) != std::string::npos;
    case Value::Kind::kList:
      RETURN_IF_ERROR(budget->Charge(container.weight()));
      return std::any_of(container.as_list().begin(), container.as_list().end(),
                         [&](const Value& element) { return Equal(element, item); });
    case Value::Kind::kDict:
      RETURN_IF_ERROR(budget->Charge(container.as_dict().size()));
      return container.Find(item) != nullptr;
    default:
      break;
  }
  return BadOperands("in", item, container);
}

absl::StatusOr<Value> LoopAttribute(const LoopData& loop, const std::string& name) {
  const auto length = static_cast<int64_t>(loop.items.as_list().size());
  const auto index0 = static_cast<int64_t>(loop.index0);
  if (name == "index") return Value::Int(index0 + 1);
  if (name == "index0") return Value::Int(index0);
  if (name == "revindex") return Value::Int(length - index0);
  if (name == "revindex0") return Value::Int(length - index0 - 1);
  if (name == "first") return Value::Bool(index0 == 0);
  if (name == "last") return Value::Bool(index0 + 1 == length);
  if (name == "length") return Value::Int(length);
  if (name == "depth") return Value::Int(1);  // counts recursive loops only
  if (name == "depth0") return Value::Int(0);
  if (name == "previtem")
    return index0 == 0 ? Value::Undefined("loop.previtem") : loop.items.as_list()[index0 - 1];
  if (name == "nextitem") {
    return index0 + 1 == length ? Value::Undefined("loop.nextitem") : loop.items.as_list()[index0 + 1];
  }
  return InvalidArgument("the loop variable has no attribute '", name, "'");
}

// A slice bound: none or undefined takes `fallback`; negative ones count from the end; clamped to [low,
// high].
absl::StatusOr<int64_t> SliceBound(const Value& bound, int64_t length, int64_t fallback, int64_t low,
                                   int64_t high) {
  if (bound.is_undefined() || bound.is_none()) return fallback;
  if (!bound.is_integral()) return InvalidArgument("a slice bound is ", bound.KindName(), ", not an integer");
  int64_t value = bound.as_int();
  if (value < 0) value += length;
  return std::clamp(value, low, high);
}

}  // namespace

absl::Status Budget::Charge(uint64_t work) {
  if (work <= left_) {
    left_ -= work;
    return absl::OkStatus();
  }
  left_ = 0;
  return ResourceExhausted("the template does more work than its ", limit_,
                           " steps (endless loop or endlessly growing text?)");
}

absl::Status Budget::ChargeElements(uint64_t count) {
  return Charge(count > left_ / kElementCost ? std::numeric_limits<uint64_t>::max() : count * kElementCost);
}

absl::Status Budget::ChargeSearch(uint64_t text_bytes, uint64_t pattern_bytes) {
  constexpr uint64_t kBytesPerStep = 32;  // a memcmp compares about that many at once
  const uint64_t per_place = 1 + pattern_bytes / kBytesPerStep;
  return Charge(text_bytes > left_ / per_place ? std::numeric_limits<uint64_t>::max()
                                               : text_bytes * per_place);
}

absl::StatusOr<Value> MakeList(ValueList items, Budget* budget, bool is_tuple) {
  RETURN_IF_ERROR(budget->ChargeElements(items.size()));
  return Value::List(std::move(items), is_tuple);
}

absl::StatusOr<Value> MakeString(std::string text, Budget* budget) {
  RETURN_IF_ERROR(budget->Charge(text.size()));
  return Value::String(std::move(text));
}

absl::StatusOr<std::string> ToString(const Value& value, Budget* budget) {
  RETURN_IF_ERROR(budget->Charge(value.weight()));
  std::string out;
  RETURN_IF_ERROR(AppendStr(value, &out));
  return out;
}

absl::StatusOr<Value> Binary(std::string_view op, const Value& a, const Value& b, Budget* budget) {
  if (op == "~") {
    ASSIGN_OR_RETURN(std::string text, ToString(a, budget));
    ASSIGN_OR_RETURN(const std::string right, ToString(b, budget));
    return Value::String(std::move(text.append(right)));
  }
  if (a.is_number() && b.is_number()) {
    if (a.is_integral() && b.is_integral()) return BinaryIntegers(op, a.as_int(), b.as_int());
    return BinaryFloats(op, a.as_double(), b.as_double());
  }
  if (op == "+" && a.is_string() && b.is_string()) {
    RETURN_IF_ERROR(budget->Charge(a.as_string().size() + b.as_string().size()));
    return Value::String(a.as_string() + b.as_string());
  }
  if (op == "+" && a.is_list() && b.is_list() && a.is_tuple() == b.is_tuple()) return AddLists(a, b, budget);
  if (op == "*" && (a.is_string() || a.is_list()) && b.is_integral()) return Repeat(a, b.as_int(), budget);
  if (op == "*" && (b.is_string() || b.is_list()) && a.is_integral()) return Repeat(b, a.as_int(), budget);
  return BadOperands(op, a, b);
}

absl::StatusOr<Value> Unary(std::string_view op, const Value& a) {
  if (a.is_undefined()) return Undefined(a);
  if (a.is_float()) return Value::Float(op == "-" ? -a.as_double() : a.as_double());
  if (a.is_integral()) return BinaryIntegers(op, 0, a.as_int());
  return InvalidArgument("operator '", std::string(op), "' cannot take ", a.KindName());
}

absl::StatusOr<bool> CompareBy(std::string_view op, const Value& a, const Value& b, Budget* budget) {
  if (op == "in") return Contains(b, a, budget);
  if (op == "not in") {
    ASSIGN_OR_RETURN(const bool contains, Contains(b, a, budget));
    return !contains;
  }
  RETURN_IF_ERROR(budget->Charge(std::min(a.weight(), b.weight())));
  if (op == "==") return Equal(a, b);
  if (op == "!=") return !Equal(a, b);
  if (a.is_undefined()) return Undefined(a);
  if (b.is_undefined()) return Undefined(b);
  ASSIGN_OR_RETURN(const int order, Compare(a, b));
  if (op == "<") return order < 0;
  if (op == "<=") return order <= 0;
  if (op == ">") return order > 0;
  return order >= 0;
}

absl::StatusOr<Value> GetAttribute(const Value& base, const std::string& name) {
  switch (base.kind()) {
    case Value::Kind::kUndefined:
      return InvalidArgument("'", base.undefined_name(), "' is undefined, so it has no '", name, "'");
    case Value::Kind::kDict:
      if (const Value* found = base.Find(name)) return *found;
      break;
    case Value::Kind::kNamespace:
      for (const auto& [key, value] : base.as_namespace()->attributes) {
        if (key == name) return value;
      }
      break;
    case Value::Kind::kLoop:
      return LoopAttribute(*base.as_loop(), name);
    default:
      break;
  }
  if (HasMethod(base, name))
    return InvalidArgument("the method '", name, "' of ", base.KindName(), " is not called");
  return Value::Undefined(name);
}

absl::StatusOr<Value> GetItem(const Value& base, const Value& key, Budget* budget) {
  if (base.is_undefined()) {
    return InvalidArgument("'", base.undefined_name(), "' is undefined, so it has no items");
  }
  if (base.is_dict()) {
    RETURN_IF_ERROR(budget->Charge(base.as_dict().size()));
    if (const Value* found = base.Find(key)) return *found;
    return Value::Undefined(key.is_string() ? key.as_string() : "dict item");
  }
  if (base.is_list() && key.is_integral()) {
    const auto size = static_cast<int64_t>(base.as_list().size());
    const int64_t index = key.as_int() < 0 ? key.as_int() + size : key.as_int();
    if (index >= 0 && index < size) return base.as_list()[index];
    return Value::Undefined(absl::StrCat("list item ", key.as_int()));
  }
  if (base.is_string() && key.is_integral()) {
    RETURN_IF_ERROR(budget->Charge(base.as_string().size()));
    const auto points = CodePoints(base.as_string());
    const auto size = static_cast<int64_t>(points.size());
    const int64_t index = key.as_int() < 0 ? key.as_int() + size : key.as_int();
    if (index >= 0 && index < size) return Value::String(std::string(points[index]));
    return Value::Undefined(absl::StrCat("string item ", key.as_int()));
  }
  if (key.is_string() && (base.kind() == Value::Kind::kNamespace || base.kind() == Value::Kind::kLoop)) {
    return GetAttribute(base, key.as_string());
  }
  return Value::Undefined(key.is_string() ? key.as_string() : absl::StrCat("item of ", base.KindName()));
}

absl::StatusOr<Value> GetSlice(const Value& base, const Value& begin, const Value& end, const Value& step,
                               Budget* budget) {
  if (base.is_undefined()) return Undefined(base);
  if (!base.is_list() && !base.is_string()) return InvalidArgument(base.KindName(), " cannot be sliced");
  int64_t stride = 1;
  if (!step.is_undefined() && !step.is_none()) {
    if (!step.is_integral() || step.as_int() == 0)
      return InvalidArgument("a slice step is not a non-zero integer");
    stride = step.as_int();
  }
  RETURN_IF_ERROR(budget->Charge(base.is_string() ? base.as_string().size() : base.as_list().size()));
  const std::vector<std::string_view> points =
      base.is_string() ? CodePoints(base.as_string()) : std::vector<std::string_view>();
  const auto size = static_cast<int64_t>(base.is_string() ? points.size() : base.as_list().size());
  const int64_t low = stride > 0 ? 0 : -1;
  const int64_t high = stride > 0 ? size : size - 1;
  ASSIGN_OR_RETURN(const int64_t from, SliceBound(begin, size, stride > 0 ? 0 : size - 1, low, high));
  ASSIGN_OR_RETURN(const int64_t to, SliceBound(end, size, stride > 0 ? size : -1, low, high));
  std::string text;
  ValueList items;
  // `to - i` and `stride` have one sign while there is more; the test cannot overflow.
  for (int64_t i = from; stride > 0 ? i < to : i > to;) {
    if (base.is_string()) {
      text += points[i];
    } else {
      items.push_back(base.as_list()[i]);
    }
    if (stride > 0 ? stride >= to - i : stride <= to - i) break;
    i += stride;
  }
  if (base.is_string()) return Value::String(std::move(text));
  return MakeList(std::move(items), budget, base.is_tuple());
}

absl::StatusOr<ValueList> Elements(const Value& value, Budget* budget) {
  ValueList out;
  switch (value.kind()) {
    case Value::Kind::kUndefined:
      return out;
    case Value::Kind::kList:
      RETURN_IF_ERROR(budget->Charge(value.as_list().size()));
      return value.as_list();
    case Value::Kind::kDict:
      RETURN_IF_ERROR(budget->Charge(value.as_dict().size()));
      for (const auto& [key, item] : value.as_dict()) out.push_back(key);
      return out;
    case Value::Kind::kString:
      RETURN_IF_ERROR(budget->ChargeElements(value.as_string().size()));
      for (const std::string_view point : CodePoints(value.as_string())) {
        out.push_back(Value::String(std::string(point)));
      }
      return out;
    default:
      return InvalidArgument(value.KindName(), " cannot be iterated over");
  }
}

absl::StatusOr<int64_t> Length(const Value& value, Budget* budget) {
  switch (value.kind()) {
    case Value::Kind::kUndefined:
      return int64_t{0};
    case Value::Kind::kList:
      return static_cast<int64_t>(value.as_list().size());
    case Value::Kind::kDict:
      return static_cast<int64_t>(value.as_dict().size());
    case Value::Kind::kString:
      RETURN_IF_ERROR(budget->Charge(value.as_string().size()));
      return static_cast<int64_t>(CountCodePoints(value.as_string()));
    default:
      return InvalidArgument(value.KindName(), " has no length");
  }
}

}  // namespace snapkv::runtime::jinja
