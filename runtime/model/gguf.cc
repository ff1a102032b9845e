// SPDX-License-Identifier: Apache-2.0
// Opening a GGUF file, and the typed getters that decode metadata on demand.
#include "runtime/model/gguf.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>

#include "kernels/base/status.h"
#include "runtime/model/gguf_parser.h"

namespace snapkv::runtime {
namespace {

template <class T>
struct IsVector : std::false_type {};
template <class E>
struct IsVector<std::vector<E>> : std::true_type {};

// The name of T in messages: "u32", "array of string".
template <class T>
std::string NameOf() {
  if constexpr (IsVector<T>::value) {
    return absl::StrCat("array of ", NameOf<typename T::value_type>());
  } else if constexpr (std::is_same_v<T, bool>) {
    return "bool";
  } else if constexpr (std::is_same_v<T, std::string>) {
    return "string";
  } else {
    const char* letter = std::is_floating_point_v<T> ? "f" : std::is_signed_v<T> ? "i" : "u";
    return absl::StrCat(letter, 8 * sizeof(T));
  }
}

std::string NameOf(const GgufValue& value) {
  return absl::StrCat(value.is_array ? "array of " : "", GgufTypeName(value.type));
}

template <class T>
T Load(const uint8_t* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

// What became of one stored value on its way to a T.
enum class Outcome { kOk, kWrongType, kOutOfRange };

// Whether a stored value of `type` can be a T at all.
template <class T>
bool Holds(GgufType type) {
  if constexpr (std::is_same_v<T, std::string>) return type == GgufType::kString;
  if constexpr (std::is_same_v<T, bool>) return type == GgufType::kBool;
  const bool is_float = type == GgufType::kF32 || type == GgufType::kF64;
  if constexpr (std::is_floating_point_v<T>) return is_float;
  return !is_float && type != GgufType::kBool && type != GgufType::kString && type != GgufType::kArray;
}

template <class To, class From>
Outcome ConvertInteger(From from, To* to) {
  if (!std::in_range<To>(from)) return Outcome::kOutOfRange;
  *to = static_cast<To>(from);
  return Outcome::kOk;
}

template <class T>
Outcome LoadInteger(GgufType type, const uint8_t* at, T* out) {
  switch (type) {
    case GgufType::kU8:
      return ConvertInteger(Load<uint8_t>(at), out);
    case GgufType::kI8:
      return ConvertInteger(Load<int8_t>(at), out);
    case GgufType::kU16:
      return ConvertInteger(Load<uint16_t>(at), out);
    case GgufType::kI16:
      return ConvertInteger(Load<int16_t>(at), out);
    case GgufType::kU32:
      return ConvertInteger(Load<uint32_t>(at), out);
    case GgufType::kI32:
      return ConvertInteger(Load<int32_t>(at), out);
    case GgufType::kU64:
      return ConvertInteger(Load<uint64_t>(at), out);
    case GgufType::kI64:
      return ConvertInteger(Load<int64_t>(at), out);
    default:
      return Outcome::kWrongType;
  }
}

template <class T>
Outcome LoadFloat(GgufType type, const uint8_t* at, T* out) {
  const double value = type == GgufType::kF32 ? Load<float>(at) : Load<double>(at);
  if (std::isfinite(value) && std::abs(value) > std::numeric_limits<T>::max()) return Outcome::kOutOfRange;
  *out = static_cast<T>(value);
  return Outcome::kOk;
}

// Loads the value at `*at`, of a type that holds a T, and moves `*at` behind it.
template <class T>
Outcome LoadNext(GgufType type, const uint8_t** at, T* out) {
  const uint8_t* from = *at;
  *at += GgufTypeBytes(type);
  if constexpr (std::is_same_v<T, std::string>) {
    const auto length = Load<uint64_t>(from);
    out->assign(reinterpret_cast<const char*>(from) + sizeof length, length);
    *at = from + sizeof length + length;
    return Outcome::kOk;
  } else if constexpr (std::is_same_v<T, bool>) {
    *out = *from != 0;
    return Outcome::kOk;
  } else if constexpr (std::is_floating_point_v<T>) {
    return LoadFloat(type, from, out);
  } else {
    return LoadInteger(type, from, out);
  }
}

template <class T>
Outcome LoadValue(const GgufValue& value, const uint8_t* at, T* out) {
  if (value.is_array != IsVector<T>::value) return Outcome::kWrongType;
  if constexpr (IsVector<T>::value) {
    if (value.count == 0) return Outcome::kOk;  // an empty list's element type says nothing
    if (!Holds<typename T::value_type>(value.type)) return Outcome::kWrongType;
    out->resize(value.count);  // the file holds that many: checked when it was opened
    for (auto& element : *out) {
      if (const Outcome outcome = LoadNext(value.type, &at, &element); outcome != Outcome::kOk)
        return outcome;
    }
    return Outcome::kOk;
  } else {
    if (!Holds<T>(value.type)) return Outcome::kWrongType;
    return LoadNext(value.type, &at, out);
  }
}

}  // namespace

const char* GgufTypeName(GgufType type) {
  constexpr const char* kNames[kGgufTypes] = {"u8",   "i8",     "u16",   "i16", "u32", "i32", "f32",
                                              "bool", "string", "array", "u64", "i64", "f64"};
  return kNames[static_cast<uint32_t>(type)];
}

absl::StatusOr<GgufFile> GgufFile::Open(const std::string& path) {
  GgufFile file;
  ASSIGN_OR_RETURN(file.mapping_, MappedFile::Open(path));
  file.path_ = path;
  file.bytes_ = file.mapping_.bytes();
  RETURN_IF_ERROR(GgufParser(&file).Parse());
  return file;
}

absl::StatusOr<GgufFile> GgufFile::OpenMemory(absl::Span<const uint8_t> bytes, const std::string& name) {
  if (reinterpret_cast<uintptr_t>(bytes.data()) % 8 != 0) {
    return InvalidArgument(name, ": the bytes of a GGUF file in memory must be aligned to 8 bytes");
  }
  GgufFile file;
  file.path_ = name;
  file.bytes_ = bytes;
  RETURN_IF_ERROR(GgufParser(&file).Parse());
  return file;
}

const GgufValue* GgufFile::value(const std::string& key) const {
  const auto found = values_.find(key);
  return found == values_.end() ? nullptr : &found->second;
}

template <class T>
absl::StatusOr<T> GgufFile::Get(const std::string& key) const {
  const GgufValue* found = value(key);
  if (found == nullptr) {
    return NotFound(path_, ": metadata key ", Quoted(key),
                    " is missing; convert the model again with a current converter");
  }
  T result{};
  const Outcome outcome = LoadValue(*found, bytes_.data() + found->offset, &result);
  if (outcome == Outcome::kOk) return result;
  const std::string problem =
      outcome == Outcome::kWrongType
          ? absl::StrCat("has type ", NameOf(*found), " where ", NameOf<T>(), " is needed")
          : absl::StrCat("holds a value out of range for ", NameOf<T>());
  return InvalidArgument(path_, ": metadata key ", Quoted(key), " ", problem,
                         "; convert the model again with a current converter");
}

template absl::StatusOr<bool> GgufFile::Get(const std::string&) const;
template absl::StatusOr<uint32_t> GgufFile::Get(const std::string&) const;
template absl::StatusOr<uint64_t> GgufFile::Get(const std::string&) const;
template absl::StatusOr<int32_t> GgufFile::Get(const std::string&) const;
template absl::StatusOr<int64_t> GgufFile::Get(const std::string&) const;
template absl::StatusOr<float> GgufFile::Get(const std::string&) const;
template absl::StatusOr<double> GgufFile::Get(const std::string&) const;
template absl::StatusOr<std::string> GgufFile::Get(const std::string&) const;
template absl::StatusOr<std::vector<std::string>> GgufFile::Get(const std::string&) const;
template absl::StatusOr<std::vector<int32_t>> GgufFile::Get(const std::string&) const;
template absl::StatusOr<std::vector<int64_t>> GgufFile::Get(const std::string&) const;
template absl::StatusOr<std::vector<float>> GgufFile::Get(const std::string&) const;

absl::StatusOr<GgufTensor> GgufFile::tensor(const std::string& name) const {
  const auto found = tensor_index_.find(name);
  if (found == tensor_index_.end()) {
    return NotFound(path_, ": tensor ", Quoted(name),
                    " is missing; the model is incomplete or of another architecture: convert it again");
  }
  return tensors_[found->second];
}

}  // namespace snapkv::runtime
