// SPDX-License-Identifier: Apache-2.0
// Errors on stderr, and the exit codes they lead to.
#pragma once

#include <string>

#include "kernels/base/log.h"
#include "launch/exit_codes.h"
#include "launch/input/document.h"

namespace snapkv::launch {

inline constexpr char kEmptyInput[] = "the input holds no document; check what --input names";

// Says what went wrong and returns `exit_code`.
inline int Report(const absl::Status& status, int exit_code) {
  LOG(Error) << status.message();
  return exit_code;
}

// After an input that ended early: a mistake on the command line (FAILED_PRECONDITION) or an unreadable file.
inline int InputExitCode(const absl::Status& status) {
  return absl::IsFailedPrecondition(status) ? kExitUsage : kExitInputUnreadable;
}

// A failed document in one line: its id, unless the message begins with it, and the message.
inline std::string ErrorLine(const Document& document, const DocumentError& error) {
  const std::string message(error.status.message());
  return message.starts_with(document.id) ? message : document.id + ": " + message;
}

}  // namespace snapkv::launch
