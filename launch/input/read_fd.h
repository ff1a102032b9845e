// SPDX-License-Identifier: Apache-2.0
// File descriptors: one that closes itself, and reading that a signal or a slow pipe does not upset.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <utility>

#include "absl/status/statusor.h"

namespace snapkv::launch {

// Asked while a pipe or a terminal has nothing to read, a few times a second; true gives up waiting. An empty
// function never gives up.
using StopFn = std::function<bool()>;

// A file descriptor, closed when this object dies. Move-only. -1: none.
class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd, bool owned = true) : fd_(fd), owned_(owned) {}
  ~UniqueFd() { Close(); }
  UniqueFd(UniqueFd&& other) noexcept
      : fd_(std::exchange(other.fd_, -1)), owned_(std::exchange(other.owned_, false)) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    std::swap(fd_, other.fd_);
    std::swap(owned_, other.owned_);
    return *this;
  }

  int get() const { return fd_; }
  void Close();

 private:
  int fd_ = -1;
  bool owned_ = false;
};

// Opens a regular file; never waits, whatever lies there. Errors as NOT_FOUND, without the path.
absl::StatusOr<UniqueFd> OpenRegular(const std::string& path);
// Opens a file, a named pipe (waits for its writer) or a terminal. Errors as above, CANCELLED as below.
absl::StatusOr<UniqueFd> OpenAny(const std::string& path, const StopFn& stop);

// Reads what is there, at most `bytes` (> 0); 0 is the end. Repeats after a signal, waits where the
// descriptor does not block. Errors: CANCELLED when `stop` says so, else what the system says, as NOT_FOUND.
absl::StatusOr<size_t> ReadSome(int fd, char* to, size_t bytes, const StopFn& stop);

}  // namespace snapkv::launch
