// SPDX-License-Identifier: Apache-2.0
// Scalar dequantisation: one function per block type, each element computed from its own index alone.
//
// Layouts (ggml): all scalars little endian, `d` the block's f16 scale, `m` or `dmin` its f16 minimum. In the
// 256-element types the sub-blocks are 16 (Q2_K, Q3_K, Q6_K) or 32 (Q4_K, Q5_K) consecutive elements.
#include "kernels/ref/dequantize.h"

#include <cassert>
#include <cstring>

namespace snapkv::kernels::ref {
namespace {

// The block's f16 at byte `offset`, which need not be aligned.
float Half(const uint8_t* block, int offset) {
  F16 value;
  std::memcpy(&value, block + offset, sizeof value);
  return ToFloat(value);
}

// Nibble `i` of 32 in 16 bytes: the low nibbles are elements 0-15, the high ones 16-31.
int Nibble32(const uint8_t* qs, int i) { return i < 16 ? qs[i] & 15 : qs[i - 16] >> 4; }

int Bit(const uint8_t* bytes, int byte, int bit) { return (bytes[byte] >> bit) & 1; }

// d | 16 bytes of nibbles
float Q4_0(const uint8_t* block, int i) {
  return static_cast<float>(Nibble32(block + 2, i) - 8) * Half(block, 0);
}

// d | m | 16 bytes of nibbles
float Q4_1(const uint8_t* block, int i) {
  return static_cast<float>(Nibble32(block + 4, i)) * Half(block, 0) + Half(block, 2);
}

// d | 32 fifth bits | 16 bytes of nibbles
float Q5_0(const uint8_t* block, int i) {
  const int q = Nibble32(block + 6, i) | Bit(block + 2, i / 8, i % 8) << 4;
  return static_cast<float>(q - 16) * Half(block, 0);
}

// d | m | 32 fifth bits | 16 bytes of nibbles
float Q5_1(const uint8_t* block, int i) {
  const int q = Nibble32(block + 8, i) | Bit(block + 4, i / 8, i % 8) << 4;
  return static_cast<float>(q) * Half(block, 0) + Half(block, 2);
}

// d | 32 signed bytes
float Q8_0(const uint8_t* block, int i) {
  return static_cast<float>(static_cast<int8_t>(block[2 + i])) * Half(block, 0);
}

// 2-bit quant `i` of 256 in 64 bytes: 32 bytes hold 128 elements, four runs of 32 in bit pairs 0-1, 2-3, ...
int Pair256(const uint8_t* bytes, int i) {
  return (bytes[32 * (i / 128) + i % 32] >> (i % 128 / 32 * 2)) & 3;
}

// 16 bytes, low nibble the scale and high nibble the minimum of a sub-block of 16 | 64 bytes of pairs | d |
// dmin
float Q2_K(const uint8_t* block, int i) {
  const int sub = block[i / 16];
  const float scale = Half(block, 80) * static_cast<float>(sub & 15);
  const float minimum = Half(block, 82) * static_cast<float>(sub >> 4);
  return scale * static_cast<float>(Pair256(block + 16, i)) - minimum;
}

// 6-bit scale `s` of 16 in 12 bytes: 8 bytes of low nibbles (0-7, then 8-15), 4 bytes of top bit pairs.
int Scale6(const uint8_t* bytes, int s) {
  const int low = s < 8 ? bytes[s] & 15 : bytes[s - 8] >> 4;
  return low | ((bytes[8 + s % 4] >> (s / 4 * 2)) & 3) << 4;
}

// 32 bytes of third bits (bit i/32 of byte i%32; a clear bit means minus 4) | 64 bytes of pairs | 12 bytes of
// scales, biased by 32, of sub-blocks of 16 | d
float Q3_K(const uint8_t* block, int i) {
  const int q = Pair256(block + 32, i) - (Bit(block, i % 32, i / 32) ? 0 : 4);
  return Half(block, 108) * static_cast<float>(Scale6(block + 96, i / 16) - 32) * static_cast<float>(q);
}

// Q4_K and Q5_K start alike: d | dmin | 12 bytes of 6-bit scales and minima of 8 sub-blocks. Bytes 0-3 hold
// scales 0-3, bytes 4-7 minima 0-3, bytes 8-11 the low nibbles of scales (low) and minima (high) 4-7, whose
// top bits are the top bits of bytes 0-3 (scales) and 4-7 (minima).
float Affine6(const uint8_t* block, int s, int q) {
  const uint8_t* bytes = block + 4;
  const int scale = s < 4 ? bytes[s] & 63 : (bytes[s + 4] & 15) | (bytes[s - 4] >> 6) << 4;
  const int minimum = s < 4 ? bytes[s + 4] & 63 : bytes[s + 4] >> 4 | (bytes[s] >> 6) << 4;
  return Half(block, 0) * static_cast<float>(scale) * static_cast<float>(q) -
         Half(block, 2) * static_cast<float>(minimum);
}

// Nibble `i` of 256 in 128 bytes: 32 bytes hold 64 elements, the low nibbles first.
int Nibble256(const uint8_t* qs, int i) { return (qs[32 * (i / 64) + i % 32] >> (i / 32 % 2 * 4)) & 15; }

// 16 bytes of scales | 128 bytes of nibbles
float Q4_K(const uint8_t* block, int i) { return Affine6(block, i / 32, Nibble256(block + 16, i)); }

// 16 bytes of scales | 32 bytes of fifth bits (bit i/32 of byte i%32) | 128 bytes of nibbles
float Q5_K(const uint8_t* block, int i) {
  const int q = Nibble256(block + 48, i) | Bit(block + 16, i % 32, i / 32) << 4;
  return Affine6(block, i / 32, q);
}

// 128 bytes of nibbles (64 bytes hold 128 elements: two runs of 32 low, two of 32 high) | 64 bytes of top
// pairs | 16 signed scales of sub-blocks of 16 | d. Biased by 32.
float Q6_K(const uint8_t* block, int i) {
  const int run = i % 128 / 32;
  const int low = (block[64 * (i / 128) + run % 2 * 32 + i % 32] >> (run / 2 * 4)) & 15;
  const int q = (low | Pair256(block + 128, i) << 4) - 32;
  const float scale = static_cast<float>(static_cast<int8_t>(block[192 + i / 16]));
  return Half(block, 208) * scale * static_cast<float>(q);
}

float Widen16(const uint8_t* block, int) { return Half(block, 0); }

float WidenB16(const uint8_t* block, int) {
  Bf16 value;
  std::memcpy(&value, block, sizeof value);
  return ToFloat(value);
}

template <float (*Element)(const uint8_t* block, int i)>
void Blocks(DType type, const uint8_t* raw, int64_t elements, float* out) {
  const int per_block = BlockElements(type);
  for (int64_t b = 0; b < elements / per_block; ++b) {
    for (int i = 0; i < per_block; ++i) out[b * per_block + i] = Element(raw + b * BlockBytes(type), i);
  }
}

}  // namespace

void Dequantize(DType type, const void* raw, int64_t elements, float* out) {
  assert(CanDequantize(type) && elements >= 0 && elements % BlockElements(type) == 0);
  if (elements == 0) return;
  const auto* bytes = static_cast<const uint8_t*>(raw);
  switch (type) {
    case DType::kF32:
      std::memcpy(out, bytes, static_cast<size_t>(elements) * sizeof(float));
      break;
    case DType::kF16:
      Blocks<Widen16>(type, bytes, elements, out);
      break;
    case DType::kBF16:
      Blocks<WidenB16>(type, bytes, elements, out);
      break;
    case DType::kQ4_0:
      Blocks<Q4_0>(type, bytes, elements, out);
      break;
    case DType::kQ4_1:
      Blocks<Q4_1>(type, bytes, elements, out);
      break;
    case DType::kQ5_0:
      Blocks<Q5_0>(type, bytes, elements, out);
      break;
    case DType::kQ5_1:
      Blocks<Q5_1>(type, bytes, elements, out);
      break;
    case DType::kQ8_0:
      Blocks<Q8_0>(type, bytes, elements, out);
      break;
    case DType::kQ2_K:
      Blocks<Q2_K>(type, bytes, elements, out);
      break;
    case DType::kQ3_K:
      Blocks<Q3_K>(type, bytes, elements, out);
      break;
    case DType::kQ4_K:
      Blocks<Q4_K>(type, bytes, elements, out);
      break;
    case DType::kQ5_K:
      Blocks<Q5_K>(type, bytes, elements, out);
      break;
    case DType::kQ6_K:
      Blocks<Q6_K>(type, bytes, elements, out);
      break;
    case DType::kF64:
    case DType::kI32:
    case DType::kI64:
    case DType::kU8:
      break;  // excluded by the contract
  }
}

}  // namespace snapkv::kernels::ref
