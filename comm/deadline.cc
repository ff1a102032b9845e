// SPDX-License-Identifier: Apache-2.0
// Polling rhythm and watchdog thread.
#include "comm/deadline.h"

#include <sched.h>

#include <utility>

namespace snapkv::comm {

void Backoff::Pause() {
  ++rounds_;
  if (rounds_ <= kSpins) return;
  if (rounds_ <= kSpins + kYields) {
    sched_yield();
    return;
  }
  const bool naps = rounds_ <= kSpins + kYields + kNaps;
  if (!naps) rounds_ = kSpins + kYields + kNaps;
  std::this_thread::sleep_for(std::chrono::microseconds(naps ? 50 : 1000));
}

Watchdog::Watchdog(absl::Duration timeout, std::function<void()> expired) {
  thread_ = std::thread([this, timeout, expired = std::move(expired)] {
    std::unique_lock<std::mutex> lock(mutex_);
    const bool done = changed_.wait_for(lock, absl::ToChronoNanoseconds(timeout), [this] { return done_; });
    if (!done) expired();
  });
}

Watchdog::~Watchdog() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    done_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

}  // namespace snapkv::comm
