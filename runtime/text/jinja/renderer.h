// SPDX-License-Identifier: Apache-2.0
// Runs a parsed template.
#pragma once

#include <cstdint>
#include <ctime>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/text/jinja/ast.h"
#include "runtime/text/jinja/value.h"

namespace snapkv::runtime::jinja {

struct RenderOptions {
  uint64_t max_work = uint64_t{16} << 20;  // see Budget
  std::time_t now = 0;                     // what strftime_now prints, in local time
};

// The output of `body` with these variables. Beside them a template sees raise_exception, strftime_now,
// namespace, range and dict. Errors name the line: raise_exception's message, an unknown filter, test, method
// or function, a use of an undefined value, operands that do not go together, recursion deeper than
// kMaxRecursion, more work than max_work. Thread-safe: nothing is shared but the immutable tree and values.
inline constexpr int kMaxRecursion = 500;
absl::StatusOr<std::string> Render(const std::vector<Stmt>& body,
                                   const std::vector<std::pair<std::string, Value>>& variables,
                                   const RenderOptions& options);

}  // namespace snapkv::runtime::jinja
