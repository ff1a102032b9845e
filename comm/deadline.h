// SPDX-License-Identifier: Apache-2.0
// Deadline of one wait, the polling rhythm while it waits, and a watchdog for calls that cannot be polled.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

#include "absl/time/time.h"

namespace snapkv::comm {

// Counts only time in which this process could have made progress: a process that was itself suspended
// (Ctrl-Z, a stopped container) must not blame the others when it continues.
class Deadline {
 public:
  using Clock = std::chrono::steady_clock;

  explicit Deadline(absl::Duration timeout) : timeout_(absl::ToChronoNanoseconds(timeout)) { Restart(); }
  void Restart() {
    last_ = Clock::now();
    end_ = last_ + timeout_;
  }
  // Call it in every round of the wait.
  bool Expired() {
    const Clock::time_point now = Clock::now();
    if (now - last_ > kSuspended) end_ += now - last_;
    last_ = now;
    return now >= end_;
  }

 private:
  static constexpr std::chrono::seconds kSuspended{1};  // far above any scheduling delay between two rounds
  std::chrono::nanoseconds timeout_;
  Clock::time_point last_, end_;
};

// Pauses between two rounds of polling: none at first, since a neighbour on another core answers within
// microseconds; then the core is offered to others; then short sleeps, since more ranks than cores may
// compute; then, when nothing has come for a tenth of a second, longer ones: ranks of a worker wait for days.
class Backoff {
 public:
  void Pause();
  // True in one of `kIdleEvery` rounds, and in all once the fast phase is over: for the work that is not
  // urgent.
  bool idle() const { return rounds_ >= kSpins || rounds_ % kIdleEvery == 0; }
  void Restart() { rounds_ = 0; }

 private:
  static constexpr int kIdleEvery = 64;
  static constexpr int kSpins = 256;    // about 30 microseconds of polling
  static constexpr int kYields = 1024;  // ends after about a millisecond on a free core
  static constexpr int kNaps = 1000;    // 0.05 ms each, and as much again to wake up
  int rounds_ = 0;
};

// Calls `expired` from a thread of its own unless it is destroyed within `timeout`.
class Watchdog {
 public:
  Watchdog(absl::Duration timeout, std::function<void()> expired);
  ~Watchdog();

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool done_ = false;  // guarded by mutex_
  std::thread thread_;
};

}  // namespace snapkv::comm
