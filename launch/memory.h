// SPDX-License-Identifier: Apache-2.0
// How much memory this process may still take.
#pragma once

#include <cstdint>

namespace snapkv::launch {

// Bytes that the machine has available, less where this process's control group allows less. INT64_MAX when
// the system does not say.
int64_t AvailableMemory();

}  // namespace snapkv::launch
