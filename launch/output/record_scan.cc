// SPDX-License-Identifier: Apache-2.0
// Scanning and copying of output files.
#include "launch/output/record_scan.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>

namespace snapkv::launch {
namespace {

constexpr char kNotOurs[] =
    "is not a record of this program: this is not an output file of snapkv-prefill, or it is damaged. "
    "Nothing "
    "was changed; name another --output, or use --force instead of --resume to overwrite it";

bool IsBlank(std::string_view text) { return text.find_first_not_of(" \t\r") == std::string_view::npos; }

// Whether `text` can be what is left of a record of this program: some of its beginning, then NUL bytes if
// the machine stopped before the data reached the disk.
bool BeginsLikeRecord(std::string_view text) {
  const size_t last = text.find_last_not_of('\0');
  text = text.substr(0, last == std::string_view::npos ? 0 : last + 1);
  constexpr std::string_view kBeginning = "{\"id\":\"";
  const size_t n = std::min(text.size(), kBeginning.size());
  return text.substr(0, n) == kBeginning.substr(0, n);
}

absl::Status LineError(const ScanOptions& options, int64_t number, const std::string& what) {
  return FailedPrecondition(options.path, " line ", number, ": ", what);
}

// Which records stay, in the order of the file.
class Keeper {
 public:
  Keeper(const ScanOptions& options, ScanResult& result) : options_(options), result_(result) {}

  bool Keep(const RecordHead& head) {
    if (head.failed && options_.drop_errors) {
      ++result_.dropped_errors;
      return false;
    }
    if (!result_.ids.Add(head.id)) {
      ++result_.dropped_doubles;
      return false;
    }
    ++(head.failed ? result_.kept_errors : result_.kept_ok);
    return true;
  }

