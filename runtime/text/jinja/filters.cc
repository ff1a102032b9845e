// SPDX-License-Identifier: Apache-2.0
// The template language's filters.
#include "runtime/text/jinja/filters.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "kernels/base/status.h"
#include "runtime/text/jinja/methods.h"
#include "runtime/text/jinja/strings.h"

namespace snapkv::runtime::jinja {
namespace {

struct Call {
  const Value& value;
  const BoundArguments& args;
  Budget* budget;
};

struct Filter {
  const char* name;
  std::vector<std::string> parameters;
  size_t required;
  absl::StatusOr<Value> (*run)(const Call& call);
};

// "a.b.0" looked up step by step, as the attribute arguments of filters are.
absl::StatusOr<Value> GetPath(Value value, const std::string& path, Budget* budget) {
  for (const std::string_view part : SplitBy(path, ".", -1, false)) {
    int64_t index = 0;
    const auto number = std::from_chars(part.data(), part.data() + part.size(), index);
    if (!part.empty() && number.ec == std::errc() && number.ptr == part.data() + part.size()) {
      ASSIGN_OR_RETURN(value, GetItem(value, Value::Int(index), budget));
    } else {
      ASSIGN_OR_RETURN(value, GetItem(value, Value::String(std::string(part)), budget));
    }
  }
  return value;
}

absl::StatusOr<Value> TrimFilter(const Call& call) {
  ASSIGN_OR_RETURN(const std::string text, ToString(call.value, call.budget));
  if (!call.args.has(0) || call.args[0].is_none())
    return Value::String(std::string(Strip(text, Side::kBoth)));
  ASSIGN_OR_RETURN(const std::string chars, call.args.StringOr(0, ""));
  return Value::String(std::string(StripChars(text, chars, Side::kBoth)));
}

absl::StatusOr<Value> LengthFilter(const Call& call) {
  ASSIGN_OR_RETURN(const int64_t length, Length(call.value, call.budget));
  return Value::Int(length);
}

template <std::string (*map)(std::string_view)>
absl::StatusOr<Value> MapTextFilter(const Call& call) {
  ASSIGN_OR_RETURN(const std::string text, ToString(call.value, call.budget));
  return Value::String(map(text));
}

absl::StatusOr<Value> JoinFilter(const Call& call) {
  ASSIGN_OR_RETURN(const std::string separator, call.args.StringOr(0, ""));
  ASSIGN_OR_RETURN(const std::string attribute, call.args.StringOr(1, ""));
  ASSIGN_OR_RETURN(const ValueList items, Elements(call.value, call.budget));
  std::string out;
  for (size_t i = 0; i < items.size(); ++i) {
    Value item = items[i];
    if (!attribute.empty()) {
      ASSIGN_OR_RETURN(item, GetPath(std::move(item), attribute, call.budget));
    }
    RETURN_IF_ERROR(call.budget->Charge(separator.size()));
    ASSIGN_OR_RETURN(const std::string text, ToString(item, call.budget));
    if (i > 0) out += separator;
    out += text;
  }
  return Value::String(std::move(out));
}

absl::StatusOr<Value> ToJsonFilter(const Call& call) {
  ASSIGN_OR_RETURN(const int64_t indent, call.args.IntOr(0, -1));
  constexpr int64_t kMaxIndent = 16;
  if (indent > kMaxIndent) return InvalidArgument("filter 'tojson': an indent above ", kMaxIndent);
  // Every element may begin a line that is indented by its nesting.
  const uint64_t spread = indent > 0 ? static_cast<uint64_t>(indent) * Value::kMaxNesting : 1;
  if (call.value.weight() > call.budget->left() / spread) {
    RETURN_IF_ERROR(call.budget->Charge(std::numeric_limits<uint64_t>::max()));
  }
  std::string out;
  RETURN_IF_ERROR(AppendJson(call.value, static_cast<int>(indent), &out));
  return MakeString(std::move(out), call.budget);
}

absl::StatusOr<Value> DefaultFilter(const Call& call) {
  const bool absent = call.value.is_undefined() || (call.args.TruthyOr(1, false) && !call.value.Truthy());
  if (!absent) return call.value;
  return call.args.has(0) ? call.args[0] : Value::String("");
}

template <bool last>
absl::StatusOr<Value> EndFilter(const Call& call) {
  ASSIGN_OR_RETURN(const ValueList items, Elements(call.value, call.budget));
  if (items.empty()) return Value::Undefined(last ? "last item of nothing" : "first item of nothing");
  return last ? items.back() : items.front();
}

absl::StatusOr<Value> ListFilter(const Call& call) {
  ASSIGN_OR_RETURN(ValueList items, Elements(call.value, call.budget));
  return MakeList(std::move(items), call.budget);
}

absl::StatusOr<Value> ReverseFilter(const Call& call) {
  ASSIGN_OR_RETURN(ValueList items, Elements(call.value, call.budget));
  std::reverse(items.begin(), items.end());
  if (!call.value.is_string()) return MakeList(std::move(items), call.budget);
  std::string text;
  for (const Value& item : items) text += item.as_string();
  return Value::String(std::move(text));
}

absl::StatusOr<Value> ReplaceFilter(const Call& call) {
  ASSIGN_OR_RETURN(std::string text, ToString(call.value, call.budget));
  Arguments arguments;
  for (size_t i = 0; i < 3; ++i) {
    if (call.args.has(i)) arguments.positional.push_back(call.args[i]);
  }
  return CallMethod(Value::String(std::move(text)), "replace", arguments, call.budget);
}

absl::StatusOr<Value> StringFilter(const Call& call) {
  if (call.value.is_string()) return call.value;
  ASSIGN_OR_RETURN(std::string text, ToString(call.value, call.budget));
  return Value::String(std::move(text));
}

// The whole string, white space around it aside, as a T.
template <class T>
bool ParseNumber(const std::string& text, T* number) {
  std::string_view digits = Strip(text, Side::kBoth);
  if (digits.size() > 1 && digits[0] == '+' && digits[1] != '-') digits.remove_prefix(1);
  const auto result = std::from_chars(digits.data(), digits.data() + digits.size(), *number);
  return !digits.empty() && result.ec == std::errc() && result.ptr == digits.data() + digits.size();
}

absl::StatusOr<Value> IntFilter(const Call& call) {
  const Value fallback = call.args.has(0) ? call.args[0] : Value::Int(0);
  if (call.value.is_integral()) return Value::Int(call.value.as_int());
  double number = 0;
  if (call.value.is_float()) {
    number = call.value.as_double();
  } else if (call.value.is_string()) {
    RETURN_IF_ERROR(call.budget->Charge(call.value.weight()));
    int64_t integer = 0;
    if (ParseNumber(call.value.as_string(), &integer)) return Value::Int(integer);
    if (!ParseNumber(call.value.as_string(), &number)) return fallback;
  } else {
    return fallback;
  }
  constexpr double kBound = 9223372036854775808.0;
  if (!(number >= -kBound && number < kBound)) return fallback;
  return Value::Int(static_cast<int64_t>(number));
}

absl::StatusOr<Value> FloatFilter(const Call& call) {
  const Value fallback = call.args.has(0) ? call.args[0] : Value::Float(0);
  if (call.value.is_number()) return Value::Float(call.value.as_double());
  double number = 0;
  if (!call.value.is_string()) return fallback;
  RETURN_IF_ERROR(call.budget->Charge(call.value.weight()));
  return ParseNumber(call.value.as_string(), &number) ? Value::Float(number) : fallback;
}

absl::StatusOr<Value> AbsFilter(const Call& call) {
  if (!call.value.is_number())
    return InvalidArgument("filter 'abs' needs a number, not ", call.value.KindName());
  if (call.value.is_float()) return Value::Float(std::fabs(call.value.as_double()));
  return call.value.as_int() < 0 ? Unary("-", call.value) : Value::Int(call.value.as_int());
}

absl::StatusOr<Value> ItemsFilter(const Call& call) {
  if (call.value.is_undefined()) return MakeList({}, call.budget);
  if (!call.value.is_dict())
    return InvalidArgument("filter 'items' needs a dict, not ", call.value.KindName());
  return CallMethod(call.value, "items", {}, call.budget);
}

// What sorting and uniqueness compare: strings without case unless asked for.
absl::StatusOr<Value> SortKey(const Value& item, const std::string& attribute, bool case_sensitive,
                              Budget* budget) {
  Value key = item;
  if (!attribute.empty()) {
    ASSIGN_OR_RETURN(key, GetPath(std::move(key), attribute, budget));
  }
  RETURN_IF_ERROR(budget->Charge(key.weight()));
  if (key.is_string() && !case_sensitive) return Value::String(Lower(key.as_string()));
  return key;
}

// Sorts `items` by `keys`; a stable sort, `reverse` keeps equal items in order as Python does.
absl::StatusOr<Value> SortBy(const ValueList& items, const ValueList& keys, bool reverse, Budget* budget) {
  std::vector<size_t> order(items.size());
  uint64_t weight = 0;
  for (size_t i = 0; i < order.size(); ++i) {
    order[i] = i;
    weight += std::min<uint64_t>(keys[i].weight(), budget->left());
  }
  // Each key takes part in about log2(n) comparisons, at most 64.
  RETURN_IF_ERROR(budget->ChargeElements(weight));
  absl::Status error;
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    const absl::StatusOr<int> compared = Compare(keys[a], keys[b]);
    if (!compared.ok()) {
      error = compared.status();
      return false;
    }
    return reverse ? *compared > 0 : *compared < 0;
  });
  RETURN_IF_ERROR(error);
  ValueList sorted;
  for (const size_t i : order) sorted.push_back(items[i]);
  return MakeList(std::move(sorted), budget);
}

