// SPDX-License-Identifier: Apache-2.0
// What the subcommands do. Each returns the exit code; errors are on stderr by then.
#pragma once

#include "launch/client/client_flags.h"

namespace snapkv::launch {

int RunSubmit(const ClientFlags& flags, Session& session);
int RunBatch(const ClientFlags& flags, Session& session);
// The input of a batch, checked; needs no server.
int RunDryRun(const ClientFlags& flags);
int RunStatus(const ClientFlags& flags, Session& session);
int RunWatch(const ClientFlags& flags, Session& session);
int RunResults(const ClientFlags& flags, Session& session);
int RunCancel(const ClientFlags& flags, Session& session);
int RunDelete(const ClientFlags& flags, Session& session);
int RunList(const ClientFlags& flags, Session& session);
int RunModels(const ClientFlags& flags, Session& session);
int RunHealth(const ClientFlags& flags, Session& session);

// main() behind the handling of signals and standard streams.
int RunClient(int argc, const char* const* argv);

}  // namespace snapkv::launch
