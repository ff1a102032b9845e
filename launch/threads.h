// SPDX-License-Identifier: Apache-2.0
// How many threads a rank should use.
#pragma once

#include "comm/host_comm.h"

namespace snapkv::launch {

// max(1, CPUs in this process's affinity mask / ranks of the same host with that very mask). Every rank calls
// it.
absl::StatusOr<int> DefaultThreads(comm::HostComm& host);

}  // namespace snapkv::launch
