// SPDX-License-Identifier: Apache-2.0
// GgufFile: a model file in GGUF (version 2 or 3), its metadata and its tensors, mapped and fully checked.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/base/tensor_view.h"
#include "runtime/model/mapped_file.h"

namespace snapkv::runtime {

// Metadata value types, with the numbers of the file format.
enum class GgufType : uint32_t {
  kU8,
  kI8,
  kU16,
  kI16,
  kU32,
  kI32,
  kF32,
  kBool,
  kString,
  kArray,
  kU64,
  kI64,
  kF64,
};
inline constexpr uint32_t kGgufTypes = 13;
// "u8" ... "f64", "string", "array".
const char* GgufTypeName(GgufType type);

// One metadata value. Its bytes stay in the file and have been checked: `count` values of `type` (an array's
// element type; kArray for an array of arrays) lie at `offset`, strings and bools included.
struct GgufValue {
  bool is_array = false;
  GgufType type = GgufType::kU8;
  uint64_t count = 1;
  uint64_t offset = 0;
};

struct GgufTensor {
  std::string name;
  // Over the mapped file: contiguous, read-only (a write faults), valid while its GgufFile lives. The shape
  // is row-major, the reverse of ggml's `ne`: the last dimension is the one that is contiguous and quantised.
  TensorView view;

  DType dtype() const { return view.dtype; }
  absl::Span<const int64_t> shape() const {
    return absl::MakeConstSpan(view.shape.data(), static_cast<size_t>(view.rank));
  }
};

// Move-only; views stay valid when it moves. Const members may be called from any number of threads.
//
// Opening checks every size, offset, count, length, alignment and type against the bytes there are, before
// use: a file that opens can be read without further checks. What it refuses: damaged or truncated files
// (DATA_LOSS), what is not GGUF or not supported: version 1 and those after 3, big-endian files, parts of
// a split model, tensor types outside DType (INVALID_ARGUMENT), and MappedFile's errors. Every message names
// the file, the tensor or key, and what to do.
class GgufFile {
 public:
  static absl::StatusOr<GgufFile> Open(const std::string& path);
  // The same over bytes that the caller keeps alive, aligned to 8 bytes; `name` stands for the path in
  // messages.
  static absl::StatusOr<GgufFile> OpenMemory(absl::Span<const uint8_t> bytes, const std::string& name);
  GgufFile(GgufFile&&) = default;
  GgufFile& operator=(GgufFile&&) = default;

  const std::string& path() const { return path_; }
  uint32_t version() const { return version_; }

  // Metadata keys in the file's order.
  const std::vector<std::string>& keys() const { return keys_; }
  bool has(const std::string& key) const { return values_.contains(key); }
  // Where the value lies; null when there is none.
  const GgufValue* value(const std::string& key) const;

  // The value of `key` as a T, one of: bool, uint32_t, uint64_t, int32_t, int64_t, float, double,
  // std::string, and std::vector of std::string, int32_t, int64_t, float. Integers are accepted from every
  // integer type when the value is in range, floating point from f32 and f64. NOT_FOUND when the key is
  // missing, INVALID_ARGUMENT for another type or a value out of range; both name file and key.
  template <class T>
  absl::StatusOr<T> Get(const std::string& key) const;
  // As Get, but a missing key is no error.
  template <class T>
  absl::StatusOr<std::optional<T>> Find(const std::string& key) const {
    if (!has(key)) return std::optional<T>();
    absl::StatusOr<T> found = Get<T>(key);
    if (!found.ok()) return std::move(found).status();
    return std::optional<T>(*std::move(found));
  }
  template <class T>
  absl::StatusOr<T> GetOr(const std::string& key, T fallback) const {
    if (!has(key)) return fallback;
    return Get<T>(key);
  }

  // In the file's order.
  const std::vector<GgufTensor>& tensors() const { return tensors_; }
  bool has_tensor(const std::string& name) const { return tensor_index_.contains(name); }
  // NOT_FOUND names file and tensor.
  absl::StatusOr<GgufTensor> tensor(const std::string& name) const;

 private:
  friend class GgufParser;
  GgufFile() = default;

  std::string path_;
  MappedFile mapping_;  // empty after OpenMemory
  absl::Span<const uint8_t> bytes_;
  uint32_t version_ = 0;
  std::vector<std::string> keys_;
  absl::flat_hash_map<std::string, GgufValue> values_;
  std::vector<GgufTensor> tensors_;
  absl::flat_hash_map<std::string, size_t> tensor_index_;
};

extern template absl::StatusOr<bool> GgufFile::Get(const std::string&) const;
extern template absl::StatusOr<uint32_t> GgufFile::Get(const std::string&) const;
extern template absl::StatusOr<uint64_t> GgufFile::Get(const std::string&) const;
extern template absl::StatusOr<int32_t> GgufFile::Get(const std::string&) const;
extern template absl::StatusOr<int64_t> GgufFile::Get(const std::string&) const;
extern template absl::StatusOr<float> GgufFile::Get(const std::string&) const;
extern template absl::StatusOr<double> GgufFile::Get(const std::string&) const;
extern template absl::StatusOr<std::string> GgufFile::Get(const std::string&) const;
extern template absl::StatusOr<std::vector<std::string>> GgufFile::Get(const std::string&) const;
extern template absl::StatusOr<std::vector<int32_t>> GgufFile::Get(const std::string&) const;
extern template absl::StatusOr<std::vector<int64_t>> GgufFile::Get(const std::string&) const;
extern template absl::StatusOr<std::vector<float>> GgufFile::Get(const std::string&) const;

}  // namespace snapkv::runtime
