// SPDX-License-Identifier: Apache-2.0
// RETURN_IF_ERROR and ASSIGN_OR_RETURN for absl::Status, and short constructors for the common codes.
#pragma once

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"

namespace snapkv {

// Status constructors that join their arguments like absl::StrCat. The message names the flag, file, tensor
// or document at fault and says what to do about it.
template <class... Args>
absl::Status InvalidArgument(const Args&... args) {
  return absl::InvalidArgumentError(absl::StrCat(args...));
}
template <class... Args>
absl::Status FailedPrecondition(const Args&... args) {
  return absl::FailedPreconditionError(absl::StrCat(args...));
}
template <class... Args>
absl::Status NotFound(const Args&... args) {
  return absl::NotFoundError(absl::StrCat(args...));
}
template <class... Args>
absl::Status DataLoss(const Args&... args) {
  return absl::DataLossError(absl::StrCat(args...));
}
template <class... Args>
absl::Status ResourceExhausted(const Args&... args) {
  return absl::ResourceExhaustedError(absl::StrCat(args...));
}
template <class... Args>
absl::Status Unimplemented(const Args&... args) {
  return absl::UnimplementedError(absl::StrCat(args...));
}
template <class... Args>
absl::Status DeadlineExceeded(const Args&... args) {
  return absl::DeadlineExceededError(absl::StrCat(args...));
}
template <class... Args>
absl::Status Internal(const Args&... args) {
  return absl::InternalError(absl::StrCat(args...));
}

// The same status with "context: " in front of its message.
inline absl::Status Annotate(const absl::Status& status, const std::string& context) {
  if (status.ok()) return status;
  return absl::Status(status.code(), absl::StrCat(context, ": ", status.message()));
}

}  // namespace snapkv

#define SNAPKV_CONCAT_INNER(a, b) a##b
#define SNAPKV_CONCAT(a, b) SNAPKV_CONCAT_INNER(a, b)

#define RETURN_IF_ERROR(expr)                                                           \
  do {                                                                                  \
    if (absl::Status snapkv_status = (expr); !snapkv_status.ok()) return snapkv_status; \
  } while (false)

// ASSIGN_OR_RETURN(auto x, F()): x = *F(), or returns F()'s error. Declares a variable: one per line.
#define ASSIGN_OR_RETURN(lhs, expr) SNAPKV_ASSIGN_OR_RETURN(SNAPKV_CONCAT(snapkv_or_, __LINE__), lhs, expr)
#define SNAPKV_ASSIGN_OR_RETURN(tmp, lhs, expr)  \
  auto tmp = (expr);                             \
  if (!tmp.ok()) return std::move(tmp).status(); \
  lhs = std::move(tmp).value()
