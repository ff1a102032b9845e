// SPDX-License-Identifier: Apache-2.0
// Files of uploaded documents.
#include "runtime/service/store/blob_files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <set>
#include <utility>

#include "absl/strings/numbers.h"
#include "runtime/service/reason.h"
#include "runtime/service/store/database.h"

namespace snapkv::service {
namespace {

// errno of a failed `what` on `path`.
absl::Status FileError(const std::string& path, const char* what) {
  const int number = errno;
  if (number == ENOSPC || number == EDQUOT) return StorageFullError(path);
  return MakeError(Reason::kInternal, absl::StrCat(path, ": cannot ", what, ": ", std::strerror(number),
                                                   "; check the server's state folder"));
}

class File {
 public:
  static absl::StatusOr<File> Open(const std::string& path, int flags) {
    const int fd = ::open(path.c_str(), flags | O_CLOEXEC, 0600);
    if (fd < 0) return FileError(path, "open");
    return File(path, fd);
  }
  File(File&& other) noexcept : path_(std::move(other.path_)), fd_(std::exchange(other.fd_, -1)) {}
  File& operator=(File&&) = delete;
  ~File() {
    if (fd_ >= 0) ::close(fd_);
  }

  absl::StatusOr<int64_t> Size() const {
    struct stat info = {};
    if (::fstat(fd_, &info) != 0) return FileError(path_, "stat");
    return int64_t{info.st_size};
  }
  absl::Status Truncate(int64_t size) const {
    return ::ftruncate(fd_, size) == 0 ? absl::OkStatus() : FileError(path_, "truncate");
  }
  absl::Status WriteAt(int64_t offset, const std::string& data) const {
    size_t done = 0;
    while (done < data.size()) {
      const ssize_t n =
          ::pwrite(fd_, data.data() + done, data.size() - done, offset + static_cast<int64_t>(done));
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) return FileError(path_, "write");
      done += static_cast<size_t>(n);
    }
    return absl::OkStatus();
  }
  // Shorter than `bytes` only at the end of the file.
  absl::StatusOr<std::string> ReadAt(int64_t offset, int64_t bytes) const {
    std::string data(static_cast<size_t>(bytes), '\0');
    size_t done = 0;
    while (done < data.size()) {
      const ssize_t n =
          ::pread(fd_, data.data() + done, data.size() - done, offset + static_cast<int64_t>(done));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return FileError(path_, "read");
      if (n == 0) break;
      done += static_cast<size_t>(n);
    }
    data.resize(done);
    return data;
  }
  absl::Status Sync() const { return ::fsync(fd_) == 0 ? absl::OkStatus() : FileError(path_, "fsync"); }

 private:
  File(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}
  std::string path_;
  int fd_;
};

absl::Status SyncFolder(const std::string& path) {
  ASSIGN_OR_RETURN(const File folder, File::Open(path, O_RDONLY | O_DIRECTORY));
  return folder.Sync();
}

bool Exists(const std::string& path) { return ::access(path.c_str(), F_OK) == 0; }

absl::Status Rename(const std::string& from, const std::string& to) {
  if (::rename(from.c_str(), to.c_str()) != 0) return FileError(from, "rename");
  return absl::OkStatus();
}

}  // namespace

absl::Status MakeFolder(const std::string& path) {
  const std::filesystem::path folder(path);
  if (Exists(path)) {
    std::error_code error;
    if (std::filesystem::is_directory(folder, error)) return absl::OkStatus();
    return FailedPrecondition(path, ": not a folder; give the state folder another place");
  }
  std::filesystem::path parent = folder.parent_path();
  if (parent.empty()) parent = ".";
  if (parent != folder) RETURN_IF_ERROR(MakeFolder(parent.string()));
  if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) return FileError(path, "create");
  return SyncFolder(parent.string());
}

absl::StatusOr<BlobFiles> BlobFiles::Open(const std::string& folder) {
  RETURN_IF_ERROR(MakeFolder(folder + "/uploads"));
  RETURN_IF_ERROR(MakeFolder(folder + "/blobs"));
  return BlobFiles(folder);
}

std::string BlobFiles::UploadPath(int64_t document) const {
  return absl::StrCat(folder_, "/uploads/", document);
}
std::string BlobFiles::BlobPath(int64_t document) const { return absl::StrCat(folder_, "/blobs/", document); }

absl::Status BlobFiles::Unpublish(int64_t document) const {
  RETURN_IF_ERROR(Rename(BlobPath(document), UploadPath(document)));
  RETURN_IF_ERROR(SyncFolder(folder_ + "/uploads"));
  return SyncFolder(folder_ + "/blobs");
}

absl::Status BlobFiles::Append(int64_t document, int64_t committed, const std::string& data,
                               bool last) const {
  const std::string path = UploadPath(document);
  const bool fresh = !Exists(path);
  if (fresh && Exists(BlobPath(document))) RETURN_IF_ERROR(Unpublish(document));
  ASSIGN_OR_RETURN(const File file, File::Open(path, O_RDWR | O_CREAT));
  ASSIGN_OR_RETURN(const int64_t size, file.Size());
  if (size < committed) {
    return DataLoss(path, ": has ", size, " of the ", committed,
                    " bytes that were committed; cancel the job and submit it again");
  }
  if (size > committed) RETURN_IF_ERROR(file.Truncate(committed));
  absl::Status status = file.WriteAt(committed, data);
  if (status.ok()) status = file.Sync();
  if (status.ok() && fresh && !last) status = SyncFolder(folder_ + "/uploads");
  // A part of a chunk is of no use, and its blocks are wanted when the disk is full.
  if (!status.ok()) (void)file.Truncate(committed);
  return status;
}

absl::StatusOr<std::string> BlobFiles::ReadUpload(int64_t document) const {
  ASSIGN_OR_RETURN(const File file, File::Open(UploadPath(document), O_RDONLY));
  ASSIGN_OR_RETURN(const int64_t size, file.Size());
  return file.ReadAt(0, size);
}

absl::Status BlobFiles::Publish(int64_t document) const {
  RETURN_IF_ERROR(Rename(UploadPath(document), BlobPath(document)));
  // Should the old name come back after a power failure, it is the name of an orphan.
  return SyncFolder(folder_ + "/blobs");
}

absl::StatusOr<std::string> BlobFiles::Read(int64_t document, int64_t offset, int64_t max_bytes) const {
  ASSIGN_OR_RETURN(const File file, File::Open(BlobPath(document), O_RDONLY));
  return file.ReadAt(offset, max_bytes);
}

void BlobFiles::Remove(int64_t document) const {
  ::unlink(UploadPath(document).c_str());
  ::unlink(BlobPath(document).c_str());
}

absl::StatusOr<std::vector<int64_t>> BlobFiles::List() const {
  std::set<int64_t> numbers;
  for (const char* name : {"/uploads", "/blobs"}) {
    std::error_code error;
    std::filesystem::directory_iterator entry(folder_ + name, error);
    for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
      const std::string file = entry->path().filename().string();
      int64_t number = 0;
      if (absl::SimpleAtoi(file, &number) && absl::StrCat(number) == file) numbers.insert(number);
    }
    if (error) return MakeError(Reason::kInternal, absl::StrCat(folder_, name, ": ", error.message()));
  }
  return std::vector<int64_t>(numbers.begin(), numbers.end());
}

}  // namespace snapkv::service
