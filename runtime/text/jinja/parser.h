// SPDX-License-Identifier: Apache-2.0
// Parses template source into a syntax tree.
#pragma once

#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/text/jinja/ast.h"

namespace snapkv::runtime::jinja {

// Bounds on what a template file can make the program do.
inline constexpr size_t kMaxSourceBytes = size_t{1} << 20;
inline constexpr int kMaxExprDepth = 200;  // nested or chained operators
inline constexpr int kMaxBlockDepth = 50;

// Errors name the line and what was found: syntax, statements outside the subset (include, extends, call,
// ...), the bounds above, source that is not UTF-8. Filters, tests, methods and functions are looked up when
// they are reached.
absl::StatusOr<std::vector<Stmt>> Parse(std::string_view source);

}  // namespace snapkv::runtime::jinja
