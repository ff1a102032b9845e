// SPDX-License-Identifier: Apache-2.0
// OnLeader: work of one rank that may take any time, such as reading a document that somebody is still
// typing.
#pragma once

#include <functional>

#include "absl/time/time.h"
#include "comm/host_comm.h"

namespace snapkv::launch {

// Rank 0 calls `work` (from another thread; it must not communicate), the others wait. All ranks exchange
// signs of life meanwhile, at least four in `timeout`, so that a lost one is noticed and a waiting one does
// not give up. Every rank calls it. After an error `work` may still run: the process must end.
absl::Status OnLeader(comm::HostComm& host, absl::Duration timeout, const std::function<void()>& work);

}  // namespace snapkv::launch
