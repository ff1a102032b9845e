// SPDX-License-Identifier: Apache-2.0
// Opening, locking, appending, and going on with an earlier run's file.
#include "launch/output/output_log.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "absl/time/clock.h"
#include "kernels/base/log.h"

namespace snapkv::launch {
namespace {

namespace fs = std::filesystem;

bool IsStdout(const std::string& path) {
  return path.empty() || path == "-" || path == "/dev/stdout" || path == "/dev/fd/1" ||
         path == "/proc/self/fd/1";
}

constexpr absl::Duration kPoll = absl::Milliseconds(50);
// A wait that takes longer than this is worth a line.
constexpr absl::Duration kMoment = absl::Milliseconds(500);

bool SameFile(const struct stat& a, const struct stat& b) {
  return a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

// " (process 1234)" of the run that holds the lock on `file`, where the kernel tells.
std::string LockHolder(const struct stat& file) {
  char wanted[64];
  std::snprintf(wanted, sizeof(wanted), "%02x:%02x:%llu", major(file.st_dev), minor(file.st_dev),
                static_cast<unsigned long long>(file.st_ino));
  std::ifstream locks("/proc/locks");
  std::string number, kind, how, mode, pid, where, rest;
  while (locks >> number >> kind >> how >> mode >> pid >> where && std::getline(locks, rest)) {
    if (kind == "FLOCK" && where == wanted && pid != "0") return " (process " + pid + ")";
  }
  return "";
}

// The folder's entry for a renamed or removed file reaches the disk.
int SyncFolder(const std::string& path) {
  const fs::path parent = fs::path(path).parent_path();
  const int fd = open(parent.empty() ? "." : parent.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return errno;
  int error = fsync(fd) == 0 ? 0 : errno;
  if (error == EINVAL || error == EROFS) error = 0;  // a file system without it
  close(fd);
  return error;
}

// A file beside the output that takes its place. Holding the output's lock, nobody else uses this name; what
// an earlier run left under it is removed.
class Replacement {
 public:
  explicit Replacement(std::string target) : target_(std::move(target)), path_(target_ + ".rewrite.tmp") {}
  ~Replacement() {
    if (fd_ < 0) return;
    close(fd_);
    unlink(path_.c_str());
  }
  const std::string& path() const { return path_; }
  int fd() const { return fd_; }

  // Opens and locks; mode and, where allowed, owner are those of `like`. 0 or the error number.
  int Open(const struct stat& like) {
    if (unlink(path_.c_str()) != 0 && errno != ENOENT) return errno;
    fd_ = open(path_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0600);
    if (fd_ < 0) return errno;
    flock(fd_, LOCK_EX | LOCK_NB);  // new, and ours alone
    if (fchown(fd_, like.st_uid, like.st_gid) != 0 && errno != EPERM && errno != EINVAL) return errno;
    return fchmod(fd_, like.st_mode & 07777) == 0 ? 0 : errno;
  }
  // Renames over the target and hands the descriptor over in `fd`. 0 or the error number.
  int Commit(int& fd) {
    if (fsync(fd_) != 0) return errno;
    if (rename(path_.c_str(), target_.c_str()) != 0) return errno;
    fd = std::exchange(fd_, -1);
    return SyncFolder(target_);
  }

 private:
  std::string target_, path_;
  int fd_ = -1;
};

}  // namespace

absl::StatusOr<std::unique_ptr<OutputLog>> OutputLog::Open(const OutputLogOptions& options) {
  if (options.resume && options.force)
    return InvalidArgument("--resume keeps what ", options.path,
                           " holds and --force drops it: use one of them");
  std::unique_ptr<OutputLog> log(new OutputLog());
  log->options_ = options;
  log->name_ = IsStdout(options.path) ? "stdout" : options.path;
  struct stat found {};
  const bool special = !IsStdout(options.path) && stat(options.path.c_str(), &found) == 0 &&
                       !S_ISREG(found.st_mode) && !S_ISDIR(found.st_mode);
  const bool stream = IsStdout(options.path) || special;
  if (stream && options.resume)
    return InvalidArgument("--resume needs a file to go on with, and ", log->name_, " is none");
  RETURN_IF_ERROR(stream ? log->OpenStream() : log->OpenFile());
  return log;
}

OutputLog::~OutputLog() {
  if (owns_fd_) close(fd_);
}

absl::Status OutputLog::OpenStream() {
  if (name_ == "stdout") {
    std::fflush(stdout);
    fd_ = STDOUT_FILENO;
    return absl::OkStatus();
  }
  struct stat found {};
  if (stat(options_.path.c_str(), &found) == 0 && S_ISFIFO(found.st_mode)) return OpenPipe();
  fd_ = open(options_.path.c_str(), O_WRONLY | O_CLOEXEC | O_NOCTTY);
  if (fd_ < 0) return Fail("cannot be opened", errno);
  owns_fd_ = true;
  struct stat opened {};
  if (fstat(fd_, &opened) == 0 && S_ISBLK(opened.st_mode))
    return FailedPrecondition(name_, ": is a disk, expected a file");
  return absl::OkStatus();
}

// Until somebody reads it, open(2) of a pipe blocks through every signal, or fails at once: the latter, again
// and again, can be ended.
absl::Status OutputLog::OpenPipe() {
  const absl::Time start = absl::Now();
  bool told = false;
  while ((fd_ = open(options_.path.c_str(), O_WRONLY | O_CLOEXEC | O_NONBLOCK)) < 0) {
    if (errno != ENXIO && errno != EINTR) return Fail("cannot be opened", errno);
    if (options_.stop && options_.stop()) return absl::CancelledError("stopped while waiting for the output");
    if (!told && absl::Now() - start > kMoment) {
      told = true;
      LOG(Info) << name_ << ": waiting for somebody to read this pipe";
    }
    absl::SleepFor(kPoll);
  }
  owns_fd_ = true;
  const int flags = fcntl(fd_, F_GETFL);
  if (flags < 0 || fcntl(fd_, F_SETFL, flags & ~O_NONBLOCK) != 0) return Fail("cannot be opened", errno);
  return absl::OkStatus();
}

absl::Status OutputLog::OpenFile() {
  constexpr int kTries = 20;
  bool locked = false;
  for (int i = 0; i < kTries && !locked; ++i) {
    struct stat before {};
    created_ = stat(options_.path.c_str(), &before) != 0 && errno == ENOENT;
    fd_ = open(options_.path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NOCTTY, 0666);
    if (fd_ < 0 && errno == ENOENT)
      return NotFound(name_, ": its folder does not exist; make it, or name another --output");
    if (fd_ < 0) return Fail("cannot be written", errno);
    owns_fd_ = true;
    ASSIGN_OR_RETURN(locked, TryLock());
    if (locked) break;
    close(fd_);
    owns_fd_ = false;
  }
  if (!locked) return FailedPrecondition(name_, ": is replaced again and again by another program");
  is_file_ = true;
  std::error_code error;
  target_ = fs::canonical(options_.path, error).string();
  if (error) target_ = options_.path;
  struct stat opened {};
  if (fstat(fd_, &opened) != 0) return Fail("cannot be read", errno);
  size_ = opened.st_size;
  if (size_ == 0) return absl::OkStatus();
  if (options_.resume) return Resume();
  if (options_.force) return CutTo(0);
  return FailedPrecondition(name_, " exists; use --resume to go on with it or --force to overwrite it");
}

absl::StatusOr<bool> OutputLog::TryLock() {
  struct stat opened {
  }, named{};
  if (fstat(fd_, &opened) != 0) return Fail("cannot be read", errno);
  if (!S_ISREG(opened.st_mode)) return FailedPrecondition(name_, ": is no regular file");
  const absl::Time start = absl::Now(), patience = start + options_.lock_wait;
  bool told = false;
  while (flock(fd_, LOCK_EX | LOCK_NB) != 0) {
    if (errno == EINTR) continue;
    if (errno == EWOULDBLOCK) {
      if (options_.stop && options_.stop())
        return absl::CancelledError("stopped while waiting for the output");
      if (absl::Now() < patience) {
        if (!told && absl::Now() - start > kMoment) {
          told = true;
          LOG(Info) << name_ << ": another run" << LockHolder(opened) << " is writing it; waiting up to "
                    << absl::FormatDuration(options_.lock_wait) << " for its end";
        }
        absl::SleepFor(kPoll);
        continue;
      }
      return FailedPrecondition(name_, ": another run", LockHolder(opened),
                                " is writing it; wait for its end, or name another --output");
    }
    LOG(Warning) << name_ << ": cannot be locked here (" << std::strerror(errno)
                 << "): make sure that no second run writes it";
    break;
  }
  return stat(options_.path.c_str(), &named) == 0 && SameFile(opened, named);
}

absl::Status OutputLog::Resume() {
  const int64_t before = size_;
  const ScanOptions scan{
      .path = name_, .params_sha256 = options_.params_sha256, .drop_errors = options_.retry_errors};
  ASSIGN_OR_RETURN(scan_, ScanRecords(fd_, before, scan));
  size_ = scan_.end_bytes;
  if (scan_.rewrite()) {
    RETURN_IF_ERROR(Rewrite());
  } else if (size_ < before) {
    RETURN_IF_ERROR(CutTo(size_));
  }
  if (scan_.torn) LOG(Info) << name_ << ": the torn last line is dropped; its document is done again";
  if (scan_.dropped_doubles > 0) {
    LOG(Warning) << name_ << ": " << scan_.dropped_doubles
                 << (scan_.dropped_doubles == 1 ? " record is" : " records are")
                 << " dropped because an earlier one has the same id";
  }
  return absl::OkStatus();
}

absl::Status OutputLog::Rewrite() {
  struct stat old {};
  if (fstat(fd_, &old) != 0) return Fail("cannot be read", errno);
  Replacement replacement(target_);
  if (const int error = replacement.Open(old); error != 0)
    return Fail(absl::StrCat("is not changed: ", replacement.path(), " cannot be written"), error);
  const ScanOptions scan{
      .path = name_, .params_sha256 = options_.params_sha256, .drop_errors = options_.retry_errors};
  const auto bytes = CopyKeptRecords(fd_, scan_.end_bytes, scan, replacement.fd());
  if (!bytes.ok()) return Annotate(bytes.status(), replacement.path());
  int fresh = -1;
  const int error = replacement.Commit(fresh);
  if (fresh < 0)
    return Fail(absl::StrCat("is not changed: ", replacement.path(), " cannot take its place"), error);
  close(fd_);
  fd_ = fresh;
  size_ = *bytes;
  created_ = false;
  return error == 0 ? absl::OkStatus() : Fail("its folder cannot be written", error);
}

absl::Status OutputLog::CutTo(int64_t bytes) {
  while (ftruncate(fd_, bytes) != 0) {
    if (errno != EINTR) return Fail("cannot be cut", errno);
  }
  size_ = bytes;
  dirty_ = true;
  return absl::OkStatus();
}

std::string OutputLog::Saved() const {
  const int64_t records = scan_.kept_ok + scan_.kept_errors + appended_;
  const std::string counted = absl::StrCat(records, records == 1 ? " record" : " records");
  if (!is_file_) return absl::StrCat(counted, " written before");
  return absl::StrCat("it holds ", counted, ", each whole; make room and go on with --resume");
}

absl::Status OutputLog::Fail(const std::string& what, int error) const {
  return FailedPrecondition(name_, ": ", what, ": ", std::strerror(error));
}

absl::Status OutputLog::Append(const std::string& line) {
  CHECK(line.ends_with('\n')) << "a record ends with its line";
  if (broken_) return FailedPrecondition(name_, ": an earlier record was torn");
  if (fd_ < 0) return FailedPrecondition(name_, ": is closed");
  size_t written = 0;
  if (const int error = WriteAll(fd_, line, &written); error != 0) {
    const bool torn = written > 0 && (!is_file_ || !CutTo(size_).ok());
    broken_ = torn;
    const std::string message = absl::StrCat("cannot be written: ", std::strerror(error), "; ",
                                             torn && is_file_ ? "its last line is torn; " : "", Saved());
    return FailedPrecondition(name_, ": ", message);
  }
  size_ += static_cast<int64_t>(line.size());
  ++appended_;
  dirty_ = is_file_;
  return absl::Now() - last_sync_ >= options_.sync_interval ? Sync() : absl::OkStatus();
}

absl::Status OutputLog::Sync() {
  if (!is_file_ || fd_ < 0 || !dirty_) return absl::OkStatus();
  if (fdatasync(fd_) != 0 && errno != EINVAL && errno != EROFS) {
    const int error = errno;
    return FailedPrecondition(name_, ": cannot be written to the disk: ", std::strerror(error), "; ",
                              Saved());
  }
  dirty_ = false;
  last_sync_ = absl::Now();
  struct stat now {};
  if (fstat(fd_, &now) != 0) return absl::OkStatus();
  if (now.st_nlink == 0)
    return FailedPrecondition(name_, ": was deleted while this run wrote it; what it held is lost");
  if (now.st_size < size_) {
    return FailedPrecondition(name_, ": was cut to ", now.st_size,
                              " bytes by another program while this run wrote it; go on with --resume");
  }
  return absl::OkStatus();
}

absl::Status OutputLog::Close(bool discard_if_empty) {
  if (fd_ < 0) return absl::OkStatus();
  absl::Status status = Sync();
  struct stat opened {
  }, named{};
  const bool discard = discard_if_empty && is_file_ && created_ && size_ == 0;
  // While the lock is held, so that no other run loses a file it has begun.
  if (discard && fstat(fd_, &opened) == 0 && stat(target_.c_str(), &named) == 0 && SameFile(opened, named) &&
      opened.st_size == 0) {
    unlink(target_.c_str());
  }
  if (owns_fd_ && close(fd_) != 0 && status.ok()) status = Fail("cannot be closed", errno);
  owns_fd_ = false;
  fd_ = -1;
  return status;
}

}  // namespace snapkv::launch
