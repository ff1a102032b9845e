// SPDX-License-Identifier: Apache-2.0
// batch: a JSONL file through the server.
#include <unistd.h>

#include "launch/client/batch_client.h"
#include "launch/client/commands.h"
#include "launch/exit_codes.h"

namespace snapkv::launch {

int RunBatch(const ClientFlags& flags, Session& session) {
  const std::string side_file = BatchJobs::PathFor(flags.output);
  if (flags.retry_errors && !side_file.empty() && access(side_file.c_str(), F_OK) == 0) {
    // Jobs of the run before still have results, errors among them: these first, then what failed.
    ClientFlags unfinished = flags;
    unfinished.retry_errors = false;
    const int exit_code = BatchClient(unfinished, session).Run();
    if (exit_code != kExitOk && exit_code != kExitDocumentsFailed) return exit_code;
  }
  return BatchClient(flags, session).Run();
}

}  // namespace snapkv::launch
