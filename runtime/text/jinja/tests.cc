// SPDX-License-Identifier: Apache-2.0
// The template language's tests.
#include <string_view>

#include "kernels/base/status.h"
#include "runtime/text/jinja/filters.h"
#include "runtime/text/jinja/strings.h"

namespace snapkv::runtime::jinja {
namespace {

using Kind = Value::Kind;

bool IsCallable(const Value& value) {
  return value.kind() == Kind::kMacro || value.kind() == Kind::kFunction;
}

bool HasElements(const Value& value) {
  return value.is_string() || value.is_list() || value.is_dict() || value.is_undefined();
}

struct SimpleTest {
  std::string_view name;
  bool (*is)(const Value& value);
};

constexpr SimpleTest kSimpleTests[] = {
    {"defined", [](const Value& v) { return !v.is_undefined(); }},
    {"undefined", [](const Value& v) { return v.is_undefined(); }},
    {"none", [](const Value& v) { return v.is_none(); }},
    {"boolean", [](const Value& v) { return v.is_bool(); }},
    {"true", [](const Value& v) { return v.is_bool() && v.as_bool(); }},
    {"false", [](const Value& v) { return v.is_bool() && !v.as_bool(); }},
    {"integer", [](const Value& v) { return v.is_int(); }},
    {"float", [](const Value& v) { return v.is_float(); }},
    {"number", [](const Value& v) { return v.is_number(); }},
    {"string", [](const Value& v) { return v.is_string(); }},
    {"mapping", [](const Value& v) { return v.is_dict(); }},
    {"iterable", HasElements},
    {"sequence", HasElements},
    {"callable", IsCallable},
};

struct ComparingTest {
  std::string_view name;
  const char* op;
};

constexpr ComparingTest kComparingTests[] = {
    {"eq", "=="},      {"equalto", "=="}, {"==", "=="}, {"ne", "!="}, {"!=", "!="}, {"lt", "<"},
    {"lessthan", "<"}, {"<", "<"},        {"le", "<="}, {"<=", "<="}, {"gt", ">"},  {"greaterthan", ">"},
    {">", ">"},        {"ge", ">="},      {">=", ">="}, {"in", "in"},
};

absl::Status CheckCount(const std::string& name, const ValueList& arguments, size_t count) {
  if (arguments.size() == count) return absl::OkStatus();
  return InvalidArgument("test '", name, "' takes ", count, " arguments, not ", arguments.size());
}

absl::StatusOr<bool> IsDivisible(const std::string& name, const Value& value, int64_t divisor, int64_t rest) {
  if (!value.is_integral())
    return InvalidArgument("test '", name, "' needs an integer, not ", value.KindName());
  if (divisor == 0) return InvalidArgument("test '", name, "': division by zero");
  if (divisor == -1) return rest == 0;
  return value.as_int() % divisor == rest || value.as_int() % divisor == -rest;
}

// sameas: the same object. Constants and small values are the same when they are equal and of one kind.
bool IsSame(const Value& a, const Value& b) { return a.kind() == b.kind() && Equal(a, b); }

}  // namespace

absl::StatusOr<bool> ApplyTest(const std::string& name, const Value& value, const ValueList& arguments,
                               Budget* budget) {
  RETURN_IF_ERROR(budget->Charge(1));
  for (const SimpleTest& test : kSimpleTests) {
    if (name != test.name) continue;
    RETURN_IF_ERROR(CheckCount(name, arguments, 0));
    return test.is(value);
  }
  for (const ComparingTest& test : kComparingTests) {
    if (name != test.name) continue;
    RETURN_IF_ERROR(CheckCount(name, arguments, 1));
    return CompareBy(test.op, value, arguments[0], budget);
  }
  if (name == "odd" || name == "even") {
    RETURN_IF_ERROR(CheckCount(name, arguments, 0));
    return IsDivisible(name, value, 2, name == "odd" ? 1 : 0);
  }
  if (name == "divisibleby") {
    RETURN_IF_ERROR(CheckCount(name, arguments, 1));
    if (!arguments[0].is_integral()) return InvalidArgument("test 'divisibleby' needs an integer");
    return IsDivisible(name, value, arguments[0].as_int(), 0);
  }
  if (name == "sameas") {
    RETURN_IF_ERROR(CheckCount(name, arguments, 1));
    RETURN_IF_ERROR(budget->Charge(std::min(value.weight(), arguments[0].weight())));
    return IsSame(value, arguments[0]);
  }
  if (name == "upper" || name == "lower") {
    RETURN_IF_ERROR(CheckCount(name, arguments, 0));
    ASSIGN_OR_RETURN(const std::string text, ToString(value, budget));
    return text == (name == "upper" ? Upper(text) : Lower(text)) && Upper(text) != Lower(text);
  }
  return InvalidArgument("unknown test '", name, "'");
}

}  // namespace snapkv::runtime::jinja
