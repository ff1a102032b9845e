// SPDX-License-Identifier: Apache-2.0
// Our own f32 GEMM for CPUs where oneDNN's rows depend on their neighbours (AVX2): every output is one chain
// of multiply-adds over the inputs in ascending order, so a row depends on nothing but itself.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/gemm_simd.cc"
#include <hwy/foreach_target.h>
// After foreach_target.h.
#include <algorithm>

#include "kernels/cpu/gemm.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace snapkv::kernels::cpu::HWY_NAMESPACE {

void RunPanels(int threads, const TensorView& a, const float* packed, const TensorView& out) {
  constexpr int64_t kLanes = static_cast<int64_t>(hn::MaxLanes(F32()));
  constexpr int64_t kStep = 2 * kLanes, kRows = 64;
  const int64_t rows = a.dim(0), inputs = a.dim(1), outputs = out.dim(1);
  const int64_t panels = (outputs + kSimdPanel - 1) / kSimdPanel, row_tasks = (rows + kRows - 1) / kRows;
  ParallelFor(threads, panels * row_tasks, [&](int64_t t) {
    const int64_t panel = t / row_tasks, first = t % row_tasks * kRows, n = std::min(kRows, rows - first);
    const float* w = packed + panel * inputs * kSimdPanel;
    for (int64_t j = 0; j < kSimdPanel; j += kStep) {
      const int64_t column = panel * kSimdPanel + j;
      if (column >= outputs) break;
      BroadcastProductRows<2>(n, a.at<float>(first), a.stride(0), 1, w + j, kSimdPanel, inputs,
                              [&](int64_t r, int g, V x) HWY_ATTR {
                                float* to = out.at<float>(first + r, column + g * kLanes);
                                const int64_t left = outputs - column - g * kLanes;
                                if (left >= kLanes) {
                                  hn::StoreU(x, F32(), to);
                                } else if (left > 0) {
                                  HWY_ALIGN float tail[kLanes];
                                  hn::StoreU(x, F32(), tail);
                                  std::copy_n(tail, left, to);
                                }
                              });
    }
  });
}

}  // namespace snapkv::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace snapkv::kernels::cpu {

HWY_EXPORT(RunPanels);

namespace {

class SimdGemm : public GemmKernel {
 public:
  SimdGemm(int64_t outputs, int64_t inputs) : outputs_(outputs), inputs_(inputs) {}

  std::string name() const override { return std::string("simd f32 ") + IsaName(); }
  int64_t packed_bytes() const override {
    return Panels() * kSimdPanel * inputs_ * static_cast<int64_t>(sizeof(float));
  }

  void Pack(int threads, const float* w, void* packed) const override {
    ParallelFor(threads, Panels(), [&](int64_t panel) {
      float* to = static_cast<float*>(packed) + panel * inputs_ * kSimdPanel;
      for (int64_t j = 0; j < kSimdPanel; ++j) {
        const int64_t column = panel * kSimdPanel + j;
        for (int64_t i = 0; i < inputs_; ++i)
          to[i * kSimdPanel + j] = column < outputs_ ? w[column * inputs_ + i] : 0.0f;
      }
    });
  }

  void Run(int threads, const TensorView& a, const void* packed, const TensorView& out) const override {
    HWY_DYNAMIC_DISPATCH(RunPanels)(threads, a, static_cast<const float*>(packed), out);
  }

 private:
  int64_t Panels() const { return (outputs_ + kSimdPanel - 1) / kSimdPanel; }
  int64_t outputs_, inputs_;
};

}  // namespace

std::unique_ptr<GemmKernel> MakeSimdF32(int64_t outputs, int64_t inputs) {
  return std::make_unique<SimdGemm>(outputs, inputs);
}

}  // namespace snapkv::kernels::cpu
#endif  // HWY_ONCE
