// SPDX-License-Identifier: Apache-2.0
// LineReader: the lines of a file or pipe, one at a time, in memory bounded by the longest line allowed.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "launch/input/read_fd.h"

namespace snapkv::launch {

// A line without its end ("\n" or "\r\n").
struct Line {
  int64_t number = 0;     // from 1; blank lines count
  int64_t bytes = 0;      // true length, also of a line that is too long
  bool too_long = false;  // over the limit; then text is empty
  std::string_view text;  // valid until the next call of Next
};

// Not thread-safe.
class LineReader {
 public:
  // `fd` is not closed, and read from where it stands. `max_line_bytes` > 0.
  LineReader(int fd, int64_t max_line_bytes, StopFn stop = nullptr);

  // The next line that is not blank (spaces, tabs and carriage returns), or nullopt at the end. A byte-order
  // mark at the start of the file is dropped and counts in no column. The last line needs no "\n". A line
  // that is too long is skipped, never held. NUL bytes stay in. Errors: those of ReadSome, CANCELLED when
  // stopped (an unfinished line is then dropped); there is nothing to read after an error.
  absl::StatusOr<std::optional<Line>> Next();

  // Bytes of the file up to the end of that line.
  int64_t bytes_read() const { return filled_bytes_ - static_cast<int64_t>(rest_.size()); }
  // The line that was read last, or began to be; 0 before the first.
  int64_t number() const { return number_; }

 private:
  absl::Status Start();
  absl::StatusOr<bool> Fill();
  void Append(std::string_view part);

  int fd_;
  int64_t max_line_bytes_;
  StopFn stop_;
  std::unique_ptr<char[]> buffer_;
  std::string_view rest_;  // of the buffer
  bool started_ = false;
  bool ended_ = false;
  int64_t number_ = 0;
  int64_t filled_bytes_ = 0;
  std::string line_;   // of the current line, at most max_line_bytes + 1 bytes: the last may be a "\r"
  int64_t bytes_ = 0;  // of the current line
  char last_ = 0;      // byte of the current line
};

}  // namespace snapkv::launch
