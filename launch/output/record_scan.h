// SPDX-License-Identifier: Apache-2.0
// Reading an output file again: which records of an earlier run it holds, and where they end.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/base/status.h"
#include "launch/ids/id_set.h"

namespace snapkv::launch {

// What --resume needs of a record, in either form.
struct RecordHead {
  std::string id;
  std::string params_sha256;
  bool failed = false;  // error is not null, or an OpenAI status other than 200
};

// JSON, but not a record: FAILED_PRECONDITION. Not JSON: nullopt.
absl::StatusOr<std::optional<RecordHead>> ParseRecordHead(std::string_view line);

// Lines of a file by pread(2), in memory of one line. Lines longer than kMostRecordBytes are cut to it.
class RecordFile {
 public:
  static constexpr size_t kMostRecordBytes = size_t{64} << 20;

  struct Line {
    std::string_view text;  // without its newline; valid until the next call
    int64_t number = 0;     // from 1
    int64_t begin = 0;      // byte offset in the file
    bool complete = false;  // a newline follows
    bool cut = false;       // longer than kMostRecordBytes
  };

  // Reads the first `bytes` bytes of `fd`, which stays the caller's.
  RecordFile(int fd, int64_t bytes) : fd_(fd), bytes_(bytes), buffer_(kBufferBytes) {}
  // nullopt at the end. Errors are those of reading.
  absl::StatusOr<std::optional<Line>> Next();

 private:
  static constexpr size_t kBufferBytes = size_t{256} << 10;
  absl::StatusOr<bool> Fill();  // false at the end

  int fd_;
  int64_t bytes_;
  int64_t read_ = 0;          // bytes taken from the file
  std::vector<char> buffer_;  // [used_, filled_) is not consumed yet
  size_t used_ = 0, filled_ = 0;
  int64_t number_ = 0;
  std::string line_;
};

struct ScanOptions {
  std::string path{};           // for messages
  std::string params_sha256{};  // that every record must carry
  bool drop_errors = false;     // --retry-errors
};

struct ScanResult {
  IdSet ids;  // of the records that are kept
  int64_t kept_ok = 0, kept_errors = 0;
  int64_t dropped_errors = 0;   // with drop_errors
  int64_t dropped_doubles = 0;  // records whose id an earlier kept record has
  int64_t end_bytes = 0;        // where the last whole record ends; a torn line and blank ones may follow
  bool torn = false;
  // Some record before end_bytes is to go, which takes a new file.
  bool rewrite() const { return dropped_errors + dropped_doubles > 0; }
};

// Reads the first `bytes` bytes of `fd` and changes nothing. A torn last line (no newline, or no JSON: a
// crash may leave NUL bytes) is left out, provided that it looks like a record's beginning where no record
// stands before it. Anything else that is not a record of this program, or one of other parameters, is
// FAILED_PRECONDITION with the line's number.
absl::StatusOr<ScanResult> ScanRecords(int fd, int64_t bytes, const ScanOptions& options);

// Writes the kept records of ScanRecords to `to`; `end_bytes` is its result. The number of bytes written.
absl::StatusOr<int64_t> CopyKeptRecords(int fd, int64_t end_bytes, const ScanOptions& options, int to);

// All of `text`, whatever pieces it takes; also to a descriptor that does not block. 0, or the error number.
int WriteAll(int fd, std::string_view text, size_t* written = nullptr);

}  // namespace snapkv::launch
