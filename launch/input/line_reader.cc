// SPDX-License-Identifier: Apache-2.0
// Lines out of a fixed buffer.
#include "launch/input/line_reader.h"

#include <algorithm>

#include "kernels/base/status.h"

namespace snapkv::launch {
namespace {

constexpr size_t kBufferBytes = size_t{64} << 10;
// A line's memory beyond this is given back after the line.
constexpr size_t kKeptBytes = size_t{1} << 20;
// Limits up to this are reserved in one step when a line passes kKeptBytes: pages that are not touched cost
// nothing, while growing by doubling would hold the line twice for a moment.
constexpr size_t kReservedBytes = size_t{64} << 20;

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

bool IsBlank(std::string_view text) { return text.find_first_not_of(" \t\r") == std::string_view::npos; }

}  // namespace

LineReader::LineReader(int fd, int64_t max_line_bytes, StopFn stop)
    : fd_(fd),
      max_line_bytes_(max_line_bytes),
      stop_(std::move(stop)),
      buffer_(std::make_unique<char[]>(kBufferBytes)) {}

absl::StatusOr<bool> LineReader::Fill() {
  if (!rest_.empty()) return true;
  if (ended_) return false;
  ended_ = true;  // also after an error
  ASSIGN_OR_RETURN(const size_t n, ReadSome(fd_, buffer_.get(), kBufferBytes, stop_));
  ended_ = n == 0;
  filled_bytes_ += static_cast<int64_t>(n);
  rest_ = std::string_view(buffer_.get(), n);
  return n > 0;
}

void LineReader::Append(std::string_view part) {
  if (part.empty()) return;
  last_ = part.back();
  bytes_ += static_cast<int64_t>(part.size());
  const auto most = static_cast<size_t>(max_line_bytes_) + 1;
  if (static_cast<size_t>(bytes_) > most) {
    if (line_.capacity() > kKeptBytes) line_ = std::string();
    line_.clear();
    return;
  }
  const size_t needed = line_.size() + part.size();
  if (needed > kKeptBytes && needed > line_.capacity()) {
    line_.reserve(most <= kReservedBytes ? most : std::min(most, std::max(needed, 2 * line_.capacity())));
  }
  line_.append(part);
}

// A pipe may deliver the mark in parts; anything else is not waited for.
absl::Status LineReader::Start() {
  started_ = true;
  ended_ = true;  // also after an error
  size_t held = 0;
  do {
    ASSIGN_OR_RETURN(const size_t n, ReadSome(fd_, buffer_.get() + held, kBufferBytes - held, stop_));
    held += n;
    ended_ = n == 0;
    rest_ = std::string_view(buffer_.get(), held);
    filled_bytes_ += static_cast<int64_t>(n);
  } while (!ended_ && held < kByteOrderMark.size() && kByteOrderMark.starts_with(rest_));
  if (rest_.starts_with(kByteOrderMark)) rest_.remove_prefix(kByteOrderMark.size());
  return absl::OkStatus();
}

absl::StatusOr<std::optional<Line>> LineReader::Next() {
  if (!started_) RETURN_IF_ERROR(Start());
  while (true) {
    if (line_.capacity() > kKeptBytes) line_ = std::string();
    line_.clear();
    bytes_ = 0;
    last_ = 0;
    ASSIGN_OR_RETURN(bool more, Fill());
    if (!more) return std::nullopt;
    ++number_;
    while (more) {
      const size_t end = rest_.find('\n');
      Append(rest_.substr(0, end));
      if (end != std::string_view::npos) {
        rest_.remove_prefix(end + 1);
        break;
      }
      rest_ = {};
      ASSIGN_OR_RETURN(more, Fill());
    }
    const bool carriage_return = bytes_ > 0 && last_ == '\r';
    bytes_ -= carriage_return ? 1 : 0;
    if (bytes_ > max_line_bytes_) return Line{number_, bytes_, true, {}};
    if (carriage_return) line_.pop_back();
    if (!IsBlank(line_)) return Line{number_, bytes_, false, line_};
  }
}

}  // namespace snapkv::launch
