// SPDX-License-Identifier: Apache-2.0
// How much memory this process may still take, and has taken.
#pragma once

#include <cstdint>

namespace snapkv::launch {

// Bytes that the machine has available, less where this process's control group allows less. INT64_MAX when
// the system does not say.
int64_t AvailableMemory();

// Most bytes that this process has held at once (resident set).
int64_t PeakResidentBytes();

}  // namespace snapkv::launch
