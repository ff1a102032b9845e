// SPDX-License-Identifier: Apache-2.0
// Checked paths, temporary files and renames.
#include "launch/output/output_files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

namespace snapkv::launch {
namespace {

namespace fs = std::filesystem;

// A pipe, device or socket: it is there and cannot be replaced by a file.
bool IsDevice(const std::string& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  return !error && fs::exists(status) && !fs::is_regular_file(status) && !fs::is_directory(status);
}

// One spelling per file, whether it exists or not.
fs::path Canonical(const std::string& path) {
  std::error_code error;
  const fs::path canonical = fs::weakly_canonical(fs::absolute(path, error), error);
  return error ? fs::path(path) : canonical;
}

absl::Status CheckOutput(const OutputFile& output) {
  const std::string what = absl::StrCat(output.flag, " ", output.path);
  const fs::path parent = fs::path(output.path).parent_path();
  const std::string folder = parent.empty() ? "." : parent.string();
  std::error_code error;
  if (fs::is_directory(output.path, error)) return FailedPrecondition(what, ": is a folder, expected a file");
  if (IsDevice(output.path)) {
    if (!output.device_ok) return FailedPrecondition(what, ": is no regular file, which this needs");
    if (access(output.path.c_str(), W_OK) == 0) return absl::OkStatus();
    return FailedPrecondition(what, ": is not writable");
  }
  if (!fs::is_directory(folder, error)) return NotFound(what, ": the folder ", folder, " does not exist");
  if (access(folder.c_str(), W_OK) != 0)
    return FailedPrecondition(what, ": the folder ", folder, " is not writable");
  if (!output.overwrite && fs::exists(output.path, error))
    return FailedPrecondition(what, " exists; use --force to overwrite it");
  return absl::OkStatus();
}

absl::Status CannotWrite(const std::string& path, int error) {
  return FailedPrecondition(path, ": cannot be written: ", std::strerror(error));
}

// Writes all of `text` and closes. The error number, 0 for success.
int WriteAndClose(std::FILE* file, const std::string& text) {
  errno = 0;
  const bool written = std::fwrite(text.data(), 1, text.size(), file) == text.size();
  int error = written ? 0 : errno;
  if (std::fclose(file) != 0 && error == 0) error = errno;
  return written || error != 0 ? error : EIO;
}

// Device and inode of a regular file or a pipe.
std::optional<std::pair<dev_t, ino_t>> Identity(const std::string& path) {
  struct stat file {};
  if (path.empty() || stat(path.c_str(), &file) != 0 || !(S_ISREG(file.st_mode) || S_ISFIFO(file.st_mode)))
    return std::nullopt;
  return std::pair(file.st_dev, file.st_ino);
}

}  // namespace

void FileSet::Add(const std::string& path) {
  if (const auto identity = Identity(path)) files_.emplace(*identity, path);
}

std::optional<std::string> FileSet::Find(const std::string& path) const {
  const auto identity = Identity(path);
  if (!identity.has_value()) return std::nullopt;
  const auto it = files_.find(*identity);
  return it == files_.end() ? std::nullopt : std::optional(it->second);
}

absl::Status CheckOutputs(const std::vector<OutputFile>& outputs, const std::vector<std::string>& inputs) {
  return CheckOutputs(outputs, FileSet(inputs));
}

absl::Status CheckOutputs(const std::vector<OutputFile>& outputs, const FileSet& inputs) {
  std::vector<const OutputFile*> files;
  for (const OutputFile& output : outputs) {
    if (output.path.empty()) continue;
    if (const auto input = inputs.Find(output.path)) {
      return InvalidArgument(output.flag, " ", output.path, " is the input ", *input,
                             ": choose another file");
    }
    if (IsDevice(output.path)) continue;
    for (const OutputFile* other : files) {
      if (Canonical(other->path) != Canonical(output.path)) continue;
      return InvalidArgument(other->flag, " and ", output.flag, " both name ", output.path,
                             ": choose another file for one of them");
    }
    files.push_back(&output);
  }
  for (const OutputFile& output : outputs)
    if (!output.path.empty()) RETURN_IF_ERROR(CheckOutput(output));
  return absl::OkStatus();
}

absl::Status WriteFile(const std::string& path, const std::string& text) {
  if (IsDevice(path)) {
    std::FILE* file = std::fopen(path.c_str(), "wb");
    const int error = file == nullptr ? errno : WriteAndClose(file, text);
    return error == 0 ? absl::OkStatus() : CannotWrite(path, error);
  }
  std::error_code ignored;
  const std::string target = fs::is_symlink(path, ignored) ? Canonical(path).string() : path;
  const std::string temporary = target + ".tmp" + std::to_string(getpid());
  std::FILE* file = std::fopen(temporary.c_str(), "wb");
  if (file == nullptr) return CannotWrite(path, errno);
  int error = WriteAndClose(file, text);
  if (error == 0 && std::rename(temporary.c_str(), target.c_str()) != 0) error = errno;
  if (error == 0) return absl::OkStatus();
  std::remove(temporary.c_str());
  return CannotWrite(path, error);
}

absl::Status WriteStdout(const std::string& text) {
  errno = 0;
  const bool written = std::fwrite(text.data(), 1, text.size(), stdout) == text.size();
  if (std::fflush(stdout) == 0 && written && std::ferror(stdout) == 0) return absl::OkStatus();
  return FailedPrecondition("stdout cannot be written",
                            errno != 0 ? absl::StrCat(": ", std::strerror(errno)) : std::string());
}

void ReserveStandardStreams() {
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(fd, F_GETFD) != -1) continue;
    // The wrong direction on purpose: reading or writing fails as it would on the closed stream. The lowest
    // free number is `fd`.
    [[maybe_unused]] const int opened = open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY);
  }
}

}  // namespace snapkv::launch
