// SPDX-License-Identifier: Apache-2.0
// A thread that works and a loop of small collectives.
#include "launch/on_leader.h"

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>

namespace snapkv::launch {
namespace {

struct Progress {
  std::mutex mutex;
  std::condition_variable changed;
  bool done = false;  // guarded by mutex
};

}  // namespace

absl::Status OnLeader(comm::HostComm& host, absl::Duration timeout, const std::function<void()>& work) {
  const bool leader = host.rank() == 0;
  if (host.size() == 1) {
    work();
    return absl::OkStatus();
  }
  const auto progress = std::make_shared<Progress>();
  std::thread worker;
  if (leader) {
    worker = std::thread([work, progress] {
      work();
      const std::lock_guard lock(progress->mutex);
      progress->done = true;
      progress->changed.notify_one();
    });
  }
  const auto pause = absl::ToChronoMilliseconds(std::min(absl::Seconds(1), timeout / 4));
  absl::Status status;
  for (int64_t done = 0; done == 0 && status.ok();) {
    if (leader) {
      std::unique_lock lock(progress->mutex);
      done = progress->changed.wait_for(lock, pause, [&] { return progress->done; }) ? 1 : 0;
    }
    status = host.AllReduceMax(absl::MakeSpan(&done, 1));
  }
  if (!leader) return status;
  if (status.ok()) {
    worker.join();
  } else {
    worker.detach();  // it may be blocked in a read
  }
  return status;
}

}  // namespace snapkv::launch
