// SPDX-License-Identifier: Apache-2.0
// read(2) with its interruptions dealt with.
#include "launch/input/read_fd.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "kernels/base/status.h"

namespace snapkv::launch {
namespace {

// How long a request to stop may go unnoticed.
constexpr int kPollMs = 200;

// Waits until `fd` can be read (or has an end or an error to tell); false: `stop` said so first.
bool WaitReadable(int fd, const StopFn& stop) {
  while (true) {
    pollfd request = {.fd = fd, .events = POLLIN, .revents = 0};
    const int ready = ::poll(&request, 1, stop ? kPollMs : -1);
    if (stop && stop()) return false;
    if (ready > 0 || (ready < 0 && errno != EINTR)) return true;
  }
}

}  // namespace

void UniqueFd::Close() {
  if (owned_ && fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

absl::StatusOr<UniqueFd> OpenRegular(const std::string& path) {
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (fd.get() < 0) return NotFound("cannot be read: ", std::strerror(errno));
  struct stat info = {};
  if (::fstat(fd.get(), &info) != 0 || !S_ISREG(info.st_mode)) {
    return NotFound(S_ISDIR(info.st_mode) ? "is a directory" : "is not a regular file", ", expected a file");
  }
  return fd;
}

absl::StatusOr<UniqueFd> OpenAny(const std::string& path, const StopFn& stop) {
  while (true) {
    UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY));
    if (fd.get() >= 0) return fd;
    if (errno != EINTR) return NotFound("cannot be read: ", std::strerror(errno));
    if (stop && stop()) return absl::CancelledError("reading was stopped");
  }
}

absl::StatusOr<size_t> ReadSome(int fd, char* to, size_t bytes, const StopFn& stop) {
  bool wait = static_cast<bool>(stop);
  while (true) {
    if (wait && !WaitReadable(fd, stop)) return absl::CancelledError("reading was stopped");
    const ssize_t n = ::read(fd, to, bytes);
    if (n >= 0) return static_cast<size_t>(n);
    if (errno == EAGAIN || errno == EWOULDBLOCK) {
      wait = true;
    } else if (errno != EINTR) {
      return NotFound("cannot be read: ", std::strerror(errno));
    }
  }
}

}  // namespace snapkv::launch
