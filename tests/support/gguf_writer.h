// SPDX-License-Identifier: Apache-2.0
// GgufWriter: builds small GGUF files for tests, valid ones and, through the Raw calls, damaged ones.
#pragma once

#include <concepts>
#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

#include "kernels/base/dtype.h"

namespace snapkv::testing {

// Little-endian bytes of a value, or of a string as GGUF stores it (u64 length, bytes).
template <class T>
requires std::is_arithmetic_v<T> std::string GgufBytes(T value) {
  std::string bytes(sizeof value, '\0');
  std::memcpy(bytes.data(), &value, sizeof value);
  return bytes;
}
std::string GgufBytes(const std::string& value);

// The file format's number of a metadata type.
template <class T>
constexpr uint32_t GgufTypeNumber() {
  if constexpr (std::is_same_v<T, std::string>) return 8;
  if constexpr (std::is_same_v<T, bool>) return 7;
  if constexpr (std::is_same_v<T, float>) return 6;
  if constexpr (std::is_same_v<T, double>) return 12;
  constexpr uint32_t kSigned = std::is_signed_v<T> ? 1 : 0;
  if constexpr (sizeof(T) == 8) return 10 + kSigned;
  return (sizeof(T) == 1 ? 0 : sizeof(T) == 2 ? 2 : 4) + kSigned;
}
inline constexpr uint32_t kGgufArrayNumber = 9;
// ggml's number of a tensor type; U8 has none and gives 24 (I8).
uint32_t GgmlTypeNumber(DType type);

class GgufWriter {
 public:
  // Version 2 and 3 differ in the number only.
  explicit GgufWriter(uint32_t version = 3) : version_(version) {}

  // A metadata value of exactly type T: a number, a bool or a string.
  template <class T>
  GgufWriter& Add(const std::string& key, const T& value) {
    return AddRaw(key, GgufTypeNumber<T>(), GgufBytes(value));
  }
  GgufWriter& Add(const std::string& key, const char* value) { return Add(key, std::string(value)); }
  // An array of numbers, bools or strings.
  template <class T>
  GgufWriter& Add(const std::string& key, const std::vector<T>& values) {
    std::string payload = GgufBytes(GgufTypeNumber<T>()) + GgufBytes(uint64_t{values.size()});
    for (const auto& value : values) payload += GgufBytes(T(value));
    return AddRaw(key, kGgufArrayNumber, payload);
  }
  // Any type number with any payload.
  GgufWriter& AddRaw(const std::string& key, uint32_t type, const std::string& payload);
  // Writes `general.alignment` and aligns the data so. Default 32, unwritten. Before the first AddTensor.
  GgufWriter& SetAlignment(uint32_t alignment);

  // A tensor of row-major `shape`; `raw` holds its blocks and is placed at the next aligned offset.
  GgufWriter& AddTensor(const std::string& name, DType type, const std::vector<int64_t>& shape,
                        const std::string& raw);
  // The same from plain values.
  template <class T>
  GgufWriter& AddTensor(const std::string& name, const std::vector<int64_t>& shape,
                        const std::vector<T>& values) {
    return AddTensor(name, DTypeOf<T>, shape,
                     std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)));
  }
  // A tensor info as given (`ne` in ggml's order), and data that need not fit it.
  GgufWriter& AddRawTensor(const std::string& name, const std::vector<uint64_t>& ne, uint32_t type,
                           uint64_t offset, const std::string& data = "");

  // Overrides for damaged files.
  GgufWriter& SetCounts(uint64_t tensors, uint64_t values);

  // The file: header, metadata, tensor infos, padding, data. Nothing follows the last tensor's data.
  std::vector<uint8_t> Bytes() const;
  // Bytes in front of the padding: everything that is parsed.
  size_t header_bytes() const { return Header().size(); }
  // Writes Bytes() to `path`; false when that fails.
  bool Write(const std::string& path) const;

 private:
  std::string Header() const;

  uint32_t version_;
  uint64_t alignment_ = 32;
  uint64_t tensors_ = 0;
  uint64_t values_ = 0;
  std::string metadata_;
  std::string infos_;
  std::string data_;
};

// A small valid file: metadata "m.u8" ... "m.f64", "m.bool", "m.string" of every type (2, -2, 2.5, true,
// "text"), "a.u8" ... "a.string" arrays of three values of each, "nested", an array of arrays, "empty", an
// array of nothing; one tensor "t.NAME" per DType but U8, [2, 256] of counting bytes.
GgufWriter SampleGguf(uint32_t version = 3);

}  // namespace snapkv::testing
