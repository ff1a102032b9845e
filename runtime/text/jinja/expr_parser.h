// SPDX-License-Identifier: Apache-2.0
// The expression half of the template parser, and the token cursor that both halves share.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/text/jinja/ast.h"
#include "runtime/text/jinja/lexer.h"

namespace snapkv::runtime::jinja {

class TokenCursor {
 public:
  // `tokens` ends with kEnd.
  explicit TokenCursor(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  const Token& Peek(size_t ahead = 0) const { return tokens_[std::min(pos_ + ahead, tokens_.size() - 1)]; }
  Token Next() { return std::move(tokens_[pos_ + 1 < tokens_.size() ? pos_++ : pos_]); }
  int line() const { return Peek().line; }
  bool Is(Token::Kind kind) const { return Peek().kind == kind; }
  bool IsOp(std::string_view op, size_t ahead = 0) const {
    return Peek(ahead).kind == Token::Kind::kOperator && Peek(ahead).text == op;
  }
  bool IsName(std::string_view name, size_t ahead = 0) const {
    return Peek(ahead).kind == Token::Kind::kName && Peek(ahead).text == name;
  }
  bool TakeOp(std::string_view op);
  bool TakeName(std::string_view name);
  absl::Status ExpectOp(std::string_view op);
  absl::Status Expect(Token::Kind kind, const char* what);
  absl::StatusOr<std::string> ExpectName(const char* what);
  // "chat template, line N: expected WHAT, found ..."
  absl::Status Unexpected(const std::string& what) const;

 private:
  std::vector<Token> tokens_;
  size_t pos_ = 0;
};

class ExprParser {
 public:
  explicit ExprParser(TokenCursor* cursor) : in_(*cursor) {}

  // expression [, expression ...]: a tuple when there is a comma. `with_condition`: "a if b else c" is
  // allowed.
  absl::StatusOr<ExprPtr> ParseTuple(bool with_condition);
  absl::StatusOr<ExprPtr> ParseExpression() { return ParseCondition(); }

 private:
  using Level = absl::StatusOr<ExprPtr> (ExprParser::*)();

  absl::StatusOr<ExprPtr> ParseCondition();
  absl::StatusOr<ExprPtr> ParseOr();
  absl::StatusOr<ExprPtr> ParseAnd();
  absl::StatusOr<ExprPtr> ParseNot();
  absl::StatusOr<ExprPtr> ParseCompare();
  absl::StatusOr<ExprPtr> ParseSum();
  absl::StatusOr<ExprPtr> ParseConcat();
  absl::StatusOr<ExprPtr> ParseProduct();
  absl::StatusOr<ExprPtr> ParsePower();
  absl::StatusOr<ExprPtr> ParseFiltered();
  absl::StatusOr<ExprPtr> ParseUnary(bool with_filter);
  absl::StatusOr<ExprPtr> ParsePrimary();
  absl::StatusOr<ExprPtr> ParseName();
  absl::StatusOr<ExprPtr> ParseParenthesis();
  absl::StatusOr<ExprPtr> ParseList();
  absl::StatusOr<ExprPtr> ParseDict();
  absl::StatusOr<ExprPtr> ParsePostfix(ExprPtr base);
  absl::StatusOr<ExprPtr> ParseAttribute(ExprPtr base);
  absl::StatusOr<ExprPtr> ParseSubscript(ExprPtr base);
  absl::StatusOr<ExprPtr> ParseFilters(ExprPtr base);
  absl::StatusOr<ExprPtr> ParseTest(ExprPtr base);
  absl::Status ParseArguments(Expr* call);
  absl::StatusOr<ExprPtr> ParseBinary(Level operand, const std::vector<std::string_view>& ops);
  bool BeginsTestArgument() const;

  // Sets the depth from the children; an error above kMaxExprDepth.
  absl::StatusOr<ExprPtr> Finish(ExprPtr expr);

  TokenCursor& in_;
  int nesting_ = 0;
};

}  // namespace snapkv::runtime::jinja