absl::StatusOr<Value> SortFilter(const Call& call) {
  ASSIGN_OR_RETURN(const ValueList items, Elements(call.value, call.budget));
  ASSIGN_OR_RETURN(const std::string attribute, call.args.StringOr(2, ""));
  ValueList keys;
  for (const Value& item : items) {
    ASSIGN_OR_RETURN(Value key, SortKey(item, attribute, call.args.TruthyOr(1, false), call.budget));
    keys.push_back(std::move(key));
  }
  return SortBy(items, keys, call.args.TruthyOr(0, false), call.budget);
}

absl::StatusOr<Value> DictSortFilter(const Call& call) {
  if (!call.value.is_dict())
    return InvalidArgument("filter 'dictsort' needs a dict, not ", call.value.KindName());
  ASSIGN_OR_RETURN(const std::string by, call.args.StringOr(1, "key"));
  if (by != "key" && by != "value")
    return InvalidArgument("filter 'dictsort': by is 'key' or 'value', not '", by, "'");
  ASSIGN_OR_RETURN(const Value pairs, CallMethod(call.value, "items", {}, call.budget));
  ValueList keys;
  for (const Value& pair : pairs.as_list()) {
    const Value& part = pair.as_list()[by == "key" ? 0 : 1];
    ASSIGN_OR_RETURN(Value key, SortKey(part, "", call.args.TruthyOr(0, false), call.budget));
    keys.push_back(std::move(key));
  }
  return SortBy(pairs.as_list(), keys, call.args.TruthyOr(2, false), call.budget);
}

