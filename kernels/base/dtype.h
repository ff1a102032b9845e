// SPDX-License-Identifier: Apache-2.0
// Element types: plain ones and the GGML block-quantised ones, and the bf16 / f16 scalar conversions.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace snapkv {

// Plain types hold one element per `BlockBytes`; quantised types hold `BlockElements` elements per block of
// `BlockBytes` (layouts: ggml's block_q4_0 ... block_q6_K).
enum class DType : uint8_t {
  kF32,
  kF64,
  kF16,
  kBF16,
  kI32,
  kI64,
  kU8,
  kQ4_0,
  kQ4_1,
  kQ5_0,
  kQ5_1,
  kQ8_0,
  kQ2_K,
  kQ3_K,
  kQ4_K,
  kQ5_K,
  kQ6_K,
};

constexpr const char* DTypeName(DType t) {
  constexpr const char* kNames[] = {"f32",  "f64",  "f16",  "bf16", "i32",  "i64",  "u8",   "q4_0", "q4_1",
                                    "q5_0", "q5_1", "q8_0", "q2_K", "q3_K", "q4_K", "q5_K", "q6_K"};
  return kNames[static_cast<int>(t)];
}

constexpr bool IsQuantized(DType t) { return t >= DType::kQ4_0; }

// Elements per block: 1 for plain types, 32 or 256 for quantised ones.
constexpr int BlockElements(DType t) {
  if (t < DType::kQ4_0) return 1;
  return t < DType::kQ2_K ? 32 : 256;
}

// Bytes per block; for plain types the element size.
constexpr int BlockBytes(DType t) {
  constexpr int kBytes[] = {4, 8, 2, 2, 4, 8, 1, 18, 20, 22, 24, 34, 84, 110, 144, 176, 210};
  return kBytes[static_cast<int>(t)];
}

// bf16 is stored as its 16 bits in a type of its own, so that it is never mistaken for an integer.
struct Bf16 {
  uint16_t bits;
};
struct F16 {
  uint16_t bits;
};

inline float ToFloat(Bf16 x) { return std::bit_cast<float>(uint32_t{x.bits} << 16); }
inline float ToFloat(float x) { return x; }

// Round to nearest, ties to even. NaN stays NaN (quiet); overflow becomes infinity.
inline Bf16 ToBf16(float x) {
  const uint32_t u = std::bit_cast<uint32_t>(x);
  if (std::isnan(x)) return {static_cast<uint16_t>((u >> 16) | 0x40)};
  return {static_cast<uint16_t>((u + 0x7fff + ((u >> 16) & 1)) >> 16)};
}

// IEEE half to float, exact, subnormals, infinities and NaN included.
inline float ToFloat(F16 x) {
  const uint32_t sign = uint32_t{x.bits & 0x8000u} << 16, exponent = (x.bits >> 10) & 31,
                 mantissa = x.bits & 1023;
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7f800000u | mantissa << 13);
  if (exponent != 0) return std::bit_cast<float>(sign | (exponent + 112) << 23 | mantissa << 13);
  const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
  return sign != 0 ? -magnitude : magnitude;
}

template <class T>
struct DTypeOfT;
template <>
struct DTypeOfT<float> {
  static constexpr DType value = DType::kF32;
};
template <>
struct DTypeOfT<double> {
  static constexpr DType value = DType::kF64;
};
template <>
struct DTypeOfT<F16> {
  static constexpr DType value = DType::kF16;
};
template <>
struct DTypeOfT<Bf16> {
  static constexpr DType value = DType::kBF16;
};
template <>
struct DTypeOfT<int32_t> {
  static constexpr DType value = DType::kI32;
};
template <>
struct DTypeOfT<int64_t> {
  static constexpr DType value = DType::kI64;
};
template <>
struct DTypeOfT<uint8_t> {
  static constexpr DType value = DType::kU8;
};
// The DType of a C++ element type.
template <class T>
inline constexpr DType DTypeOf = DTypeOfT<T>::value;

}  // namespace snapkv
