// SPDX-License-Identifier: Apache-2.0
// Executor: a few threads for work that waits for the disk, so that gRPC's own threads never do.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace snapkv::service {

class Executor {
 public:
  explicit Executor(int threads);
  // Runs what was posted, then ends.
  ~Executor();

  // Tasks begin in the order in which they were posted. Thread-safe.
  void Post(std::function<void()> task);

 private:
  void Run();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> tasks_;  // guarded by mutex_, as is ending_
  bool ending_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace snapkv::service
