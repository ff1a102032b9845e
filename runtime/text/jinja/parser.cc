// SPDX-License-Identifier: Apache-2.0
// The statement half of the template parser.
#include "runtime/text/jinja/parser.h"

#include <algorithm>
#include <initializer_list>
#include <string>
#include <utility>

#include "kernels/base/status.h"
#include "runtime/text/jinja/expr_parser.h"
#include "runtime/text/jinja/lexer.h"
#include "runtime/text/utf8.h"

namespace snapkv::runtime::jinja {
namespace {

class StmtParser {
 public:
  explicit StmtParser(std::vector<Token> tokens) : in_(std::move(tokens)), exprs_(&in_) {}

  absl::StatusOr<std::vector<Stmt>> Run() {
    ASSIGN_OR_RETURN(std::vector<Stmt> body, ParseBody({}));
    if (!in_.Is(Token::Kind::kEnd)) return in_.Unexpected("the end of the template");
    return body;
  }

 private:
  // Statements up to {% end ..., of which '{%' is taken and the name is not; up to the end of the template
  // when there are no `ends`.
  absl::StatusOr<std::vector<Stmt>> ParseBody(std::initializer_list<const char*> ends);
  absl::StatusOr<Stmt> ParseStatement();
  absl::StatusOr<Stmt> ParseIf(int line);
  absl::StatusOr<Stmt> ParseFor(int line);
  absl::StatusOr<Stmt> ParseSet(int line);
  absl::StatusOr<Stmt> ParseMacro(int line);
  absl::StatusOr<Stmt> ParseLoopControl(Stmt::Kind kind, int line);
  absl::Status ParseParams(Stmt* macro);
  absl::StatusOr<std::vector<std::string>> ParseTargets();
  absl::Status EndBlock() { return in_.Expect(Token::Kind::kBlockEnd, "'%}'"); }
  absl::Status EndStatement(const char* name);

