// SPDX-License-Identifier: Apache-2.0
// Gemm: linear layers. Weights are packed once for the device and then multiplied many times.
#pragma once

#include <memory>
#include <string>

#include "kernels/base/buffer.h"
#include "kernels/base/status.h"

namespace snapkv::kernels {

// What a backend keeps of a weight matrix; each backend derives its own.
class PackedWeights {
 public:
  virtual ~PackedWeights() = default;
  // The kernel that will multiply, for --stats, e.g. "onednn brg:avx512_core".
  virtual std::string kernel() const = 0;
};

// A weight matrix [outputs, inputs] in its backend's layout. Move-only; used from any number of threads at
// once.
struct PackedMatrix {
  int64_t outputs = 0;
  int64_t inputs = 0;
  DType dtype = DType::kF32;  // f32 | bf16: the compute type
  Device device = Device::kCpu;
  std::unique_ptr<PackedWeights> weights;
};

// Packs w: f32 [outputs, inputs], contiguous, for multiplication in dtype (f32 | bf16; bf16 rounds the
// weights to nearest even). Memory is counted as MemoryKind::kWeights.
absl::StatusOr<PackedMatrix> PackMatrix(const Stream& stream, Allocator& allocator, const TensorView& w,
                                        DType dtype);

// out[i, j] = sum over k of a[i, k] * w[j, k], accumulated in f32.
// a: [rows, inputs] in w.dtype; out: [rows, outputs] f32 or w.dtype; last dimensions contiguous; must not
// overlap. In f32 a row of the result depends on that row of a alone: not on rows, its index or the number of
// threads.
absl::Status Gemm(const Stream& stream, const TensorView& a, const PackedMatrix& w, const TensorView& out);

}  // namespace snapkv::kernels
