// SPDX-License-Identifier: Apache-2.0
// What the client shows: text of a server made safe for a terminal, errors as sentences, and the exit codes
// they lead to.
#pragma once

#include <string>
#include <string_view>

#include "kernels/base/status.h"

namespace snapkv::launch {

// One line without control characters (C0, DEL, C1) and without characters that reorder text: each becomes
// '?'; bytes that are not UTF-8 become U+FFFD. At most about `most_bytes`, then "...".
std::string Printable(std::string_view text, size_t most_bytes = 2000);

// JSON text (with its newlines) whose strings have DEL and C1 controls as \u escapes: the same value, safe on
// a terminal.
std::string SafeJson(std::string_view json);

// "REASON: what is wrong; what to do", REASON in capitals: the server's, else the name of the code.
std::string ErrorSentence(const absl::Status& error, const std::string& server);

// Of an error that a call to the server ended with: kExitUnreachable or kExitServerRefused; after a signal
// 128 + its number.
int RpcExitCode(const absl::Status& error);

// The call did not come to an answer of the server: try again. UNAVAILABLE, RESOURCE_EXHAUSTED with a delay,
// a deadline, and what gRPC itself makes of a connection that breaks.
bool IsTransient(const absl::Status& error);

}  // namespace snapkv::launch
