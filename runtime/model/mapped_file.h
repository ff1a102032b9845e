// SPDX-License-Identifier: Apache-2.0
// MappedFile: a whole file mapped read-only into memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace snapkv::runtime {

// Move-only; the bytes keep their address when it moves. Pages are shared between the processes that map the
// same file. The file must not shrink while it is mapped (touching a lost page is SIGBUS).
class MappedFile {
 public:
  MappedFile() = default;
  // Maps the regular file `path`. Errors name the path: NOT_FOUND, PERMISSION_DENIED, INVALID_ARGUMENT for a
  // directory or another kind of file, else UNKNOWN with the system's reason. An empty file gives empty
  // bytes.
  static absl::StatusOr<MappedFile> Open(const std::string& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}
  MappedFile& operator=(MappedFile&& other) noexcept {
    std::swap(bytes_, other.bytes_);
    return *this;
  }

  absl::Span<const uint8_t> bytes() const { return bytes_; }

 private:
  absl::Span<const uint8_t> bytes_;
};

}  // namespace snapkv::runtime
