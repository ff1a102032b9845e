// SPDX-License-Identifier: Apache-2.0
// A thread that works and a loop of small collectives.
#include "launch/keep_alive.h"

#include <algorithm>
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

absl::Status RunKeepingAlive(comm::HostComm& host, absl::Duration timeout, const std::function<void()>& work,
                             const std::function<void(const absl::Status&)>& give_up) {
  if (host.size() == 1) {
    if (work) work();
    return absl::OkStatus();
  }
  const auto progress = std::make_shared<Progress>();
  progress->done = !work;
  std::thread worker;
  if (work) {
    worker = std::thread([work, progress] {
      work();
      const std::lock_guard lock(progress->mutex);
      progress->done = true;
      progress->changed.notify_one();
    });
  }
  const auto pause = absl::ToChronoMilliseconds(std::min(absl::Seconds(1), timeout / 4));
  absl::Status status;
  for (int64_t pending = 1; pending != 0 && status.ok();) {
    {
      std::unique_lock lock(progress->mutex);
      pending = progress->changed.wait_for(lock, pause, [&] { return progress->done; }) ? 0 : 1;
    }
    status = host.AllReduceMax(absl::MakeSpan(&pending, 1));
  }
  if (!worker.joinable()) return status;
  if (status.ok()) {
    worker.join();
  } else {
    if (give_up) give_up(status);
    worker.detach();  // it may be blocked in a read
  }
  return status;
}

}  // namespace snapkv::launch
