// SPDX-License-Identifier: Apache-2.0
// Opens, checks and maps one file.
#include "runtime/model/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "kernels/base/status.h"

namespace snapkv::runtime {
namespace {

absl::Status SystemError(const std::string& path, const char* action, int error) {
  const std::string reason = std::strerror(error);
  switch (error) {
    case ENOENT:
    case ENOTDIR:
      return NotFound(path, ": no such file; check the path");
    case EACCES:
    case EPERM:
      return absl::PermissionDeniedError(
          absl::StrCat(path, ": permission denied; make the file readable for this user"));
    default:
      return absl::UnknownError(absl::StrCat(path, ": cannot ", action, " the file: ", reason));
  }
}

struct Descriptor {
  int fd;
  ~Descriptor() {
    if (fd >= 0) ::close(fd);
  }
};

}  // namespace

absl::StatusOr<MappedFile> MappedFile::Open(const std::string& path) {
  // O_NONBLOCK: opening a FIFO without a writer would otherwise wait for ever.
  const Descriptor file{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  if (file.fd < 0) return SystemError(path, "open", errno);
  struct stat info;
  if (::fstat(file.fd, &info) != 0) return SystemError(path, "stat", errno);
  if (S_ISDIR(info.st_mode)) return InvalidArgument(path, ": is a directory; name the file inside it");
  if (!S_ISREG(info.st_mode)) return InvalidArgument(path, ": is not a regular file; copy it to one first");
  MappedFile mapped;
  if (info.st_size == 0) return mapped;
  const auto size = static_cast<size_t>(info.st_size);
  void* data = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, file.fd, 0);
  if (data == MAP_FAILED) return SystemError(path, "map", errno);
  mapped.bytes_ = {static_cast<const uint8_t*>(data), size};
  return mapped;
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) ::munmap(const_cast<uint8_t*>(bytes_.data()), bytes_.size());
}

}  // namespace snapkv::runtime
