// SPDX-License-Identifier: Apache-2.0
// From the command line to a subcommand.
#include <cstdlib>

#include "kernels/base/log.h"
#include "launch/client/commands.h"
#include "launch/client/text.h"
#include "launch/exit_codes.h"
#include "launch/report.h"

namespace snapkv::launch {
namespace {

struct Entry {
  const char* name;
  int (*run)(const ClientFlags&, Session&);
};

constexpr Entry kRuns[] = {
    {"submit", RunSubmit},   {"batch", RunBatch},   {"status", RunStatus}, {"watch", RunWatch},
    {"results", RunResults}, {"cancel", RunCancel}, {"delete", RunDelete}, {"list", RunList},
    {"models", RunModels},   {"health", RunHealth},
};

}  // namespace

int RunClient(int argc, const char* const* argv) {
  SetLogPrefix("snapkv: ");
  setenv("GRPC_VERBOSITY", "NONE", /*overwrite=*/0);  // we report errors ourselves
  ClientFlags flags;
  if (const auto exit_code = ParseClientFlags(argc, argv, flags)) return *exit_code;
  if (flags.quiet) SetLogLevel(LogLevel::kWarning);
  if (flags.dry_run) return RunDryRun(flags);
  const auto session = Session::Open(flags.session);
  if (!session.ok()) {
    return Report(session.status(),
                  absl::IsInvalidArgument(session.status()) ? kExitUsage : kExitUnreachable);
  }
  for (const Entry& entry : kRuns) {
    if (flags.command == entry.name) return entry.run(flags, **session);
  }
  return kExitUsage;  // ParseClientFlags knows the same names
}

}  // namespace snapkv::launch
