// SPDX-License-Identifier: Apache-2.0
// GgufParser: reads and checks the bytes of a GGUF file once, filling a GgufFile. Private to GgufFile.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/model/gguf.h"

namespace snapkv::runtime {

// Bytes of one value of `type`; 0 for strings and arrays, which have no fixed size.
uint64_t GgufTypeBytes(GgufType type);
// `text` between quotes, made printable and shortened: names in messages come from files nobody checked.
std::string Quoted(const std::string& text);

class GgufParser {
 public:
  explicit GgufParser(GgufFile* file) : file_(*file), bytes_(file->bytes_) {}
  // Fills the file from its bytes_. On error the file must be dropped.
  absl::Status Parse();

 private:
  struct TensorInfo {
    std::string name;
    std::vector<int64_t> shape;  // row-major
    DType dtype;
    uint64_t offset;  // from the start of the data section
    uint64_t bytes;
  };

  uint64_t left() const { return bytes_.size() - position_; }
  // "FILE: metadata key 'K'", "FILE: tensor 'T'".
  std::string KeyLabel(const std::string& key) const;
  std::string TensorLabel(const std::string& name) const;
  // DATA_LOSS: "what: the file ends at byte S but N more bytes are needed at byte P; download it again".
  absl::Status Truncated(const std::string& what, uint64_t needed) const;

  template <class T>
  absl::StatusOr<T> Read(const std::string& what);
  absl::StatusOr<std::string> ReadString(const std::string& what, uint64_t limit);
  absl::Status SkipString(const std::string& what);
  // A count whose items need at least `item_bytes` each.
  absl::StatusOr<uint64_t> ReadCount(const std::string& what, uint64_t item_bytes);

  absl::Status ReadHeader();
  absl::Status ReadMetadata();
  absl::StatusOr<GgufType> ReadType(const std::string& label);
  // Moves past `count` values of `type`, checking each.
  absl::Status SkipValues(const std::string& label, GgufType type, uint64_t count, int depth);
  absl::Status SkipArray(const std::string& label, int depth, GgufValue* value);
  absl::Status CheckSplit();
  absl::Status ReadAlignment();
  absl::Status ReadTensorInfos();
  absl::StatusOr<TensorInfo> ReadTensorInfo(uint64_t index);
  absl::Status ReadShape(TensorInfo* info);
  absl::Status SetType(uint32_t number, TensorInfo* info);
  absl::Status PlaceTensors();
  absl::Status CheckOverlaps(uint64_t data_begin) const;

  GgufFile& file_;
  absl::Span<const uint8_t> bytes_;
  uint64_t position_ = 0;
  uint64_t tensor_count_ = 0;
  uint64_t value_count_ = 0;
  uint64_t alignment_ = 32;
  std::vector<TensorInfo> infos_;
};

}  // namespace snapkv::runtime
