// SPDX-License-Identifier: Apache-2.0
// A disk for SQLite that becomes full when a test says so.
#pragma once

#include <cstdint>

namespace snapkv::service {

// Makes it the default of this process; once, before the first connection.
void InstallFaultVfs();

// After `writes` more writes every further one fails with SQLITE_FULL, until the next call. Negative: never.
void FailAfterWrites(int64_t writes);

// Writes so far.
int64_t WritesSoFar();

}  // namespace snapkv::service
