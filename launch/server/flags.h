// SPDX-License-Identifier: Apache-2.0
// The command line of snapkv-server.
#pragma once

#include <optional>
#include <string>

#include "runtime/service/server/server.h"

namespace snapkv::launch {

struct ServerFlags {
  service::ServerOptions options;
  bool json_log = false;
};

// Parses and checks. Returns the exit code when the program is to end at once (after --help or an error).
std::optional<int> ParseServerFlags(int argc, const char* const* argv, ServerFlags& flags);

}  // namespace snapkv::launch
