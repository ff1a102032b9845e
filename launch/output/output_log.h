// SPDX-License-Identifier: Apache-2.0
// OutputLog: the JSONL file that a batch appends to, one line a record, and that a later run goes on with.
//
// The file is always a row of whole records, but for one last line while a write is under way; an end of the
// program at any moment leaves at most that line torn, and the next Open with `resume` drops it. A lock
// (flock) on the file itself keeps a second run out; it ends with the process, however that ends. A file
// system that knows no locks costs a warning. A hard link to the file is cut by a rewrite (retry_errors);
// symbolic links are followed.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/time/time.h"
#include "launch/output/record_scan.h"

namespace snapkv::launch {

struct OutputLogOptions {
  std::string path{};            // "" or "-": stdout. A pipe or device is written straight, without a lock
  bool resume = false;           // go on with a file that holds records of the same parameters
  bool retry_errors = false;     // with resume: records of errors are removed, their documents done again
  bool force = false;            // drop what an existing file holds
  std::string params_sha256{};   // 64 digits, as in every record
  std::function<bool()> stop{};  // true ends the waiting for a pipe's reader and for the lock; may be empty
  absl::Duration lock_wait{};    // for a run that is just ending to let go of the file
  absl::Duration sync_interval = absl::Seconds(1);  // data reaches the disk about this often
};

// One thread uses it; Has, kept_ok, kept_errors, dropped_errors and name may be called by any.
class OutputLog {
 public:
  // Opens or creates the file. On an error an existing file keeps its content.
  //   INVALID_ARGUMENT: resume of stdout, a pipe or a device; resume together with force.
  //   FAILED_PRECONDITION: the file holds something and neither resume nor force is set; another run writes
  //   it;
  //     not writable; with resume: a line that is not a record of this program, or of other parameters.
  //   NOT_FOUND: its folder does not exist.
  // With resume, a record whose id an earlier one has is dropped with a warning: the first stays.
  //   CANCELLED: `stop` said so.
  // Opening a pipe waits for its reader. Waits that are not over in a moment are logged.
  static absl::StatusOr<std::unique_ptr<OutputLog>> Open(const OutputLogOptions& options);
  ~OutputLog();  // without Close: leaves the file as it is
  OutputLog(const OutputLog&) = delete;
  OutputLog& operator=(const OutputLog&) = delete;

  // Whether Open found (and kept) a record of this id. Records appended since do not count.
  bool Has(const std::string& id) const { return scan_.ids.Has(id); }
  int64_t kept_ok() const { return scan_.kept_ok; }                // records of summaries found by Open
  int64_t kept_errors() const { return scan_.kept_errors; }        // and of errors
  int64_t dropped_errors() const { return scan_.dropped_errors; }  // removed, to be done again
  int64_t appended() const { return appended_; }
  int64_t bytes() const { return size_; }
  bool is_file() const { return is_file_; }          // and no pipe or device: it can be gone on with
  const std::string& name() const { return name_; }  // for messages: the path, or "stdout"

  // Writes a whole record; `line` ends in '\n' (and has no other, if it is to be resumed). When that fails
  // the file is cut back to the last whole record and FAILED_PRECONDITION names it and what is saved; Append
  // may be tried again.
  absl::Status Append(const std::string& line);
  // Data to the disk, if any is not there yet; Append does so when sync_interval has passed. An error also
  // when the file was deleted meanwhile: then nobody would find what is written.
  absl::Status Sync();
  // Syncs and closes; later calls do nothing. With discard_if_empty a file that Open created and that is
  // still empty is removed.
  absl::Status Close(bool discard_if_empty);

 private:
  OutputLog() = default;
  absl::Status OpenStream();
  absl::Status OpenPipe();
  absl::Status OpenFile();
  absl::StatusOr<bool> TryLock();  // false: the path names another file by now, open it again
  absl::Status Resume();
  absl::Status Rewrite();
  absl::Status CutTo(int64_t bytes);
  absl::Status Fail(const std::string& what, int error) const;
  std::string Saved() const;

  OutputLogOptions options_;
  std::string name_;
  std::string target_;  // the file's own path, without symbolic links
  int fd_ = -1;
  bool owns_fd_ = false;
  bool is_file_ = false;
  bool created_ = false;
  bool broken_ = false;  // a torn record could not be removed
  bool dirty_ = false;
  absl::Time last_sync_ = absl::InfinitePast();
  int64_t size_ = 0;  // of whole records
  int64_t appended_ = 0;
  ScanResult scan_;
};

}  // namespace snapkv::launch
