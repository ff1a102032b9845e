// SPDX-License-Identifier: Apache-2.0
// Recursive descent over Jinja's expression grammar, one function per level of precedence.
#include "runtime/text/jinja/expr_parser.h"

#include <algorithm>
#include <limits>

#include "kernels/base/status.h"
#include "runtime/text/jinja/parser.h"

namespace snapkv::runtime::jinja {
namespace {

// Recursion of the parser itself; every level costs about ten stack frames.
constexpr int kMaxNesting = 100;

ExprPtr Make(Expr::Kind kind, int line) {
  auto expr = std::make_unique<Expr>();
  expr->kind = kind;
  expr->line = line;
  return expr;
}

ExprPtr MakeLiteral(Value value, int line) {
  ExprPtr expr = Make(Expr::Kind::kLiteral, line);
  expr->literal = std::move(value);
  return expr;
}

// With children given now.
template <class... Children>
ExprPtr MakeWith(Expr::Kind kind, int line, Children... children) {
  ExprPtr expr = Make(kind, line);
  (expr->children.push_back(std::move(children)), ...);
  return expr;
}

}  // namespace

bool TokenCursor::TakeOp(std::string_view op) {
  if (!IsOp(op)) return false;
  ++pos_;
  return true;
}

bool TokenCursor::TakeName(std::string_view name) {
  if (!IsName(name)) return false;
  ++pos_;
  return true;
}

absl::Status TokenCursor::Unexpected(const std::string& what) const {
  const Token& token = Peek();
  std::string found;
  switch (token.kind) {
    case Token::Kind::kEnd:
      found = "the end of the template";
      break;
    case Token::Kind::kVariableEnd:
      found = "'}}'";
      break;
    case Token::Kind::kBlockEnd:
      found = "'%}'";
      break;
    default:
      found = absl::StrCat("'", token.text.substr(0, 40), "'");
  }
  return ErrorAt(token.line, absl::StrCat("expected ", what, ", found ", found));
}

absl::Status TokenCursor::ExpectOp(std::string_view op) {
  if (TakeOp(op)) return absl::OkStatus();
  return Unexpected(absl::StrCat("'", std::string(op), "'"));
}

absl::Status TokenCursor::Expect(Token::Kind kind, const char* what) {
  if (!Is(kind)) return Unexpected(what);
  Next();
  return absl::OkStatus();
}

absl::StatusOr<std::string> TokenCursor::ExpectName(const char* what) {
  if (!Is(Token::Kind::kName)) return Unexpected(what);
  return Next().text;
}

absl::StatusOr<ExprPtr> ExprParser::Finish(ExprPtr expr) {
  int depth = 0;
  for (const ExprPtr& child : expr->children) {
    if (child != nullptr) depth = std::max(depth, child->depth);
  }
  for (const auto& [name, child] : expr->named) depth = std::max(depth, child->depth);
  expr->depth = depth + 1;
  if (expr->depth > kMaxExprDepth) {
    return ErrorAt(expr->line, absl::StrCat("an expression has more than ", kMaxExprDepth,
                                            " nested or chained operators"));
  }
  return expr;
}

absl::StatusOr<ExprPtr> ExprParser::ParseTuple(bool with_condition) {
  const int line = in_.line();
  const Level item = with_condition ? &ExprParser::ParseCondition : &ExprParser::ParseOr;
  ASSIGN_OR_RETURN(ExprPtr first, (this->*item)());
  if (!in_.IsOp(",")) return first;
  ExprPtr tuple = MakeWith(Expr::Kind::kTuple, line, std::move(first));
  while (in_.TakeOp(",")) {
    if (in_.Is(Token::Kind::kVariableEnd) || in_.Is(Token::Kind::kBlockEnd) || in_.IsOp(")")) break;
    ASSIGN_OR_RETURN(ExprPtr next, (this->*item)());
    tuple->children.push_back(std::move(next));
  }
  return Finish(std::move(tuple));
}

absl::StatusOr<ExprPtr> ExprParser::ParseCondition() {
  if (++nesting_ > kMaxNesting) {
    return ErrorAt(in_.line(), absl::StrCat("an expression is nested deeper than ", kMaxNesting));
  }
  ASSIGN_OR_RETURN(ExprPtr expr, ParseOr());
  while (in_.IsName("if")) {
    const int line = in_.Next().line;
    ASSIGN_OR_RETURN(ExprPtr condition, ParseOr());
    ExprPtr other;
    if (in_.TakeName("else")) {
      ASSIGN_OR_RETURN(other, ParseCondition());
    }
    ASSIGN_OR_RETURN(expr, Finish(MakeWith(Expr::Kind::kCondition, line, std::move(expr),
                                           std::move(condition), std::move(other))));
  }
  --nesting_;
  return expr;
}

absl::StatusOr<ExprPtr> ExprParser::ParseOr() {
  ASSIGN_OR_RETURN(ExprPtr left, ParseAnd());
  while (in_.IsName("or")) {
    const int line = in_.Next().line;
    ASSIGN_OR_RETURN(ExprPtr right, ParseAnd());
    ASSIGN_OR_RETURN(left, Finish(MakeWith(Expr::Kind::kOr, line, std::move(left), std::move(right))));
  }
  return left;
}

absl::StatusOr<ExprPtr> ExprParser::ParseAnd() {
  ASSIGN_OR_RETURN(ExprPtr left, ParseNot());
  while (in_.IsName("and")) {
    const int line = in_.Next().line;
    ASSIGN_OR_RETURN(ExprPtr right, ParseNot());
    ASSIGN_OR_RETURN(left, Finish(MakeWith(Expr::Kind::kAnd, line, std::move(left), std::move(right))));
  }
  return left;
}

absl::StatusOr<ExprPtr> ExprParser::ParseNot() {
  if (!in_.IsName("not")) return ParseCompare();
  if (++nesting_ > kMaxNesting) {
    return ErrorAt(in_.line(), absl::StrCat("an expression is nested deeper than ", kMaxNesting));
  }
  const int line = in_.Next().line;
  ASSIGN_OR_RETURN(ExprPtr operand, ParseNot());
  --nesting_;
  ExprPtr expr = MakeWith(Expr::Kind::kUnary, line, std::move(operand));
  expr->name = "not";
  return Finish(std::move(expr));
}

absl::StatusOr<ExprPtr> ExprParser::ParseCompare() {
  ASSIGN_OR_RETURN(ExprPtr first, ParseSum());
  ExprPtr compare;
  while (true) {
    std::string op;
    for (const std::string_view candidate : {"==", "!=", "<=", ">=", "<", ">"}) {
      if (in_.IsOp(candidate)) op = candidate;
    }
    if (in_.IsName("in")) op = "in";
    if (in_.IsName("not") && in_.IsName("in", 1)) op = "not in";
    if (op.empty()) break;
    const int line = in_.Next().line;
    if (op == "not in") in_.Next();
    if (compare == nullptr) compare = MakeWith(Expr::Kind::kCompare, line, std::move(first));
    ASSIGN_OR_RETURN(ExprPtr operand, ParseSum());
    compare->ops.push_back(std::move(op));
    compare->children.push_back(std::move(operand));
  }
  if (compare == nullptr) return first;
  return Finish(std::move(compare));
}

absl::StatusOr<ExprPtr> ExprParser::ParseBinary(Level operand, const std::vector<std::string_view>& ops) {
  ASSIGN_OR_RETURN(ExprPtr left, (this->*operand)());
  while (true) {
    const auto op =
        std::find_if(ops.begin(), ops.end(), [&](std::string_view name) { return in_.IsOp(name); });
    if (op == ops.end()) return left;
    const int line = in_.Next().line;
    ASSIGN_OR_RETURN(ExprPtr right, (this->*operand)());
    ExprPtr expr = MakeWith(Expr::Kind::kBinary, line, std::move(left), std::move(right));
    expr->name = *op;
    ASSIGN_OR_RETURN(left, Finish(std::move(expr)));
  }
}

absl::StatusOr<ExprPtr> ExprParser::ParseSum() { return ParseBinary(&ExprParser::ParseConcat, {"+", "-"}); }
absl::StatusOr<ExprPtr> ExprParser::ParseConcat() { return ParseBinary(&ExprParser::ParseProduct, {"~"}); }
absl::StatusOr<ExprPtr> ExprParser::ParseProduct() {
  return ParseBinary(&ExprParser::ParsePower, {"*", "//", "/", "%"});
}
absl::StatusOr<ExprPtr> ExprParser::ParsePower() { return ParseBinary(&ExprParser::ParseFiltered, {"**"}); }
absl::StatusOr<ExprPtr> ExprParser::ParseFiltered() { return ParseUnary(true); }

absl::StatusOr<ExprPtr> ExprParser::ParseUnary(bool with_filter) {
  ExprPtr expr;
  if (in_.IsOp("-") || in_.IsOp("+")) {
    if (++nesting_ > kMaxNesting) {
      return ErrorAt(in_.line(), absl::StrCat("an expression is nested deeper than ", kMaxNesting));
    }
    const Token op = in_.Next();
    ASSIGN_OR_RETURN(ExprPtr operand, ParseUnary(false));
    --nesting_;
    expr = MakeWith(Expr::Kind::kUnary, op.line, std::move(operand));
    expr->name = op.text;
    ASSIGN_OR_RETURN(expr, Finish(std::move(expr)));
  } else {
    ASSIGN_OR_RETURN(expr, ParsePrimary());
  }
  ASSIGN_OR_RETURN(expr, ParsePostfix(std::move(expr)));
  if (!with_filter) return expr;
  return ParseFilters(std::move(expr));
}

absl::StatusOr<ExprPtr> ExprParser::ParsePrimary() {
  const int line = in_.line();
  switch (in_.Peek().kind) {
    case Token::Kind::kName:
      return ParseName();
    case Token::Kind::kInt:
      return MakeLiteral(Value::Int(in_.Next().int_value), line);
    case Token::Kind::kFloat:
      return MakeLiteral(Value::Float(in_.Next().float_value), line);
    case Token::Kind::kString: {
      std::string text = in_.Next().text;
      while (in_.Is(Token::Kind::kString)) text += in_.Next().text;
      return MakeLiteral(Value::String(std::move(text)), line);
    }
    default:
      if (in_.IsOp("(")) return ParseParenthesis();
      if (in_.IsOp("[")) return ParseList();
      if (in_.IsOp("{")) return ParseDict();
      return in_.Unexpected("a value");
  }
}

absl::StatusOr<ExprPtr> ExprParser::ParseName() {
  const Token token = in_.Next();
  const std::string& name = token.text;
  if (name == "true" || name == "True") return MakeLiteral(Value::Bool(true), token.line);
  if (name == "false" || name == "False") return MakeLiteral(Value::Bool(false), token.line);
  if (name == "none" || name == "None") return MakeLiteral(Value::None(), token.line);
  for (const char* keyword : {"if", "else", "and", "or", "in", "is", "not", "for"}) {
    if (name == keyword) {
      return ErrorAt(token.line, absl::StrCat("expected a value, found the keyword '", name, "'"));
    }
  }
  ExprPtr expr = Make(Expr::Kind::kName, token.line);
  expr->name = name;
  return expr;
}

absl::StatusOr<ExprPtr> ExprParser::ParseParenthesis() {
  const int line = in_.Next().line;
  if (in_.TakeOp(")")) return Make(Expr::Kind::kTuple, line);
  ASSIGN_OR_RETURN(ExprPtr expr, ParseTuple(true));
  RETURN_IF_ERROR(in_.ExpectOp(")"));
  return expr;
}

absl::StatusOr<ExprPtr> ExprParser::ParseList() {
  ExprPtr list = Make(Expr::Kind::kList, in_.Next().line);
  while (!in_.TakeOp("]")) {
    if (!list->children.empty()) {
      RETURN_IF_ERROR(in_.ExpectOp(","));
      if (in_.TakeOp("]")) break;
    }
    ASSIGN_OR_RETURN(ExprPtr item, ParseExpression());
    list->children.push_back(std::move(item));
  }
  return Finish(std::move(list));
}

absl::StatusOr<ExprPtr> ExprParser::ParseDict() {
  ExprPtr dict = Make(Expr::Kind::kDict, in_.Next().line);
  while (!in_.TakeOp("}")) {
    if (!dict->children.empty()) {
      RETURN_IF_ERROR(in_.ExpectOp(","));
      if (in_.TakeOp("}")) break;
    }
    ASSIGN_OR_RETURN(ExprPtr key, ParseExpression());
    RETURN_IF_ERROR(in_.ExpectOp(":"));
    ASSIGN_OR_RETURN(ExprPtr value, ParseExpression());
    dict->children.push_back(std::move(key));
    dict->children.push_back(std::move(value));
  }
  return Finish(std::move(dict));
}

absl::StatusOr<ExprPtr> ExprParser::ParsePostfix(ExprPtr base) {
  while (true) {
    if (in_.IsOp(".")) {
      ASSIGN_OR_RETURN(base, ParseAttribute(std::move(base)));
    } else if (in_.IsOp("[")) {
      ASSIGN_OR_RETURN(base, ParseSubscript(std::move(base)));
    } else if (in_.IsOp("(")) {
      ExprPtr call = MakeWith(Expr::Kind::kCall, in_.line(), std::move(base));
      RETURN_IF_ERROR(ParseArguments(call.get()));
      ASSIGN_OR_RETURN(base, Finish(std::move(call)));
    } else {
      return base;
    }
  }
}

absl::StatusOr<ExprPtr> ExprParser::ParseAttribute(ExprPtr base) {
  const int line = in_.Next().line;
  if (in_.Is(Token::Kind::kInt)) {
    ExprPtr index = MakeLiteral(Value::Int(in_.Next().int_value), line);
    return Finish(MakeWith(Expr::Kind::kItem, line, std::move(base), std::move(index)));
  }
  ASSIGN_OR_RETURN(std::string name, in_.ExpectName("an attribute name after '.'"));
  ExprPtr attribute = MakeWith(Expr::Kind::kAttribute, line, std::move(base));
  attribute->name = std::move(name);
  return Finish(std::move(attribute));
}

absl::StatusOr<ExprPtr> ExprParser::ParseSubscript(ExprPtr base) {
  const int line = in_.Next().line;
  std::vector<ExprPtr> parts(3);
  size_t part = 0;
  if (!in_.IsOp(":")) {
    ASSIGN_OR_RETURN(parts[0], ParseExpression());
    if (in_.TakeOp("]"))
      return Finish(MakeWith(Expr::Kind::kItem, line, std::move(base), std::move(parts[0])));
  }
  while (part < 2 && in_.TakeOp(":")) {
    ++part;
    if (in_.IsOp(":") || in_.IsOp("]")) continue;
    ASSIGN_OR_RETURN(parts[part], ParseExpression());
  }
  RETURN_IF_ERROR(in_.ExpectOp("]"));
  return Finish(MakeWith(Expr::Kind::kSlice, line, std::move(base), std::move(parts[0]), std::move(parts[1]),
                         std::move(parts[2])));
}

absl::StatusOr<ExprPtr> ExprParser::ParseFilters(ExprPtr base) {
  while (true) {
    if (in_.IsOp("|")) {
      const int line = in_.Next().line;
      ASSIGN_OR_RETURN(std::string name, in_.ExpectName("a filter name after '|'"));
      ExprPtr filter = MakeWith(Expr::Kind::kFilter, line, std::move(base));
      filter->name = std::move(name);
      if (in_.IsOp("(")) RETURN_IF_ERROR(ParseArguments(filter.get()));
      ASSIGN_OR_RETURN(base, Finish(std::move(filter)));
    } else if (in_.IsName("is")) {
      ASSIGN_OR_RETURN(base, ParseTest(std::move(base)));
    } else if (in_.IsOp("(")) {
      ExprPtr call = MakeWith(Expr::Kind::kCall, in_.line(), std::move(base));
      RETURN_IF_ERROR(ParseArguments(call.get()));
      ASSIGN_OR_RETURN(base, Finish(std::move(call)));
    } else {
      return base;
    }
  }
}

// "x is divisibleby 3": one argument without parentheses.
bool ExprParser::BeginsTestArgument() const {
  switch (in_.Peek().kind) {
    case Token::Kind::kName:
      for (const char* word : {"else", "or", "and", "is", "if", "in", "not"}) {
        if (in_.IsName(word)) return false;
      }
      return true;
    case Token::Kind::kString:
    case Token::Kind::kInt:
    case Token::Kind::kFloat:
      return true;
    default:
      return in_.IsOp("[") || in_.IsOp("{");
  }
}

absl::StatusOr<ExprPtr> ExprParser::ParseTest(ExprPtr base) {
  const int line = in_.Next().line;
  const bool negated = in_.TakeName("not");
  ASSIGN_OR_RETURN(std::string name, in_.ExpectName("a test name after 'is'"));
  ExprPtr test = MakeWith(Expr::Kind::kTest, line, std::move(base));
  test->name = std::move(name);
  if (in_.IsOp("(")) {
    RETURN_IF_ERROR(ParseArguments(test.get()));
    if (!test->named.empty()) {
      return ErrorAt(line, absl::StrCat("test '", test->name, "': named arguments are not supported"));
    }
  } else if (BeginsTestArgument()) {
    if (++nesting_ > kMaxNesting) {
      return ErrorAt(line, absl::StrCat("an expression is nested deeper than ", kMaxNesting));
    }
    ASSIGN_OR_RETURN(ExprPtr argument, ParsePrimary());
    ASSIGN_OR_RETURN(argument, ParsePostfix(std::move(argument)));
    --nesting_;
    test->children.push_back(std::move(argument));
  }
  ASSIGN_OR_RETURN(test, Finish(std::move(test)));
  if (!negated) return test;
  ExprPtr negation = MakeWith(Expr::Kind::kUnary, line, std::move(test));
  negation->name = "not";
  return Finish(std::move(negation));
}

absl::Status ExprParser::ParseArguments(Expr* call) {
  RETURN_IF_ERROR(in_.ExpectOp("("));
  bool first = true;
  while (!in_.TakeOp(")")) {
    if (!first) {
      RETURN_IF_ERROR(in_.ExpectOp(","));
      if (in_.TakeOp(")")) break;
    }
    first = false;
    if (in_.IsOp("*") || in_.IsOp("**")) {
      return ErrorAt(in_.line(), "arguments with '*' or '**' are not supported");
    }
    if (in_.Is(Token::Kind::kName) && in_.IsOp("=", 1)) {
      std::string name = in_.Next().text;
      in_.Next();
      ASSIGN_OR_RETURN(ExprPtr value, ParseExpression());
      call->named.emplace_back(std::move(name), std::move(value));
      continue;
    }
    if (!call->named.empty()) return in_.Unexpected("a named argument, as the one before");
    ASSIGN_OR_RETURN(ExprPtr value, ParseExpression());
    call->children.push_back(std::move(value));
  }
  return absl::OkStatus();
}

}  // namespace snapkv::runtime::jinja