absl::StatusOr<Value> UniqueFilter(const Call& call) {
  ASSIGN_OR_RETURN(const ValueList items, Elements(call.value, call.budget));
  ASSIGN_OR_RETURN(const std::string attribute, call.args.StringOr(1, ""));
  ValueList seen;
  ValueList kept;
  for (const Value& item : items) {
    ASSIGN_OR_RETURN(Value key, SortKey(item, attribute, call.args.TruthyOr(0, false), call.budget));
    RETURN_IF_ERROR(call.budget->Charge(seen.size()));
    RETURN_IF_ERROR(call.budget->ChargeSearch(key.weight(), seen.size()));
    if (std::any_of(seen.begin(), seen.end(), [&](const Value& other) { return Equal(key, other); }))
      continue;
    seen.push_back(std::move(key));
    kept.push_back(item);
  }
  return MakeList(std::move(kept), call.budget);
}

absl::StatusOr<Value> IndentFilter(const Call& call) {
  ASSIGN_OR_RETURN(std::string text, ToString(call.value, call.budget));
  text += '\n';
  std::string indent;
  if (call.args.has(0) && call.args[0].is_string()) {
    indent = call.args[0].as_string();
  } else {
    ASSIGN_OR_RETURN(const int64_t width, call.args.IntOr(0, 4));
    constexpr int64_t kMaxWidth = 1024;
    if (width < 0 || width > kMaxWidth)
      return InvalidArgument("filter 'indent': the width is not in 0..", kMaxWidth);
    indent.assign(static_cast<size_t>(width), ' ');
  }
  const bool first = call.args.TruthyOr(1, false);
  const bool blank = call.args.TruthyOr(2, false);
  const auto lines = SplitLines(text, false);
  RETURN_IF_ERROR(call.budget->ChargeSearch(lines.size(), 32 * (indent.size() + 1)));
  std::string out;
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) out += '\n';
    if (i == 0 ? first : blank || !lines[i].empty()) out += indent;
    out += lines[i];
  }
  return Value::String(std::move(out));
}

