// SPDX-License-Identifier: Apache-2.0
// Values of the template language: Python's none, bool, int, float, str, list, tuple and dict, as far as chat
// templates use them.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace snapkv::runtime::jinja {

class Value;
struct ListData;
struct DictData;
struct NamespaceData;
struct LoopData;
struct Stmt;

using ValueList = std::vector<Value>;
// Insertion order, as in Python. Keys: str, int, float, bool, none.
using ValueDict = std::vector<std::pair<Value, Value>>;

// Immutable, cheap to copy. A namespace, the loop variable and a macro are references that the renderer (or
// the template) owns; a Value must not outlive them.
class Value {
 public:
  // The order is that of the variant below.
  enum class Kind {
    kUndefined,
    kNone,
    kBool,
    kInt,
    kFloat,
    kString,
    kList,  // and tuple
    kDict,
    kNamespace,
    kLoop,
    kMacro,
    kFunction
  };

  // An undefined value; `name` is what an error calls it.
  static Value Undefined(std::string name);
  static Value None() { return Value(Data(NoneTag{})); }
  static Value Bool(bool value) { return Value(Data(value)); }
  static Value Int(int64_t value) { return Value(Data(value)); }
  static Value Float(double value) { return Value(Data(value)); }
  static Value String(std::string value);
  static Value Namespace(NamespaceData* data) { return Value(Data(data)); }
  static Value Loop(LoopData* data) { return Value(Data(data)); }
  static Value Macro(const Stmt* macro) { return Value(Data(macro)); }
  // A built-in function; `name` must be a literal.
  static Value Function(const char* name) { return Value(Data(FunctionTag{name})); }
  // Errors: nested deeper than kMaxNesting.
  static absl::StatusOr<Value> List(ValueList items, bool is_tuple = false);
  // A repeated key keeps its place and takes the last value. Errors: nesting; a key of another kind.
  static absl::StatusOr<Value> Dict(ValueDict entries);

  // Bounds every recursion over a value, destruction included.
  static constexpr int kMaxNesting = 64;

  Value() : data_(UndefinedTag{}) {}

  Kind kind() const { return static_cast<Kind>(data_.index()); }
  const char* KindName() const;  // for messages: "a string", "none", ...
  bool is_undefined() const { return kind() == Kind::kUndefined; }
  bool is_none() const { return kind() == Kind::kNone; }
  bool is_bool() const { return kind() == Kind::kBool; }
  bool is_int() const { return kind() == Kind::kInt; }
  bool is_float() const { return kind() == Kind::kFloat; }
  bool is_string() const { return kind() == Kind::kString; }
  bool is_list() const { return kind() == Kind::kList; }
  bool is_tuple() const;
  bool is_dict() const { return kind() == Kind::kDict; }
  // bool, int or float: bools count as 0 and 1, as in Python.
  bool is_number() const { return is_bool() || is_int() || is_float(); }
  bool is_integral() const { return is_bool() || is_int(); }

  // Each only for its own kind.
  const std::string& undefined_name() const;
  bool as_bool() const { return std::get<bool>(data_); }
  int64_t as_int() const { return is_bool() ? static_cast<int64_t>(as_bool()) : std::get<int64_t>(data_); }
  double as_double() const { return is_float() ? std::get<double>(data_) : static_cast<double>(as_int()); }
  const std::string& as_string() const { return *std::get<SharedString>(data_); }
  const ValueList& as_list() const;
  const ValueDict& as_dict() const;
  NamespaceData* as_namespace() const { return std::get<NamespaceData*>(data_); }
  LoopData* as_loop() const { return std::get<LoopData*>(data_); }
  const Stmt* as_macro() const { return std::get<const Stmt*>(data_); }
  std::string_view as_function() const { return std::get<FunctionTag>(data_).name; }

  // Looks a key up in a dict; nullptr when absent.
  const Value* Find(const Value& key) const;
  const Value* Find(std::string_view key) const;

  bool Truthy() const;
  // What a walk over the value costs, in elements and string bytes; shared parts count each time. Saturates.
  uint64_t weight() const;

 private:
  struct UndefinedTag {
    std::shared_ptr<const std::string> name;
  };
  struct NoneTag {};
  struct FunctionTag {
    const char* name;
  };
  using SharedString = std::shared_ptr<const std::string>;
  using Data = std::variant<UndefinedTag, NoneTag, bool, int64_t, double, SharedString,
                            std::shared_ptr<const ListData>, std::shared_ptr<const DictData>, NamespaceData*,
                            LoopData*, const Stmt*, FunctionTag>;

  explicit Value(Data data) : data_(std::move(data)) {}
  int depth() const;
  static absl::Status Measure(const Value& child, int* depth, uint64_t* weight);

  Data data_;
};

struct ListData {
  ValueList items;
  bool is_tuple;
  int depth;
  uint64_t weight;
};

struct DictData {
  ValueDict entries;
  int depth;
  uint64_t weight;
};

// The only mutable object: namespace(...), changed by {% set ns.x = ... %}.
struct NamespaceData {
  std::vector<std::pair<std::string, Value>> attributes;
};

// The loop variable of a for statement.
struct LoopData {
  Value items;  // a list
  size_t index0 = 0;
  bool has_changed_value = false;
  Value changed_value;  // of loop.changed()
};

// Python's ==. Numbers compare by value across kinds, sequences and dicts by content.
bool Equal(const Value& a, const Value& b);

// Python's ordering of two numbers, strings or lists: negative, 0, positive. Error for anything else.
absl::StatusOr<int> Compare(const Value& a, const Value& b);

// Appends str(value) as Python prints it: True, None, ['a', 1.0]; undefined prints nothing. Error for
// namespaces, loop variables, macros and functions.
absl::Status AppendStr(const Value& value, std::string* out);

// Appends json.dumps(value, ensure_ascii=False, indent=indent); indent < 0: on one line. Errors: a value JSON
// cannot express.
absl::Status AppendJson(const Value& value, int indent, std::string* out);

}  // namespace snapkv::runtime::jinja
