// SPDX-License-Identifier: Apache-2.0
// BlobFiles: uploaded documents as files of the state folder, named by their document's number.
//
// FOLDER/uploads/N is being uploaded, FOLDER/blobs/N is complete. The database is committed after the file is
// on disk, so a file may be ahead of its row (longer than committed, or published already): what comes next
// cuts it back. Files without a row are removed when the store is opened.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/base/status.h"

namespace snapkv::service {

// Thread-safe for different documents; calls for one document take turns (the store sees to that). A full
// disk is STORAGE_FULL, other failures are INTERNAL and name the file.
class BlobFiles {
 public:
  // Creates the folders below `folder`, which exists.
  static absl::StatusOr<BlobFiles> Open(const std::string& folder);

  // Puts `data` at `committed` of an upload and cuts off what lay behind. On disk when it returns. DATA_LOSS
  // when fewer than `committed` bytes are there. After an error the first `committed` bytes are as they were.
  // `last`: Publish follows, and makes the file's name durable.
  absl::Status Append(int64_t document, int64_t committed, const std::string& data, bool last) const;
  // The whole upload.
  absl::StatusOr<std::string> ReadUpload(int64_t document) const;
  // From uploads to blobs; on disk when it returns.
  absl::Status Publish(int64_t document) const;
  // At most `max_bytes` of a published document from `offset`.
  absl::StatusOr<std::string> Read(int64_t document, int64_t offset, int64_t max_bytes) const;
  // In whichever folder it is, or not at all. A file that cannot be removed is left for the next start.
  void Remove(int64_t document) const;
  // The numbers of all documents with a file, each once, ascending. Files with other names are left alone.
  absl::StatusOr<std::vector<int64_t>> List() const;

 private:
  explicit BlobFiles(std::string folder) : folder_(std::move(folder)) {}
  std::string UploadPath(int64_t document) const;
  std::string BlobPath(int64_t document) const;
  // Takes back a Publish whose commit did not happen.
  absl::Status Unpublish(int64_t document) const;

  std::string folder_;
};

// mkdir -p, only for its owner; the new folder is on disk when it returns.
absl::Status MakeFolder(const std::string& path);

}  // namespace snapkv::service
