// SPDX-License-Identifier: Apache-2.0
// The GGUF parser. Layout: "GGUF" | u32 version | u64 tensors | u64 values | values | tensor infos | padding
// | data. A value is key | u32 type | payload; a string u64 length | bytes; an array u32 type | u64 count |
// values; a tensor info name | u32 dims | u64 ne[dims] | u32 type | u64 offset. All little endian.
#include "runtime/model/gguf_parser.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <optional>
#include <type_traits>

#include "absl/strings/escaping.h"
#include "kernels/base/status.h"

namespace snapkv::runtime {
namespace {

static_assert(std::endian::native == std::endian::little, "GGUF values are read in place");

constexpr uint64_t kMaxKeyBytes = 65535;  // the format's own limits
constexpr uint64_t kMaxNameBytes = 64;
constexpr int kMaxArrayDepth = 4;  // no known file nests arrays at all
// Every tensor can then be read in place through its element type.
constexpr uint64_t kMinAlignment = 8;
constexpr const char* kDamaged = "; the file is damaged: download or convert it again";
constexpr const char* kReadableTypes = "F32 F16 BF16 Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 Q2_K Q3_K Q4_K Q5_K Q6_K";

struct GgmlType {
  uint32_t number;
  const char* name;
  std::optional<DType> dtype;
};

// ggml's tensor types by number; those without a DType are known only to be refused by name.
constexpr GgmlType kGgmlTypes[] = {
    {0, "F32", DType::kF32},
    {1, "F16", DType::kF16},
    {2, "Q4_0", DType::kQ4_0},
    {3, "Q4_1", DType::kQ4_1},
    {4, "Q4_2", {}},
    {5, "Q4_3", {}},
    {6, "Q5_0", DType::kQ5_0},
    {7, "Q5_1", DType::kQ5_1},
    {8, "Q8_0", DType::kQ8_0},
    {9, "Q8_1", {}},
    {10, "Q2_K", DType::kQ2_K},
    {11, "Q3_K", DType::kQ3_K},
    {12, "Q4_K", DType::kQ4_K},
    {13, "Q5_K", DType::kQ5_K},
    {14, "Q6_K", DType::kQ6_K},
    {15, "Q8_K", {}},
    {16, "IQ2_XXS", {}},
    {17, "IQ2_XS", {}},
    {18, "IQ3_XXS", {}},
    {19, "IQ1_S", {}},
    {20, "IQ4_NL", {}},
    {21, "IQ3_S", {}},
    {22, "IQ2_S", {}},
    {23, "IQ4_XS", {}},
    {24, "I8", {}},
    {25, "I16", {}},
    {26, "I32", DType::kI32},
    {27, "I64", DType::kI64},
    {28, "F64", DType::kF64},
    {29, "IQ1_M", {}},
    {30, "BF16", DType::kBF16},
    {31, "Q4_0_4_4", {}},
    {32, "Q4_0_4_8", {}},
    {33, "Q4_0_8_8", {}},
    {34, "TQ1_0", {}},
    {35, "TQ2_0", {}},
    {36, "IQ4_NL_4_4", {}},
    {37, "IQ4_NL_4_8", {}},
    {38, "IQ4_NL_8_8", {}},
    {39, "MXFP4", {}},
    {40, "NVFP4", {}},
    {41, "Q1_0", {}},
};

bool Add(uint64_t a, uint64_t b, uint64_t* sum) { return !__builtin_add_overflow(a, b, sum); }

}  // namespace

uint64_t GgufTypeBytes(GgufType type) {
  constexpr uint64_t kBytes[kGgufTypes] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
  return kBytes[static_cast<uint32_t>(type)];
}

std::string Quoted(const std::string& text) {
  constexpr size_t kShown = 80;
  const std::string shown = absl::CHexEscape(text.substr(0, kShown));
  return absl::StrCat("'", shown, text.size() > kShown ? "..." : "", "'");
}

std::string GgufParser::KeyLabel(const std::string& key) const {
  return absl::StrCat(file_.path_, ": metadata key ", Quoted(key));
}

std::string GgufParser::TensorLabel(const std::string& name) const {
  return absl::StrCat(file_.path_, ": tensor ", Quoted(name));
}

absl::Status GgufParser::Truncated(const std::string& what, uint64_t needed) const {
  return DataLoss(what, ": ", needed, " bytes are needed at byte ", position_, " but the file ends at byte ",
                  bytes_.size(), "; it is truncated or damaged: download or convert it again");
}

template <class T>
absl::StatusOr<T> GgufParser::Read(const std::string& what) {
  static_assert(std::is_trivially_copyable_v<T>);
  if (left() < sizeof(T)) return Truncated(what, sizeof(T));
  T value;
  std::memcpy(&value, bytes_.data() + position_, sizeof value);
  position_ += sizeof value;
  return value;
}

absl::StatusOr<std::string> GgufParser::ReadString(const std::string& what, uint64_t limit) {
  ASSIGN_OR_RETURN(const auto length, Read<uint64_t>(what));
  if (length > left()) return Truncated(what, length);
  if (length == 0) return DataLoss(what, ": is empty", kDamaged);
  if (length > limit)
    return DataLoss(what, ": has ", length, " bytes, at most ", limit, " are allowed", kDamaged);
  std::string text(reinterpret_cast<const char*>(bytes_.data()) + position_, length);
  position_ += length;
  return text;
}

absl::Status GgufParser::SkipString(const std::string& what) {
  ASSIGN_OR_RETURN(const auto length, Read<uint64_t>(what));
  if (length > left()) return Truncated(what, length);
  position_ += length;
  return absl::OkStatus();
}

absl::StatusOr<uint64_t> GgufParser::ReadCount(const std::string& what, uint64_t item_bytes) {
  ASSIGN_OR_RETURN(const auto count, Read<uint64_t>(what));
  if (count > left() / item_bytes) {
    return DataLoss(what, " is ", count, " but only ", left(), " bytes follow",
                    "; the file is truncated or damaged: download or convert it again");
  }
  return count;
}

absl::Status GgufParser::Parse() {
  RETURN_IF_ERROR(ReadHeader());
  RETURN_IF_ERROR(ReadMetadata());
  RETURN_IF_ERROR(CheckSplit());
  RETURN_IF_ERROR(ReadAlignment());
  RETURN_IF_ERROR(ReadTensorInfos());
  return PlaceTensors();
}

absl::Status GgufParser::ReadHeader() {
  const std::string& path = file_.path_;
  if (bytes_.empty()) return DataLoss(path, ": the file is empty; download or convert it again");
  const uint64_t shown = std::min<uint64_t>(bytes_.size(), 4);
  const std::string magic(reinterpret_cast<const char*>(bytes_.data()), shown);
  constexpr const char* kUseLittle =
      ": is a big-endian GGUF file, which is not supported; convert the model to little endian";
  if (magic == "FUGG") return InvalidArgument(path, kUseLittle);
  if (magic != "GGUF") {
    return InvalidArgument(path, ": is not a GGUF file: it starts with ", Quoted(magic),
                           " instead of 'GGUF'; name a .gguf model file");
  }
  position_ = 4;
  ASSIGN_OR_RETURN(file_.version_, Read<uint32_t>(path + ": version"));
  const uint32_t version = file_.version_;
  if (version != 0 && (version & 0xffff) == 0) return InvalidArgument(path, kUseLittle);
  if (version == 1) {
    return InvalidArgument(path, ": GGUF version 1 is not supported; convert the model to version 3");
  }
  if (version != 2 && version != 3) {
    return InvalidArgument(path, ": GGUF version ", version, " is not supported (2 and 3 are); convert the ",
                           "model to version 3, or check that the file is not damaged");
  }
  // Least sizes: a tensor info has a name length, a letter, a dimension count, a type and an offset; a value
  // has a key length, a letter, a type and a byte.
  ASSIGN_OR_RETURN(tensor_count_, ReadCount(path + ": the number of tensors", 8 + 1 + 4 + 4 + 8));
  ASSIGN_OR_RETURN(value_count_, ReadCount(path + ": the number of metadata values", 8 + 1 + 4 + 1));
  return absl::OkStatus();
}

absl::StatusOr<GgufType> GgufParser::ReadType(const std::string& label) {
  ASSIGN_OR_RETURN(const auto number, Read<uint32_t>(label));
  if (number >= kGgufTypes) return DataLoss(label, ": unknown value type ", number, kDamaged);
  return static_cast<GgufType>(number);
}

absl::Status GgufParser::ReadMetadata() {
  for (uint64_t i = 0; i < value_count_; ++i) {
    const std::string where = absl::StrCat(file_.path_, ": metadata key number ", i);
    ASSIGN_OR_RETURN(std::string key, ReadString(where, kMaxKeyBytes));
    const std::string label = KeyLabel(key);
    ASSIGN_OR_RETURN(const GgufType type, ReadType(label));
    GgufValue value{.type = type, .offset = position_};
    if (type == GgufType::kArray) {
      RETURN_IF_ERROR(SkipArray(label, 1, &value));
    } else {
      RETURN_IF_ERROR(SkipValues(label, type, 1, 0));
    }
    if (!file_.values_.emplace(key, value).second) return DataLoss(label, ": occurs twice", kDamaged);
    file_.keys_.push_back(std::move(key));
  }
  return absl::OkStatus();
}

absl::Status GgufParser::SkipArray(const std::string& label, int depth, GgufValue* value) {
  if (depth > kMaxArrayDepth) {
    return InvalidArgument(label, ": arrays nest deeper than ", kMaxArrayDepth,
                           " levels; convert the model again");
  }
  value->is_array = true;
  ASSIGN_OR_RETURN(value->type, ReadType(label));
  const uint64_t item = value->type == GgufType::kString  ? 8
                        : value->type == GgufType::kArray ? 4 + 8
                                                          : GgufTypeBytes(value->type);
  ASSIGN_OR_RETURN(value->count, ReadCount(label + ": the length of its array", item));
  value->offset = position_;
  return SkipValues(label, value->type, value->count, depth);
}

absl::Status GgufParser::SkipValues(const std::string& label, GgufType type, uint64_t count, int depth) {
  if (type == GgufType::kString) {
    for (uint64_t i = 0; i < count; ++i) RETURN_IF_ERROR(SkipString(label));
    return absl::OkStatus();
  }
  if (type == GgufType::kArray) {
    for (uint64_t i = 0; i < count; ++i) {
      GgufValue inner;
      RETURN_IF_ERROR(SkipArray(label, depth + 1, &inner));
    }
    return absl::OkStatus();
  }
  // No overflow: an array's count was checked against the bytes left.
  const uint64_t needed = count * GgufTypeBytes(type);
  if (needed > left()) return Truncated(label, needed);
  if (type == GgufType::kBool) {
    for (uint64_t i = 0; i < count; ++i) {
      const int byte = bytes_[position_ + i];
      if (byte > 1) return DataLoss(label, ": a bool has the value ", byte, ", neither 0 nor 1", kDamaged);
    }
  }
  position_ += needed;
  return absl::OkStatus();
}

absl::Status GgufParser::CheckSplit() {
  ASSIGN_OR_RETURN(const auto parts, file_.GetOr<uint64_t>("split.count", 1));
  if (parts <= 1) return absl::OkStatus();
  return InvalidArgument(
      file_.path_, ": is one of ", parts, " parts of a split model (metadata key 'split.count'), ",
      "which is not supported; merge the parts with `gguf-split --merge FIRST-PART.gguf OUT.gguf` ",
      "of llama.cpp and name OUT.gguf");
}

absl::Status GgufParser::ReadAlignment() {
  const std::string key = "general.alignment";
  ASSIGN_OR_RETURN(alignment_, file_.GetOr<uint32_t>(key, 32));
  if (!std::has_single_bit(alignment_) || alignment_ < kMinAlignment) {
    return DataLoss(KeyLabel(key), ": ", alignment_, " is not a power of two of at least ", kMinAlignment,
                    kDamaged);
  }
  return absl::OkStatus();
}

absl::Status GgufParser::ReadTensorInfos() {
  for (uint64_t i = 0; i < tensor_count_; ++i) {
    ASSIGN_OR_RETURN(TensorInfo info, ReadTensorInfo(i));
    if (!file_.tensor_index_.emplace(info.name, infos_.size()).second) {
      return DataLoss(TensorLabel(info.name), ": occurs twice", kDamaged);
    }
    infos_.push_back(std::move(info));
  }
  return absl::OkStatus();
}

absl::StatusOr<GgufParser::TensorInfo> GgufParser::ReadTensorInfo(uint64_t index) {
  TensorInfo info;
  ASSIGN_OR_RETURN(info.name,
                   ReadString(absl::StrCat(file_.path_, ": name of tensor number ", index), kMaxNameBytes));
  const std::string label = TensorLabel(info.name);
  RETURN_IF_ERROR(ReadShape(&info));
  ASSIGN_OR_RETURN(const auto type, Read<uint32_t>(label));
  ASSIGN_OR_RETURN(info.offset, Read<uint64_t>(label));
  RETURN_IF_ERROR(SetType(type, &info));
  if (info.offset % alignment_ != 0) {
    return DataLoss(label, ": its data offset ", info.offset, " is not a multiple of the alignment ",
                    alignment_, kDamaged);
  }
  return info;
}

absl::Status GgufParser::ReadShape(TensorInfo* info) {
  const std::string label = TensorLabel(info->name);
  ASSIGN_OR_RETURN(const auto rank, Read<uint32_t>(label));
  if (rank > kMaxRank) {
    return DataLoss(label, ": has ", rank, " dimensions, at most ", kMaxRank, " are allowed", kDamaged);
  }
  int64_t elements = 1;
  info->shape.resize(rank);
  for (uint32_t i = 0; i < rank; ++i) {
    ASSIGN_OR_RETURN(const auto ne, Read<int64_t>(label));
    if (ne <= 0) return DataLoss(label, ": dimension ", i, " has the size ", ne, kDamaged);
    if (__builtin_mul_overflow(elements, ne, &elements)) {
      return DataLoss(label, ": its number of elements exceeds 2^63", kDamaged);
    }
    info->shape[rank - 1 - i] = ne;
  }
  return absl::OkStatus();
}

absl::Status GgufParser::SetType(uint32_t number, TensorInfo* info) {
  const std::string label = TensorLabel(info->name);
  const auto* type = std::find_if(std::begin(kGgmlTypes), std::end(kGgmlTypes),
                                  [number](const GgmlType& t) { return t.number == number; });
  if (type == std::end(kGgmlTypes) || !type->dtype) {
    const char* name = type == std::end(kGgmlTypes) ? "an unknown type" : type->name;
    return InvalidArgument(label, ": is stored as ", name, " (ggml type ", number,
                           "), which is not supported; use a file quantised to one of ", kReadableTypes);
  }
  info->dtype = *type->dtype;
  const int64_t row = info->shape.empty() ? 1 : info->shape.back();
  if (row % BlockElements(info->dtype) != 0) {
    return DataLoss(label, ": its rows have ", row, " elements, not a multiple of the ",
                    BlockElements(info->dtype), " in a block of ", type->name, kDamaged);
  }
  int64_t elements = 1;
  for (const int64_t n : info->shape) elements *= n;  // checked by ReadShape
  if (__builtin_mul_overflow(static_cast<uint64_t>(elements / BlockElements(info->dtype)),
                             static_cast<uint64_t>(BlockBytes(info->dtype)), &info->bytes)) {
    return DataLoss(label, ": its size exceeds 2^64 bytes", kDamaged);
  }
  return absl::OkStatus();
}

absl::Status GgufParser::PlaceTensors() {
  if (infos_.empty()) return absl::OkStatus();
  // No overflow: the position is at most the size of what is in memory and the alignment fits 32 bits.
  const uint64_t data_begin = (position_ + alignment_ - 1) / alignment_ * alignment_;
  file_.tensors_.reserve(infos_.size());
  for (const TensorInfo& info : infos_) {
    uint64_t begin = 0, end = 0;
    if (!Add(data_begin, info.offset, &begin) || !Add(begin, info.bytes, &end) || end > bytes_.size()) {
      return DataLoss(TensorLabel(info.name), ": its ", info.bytes, " bytes at offset ", info.offset,
                      " of the data, which starts at byte ", data_begin,
                      ", end beyond the end of the file at byte ", bytes_.size(),
                      "; it is truncated or damaged: download or convert it again");
    }
    GgufTensor tensor;
    tensor.name = info.name;
    tensor.view.data = const_cast<uint8_t*>(bytes_.data()) + begin;
    tensor.view.dtype = info.dtype;
    tensor.view.rank = static_cast<int>(info.shape.size());
    std::copy(info.shape.begin(), info.shape.end(), tensor.view.shape.begin());
    tensor.view.SetContiguous();
    file_.tensors_.push_back(std::move(tensor));
  }
  return CheckOverlaps(data_begin);
}

absl::Status GgufParser::CheckOverlaps(uint64_t data_begin) const {
  std::vector<const TensorInfo*> sorted;
  for (const TensorInfo& info : infos_) sorted.push_back(&info);
  std::sort(sorted.begin(), sorted.end(),
            [](const TensorInfo* a, const TensorInfo* b) { return a->offset < b->offset; });
  for (size_t i = 1; i < sorted.size(); ++i) {
    const TensorInfo &a = *sorted[i - 1], &b = *sorted[i];
    if (b.offset - a.offset < a.bytes) {
      return DataLoss(TensorLabel(b.name), ": its data, at byte ", data_begin + b.offset,
                      " of the file, overlaps that of tensor ", Quoted(a.name), kDamaged);
    }
  }
  return absl::OkStatus();
}

}  // namespace snapkv::runtime