absl::StatusOr<Value> SafeFilter(const Call& call) { return call.value; }

const std::vector<Filter>& Filters() {
  static const auto* kFilters = new std::vector<Filter>{
      {"trim", {"chars"}, 0, TrimFilter},
      {"length", {}, 0, LengthFilter},
      {"count", {}, 0, LengthFilter},
      {"upper", {}, 0, MapTextFilter<Upper>},
      {"lower", {}, 0, MapTextFilter<Lower>},
      {"title", {}, 0, MapTextFilter<Title>},
      {"capitalize", {}, 0, MapTextFilter<Capitalize>},
      {"join", {"d", "attribute"}, 0, JoinFilter},
      {"tojson", {"indent"}, 0, ToJsonFilter},
      {"default", {"default_value", "boolean"}, 0, DefaultFilter},
      {"d", {"default_value", "boolean"}, 0, DefaultFilter},
      {"first", {}, 0, EndFilter<false>},
      {"last", {}, 0, EndFilter<true>},
      {"list", {}, 0, ListFilter},
      {"reverse", {}, 0, ReverseFilter},
      {"replace", {"old", "new", "count"}, 2, ReplaceFilter},
      {"string", {}, 0, StringFilter},
      {"int", {"default"}, 0, IntFilter},
      {"float", {"default"}, 0, FloatFilter},
      {"abs", {}, 0, AbsFilter},
      {"items", {}, 0, ItemsFilter},
      {"sort", {"reverse", "case_sensitive", "attribute"}, 0, SortFilter},
      {"dictsort", {"case_sensitive", "by", "reverse"}, 0, DictSortFilter},
      {"unique", {"case_sensitive", "attribute"}, 0, UniqueFilter},
      {"indent", {"width", "first", "blank"}, 0, IndentFilter},
      {"safe", {}, 0, SafeFilter},
  };
  return *kFilters;
}

