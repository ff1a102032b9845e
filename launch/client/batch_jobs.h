// SPDX-License-Identifier: Apache-2.0
// BatchJobs: which jobs a batch has at the server, in a file beside its output that a later run finds.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace snapkv::launch {

// A job that has some of the items [first, end) of the input: those that had no record when it was made.
struct BatchJob {
  std::string request_id{};  // noted before CreateJob is called
  std::string name{};        // "": the answer to CreateJob is not known
  int64_t first = 0;
  int64_t end = -1;   // -1: not sealed yet
  int64_t after = 0;  // records of results up to here are on the disk
};

// Thread-safe. Every change replaces the file as a whole.
class BatchJobs {
 public:
  // `path` empty: nothing is kept.
  BatchJobs(std::string path, std::string params_sha256);

  // OUT.snapkv-job, or "" when the output is no file that can be gone on with.
  static std::string PathFor(const std::string& output);

  // What an earlier run left. Nothing, with a warning, when the file is damaged or of other parameters.
  // Error: it cannot be read.
  absl::Status Load();
  std::vector<BatchJob> All() const;
  // Adds, or replaces the one with this request_id.
  absl::Status Put(const BatchJob& job);
  // The last one removes the file.
  absl::Status Remove(const std::string& request_id);

 private:
  absl::Status SaveLocked() const;

  const std::string path_, params_sha256_;
  mutable std::mutex mutex_;
  std::vector<BatchJob> jobs_;
};

}  // namespace snapkv::launch
