// SPDX-License-Identifier: Apache-2.0
// RunKeepingAlive: work that takes any time on some ranks (a document that somebody is still typing, a model
// on a slow disk) while nobody gives up waiting for them.
#pragma once

#include <functional>

#include "absl/time/time.h"
#include "comm/host_comm.h"

namespace snapkv::launch {

// Every rank calls it; those with `work` run it, the others pass nullptr; all return when all work is done.
// Meanwhile all ranks exchange signs of life, at least four in `timeout` (the transport's), so that only a
// lost rank is a late one. `work` runs on another thread and must not communicate. When another rank is lost
// while it still runs, `give_up` is called and should end the process: what `work` uses must not go away
// before. Without it, or should it return, the error is returned and `work` may still run.
absl::Status RunKeepingAlive(comm::HostComm& host, absl::Duration timeout, const std::function<void()>& work,
                             const std::function<void(const absl::Status&)>& give_up = {});

}  // namespace snapkv::launch