// select, reject (test of the item) and selectattr, rejectattr (test of an attribute of it).
absl::StatusOr<Value> Select(const std::string& name, const Value& value, const Arguments& arguments,
                             Budget* budget) {
  const bool by_attribute = name == "selectattr" || name == "rejectattr";
  const bool wanted = name == "select" || name == "selectattr";
  if (!arguments.named.empty()) return InvalidArgument("filter '", name, "' has no named parameters");
  ValueList rest = arguments.positional;
  std::string attribute;
  if (by_attribute) {
    if (rest.empty() || !rest[0].is_string())
      return InvalidArgument("filter '", name, "' needs an attribute name");
    attribute = rest[0].as_string();
    rest.erase(rest.begin());
  }
  std::string test;
  if (!rest.empty()) {
    if (!rest[0].is_string()) return InvalidArgument("filter '", name, "' needs the name of a test");
    test = rest[0].as_string();
    rest.erase(rest.begin());
  }
  if (!value.Truthy()) return MakeList({}, budget);  // none as well, as in Jinja
  ASSIGN_OR_RETURN(const ValueList items, Elements(value, budget));
  ValueList kept;
  for (const Value& item : items) {
    Value subject = item;
    if (by_attribute) {
      ASSIGN_OR_RETURN(subject, GetPath(std::move(subject), attribute, budget));
    }
    bool passes = subject.Truthy();
    if (!test.empty()) {
      ASSIGN_OR_RETURN(passes, ApplyTest(test, subject, rest, budget));
    }
    if (passes == wanted) kept.push_back(item);
  }
  return MakeList(std::move(kept), budget);
}

// map(attribute='a', default=x) or map('filter', arguments...).
absl::StatusOr<Value> Map(const Value& value, const Arguments& arguments, Budget* budget) {
  if (!value.Truthy()) return MakeList({}, budget);
  ASSIGN_OR_RETURN(const ValueList items, Elements(value, budget));
  ValueList mapped;
  if (arguments.positional.empty()) {
    ASSIGN_OR_RETURN(const BoundArguments args,
                     Bind("filter 'map'", {{}, arguments.named}, {"attribute", "default"}, 1));
    ASSIGN_OR_RETURN(const std::string attribute, args.StringOr(0, ""));
    for (const Value& item : items) {
      ASSIGN_OR_RETURN(Value part, GetPath(item, attribute, budget));
      if (part.is_undefined() && args.has(1)) part = args[1];
      mapped.push_back(std::move(part));
    }
    return MakeList(std::move(mapped), budget);
  }
  if (!arguments.positional[0].is_string()) return InvalidArgument("filter 'map' needs the name of a filter");
  const std::string& filter = arguments.positional[0].as_string();
  // map(map(...)) would recurse once per nesting of the value; templates do not need it.
  if (filter == "map") return InvalidArgument("filter 'map' cannot apply itself");
  Arguments rest = arguments;
  rest.positional.erase(rest.positional.begin());
  for (const Value& item : items) {
    ASSIGN_OR_RETURN(Value result, ApplyFilter(filter, item, rest, budget));
    mapped.push_back(std::move(result));
  }
  return MakeList(std::move(mapped), budget);
}

}  // namespace

absl::StatusOr<Value> ApplyFilter(const std::string& name, const Value& value, const Arguments& arguments,
                                  Budget* budget) {
  RETURN_IF_ERROR(budget->Charge(1));
  for (const Value& argument : arguments.positional) RETURN_IF_ERROR(budget->Charge(argument.weight()));
  if (name == "select" || name == "reject" || name == "selectattr" || name == "rejectattr") {
    return Select(name, value, arguments, budget);
  }
  if (name == "map") return Map(value, arguments, budget);
  const auto& filters = Filters();
  const auto it =
      std::find_if(filters.begin(), filters.end(), [&](const Filter& f) { return name == f.name; });
  if (it == filters.end()) return InvalidArgument("unknown filter '", name, "'");
  const std::string what = absl::StrCat("filter '", name, "'");
  ASSIGN_OR_RETURN(const BoundArguments args, Bind(what, arguments, it->parameters, it->required));
  return it->run({value, args, budget});
}

}  // namespace snapkv::runtime::jinja
