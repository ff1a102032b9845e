// SPDX-License-Identifier: Apache-2.0
// Tree-walking evaluation of a template.
#include "runtime/text/jinja/renderer.h"

#include <deque>
#include <optional>
#include <string_view>

#include "absl/container/flat_hash_map.h"
#include "kernels/base/status.h"
#include "runtime/text/jinja/arguments.h"
#include "runtime/text/jinja/filters.h"
#include "runtime/text/jinja/functions.h"
#include "runtime/text/jinja/lexer.h"
#include "runtime/text/jinja/methods.h"
#include "runtime/text/jinja/operations.h"

namespace snapkv::runtime::jinja {
namespace {

// Adds the line to an error of a leaf operation.
absl::Status At(int line, const absl::Status& status) {
  if (status.ok()) return status;
  return absl::Status(status.code(), absl::StrCat("chat template, line ", line, ": ", status.message()));
}

template <class T>
absl::StatusOr<T> At(int line, absl::StatusOr<T> result) {
  if (!result.ok()) return At(line, result.status());
  return result;
}

struct Scope {
  absl::flat_hash_map<std::string, Value> variables;
  Scope* parent = nullptr;
};

class Renderer {
 public:
  explicit Renderer(const RenderOptions& options)
      : budget_(options.max_work), functions_{options.now, &budget_, &namespaces_} {}

  absl::StatusOr<std::string> Run(const std::vector<Stmt>& body,
                                  const std::vector<std::pair<std::string, Value>>& variables) {
    for (const char* name : kFunctionNames) globals_.variables[name] = Value::Function(name);
    for (const auto& [name, value] : variables) globals_.variables[name] = value;
    RETURN_IF_ERROR(ExecBody(body));
    return std::move(out_);
  }

 private:
  enum class Flow { kNext, kBreak, kContinue };

  // One level of recursion; counts evaluation steps as well.
  class Level {
   public:
    explicit Level(Renderer* renderer) : renderer_(renderer) { ++renderer_->depth_; }
    ~Level() { --renderer_->depth_; }
    absl::Status Check(int line) const {
      if (renderer_->depth_ > kMaxRecursion) {
        return ErrorAt(line,
                       absl::StrCat("recursion deeper than ", kMaxRecursion, " levels (endless macro?)"));
      }
      return At(line, renderer_->budget_.Charge(1));
    }

   private:
    Renderer* renderer_;
  };

  const Value* Lookup(const std::string& name) const {
    for (const Scope* scope = scope_; scope != nullptr; scope = scope->parent) {
      const auto it = scope->variables.find(name);
      if (it != scope->variables.end()) return &it->second;
    }
    return nullptr;
  }

  // Statements.
  absl::Status ExecBody(const std::vector<Stmt>& body);
  absl::Status Exec(const Stmt& stmt);
  absl::Status ExecPrint(const Stmt& stmt);
  absl::Status ExecIf(const Stmt& stmt);
  absl::Status ExecFor(const Stmt& stmt);
  absl::StatusOr<Value> LoopItems(const Stmt& stmt);
  absl::Status RunLoop(const Stmt& stmt, const Value& items);
  absl::Status ExecSet(const Stmt& stmt);
  absl::Status ExecSetBlock(const Stmt& stmt);
  absl::Status ExecSetMember(const Stmt& stmt);
  absl::Status Assign(const Stmt& stmt, const Value& value);
  absl::StatusOr<std::string> Capture(const std::vector<Stmt>& body);

  // Expressions.
  absl::StatusOr<Value> Eval(const Expr& expr);
  absl::StatusOr<Value> EvalName(const Expr& expr);
  absl::StatusOr<Value> EvalSequence(const Expr& expr);
  absl::StatusOr<Value> EvalDict(const Expr& expr);
  absl::StatusOr<Value> EvalUnary(const Expr& expr);
  absl::StatusOr<Value> EvalBinary(const Expr& expr);
  absl::StatusOr<Value> EvalLogic(const Expr& expr);
  absl::StatusOr<Value> EvalCompare(const Expr& expr);
  absl::StatusOr<Value> EvalCondition(const Expr& expr);
  absl::StatusOr<Value> EvalAttribute(const Expr& expr);
  absl::StatusOr<Value> EvalItem(const Expr& expr);
  absl::StatusOr<Value> EvalSlice(const Expr& expr);
  absl::StatusOr<Value> EvalCall(const Expr& expr);
  absl::StatusOr<Value> EvalFilter(const Expr& expr);
  absl::StatusOr<Value> EvalTest(const Expr& expr);
  absl::StatusOr<Arguments> EvalArguments(const Expr& expr);
  absl::StatusOr<Value> CallValue(const Expr& expr, const Value& callee, const Arguments& arguments);
  absl::StatusOr<Value> CallMacro(const Stmt& macro, const Arguments& arguments, int line);
  absl::StatusOr<Value> CallLoop(LoopData* loop, const std::string& name, const Arguments& arguments);

