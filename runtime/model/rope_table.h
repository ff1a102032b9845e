// SPDX-License-Identifier: Apache-2.0
// RopeTable: cos and sin of the rotary angles of given positions, computed as the reference implementations
// do.
#pragma once

#include <vector>

#include "absl/types/span.h"
#include "kernels/base/buffer.h"
#include "runtime/model/config.h"

namespace snapkv::runtime {

// Inverse frequencies [head_dim / 2], f32: e = f32(2 i / d), p = f32(pow(double(base), double(e))), 1.0f / p;
// divided by the model's linear factor and by `factors` (Llama 3.1's rope_freqs, empty for none). Rounded at
// these places because kept positions flip otherwise.
std::vector<float> RopeFrequencies(const ModelConfig& config, absl::Span<const float> factors);

// cos and sin, f32 [positions, head_dim / 2] each: angle = f32(position) * frequency in f32; cosine and sine
// of that angle in double, rounded to f32.
class RopeTable {
 public:
  static absl::StatusOr<RopeTable> Create(Allocator& allocator, int threads,
                                          absl::Span<const float> frequencies,
                                          absl::Span<const int32_t> positions);
  TensorView cos() const { return buffer_.View(DType::kF32, rows_, half_); }
  TensorView sin() const {
    return TensorView::Of(buffer_.View(DType::kF32, 2, rows_, half_)[1].data, DType::kF32, buffer_.device(),
                          rows_, half_);
  }

 private:
  Buffer buffer_;  // f32 [2, rows, half]
  int64_t rows_ = 0, half_ = 0;
};

}  // namespace snapkv::runtime
