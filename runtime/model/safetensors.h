// SPDX-License-Identifier: Apache-2.0
// Safetensors files: a reader that maps the file and trusts nothing in it, and a writer that replaces a file
// at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "kernels/base/status.h"
#include "kernels/base/tensor_view.h"
#include "runtime/model/mapped_file.h"

namespace snapkv::runtime {

// Layout of a file: u64 header bytes (little endian), a JSON object {name: {dtype, shape, data_offsets}},
// then the data section that the half-open byte ranges `data_offsets` tile without gap or overlap.

// A file opened for reading, mapped for as long as this object lives. Another process that shortens the file
// meanwhile ends this one with SIGBUS. Thread-safe once opened.
class SafetensorsFile {
 public:
  // Maps `path` and checks every size, name, shape and offset of its header before any is used. Errors name
  // the file and the tensor: what errno says when it cannot be read, DATA_LOSS when it is damaged. Dtypes and
  // ranks that a TensorView cannot hold are no error here, as long as their sizes are right, but one of
  // tensor().
  static absl::StatusOr<SafetensorsFile> Open(const std::string& path);

  SafetensorsFile(SafetensorsFile&&) noexcept = default;
  SafetensorsFile& operator=(SafetensorsFile&&) noexcept = default;

  const std::string& path() const { return path_; }
  // All tensor names, ascending bytewise.
  std::vector<std::string> names() const;
  bool contains(const std::string& name) const { return entries_.contains(name); }

  // The tensor `name` as a contiguous view of f32 f64 f16 bf16 i32 i64 or u8 in read-only memory: writing to
  // it is a fault. A scalar has rank 0. A tensor that lies misaligned in the file is copied once, at the
  // first call. NOT_FOUND names the file and the tensor; UNIMPLEMENTED names a dtype or a rank above
  // kMaxRank.
  absl::StatusOr<TensorView> tensor(const std::string& name) const;

 private:
  struct Entry {
    std::string dtype;           // as the file spells it
    std::vector<int64_t> shape;  // any rank
    int64_t begin = 0;           // bytes from the start of the data section
    int64_t end = 0;
  };
  // Aligned copies of misaligned tensors; behind a pointer because a mutex does not move.
  struct Copies {
    std::mutex mutex;
    std::map<std::string, std::unique_ptr<std::byte[]>> data;
  };

  SafetensorsFile() = default;
  absl::Status ParseHeader();
  absl::Status CheckTiling() const;
  int64_t file_bytes() const { return static_cast<int64_t>(file_.bytes().size()); }

  std::string path_;
  MappedFile file_;
  int64_t data_start_ = 0;  // file offset of the data section
  std::map<std::string, Entry> entries_;
  std::unique_ptr<Copies> copies_ = std::make_unique<Copies>();
};

// Collects views and writes them as one file. Not thread-safe.
class SafetensorsWriter {
 public:
  // Takes note of a contiguous view of a plain dtype; its data must stay valid and unchanged until Write.
  // Errors: a name that is empty, doubled, not UTF-8 or "__metadata__"; a quantised or strided view.
  absl::Status Add(const std::string& name, const TensorView& view);

  // Writes everything added so far. Readers of `path` see the old file or the whole new one: the bytes go to
  // a temporary file in the same folder that is synced and renamed. The order is by element size, largest
  // first, then by Add, so that every tensor is aligned; the same calls give the same bytes. Errors name the
  // path; nothing is left behind. A `path` that exists and is no regular file (a folder, a device) is
  // refused.
  absl::Status Write(const std::string& path) const;

 private:
  struct Tensor {
    std::string name;
    TensorView view;
  };
  std::string Header(const std::vector<const Tensor*>& order) const;

  std::vector<Tensor> tensors_;
};

}  // namespace snapkv::runtime
