// SPDX-License-Identifier: Apache-2.0
// kill -9 at a chosen change of the file system: every write, fsync, truncation, rename and unlink of this
// process, SQLite's as well.
#pragma once

#include <cstdint>

namespace snapkv::service {

// The process is killed instead of its change number `change` from now on, from 0. Negative: never.
void KillAt(int64_t change);

// Changes so far.
int64_t ChangesSoFar();

}  // namespace snapkv::service
