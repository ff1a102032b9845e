// SPDX-License-Identifier: Apache-2.0
// The syntax tree of a template. Its depth is bounded by the parser, so walks and destruction may recurse.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "runtime/text/jinja/value.h"

namespace snapkv::runtime::jinja {

struct Expr;
using ExprPtr = std::unique_ptr<Expr>;

struct Expr {
  enum class Kind {
    kLiteral,    // literal
    kName,       // name
    kList,       // children
    kTuple,      // children
    kDict,       // children: key, value, key, value, ...
    kUnary,      // name: "-", "+", "not"; children[0]
    kBinary,     // name: "+", "-", "*", "/", "//", "%", "**", "~"; children[0], [1]
    kAnd,        // children[0], [1]
    kOr,         // children[0], [1]
    kCompare,    // children[0] ops[0] children[1] ops[1] ...; "==" "!=" "<" "<=" ">" ">=" "in" "not in"
    kCondition,  // children: then, condition, else (may be null)
    kAttribute,  // children[0].name
    kItem,       // children[0][children[1]]
    kSlice,      // children[0][children[1]:children[2]:children[3]]; each bound may be null
    kCall,       // children[0](children[1...], named...)
    kFilter,     // children[0] | name(children[1...], named...)
    kTest,       // children[0] is name(children[1...])
  };
  Kind kind;
  int line;
  int depth = 1;
  std::string name;
  Value literal;
  std::vector<ExprPtr> children;
  std::vector<std::string> ops;
  std::vector<std::pair<std::string, ExprPtr>> named;
};

struct Stmt {
  enum class Kind {
    kText,       // text
    kPrint,      // expr
    kIf,         // branches; a null condition is the else branch
    kFor,        // targets in expr [if filter]: body, or else_body when there is nothing
    kSet,        // targets = expr
    kSetBlock,   // targets[0] = the text of body
    kSetMember,  // targets[0].member = expr
    kMacro,      // name(params): body
    kBreak,
    kContinue,
    kGroup,  // body, printed as it is ({% generation %})
  };
  struct Branch {
    ExprPtr condition;
    std::vector<Stmt> body;
  };
  struct Param {
    std::string name;
    ExprPtr fallback;  // null: none
  };
  Kind kind;
  int line;
  std::string text;  // kText: the text; kMacro: the name
  std::string member;
  std::vector<std::string> targets;
  ExprPtr expr;
  ExprPtr filter;
  std::vector<Branch> branches;
  std::vector<Stmt> body;
  std::vector<Stmt> else_body;
  std::vector<Param> params;
};

}  // namespace snapkv::runtime::jinja
