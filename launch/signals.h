// SPDX-License-Identifier: Apache-2.0
// SIGINT and SIGTERM: the first asks for an orderly end, the second ends the process at once.
#pragma once

namespace snapkv::launch {

// Handles both from now on, and ignores SIGPIPE and SIGXFSZ. A signal that was ignored when the program
// started (nohup) stays ignored.
void CatchSignals();

// The signal that has come, 0 before.
int PendingSignal();

}  // namespace snapkv::launch
