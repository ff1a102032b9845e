// SPDX-License-Identifier: Apache-2.0
// ResultWriter: hands results to the output on a thread of its own, so that a slow pipe or disk does not make
// this rank late for the others.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "launch/output/ordered_writer.h"
#include "launch/output/output_log.h"

namespace snapkv::launch {

class ResultWriter {
 public:
  // `log`: null for stdout. `ordered`: results are held back until those before them are out.
  ResultWriter(std::shared_ptr<OutputLog> log, bool ordered);
  ~ResultWriter();

  // The result of document `sequence` (0, 1, ... without gaps, in any order).
  void Put(int64_t sequence, std::string text);
  // Text of a result before it is complete.
  void Stream(std::string text);
  // So much waits that no further document should be started.
  bool congested() const;
  // The first failure to write; later results are dropped.
  absl::Status status() const;
  // Writes what waits and closes. `discard_if_empty`: see OutputLog::Close.
  absl::Status Finish(bool discard_if_empty);

 private:
  struct Item {
    int64_t sequence;  // -1: streamed text
    std::string text;
  };
  void Run();
  absl::Status Write(const std::string& text);

  std::shared_ptr<OutputLog> log_;
  OrderedWriter ordered_;  // used by the thread only, but for held()
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  // All guarded by mutex_.
  std::deque<Item> items_;
  int64_t held_ = 0;
  bool finishing_ = false;
  absl::Status status_;
  std::thread thread_;
};

}  // namespace snapkv::launch