 private:
  const ScanOptions& options_;
  ScanResult& result_;
};

}  // namespace

absl::StatusOr<std::optional<RecordHead>> ParseRecordHead(std::string_view line) {
  const auto json = nlohmann::json::parse(line.begin(), line.end(), nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) return std::nullopt;
  const auto text = [&](const char* key) {
    const auto it = json.find(key);
    return it != json.end() && it->is_string() ? std::optional(it->get<std::string>()) : std::nullopt;
  };
  const absl::Status bad = FailedPrecondition(kNotOurs);
  if (!json.is_object()) return bad;
  const bool open_ai = json.contains("custom_id");
  const auto id = text(open_ai ? "custom_id" : "id");
  const auto params = text("params_sha256");
  const auto error = json.find("error");
  if (!id.has_value() || !params.has_value() || error == json.end()) return bad;
  RecordHead head{*id, *params, !error->is_null()};
  if (open_ai) {
    const auto response = json.find("response");
    if (response == json.end() || !response->is_object()) return bad;
    const auto status = response->find("status_code");
    if (status == response->end() || !status->is_number_integer()) return bad;
    head.failed |= status->get<int64_t>() != 200;
  }
  return head;
}

absl::StatusOr<bool> RecordFile::Fill() {
  used_ = filled_ = 0;
  while (read_ < bytes_) {
    const size_t most = static_cast<size_t>(std::min<int64_t>(bytes_ - read_, kBufferBytes));
    const ssize_t n = pread(fd_, buffer_.data(), most, read_);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return NotFound("cannot be read: ", std::strerror(errno));
    if (n == 0) bytes_ = read_;  // it became shorter
    filled_ = static_cast<size_t>(n);
    read_ += n;
    return n > 0;
  }
  return false;
}

absl::StatusOr<std::optional<RecordFile::Line>> RecordFile::Next() {
  line_.clear();
  Line line;
  line.number = ++number_;
  line.begin = read_ - static_cast<int64_t>(filled_ - used_);
  bool any = false;
  while (!line.complete) {
    if (used_ == filled_) {
      ASSIGN_OR_RETURN(const bool more, Fill());
      if (!more) break;
    }
    any = true;
    const char* begin = buffer_.data() + used_;
    const char* newline = static_cast<const char*>(std::memchr(begin, '\n', filled_ - used_));
    const size_t n = newline != nullptr ? static_cast<size_t>(newline - begin) : filled_ - used_;
    line.complete = newline != nullptr;
    used_ += n + (line.complete ? 1 : 0);
    const size_t room = kMostRecordBytes - line_.size();
    line.cut |= n > room;
    line_.append(begin, std::min(n, room));
  }
  if (!any) return std::nullopt;
  line.text = line_;
  return line;
}

absl::StatusOr<ScanResult> ScanRecords(int fd, int64_t bytes, const ScanOptions& options) {
  ScanResult result;
  Keeper keeper(options, result);
  RecordFile reader(fd, bytes);
  int64_t records = 0;
  bool bad_is_ours = false;
  std::optional<int64_t> bad;  // the number of a line that is not a record; only the last may be one
  while (true) {
    auto next = reader.Next();
    if (!next.ok()) return Annotate(next.status(), options.path);
    if (!next->has_value()) break;
    const RecordFile::Line& line = **next;
    if (line.complete && IsBlank(line.text)) continue;
    if (bad.has_value()) return LineError(options, *bad, kNotOurs);
    std::optional<RecordHead> head;
    if (line.complete && !line.cut) {
      auto parsed = ParseRecordHead(line.text);
      if (!parsed.ok()) return LineError(options, line.number, std::string(parsed.status().message()));
      head = *std::move(parsed);
    }
    if (!head.has_value()) {
      bad = line.number;
      // Whole JSON that is no record is somebody's file and not a torn line.
      bad_is_ours = records > 0 || (BeginsLikeRecord(line.text) && ParseRecordHead(line.text).ok());
      continue;
    }
    if (head->params_sha256 != options.params_sha256) {
      return LineError(
          options, line.number,
          absl::StrCat("was made with other parameters (params_sha256 ", head->params_sha256.substr(0, 12),
                       ", of this run ", options.params_sha256.substr(0, 12),
                       "): resume with the same flags and model, or name another --output, or use --force "
                       "instead of --resume to start again"));
    }
    ++records;
    keeper.Keep(*head);
    result.end_bytes = line.begin + static_cast<int64_t>(line.text.size()) + 1;
  }
  if (bad.has_value() && !bad_is_ours) return LineError(options, *bad, kNotOurs);
  result.torn = bad.has_value();
  return result;
}

absl::StatusOr<int64_t> CopyKeptRecords(int fd, int64_t end_bytes, const ScanOptions& options, int to) {
  constexpr size_t kBlock = size_t{256} << 10;
  ScanResult again;
  Keeper keeper(options, again);
  RecordFile reader(fd, end_bytes);
  std::string block;
  int64_t bytes = 0;
  const auto flush = [&]() -> absl::Status {
    if (const int error = WriteAll(to, block); error != 0)
      return FailedPrecondition("cannot be written: ", std::strerror(error));
    bytes += static_cast<int64_t>(block.size());
    block.clear();
    return absl::OkStatus();
  };
  while (true) {
    ASSIGN_OR_RETURN(const auto line, reader.Next());
    if (!line.has_value()) break;
    if (IsBlank(line->text)) continue;
    ASSIGN_OR_RETURN(const auto head, ParseRecordHead(line->text));
    if (!head.has_value()) return FailedPrecondition("line ", line->number, ": changed while it was read");
    if (!keeper.Keep(*head)) continue;
    block.append(line->text);
    block += '\n';
    if (block.size() >= kBlock) RETURN_IF_ERROR(flush());
  }
  RETURN_IF_ERROR(flush());
  return bytes;
}

int WriteAll(int fd, std::string_view text, size_t* written) {
  size_t done = 0;
  int error = 0;
  while (done < text.size() && error == 0) {
    const ssize_t n = write(fd, text.data() + done, text.size() - done);
    if (n >= 0) {
      done += static_cast<size_t>(n);
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      pollfd wait{.fd = fd, .events = POLLOUT, .revents = 0};
      poll(&wait, 1, -1);
    } else if (errno != EINTR) {
      error = errno;
    }
  }
  if (written != nullptr) *written = done;
  return error;
}

}  // namespace snapkv::launch
