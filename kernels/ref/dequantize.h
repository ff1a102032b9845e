// SPDX-License-Identifier: Apache-2.0
// Dequantisation, scalar: GGML blocks and half types to f32.
#pragma once

#include <cstdint>

#include "kernels/base/dtype.h"

namespace snapkv::kernels::ref {

// The types Dequantize reads: F32 F16 BF16 Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 Q2_K Q3_K Q4_K Q5_K Q6_K.
constexpr bool CanDequantize(DType type) {
  return type == DType::kF32 || type == DType::kF16 || type == DType::kBF16 || IsQuantized(type);
}

// raw: [elements / BlockElements(type)] blocks of BlockBytes(type), any alignment
// out: [elements] f32, not overlapping `raw`
// Element i of a block is what ggml's dequantize_row_* computes, bit for bit: scales are widened from f16
// exactly, then (scale * sub-scale) * quant - (minimum * sub-minimum), each step rounded to f32. A NaN or
// infinite scale gives NaN or infinite elements. F32 copies bits; F16 and BF16 widen exactly, NaN payloads
// kept. Requires CanDequantize(type) and elements >= 0, a multiple of BlockElements(type). 0 elements:
// nothing is read or written. Any number of threads.
void Dequantize(DType type, const void* raw, int64_t elements, float* out);

}  // namespace snapkv::kernels::ref
