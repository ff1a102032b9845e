// SPDX-License-Identifier: Apache-2.0
// The C library's functions that change files, in front of its own: a program's definitions come first, for
// shared libraries too.
#include "tests/service/kill_points.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

#include <atomic>

namespace {

std::atomic<int64_t> g_changes{0};
std::atomic<int64_t> g_kill_at{INT64_MAX};

template <class... Args>
long Change(long number, Args... args) {
  if (g_changes++ == g_kill_at) ::kill(::getpid(), SIGKILL);
  return ::syscall(number, args...);
}

}  // namespace

extern "C" {
ssize_t pwrite(int fd, const void* data, size_t bytes, off_t offset) {
  return Change(SYS_pwrite64, fd, data, bytes, offset);
}
ssize_t pwrite64(int fd, const void* data, size_t bytes, off64_t offset) {
  return Change(SYS_pwrite64, fd, data, bytes, offset);
}
int fsync(int fd) { return static_cast<int>(Change(SYS_fsync, fd)); }
int fdatasync(int fd) { return static_cast<int>(Change(SYS_fdatasync, fd)); }
int ftruncate(int fd, off_t size) noexcept { return static_cast<int>(Change(SYS_ftruncate, fd, size)); }
int ftruncate64(int fd, off64_t size) noexcept { return static_cast<int>(Change(SYS_ftruncate, fd, size)); }
int rename(const char* from, const char* to) noexcept {
  return static_cast<int>(Change(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0));
}
int unlink(const char* path) noexcept { return static_cast<int>(Change(SYS_unlinkat, AT_FDCWD, path, 0)); }
}

namespace snapkv::service {

void KillAt(int64_t change) { g_kill_at = change < 0 ? INT64_MAX : g_changes + change; }
int64_t ChangesSoFar() { return g_changes; }

}  // namespace snapkv::service