  TokenCursor in_;
  ExprParser exprs_;
  int depth_ = 0;
  int loops_ = 0;  // enclosing for statements, up to the macro
  bool in_macro_ = false;
};

Stmt Make(Stmt::Kind kind, int line) {
  Stmt stmt;
  stmt.kind = kind;
  stmt.line = line;
  return stmt;
}

absl::StatusOr<std::vector<Stmt>> StmtParser::ParseBody(std::initializer_list<const char*> ends) {
  if (++depth_ > kMaxBlockDepth) {
    return ErrorAt(in_.line(), absl::StrCat("blocks are nested deeper than ", kMaxBlockDepth));
  }
  std::vector<Stmt> body;
  while (!in_.Is(Token::Kind::kEnd)) {
    if (in_.Is(Token::Kind::kText)) {
      const int line = in_.line();
      body.push_back(Make(Stmt::Kind::kText, line));
      body.back().text = in_.Next().text;
    } else if (in_.Is(Token::Kind::kVariableBegin)) {
      Stmt print = Make(Stmt::Kind::kPrint, in_.Next().line);
      ASSIGN_OR_RETURN(print.expr, exprs_.ParseTuple(true));
      RETURN_IF_ERROR(in_.Expect(Token::Kind::kVariableEnd, "'}}'"));
      body.push_back(std::move(print));
    } else {
      RETURN_IF_ERROR(in_.Expect(Token::Kind::kBlockBegin, "text or a tag"));
      if (std::any_of(ends.begin(), ends.end(), [&](const char* end) { return in_.IsName(end); })) {
        --depth_;
        return body;
      }
      ASSIGN_OR_RETURN(Stmt stmt, ParseStatement());
      body.push_back(std::move(stmt));
    }
  }
  if (ends.size() > 0) return in_.Unexpected(absl::StrCat("{% ", *(ends.end() - 1), " %}"));
  --depth_;
  return body;
}

absl::Status StmtParser::EndStatement(const char* name) {
  if (!in_.TakeName(name)) return in_.Unexpected(absl::StrCat("'", name, "'"));
  return EndBlock();
}

absl::StatusOr<Stmt> StmtParser::ParseStatement() {
  const int line = in_.line();
  ASSIGN_OR_RETURN(const std::string name, in_.ExpectName("a statement name after '{%'"));
  if (name == "if") return ParseIf(line);
  if (name == "for") return ParseFor(line);
  if (name == "set") return ParseSet(line);
  if (name == "macro") return ParseMacro(line);
  if (name == "break") return ParseLoopControl(Stmt::Kind::kBreak, line);
  if (name == "continue") return ParseLoopControl(Stmt::Kind::kContinue, line);
  if (name == "generation") {
    RETURN_IF_ERROR(EndBlock());
    Stmt group = Make(Stmt::Kind::kGroup, line);
    ASSIGN_OR_RETURN(group.body, ParseBody({"endgeneration"}));
    RETURN_IF_ERROR(EndStatement("endgeneration"));
    return group;
  }
  return ErrorAt(line, absl::StrCat("unknown or misplaced statement '", name,
                                    "'; supported: if, for, set, macro, break, continue, generation, raw"));
}

absl::StatusOr<Stmt> StmtParser::ParseLoopControl(Stmt::Kind kind, int line) {
  if (loops_ == 0) return ErrorAt(line, "'break' and 'continue' stand only inside a for loop");
  RETURN_IF_ERROR(EndBlock());
  return Make(kind, line);
}

absl::StatusOr<Stmt> StmtParser::ParseIf(int line) {
  Stmt stmt = Make(Stmt::Kind::kIf, line);
  bool more = true;
  while (more) {
    Stmt::Branch branch;
    ASSIGN_OR_RETURN(branch.condition, exprs_.ParseTuple(true));
    RETURN_IF_ERROR(EndBlock());
    ASSIGN_OR_RETURN(branch.body, ParseBody({"elif", "else", "endif"}));
    stmt.branches.push_back(std::move(branch));
    more = in_.TakeName("elif");
  }
  if (in_.TakeName("else")) {
    RETURN_IF_ERROR(EndBlock());
    Stmt::Branch branch;
    ASSIGN_OR_RETURN(branch.body, ParseBody({"endif"}));
    stmt.branches.push_back(std::move(branch));
  }
  RETURN_IF_ERROR(EndStatement("endif"));
  return stmt;
}

absl::StatusOr<std::vector<std::string>> StmtParser::ParseTargets() {
  const bool parenthesis = in_.TakeOp("(");
  std::vector<std::string> targets;
  do {
    ASSIGN_OR_RETURN(std::string name, in_.ExpectName("a variable name"));
    for (const char* constant : {"true", "false", "none", "True", "False", "None"}) {
      if (name == constant) return ErrorAt(in_.line(), absl::StrCat("'", name, "' cannot be assigned"));
    }
    targets.push_back(std::move(name));
  } while (in_.TakeOp(","));
  if (parenthesis) RETURN_IF_ERROR(in_.ExpectOp(")"));
  return targets;
}

absl::StatusOr<Stmt> StmtParser::ParseFor(int line) {
  Stmt stmt = Make(Stmt::Kind::kFor, line);
  ASSIGN_OR_RETURN(stmt.targets, ParseTargets());
  if (!in_.TakeName("in")) return in_.Unexpected("'in'");
  ASSIGN_OR_RETURN(stmt.expr, exprs_.ParseTuple(false));
  if (in_.TakeName("if")) {
    ASSIGN_OR_RETURN(stmt.filter, exprs_.ParseExpression());
  }
  if (in_.IsName("recursive")) return ErrorAt(line, "recursive for loops are not supported");
  RETURN_IF_ERROR(EndBlock());
  ++loops_;
  ASSIGN_OR_RETURN(stmt.body, ParseBody({"else", "endfor"}));
  --loops_;
  if (in_.TakeName("else")) {
    RETURN_IF_ERROR(EndBlock());
    ASSIGN_OR_RETURN(stmt.else_body, ParseBody({"endfor"}));
  }
  RETURN_IF_ERROR(EndStatement("endfor"));
  return stmt;
}

absl::StatusOr<Stmt> StmtParser::ParseSet(int line) {
  Stmt stmt = Make(Stmt::Kind::kSet, line);
  if (in_.IsOp(".", 1)) {
    ASSIGN_OR_RETURN(std::string name, in_.ExpectName("a variable name"));
    in_.Next();
    stmt.kind = Stmt::Kind::kSetMember;
    stmt.targets = {std::move(name)};
    ASSIGN_OR_RETURN(stmt.member, in_.ExpectName("an attribute name after '.'"));
  } else {
    ASSIGN_OR_RETURN(stmt.targets, ParseTargets());
  }
  if (in_.TakeOp("=")) {
    ASSIGN_OR_RETURN(stmt.expr, exprs_.ParseTuple(true));
    RETURN_IF_ERROR(EndBlock());
    return stmt;
  }
  if (stmt.kind == Stmt::Kind::kSetMember || stmt.targets.size() != 1 || !in_.Is(Token::Kind::kBlockEnd)) {
    return in_.Unexpected("'='");
  }
  stmt.kind = Stmt::Kind::kSetBlock;
  RETURN_IF_ERROR(EndBlock());
  ASSIGN_OR_RETURN(stmt.body, ParseBody({"endset"}));
  RETURN_IF_ERROR(EndStatement("endset"));
  return stmt;
}

absl::Status StmtParser::ParseParams(Stmt* macro) {
  RETURN_IF_ERROR(in_.ExpectOp("("));
  while (!in_.TakeOp(")")) {
    if (!macro->params.empty()) RETURN_IF_ERROR(in_.ExpectOp(","));
    Stmt::Param param;
    ASSIGN_OR_RETURN(param.name, in_.ExpectName("a parameter name"));
    if (in_.TakeOp("=")) {
      ASSIGN_OR_RETURN(param.fallback, exprs_.ParseExpression());
    } else if (!macro->params.empty() && macro->params.back().fallback != nullptr) {
      return ErrorAt(in_.line(), absl::StrCat("parameter '", param.name, "' follows one that has a default"));
    }
    macro->params.push_back(std::move(param));
  }
  return absl::OkStatus();
}

absl::StatusOr<Stmt> StmtParser::ParseMacro(int line) {
  if (loops_ > 0 || in_macro_) {
    return ErrorAt(line, "a macro inside a for loop or another macro is not supported");
  }
  Stmt macro = Make(Stmt::Kind::kMacro, line);
  ASSIGN_OR_RETURN(macro.text, in_.ExpectName("a macro name"));
  RETURN_IF_ERROR(ParseParams(&macro));
  RETURN_IF_ERROR(EndBlock());
  in_macro_ = true;
  ASSIGN_OR_RETURN(macro.body, ParseBody({"endmacro"}));
  in_macro_ = false;
  // Jinja allows the name to be repeated.
  if (in_.TakeName("endmacro") && in_.IsName(macro.text)) in_.Next();
  RETURN_IF_ERROR(EndBlock());
  return macro;
}

}  // namespace

absl::StatusOr<std::vector<Stmt>> Parse(std::string_view source) {
  if (source.size() > kMaxSourceBytes) {
    return InvalidArgument("the chat template has ", source.size(), " bytes; at most ", kMaxSourceBytes,
                           " are supported");
  }
  if (const auto bad = ValidateUtf8(source)) {
    return InvalidArgument("the chat template is not UTF-8 at byte offset ", *bad);
  }
  ASSIGN_OR_RETURN(std::vector<Token> tokens, Lex(source));
  return StmtParser(std::move(tokens)).Run();
}

}  // namespace snapkv::runtime::jinja