  Budget budget_;
  std::string out_;
  Scope globals_;
  Scope* scope_ = &globals_;
  Flow flow_ = Flow::kNext;
  int depth_ = 0;
  // References held by values: they live as long as the rendering.
  std::deque<NamespaceData> namespaces_;
  std::deque<LoopData> loops_;
  Functions functions_;
};

absl::Status Renderer::ExecBody(const std::vector<Stmt>& body) {
  for (const Stmt& stmt : body) {
    RETURN_IF_ERROR(Exec(stmt));
    if (flow_ != Flow::kNext) break;
  }
  return absl::OkStatus();
}

absl::Status Renderer::Exec(const Stmt& stmt) {
  const Level level(this);
  RETURN_IF_ERROR(level.Check(stmt.line));
  switch (stmt.kind) {
    case Stmt::Kind::kText:
      out_ += stmt.text;
      return At(stmt.line, budget_.Charge(stmt.text.size()));
    case Stmt::Kind::kPrint:
      return ExecPrint(stmt);
    case Stmt::Kind::kIf:
      return ExecIf(stmt);
    case Stmt::Kind::kFor:
      return ExecFor(stmt);
    case Stmt::Kind::kSet:
      return ExecSet(stmt);
    case Stmt::Kind::kSetBlock:
      return ExecSetBlock(stmt);
    case Stmt::Kind::kSetMember:
      return ExecSetMember(stmt);
    case Stmt::Kind::kMacro:
      scope_->variables[stmt.text] = Value::Macro(&stmt);
      return absl::OkStatus();
    case Stmt::Kind::kBreak:
      flow_ = Flow::kBreak;
      return absl::OkStatus();
    case Stmt::Kind::kContinue:
      flow_ = Flow::kContinue;
      return absl::OkStatus();
    case Stmt::Kind::kGroup:
      return ExecBody(stmt.body);
  }
  return Internal("statement kind");
}

absl::Status Renderer::ExecPrint(const Stmt& stmt) {
  ASSIGN_OR_RETURN(const Value value, Eval(*stmt.expr));
  RETURN_IF_ERROR(At(stmt.line, budget_.Charge(value.weight())));
  return At(stmt.line, AppendStr(value, &out_));
}

absl::Status Renderer::ExecIf(const Stmt& stmt) {
  for (const Stmt::Branch& branch : stmt.branches) {
    if (branch.condition != nullptr) {
      ASSIGN_OR_RETURN(const Value condition, Eval(*branch.condition));
      if (!condition.Truthy()) continue;
    }
    return ExecBody(branch.body);
  }
  return absl::OkStatus();
}

absl::Status Renderer::Assign(const Stmt& stmt, const Value& value) {
  if (stmt.targets.size() == 1) {
    scope_->variables[stmt.targets[0]] = value;
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(const ValueList parts, At(stmt.line, Elements(value, &budget_)));
  if (parts.size() != stmt.targets.size()) {
    return ErrorAt(stmt.line, absl::StrCat("cannot unpack ", parts.size(), " values into ",
                                           stmt.targets.size(), " variables"));
  }
  for (size_t i = 0; i < parts.size(); ++i) scope_->variables[stmt.targets[i]] = parts[i];
  return absl::OkStatus();
}

// What the loop runs over: a list is shared, unless the loop has a condition.
absl::StatusOr<Value> Renderer::LoopItems(const Stmt& stmt) {
  ASSIGN_OR_RETURN(const Value iterated, Eval(*stmt.expr));
  if (iterated.is_list() && stmt.filter == nullptr) return iterated;
  ASSIGN_OR_RETURN(ValueList items, At(stmt.line, Elements(iterated, &budget_)));
  if (stmt.filter == nullptr) return At(stmt.line, MakeList(std::move(items), &budget_));
  ValueList kept;
  for (Value& item : items) {
    RETURN_IF_ERROR(Assign(stmt, item));
    ASSIGN_OR_RETURN(const Value condition, Eval(*stmt.filter));
    if (condition.Truthy()) kept.push_back(std::move(item));
  }
  return At(stmt.line, MakeList(std::move(kept), &budget_));
}

absl::Status Renderer::RunLoop(const Stmt& stmt, const Value& items) {
  LoopData& loop = loops_.emplace_back();
  loop.items = items;
  for (size_t i = 0; i < items.as_list().size() && flow_ != Flow::kBreak; ++i) {
    flow_ = Flow::kNext;
    scope_->variables.clear();  // what an iteration sets ends with it
    loop.index0 = i;
    scope_->variables["loop"] = Value::Loop(&loop);
    RETURN_IF_ERROR(Assign(stmt, items.as_list()[i]));
    RETURN_IF_ERROR(ExecBody(stmt.body));
  }
  flow_ = Flow::kNext;
  return absl::OkStatus();
}

absl::Status Renderer::ExecFor(const Stmt& stmt) {
  Scope scope;
  scope.parent = scope_;
  scope_ = &scope;
  const absl::StatusOr<Value> items = LoopItems(stmt);
  absl::Status status = items.status();
  if (status.ok() && !items->as_list().empty()) status = RunLoop(stmt, *items);
  scope_ = scope.parent;
  if (status.ok() && items->as_list().empty()) return ExecBody(stmt.else_body);
  return status;
}

absl::Status Renderer::ExecSet(const Stmt& stmt) {
  ASSIGN_OR_RETURN(const Value value, Eval(*stmt.expr));
  return Assign(stmt, value);
}

absl::StatusOr<std::string> Renderer::Capture(const std::vector<Stmt>& body) {
  std::string outer = std::move(out_);
  out_.clear();
  const absl::Status status = ExecBody(body);
  std::string text = std::exchange(out_, std::move(outer));
  RETURN_IF_ERROR(status);
  return text;
}

absl::Status Renderer::ExecSetBlock(const Stmt& stmt) {
  ASSIGN_OR_RETURN(std::string text, Capture(stmt.body));
  return Assign(stmt, Value::String(std::move(text)));
}

absl::Status Renderer::ExecSetMember(const Stmt& stmt) {
  const Value* object = Lookup(stmt.targets[0]);
  if (object == nullptr || object->kind() != Value::Kind::kNamespace) {
    return ErrorAt(stmt.line, absl::StrCat("'", stmt.targets[0], "' is not a namespace, so '", stmt.member,
                                           "' cannot be set"));
  }
  NamespaceData* data = object->as_namespace();
  ASSIGN_OR_RETURN(Value value, Eval(*stmt.expr));
  for (auto& [name, old] : data->attributes) {
    if (name != stmt.member) continue;
    old = std::move(value);
    return absl::OkStatus();
  }
  data->attributes.emplace_back(stmt.member, std::move(value));
  return absl::OkStatus();
}

absl::StatusOr<Value> Renderer::Eval(const Expr& expr) {
  const Level level(this);
  RETURN_IF_ERROR(level.Check(expr.line));
  switch (expr.kind) {
    case Expr::Kind::kLiteral:
      return expr.literal;
    case Expr::Kind::kName:
      return EvalName(expr);
    case Expr::Kind::kList:
    case Expr::Kind::kTuple:
      return EvalSequence(expr);
    case Expr::Kind::kDict:
      return EvalDict(expr);
    case Expr::Kind::kUnary:
      return EvalUnary(expr);
    case Expr::Kind::kBinary:
      return EvalBinary(expr);
    case Expr::Kind::kAnd:
    case Expr::Kind::kOr:
      return EvalLogic(expr);
    case Expr::Kind::kCompare:
      return EvalCompare(expr);
    case Expr::Kind::kCondition:
      return EvalCondition(expr);
    case Expr::Kind::kAttribute:
      return EvalAttribute(expr);
    case Expr::Kind::kItem:
      return EvalItem(expr);
    case Expr::Kind::kSlice:
      return EvalSlice(expr);
    case Expr::Kind::kCall:
      return EvalCall(expr);
    case Expr::Kind::kFilter:
      return EvalFilter(expr);
    case Expr::Kind::kTest:
      return EvalTest(expr);
  }
  return Internal("expression kind");
}

absl::StatusOr<Value> Renderer::EvalName(const Expr& expr) {
  if (const Value* found = Lookup(expr.name)) return *found;
  return Value::Undefined(expr.name);
}

absl::StatusOr<Value> Renderer::EvalSequence(const Expr& expr) {
  ValueList items;
  for (const ExprPtr& child : expr.children) {
    ASSIGN_OR_RETURN(Value item, Eval(*child));
    items.push_back(std::move(item));
  }
  return At(expr.line, MakeList(std::move(items), &budget_, expr.kind == Expr::Kind::kTuple));
}

absl::StatusOr<Value> Renderer::EvalDict(const Expr& expr) {
  ValueDict entries;
  // Keys are compared with one another.
  const uint64_t size = expr.children.size() / 2;
  RETURN_IF_ERROR(At(expr.line, budget_.Charge(size * size)));
  for (size_t i = 0; i + 1 < expr.children.size(); i += 2) {
    ASSIGN_OR_RETURN(Value key, Eval(*expr.children[i]));
    ASSIGN_OR_RETURN(Value value, Eval(*expr.children[i + 1]));
    entries.emplace_back(std::move(key), std::move(value));
  }
  return At(expr.line, Value::Dict(std::move(entries)));
}

absl::StatusOr<Value> Renderer::EvalUnary(const Expr& expr) {
  ASSIGN_OR_RETURN(const Value operand, Eval(*expr.children[0]));
  if (expr.name == "not") return Value::Bool(!operand.Truthy());
  return At(expr.line, Unary(expr.name, operand));
}

absl::StatusOr<Value> Renderer::EvalBinary(const Expr& expr) {
  ASSIGN_OR_RETURN(const Value left, Eval(*expr.children[0]));
  ASSIGN_OR_RETURN(const Value right, Eval(*expr.children[1]));
  return At(expr.line, Binary(expr.name, left, right, &budget_));
}

absl::StatusOr<Value> Renderer::EvalLogic(const Expr& expr) {
  ASSIGN_OR_RETURN(Value left, Eval(*expr.children[0]));
  if (left.Truthy() == (expr.kind == Expr::Kind::kOr)) return left;
  return Eval(*expr.children[1]);
}

absl::StatusOr<Value> Renderer::EvalCompare(const Expr& expr) {
  ASSIGN_OR_RETURN(Value left, Eval(*expr.children[0]));
  for (size_t i = 0; i < expr.ops.size(); ++i) {
    ASSIGN_OR_RETURN(Value right, Eval(*expr.children[i + 1]));
    ASSIGN_OR_RETURN(const bool holds, At(expr.line, CompareBy(expr.ops[i], left, right, &budget_)));
    if (!holds) return Value::Bool(false);
    left = std::move(right);
  }
  return Value::Bool(true);
}

absl::StatusOr<Value> Renderer::EvalCondition(const Expr& expr) {
  ASSIGN_OR_RETURN(const Value condition, Eval(*expr.children[1]));
  if (condition.Truthy()) return Eval(*expr.children[0]);
  if (expr.children[2] != nullptr) return Eval(*expr.children[2]);
  return Value::Undefined("value of an 'if' without 'else'");
}

absl::StatusOr<Value> Renderer::EvalAttribute(const Expr& expr) {
  ASSIGN_OR_RETURN(const Value base, Eval(*expr.children[0]));
  return At(expr.line, GetAttribute(base, expr.name));
}

absl::StatusOr<Value> Renderer::EvalItem(const Expr& expr) {
  ASSIGN_OR_RETURN(const Value base, Eval(*expr.children[0]));
  ASSIGN_OR_RETURN(const Value key, Eval(*expr.children[1]));
  return At(expr.line, GetItem(base, key, &budget_));
}

absl::StatusOr<Value> Renderer::EvalSlice(const Expr& expr) {
  ASSIGN_OR_RETURN(const Value base, Eval(*expr.children[0]));
  Value bounds[3];
  for (size_t i = 0; i < 3; ++i) {
    if (expr.children[i + 1] == nullptr) continue;
    ASSIGN_OR_RETURN(bounds[i], Eval(*expr.children[i + 1]));
  }
  return At(expr.line, GetSlice(base, bounds[0], bounds[1], bounds[2], &budget_));
}

absl::StatusOr<Arguments> Renderer::EvalArguments(const Expr& expr) {
  Arguments arguments;
  for (size_t i = 1; i < expr.children.size(); ++i) {
    ASSIGN_OR_RETURN(Value value, Eval(*expr.children[i]));
    arguments.positional.push_back(std::move(value));
  }
  for (const auto& [name, child] : expr.named) {
    ASSIGN_OR_RETURN(Value value, Eval(*child));
    arguments.named.emplace_back(name, std::move(value));
  }
  return arguments;
}

absl::StatusOr<Value> Renderer::EvalCall(const Expr& expr) {
  const Expr& callee = *expr.children[0];
  if (callee.kind != Expr::Kind::kAttribute) {
    ASSIGN_OR_RETURN(const Value function, Eval(callee));
    ASSIGN_OR_RETURN(const Arguments arguments, EvalArguments(expr));
    return CallValue(expr, function, arguments);
  }
  ASSIGN_OR_RETURN(const Value base, Eval(*callee.children[0]));
  ASSIGN_OR_RETURN(const Arguments arguments, EvalArguments(expr));
  if (base.kind() == Value::Kind::kLoop)
    return At(expr.line, CallLoop(base.as_loop(), callee.name, arguments));
  if (base.kind() == Value::Kind::kNamespace) {
    ASSIGN_OR_RETURN(const Value function, At(expr.line, GetAttribute(base, callee.name)));
    return CallValue(expr, function, arguments);
  }
  return At(expr.line, CallMethod(base, callee.name, arguments, &budget_));
}

absl::StatusOr<Value> Renderer::CallValue(const Expr& expr, const Value& callee, const Arguments& arguments) {
  if (callee.kind() == Value::Kind::kMacro) return CallMacro(*callee.as_macro(), arguments, expr.line);
  if (callee.kind() == Value::Kind::kFunction) {
    return At(expr.line, functions_.Call(callee.as_function(), arguments));
  }
  if (callee.is_undefined()) {
    return ErrorAt(expr.line, absl::StrCat("unknown function '", callee.undefined_name(), "'"));
  }
  return ErrorAt(expr.line, absl::StrCat(callee.KindName(), " cannot be called"));
}

absl::StatusOr<Value> Renderer::CallMacro(const Stmt& macro, const Arguments& arguments, int line) {
  std::vector<std::string> names;
  for (const Stmt::Param& param : macro.params) names.push_back(param.name);
  ASSIGN_OR_RETURN(const BoundArguments bound,
                   At(line, Bind(absl::StrCat("macro '", macro.text, "'"), arguments, names, 0)));
  Scope scope;
  scope.parent = &globals_;
  Scope* caller = std::exchange(scope_, &scope);
  absl::Status status;
  for (size_t i = 0; i < names.size() && status.ok(); ++i) {
    if (bound.has(i)) {
      scope.variables[names[i]] = bound[i];
    } else if (macro.params[i].fallback != nullptr) {
      absl::StatusOr<Value> fallback = Eval(*macro.params[i].fallback);
      status = fallback.status();
      if (status.ok()) scope.variables[names[i]] = *std::move(fallback);
    } else {
      scope.variables[names[i]] = Value::Undefined(names[i]);
    }
  }
  std::string text;
  if (status.ok()) {
    absl::StatusOr<std::string> captured = Capture(macro.body);
    status = captured.status();
    if (status.ok()) text = *std::move(captured);
  }
  scope_ = caller;
  RETURN_IF_ERROR(status);
  return Value::String(std::move(text));
}

absl::StatusOr<Value> Renderer::CallLoop(LoopData* loop, const std::string& name,
                                         const Arguments& arguments) {
  if (!arguments.named.empty()) return InvalidArgument("loop.", name, " has no named parameters");
  if (name == "cycle") {
    if (arguments.positional.empty()) return InvalidArgument("loop.cycle needs an argument");
    return arguments.positional[loop->index0 % arguments.positional.size()];
  }
  if (name == "changed") {
    ASSIGN_OR_RETURN(Value value, MakeList(arguments.positional, &budget_));
    RETURN_IF_ERROR(budget_.Charge(value.weight()));
    const bool changed = !loop->has_changed_value || !Equal(value, loop->changed_value);
    loop->has_changed_value = true;
    loop->changed_value = std::move(value);
    return Value::Bool(changed);
  }
  return InvalidArgument("the loop variable has no method '", name, "'");
}

absl::StatusOr<Value> Renderer::EvalFilter(const Expr& expr) {
  ASSIGN_OR_RETURN(const Value value, Eval(*expr.children[0]));
  ASSIGN_OR_RETURN(const Arguments arguments, EvalArguments(expr));
  return At(expr.line, ApplyFilter(expr.name, value, arguments, &budget_));
}

absl::StatusOr<Value> Renderer::EvalTest(const Expr& expr) {
  ASSIGN_OR_RETURN(const Value value, Eval(*expr.children[0]));
  ASSIGN_OR_RETURN(const Arguments arguments, EvalArguments(expr));
  ASSIGN_OR_RETURN(const bool holds,
                   At(expr.line, ApplyTest(expr.name, value, arguments.positional, &budget_)));
  return Value::Bool(holds);
}

}  // namespace

absl::StatusOr<std::string> Render(const std::vector<Stmt>& body,
                                   const std::vector<std::pair<std::string, Value>>& variables,
                                   const RenderOptions& options) {
  return Renderer(options).Run(body, variables);
}

}  // namespace snapkv::runtime::jinja
