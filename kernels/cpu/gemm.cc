// SPDX-License-Identifier: Apache-2.0
// Chooses the GEMM kernel, and the bf16 mode for CPUs without fast bf16: round, widen, multiply in f32,
// round.
#include "kernels/cpu/gemm.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "kernels/cpu/cpu.h"

namespace snapkv::kernels::cpu {
namespace {

// bf16 inputs, weights and outputs around an f32 kernel. Products of bf16 values are exact in f32.
class RoundedBf16Gemm : public GemmKernel {
 public:
  RoundedBf16Gemm(std::unique_ptr<GemmKernel> inner, int64_t outputs, int64_t inputs)
      : inner_(std::move(inner)), outputs_(outputs), inputs_(inputs) {}

  std::string name() const override { return "bf16-rounded " + inner_->name(); }
  int64_t packed_bytes() const override { return inner_->packed_bytes(); }

  void Pack(int threads, const float* w, void* packed) const override {
    std::vector<float> rounded(w, w + outputs_ * inputs_);
    for (float& x : rounded) x = ToFloat(ToBf16(x));
    inner_->Pack(threads, rounded.data(), packed);
  }

  void Run(int threads, const TensorView& a, const void* packed, const TensorView& out) const override {
    const int64_t rows = a.dim(0);
    std::vector<float> wide(static_cast<size_t>(rows * inputs_));
    const TensorView wide_view = TensorView::Of(wide.data(), DType::kF32, a.device, rows, inputs_);
    Cast(threads, a, wide_view);
    if (out.dtype == DType::kF32) {
      inner_->Run(threads, wide_view, packed, out);
      return;
    }
    std::vector<float> result(static_cast<size_t>(rows * outputs_));
    const TensorView result_view = TensorView::Of(result.data(), DType::kF32, a.device, rows, outputs_);
    inner_->Run(threads, wide_view, packed, result_view);
    Cast(threads, result_view, out);
  }

 private:
  std::unique_ptr<GemmKernel> inner_;
  int64_t outputs_, inputs_;
};

std::unique_ptr<GemmKernel> MakeF32(int64_t outputs, int64_t inputs) {
  std::unique_ptr<GemmKernel> kernel = MakeOneDnnF32(outputs, inputs);
  return kernel != nullptr ? std::move(kernel) : MakeSimdF32(outputs, inputs);
}

}  // namespace

std::unique_ptr<GemmKernel> MakeGemmKernel(int64_t outputs, int64_t inputs, DType dtype) {
  if (dtype == DType::kF32) return MakeF32(outputs, inputs);
  if (HasFastBf16()) {
    if (std::unique_ptr<GemmKernel> kernel = MakeOneDnnBf16(outputs, inputs)) return kernel;
  }
  return std::make_unique<RoundedBf16Gemm>(MakeF32(outputs, inputs), outputs, inputs);
}

}  // namespace snapkv::kernels::cpu
