// SPDX-License-Identifier: Apache-2.0
// GemmKernel: the multiplication by one packed weight matrix; oneDNN where its rows are independent, else our
// own.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "kernels/base/tensor_view.h"

namespace snapkv::kernels::cpu {

// Layout and code for one shape of weights. Const and safe to use from several threads at once.
class GemmKernel {
 public:
  virtual ~GemmKernel() = default;
  virtual std::string name() const = 0;
  virtual int64_t packed_bytes() const = 0;
  // w: f32 [outputs, inputs], contiguous; bf16 kernels round it to nearest even. packed: packed_bytes(),
  // 64-byte aligned.
  virtual void Pack(int threads, const float* w, void* packed) const = 0;
  // a: f32 | bf16 (the kernel's dtype) [rows, inputs]; out: [rows, outputs] f32 or the kernel's dtype.
  virtual void Run(int threads, const TensorView& a, const void* packed, const TensorView& out) const = 0;
};

// The best kernel for this CPU. dtype kF32: one whose rows do not depend on each other, whatever the
// instruction set. dtype kBF16: oneDNN on bf16 hardware that is faster than f32 (AMX), else products of
// bf16-rounded values in f32.
std::unique_ptr<GemmKernel> MakeGemmKernel(int64_t outputs, int64_t inputs, DType dtype);

// Whether dtype bf16 multiplies natively here (AMX); what --dtype auto asks.
bool HasFastBf16();

// Outputs per packed panel [inputs][kSimdPanel] of our own kernel, whatever the vector length.
inline constexpr int64_t kSimdPanel = 32;

// The parts, for tests. oneDNN's returns null where it has no suitable implementation.
std::unique_ptr<GemmKernel> MakeOneDnnF32(int64_t outputs, int64_t inputs);
std::unique_ptr<GemmKernel> MakeOneDnnBf16(int64_t outputs, int64_t inputs);
std::unique_ptr<GemmKernel> MakeSimdF32(int64_t outputs, int64_t inputs);

}  // namespace snapkv::kernels::cpu
