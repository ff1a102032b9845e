// SPDX-License-Identifier: Apache-2.0
// batch: not there yet beyond --dry-run, and says so.
#include "launch/client/commands.h"
#include "launch/report.h"

namespace snapkv::launch {

int RunBatch(const ClientFlags&, Session&) {
  return Report(Unimplemented("UNIMPLEMENTED: batch has only --dry-run yet; use `snapkv submit --wait`"),
                kExitJobFailed);
}

}  // namespace snapkv::launch
