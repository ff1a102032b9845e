// SPDX-License-Identifier: Apache-2.0
// The method tables.
#include "runtime/text/jinja/methods.h"

#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

#include "kernels/base/status.h"
#include "runtime/text/jinja/strings.h"
#include "runtime/text/utf8.h"

namespace snapkv::runtime::jinja {
namespace {

struct Call {
  const Value& base;
  const BoundArguments& args;
  Budget* budget;

  const std::string& text() const { return base.as_string(); }
};

struct Method {
  const char* name;
  std::vector<std::string> parameters;
  size_t required;
  bool walks;  // over the whole object, which is charged; other methods charge what they do themselves
  absl::StatusOr<Value> (*run)(const Call& call);
};

absl::StatusOr<Value> MakeStrings(const std::vector<std::string_view>& parts, Budget* budget) {
  ValueList items;
  items.reserve(parts.size());
  for (const std::string_view part : parts) items.push_back(Value::String(std::string(part)));
  return MakeList(std::move(items), budget);
}

template <Side side>
absl::StatusOr<Value> StripMethod(const Call& call) {
  if (!call.args.has(0) || call.args[0].is_none())
    return Value::String(std::string(Strip(call.text(), side)));
  ASSIGN_OR_RETURN(const std::string chars, call.args.StringOr(0, ""));
  return Value::String(std::string(StripChars(call.text(), chars, side)));
}

template <bool from_right>
absl::StatusOr<Value> SplitMethod(const Call& call) {
  ASSIGN_OR_RETURN(const int64_t max, call.args.IntOr(1, -1));
  if (!call.args.has(0) || call.args[0].is_none()) {
    return MakeStrings(SplitSpaces(call.text(), max, from_right), call.budget);
  }
  ASSIGN_OR_RETURN(const std::string separator, call.args.StringOr(0, ""));
  if (separator.empty()) return InvalidArgument("method 'split' needs a separator that is not empty");
  RETURN_IF_ERROR(call.budget->ChargeSearch(call.text().size(), separator.size()));
  return MakeStrings(SplitBy(call.text(), separator, max, from_right), call.budget);
}

absl::StatusOr<Value> SplitLinesMethod(const Call& call) {
  return MakeStrings(SplitLines(call.text(), call.args.TruthyOr(0, false)), call.budget);
}

// startswith and endswith take one string or a tuple of them.
template <bool at_end>
absl::StatusOr<Value> AffixMethod(const Call& call) {
  const ValueList one = {call.args[0]};
  const ValueList& affixes = call.args[0].is_list() ? call.args[0].as_list() : one;
  for (const Value& affix : affixes) {
    if (!affix.is_string()) return InvalidArgument("argument 1 is ", affix.KindName(), ", not a string");
    const std::string_view text = call.text();
    const std::string& wanted = affix.as_string();
    if (at_end ? text.ends_with(wanted) : text.starts_with(wanted)) return Value::Bool(true);
  }
  return Value::Bool(false);
}

template <bool at_end>
absl::StatusOr<Value> RemoveAffixMethod(const Call& call) {
  ASSIGN_OR_RETURN(const std::string affix, call.args.StringOr(0, ""));
  std::string_view text = call.text();
  if (at_end && text.ends_with(affix)) text.remove_suffix(affix.size());
  if (!at_end && text.starts_with(affix)) text.remove_prefix(affix.size());
  return Value::String(std::string(text));
}

template <std::string (*map)(std::string_view)>
absl::StatusOr<Value> MapMethod(const Call& call) {
  return Value::String(map(call.text()));
}

absl::StatusOr<Value> ReplaceMethod(const Call& call) {
  ASSIGN_OR_RETURN(const std::string from, call.args.StringOr(0, ""));
  ASSIGN_OR_RETURN(const std::string to, call.args.StringOr(1, ""));
  ASSIGN_OR_RETURN(const int64_t max, call.args.IntOr(2, -1));
  RETURN_IF_ERROR(call.budget->ChargeSearch(call.text().size(), from.size()));
  std::string out;
  if (!Replace(call.text(), from, to, max, call.budget->left(), &out)) {
    return call.budget->Charge(call.budget->left() + 1);
  }
  return MakeString(std::move(out), call.budget);
}

// Positions count code points.
template <bool from_right>
absl::StatusOr<Value> FindMethod(const Call& call) {
  ASSIGN_OR_RETURN(const std::string wanted, call.args.StringOr(0, ""));
  RETURN_IF_ERROR(call.budget->ChargeSearch(call.text().size(), wanted.size()));
  const size_t at = from_right ? call.text().rfind(wanted) : call.text().find(wanted);
  if (at == std::string::npos) return Value::Int(-1);
  return Value::Int(static_cast<int64_t>(CountCodePoints(std::string_view(call.text()).substr(0, at))));
}

absl::StatusOr<Value> CountMethod(const Call& call) {
  ASSIGN_OR_RETURN(const std::string wanted, call.args.StringOr(0, ""));
  if (wanted.empty()) return Value::Int(static_cast<int64_t>(CountCodePoints(call.text())) + 1);
  RETURN_IF_ERROR(call.budget->ChargeSearch(call.text().size(), wanted.size()));
  int64_t count = 0;
  for (size_t at = call.text().find(wanted); at != std::string::npos;
       at = call.text().find(wanted, at + wanted.size())) {
    ++count;
  }
  return Value::Int(count);
}

absl::StatusOr<Value> JoinMethod(const Call& call) {
  ASSIGN_OR_RETURN(const ValueList items, Elements(call.args[0], call.budget));
  std::string out;
  for (size_t i = 0; i < items.size(); ++i) {
    if (!items[i].is_string()) {
      return InvalidArgument("method 'join' needs strings, but item ", i, " is ", items[i].KindName());
    }
    RETURN_IF_ERROR(call.budget->Charge(call.text().size() + items[i].as_string().size()));
    if (i > 0) out += call.text();
    out += items[i].as_string();
  }
  return Value::String(std::move(out));
}

bool IsAlphanumeric(char32_t c) { return IsLetter(c) || IsDecimalDigit(c); }

template <bool (*is)(char32_t)>
absl::StatusOr<Value> AllAreMethod(const Call& call) {
  const std::string& text = call.text();
  for (size_t pos = 0; pos < text.size();) {
    const Utf8Step step = ReadUtf8(text, pos);
    if (!is(step.code_point)) return Value::Bool(false);
    pos += step.length;
  }
  return Value::Bool(!text.empty());
}

// isupper and islower look at cased characters only, and want at least one.
template <bool (*wanted)(char32_t), bool (*unwanted)(char32_t)>
absl::StatusOr<Value> CaseMethod(const Call& call) {
  bool any = false;
  for (size_t pos = 0; pos < call.text().size();) {
    const Utf8Step step = ReadUtf8(call.text(), pos);
    if (unwanted(step.code_point)) return Value::Bool(false);
    any = any || wanted(step.code_point);
    pos += step.length;
  }
  return Value::Bool(any);
}

absl::StatusOr<Value> ListIndexMethod(const Call& call) {
  const ValueList& items = call.base.as_list();
  for (size_t i = 0; i < items.size(); ++i) {
    if (Equal(items[i], call.args[0])) return Value::Int(static_cast<int64_t>(i));
  }
  return InvalidArgument("method 'index': the value is not in the list");
}

absl::StatusOr<Value> ListCountMethod(const Call& call) {
  const ValueList& items = call.base.as_list();
  return Value::Int(std::count_if(items.begin(), items.end(),
                                  [&](const Value& item) { return Equal(item, call.args[0]); }));
}

absl::StatusOr<Value> DictItemsMethod(const Call& call) {
  ValueList items;
  RETURN_IF_ERROR(call.budget->ChargeElements(call.base.as_dict().size()));
  for (const auto& [key, value] : call.base.as_dict()) {
    ASSIGN_OR_RETURN(Value pair, MakeList({key, value}, call.budget, /*is_tuple=*/true));
    items.push_back(std::move(pair));
  }
  return MakeList(std::move(items), call.budget);
}

absl::StatusOr<Value> DictKeysMethod(const Call& call) {
  ASSIGN_OR_RETURN(ValueList keys, Elements(call.base, call.budget));
  return MakeList(std::move(keys), call.budget);
}

absl::StatusOr<Value> DictValuesMethod(const Call& call) {
  ValueList values;
  RETURN_IF_ERROR(call.budget->ChargeElements(call.base.as_dict().size()));
  for (const auto& [key, value] : call.base.as_dict()) values.push_back(value);
  return MakeList(std::move(values), call.budget);
}

absl::StatusOr<Value> DictGetMethod(const Call& call) {
  RETURN_IF_ERROR(call.budget->Charge(call.base.as_dict().size()));
  if (const Value* found = call.base.Find(call.args[0])) return *found;
  return call.args.has(1) ? call.args[1] : Value::None();
}

const std::vector<Method>& StringMethods() {
  static const auto* kMethods = new std::vector<Method>{
      {"strip", {"chars"}, 0, true, StripMethod<Side::kBoth>},
      {"lstrip", {"chars"}, 0, true, StripMethod<Side::kLeft>},
      {"rstrip", {"chars"}, 0, true, StripMethod<Side::kRight>},
      {"split", {"sep", "maxsplit"}, 0, true, SplitMethod<false>},
      {"rsplit", {"sep", "maxsplit"}, 0, true, SplitMethod<true>},
      {"splitlines", {"keepends"}, 0, true, SplitLinesMethod},
      {"startswith", {"prefix"}, 1, false, AffixMethod<false>},
      {"endswith", {"suffix"}, 1, false, AffixMethod<true>},
      {"removeprefix", {"prefix"}, 1, false, RemoveAffixMethod<false>},
      {"removesuffix", {"suffix"}, 1, false, RemoveAffixMethod<true>},
      {"upper", {}, 0, true, MapMethod<Upper>},
      {"lower", {}, 0, true, MapMethod<Lower>},
      {"title", {}, 0, true, MapMethod<Title>},
      {"capitalize", {}, 0, true, MapMethod<Capitalize>},
      {"replace", {"old", "new", "count"}, 2, true, ReplaceMethod},
      {"find", {"sub"}, 1, true, FindMethod<false>},
      {"rfind", {"sub"}, 1, true, FindMethod<true>},
      {"count", {"sub"}, 1, true, CountMethod},
      {"join", {"iterable"}, 1, true, JoinMethod},
      {"isdigit", {}, 0, true, AllAreMethod<IsDecimalDigit>},
      {"isalpha", {}, 0, true, AllAreMethod<IsLetter>},
      {"isalnum", {}, 0, true, AllAreMethod<IsAlphanumeric>},
      {"isspace", {}, 0, true, AllAreMethod<IsSpace>},
      {"isupper", {}, 0, true, CaseMethod<IsUpperCase, IsLowerCase>},
      {"islower", {}, 0, true, CaseMethod<IsLowerCase, IsUpperCase>},
  };
  return *kMethods;
}

const std::vector<Method>& ListMethods() {
  static const auto* kMethods = new std::vector<Method>{
      {"index", {"value"}, 1, true, ListIndexMethod},
      {"count", {"value"}, 1, true, ListCountMethod},
  };
  return *kMethods;
}

const std::vector<Method>& DictMethods() {
  static const auto* kMethods = new std::vector<Method>{
      {"items", {}, 0, false, DictItemsMethod},
      {"keys", {}, 0, false, DictKeysMethod},
      {"values", {}, 0, false, DictValuesMethod},
      {"get", {"key", "default"}, 1, false, DictGetMethod},
  };
  return *kMethods;
}

const Method* FindMethodOf(const Value& base, std::string_view name) {
  static const auto* kNone = new std::vector<Method>;
  const auto& table = base.is_string() ? StringMethods()
                      : base.is_list() ? ListMethods()
                      : base.is_dict() ? DictMethods()
                                       : *kNone;
  const auto it = std::find_if(table.begin(), table.end(), [&](const Method& m) { return name == m.name; });
  return it == table.end() ? nullptr : &*it;
}

}  // namespace

bool HasMethod(const Value& base, std::string_view name) { return FindMethodOf(base, name) != nullptr; }

absl::StatusOr<Value> CallMethod(const Value& base, const std::string& name, const Arguments& arguments,
                                 Budget* budget) {
  if (base.is_undefined()) {
    return InvalidArgument("'", base.undefined_name(), "' is undefined, so it has no method '", name, "'");
  }
  const Method* method = FindMethodOf(base, name);
  if (method == nullptr) return InvalidArgument(base.KindName(), " has no method '", name, "' here");
  const std::string what = absl::StrCat("method '", name, "'");
  ASSIGN_OR_RETURN(const BoundArguments args, Bind(what, arguments, method->parameters, method->required));
  RETURN_IF_ERROR(budget->Charge(method->walks ? base.weight() : 1));
  for (const Value& argument : arguments.positional) RETURN_IF_ERROR(budget->Charge(argument.weight()));
  return method->run({base, args, budget});
}

}  // namespace snapkv::runtime::jinja
