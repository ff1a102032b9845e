// SPDX-License-Identifier: Apache-2.0
// RMSNorm and RoPE on the CPU.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/norm_rope.cc"
#include <hwy/foreach_target.h>
// After foreach_target.h.
#include <cmath>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace snapkv::kernels::cpu::HWY_NAMESPACE {

// The squares are summed in f64: a row of any length loses nothing.
template <class Out>
HWY_ATTR void NormRow(const float* x, const float* weight, float epsilon, Out* out, int64_t n) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(F32()));
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += double{x[i]} * x[i];
  const float factor = static_cast<float>(1.0 / std::sqrt(sum / static_cast<double>(n) + double{epsilon}));
  const V f = hn::Set(F32(), factor);
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes)
    StoreF32(hn::Mul(hn::Mul(LoadF32(x + i), f), LoadF32(weight + i)), out + i);
  for (; i < n; ++i) StoreScalar(x[i] * factor * weight[i], out + i);
}

void NormRows(int threads, const TensorView& x, const TensorView& weight, float epsilon,
              const TensorView& out) {
  ParallelRanges(threads, x.dim(0), 8, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      if (out.dtype == DType::kF32)
        NormRow(x.at<float>(i), weight.at<float>(), epsilon, out.at<float>(i), x.dim(1));
      else
        NormRow(x.at<float>(i), weight.at<float>(), epsilon, out.at<Bf16>(i), x.dim(1));
    }
  });
}

// Products are rounded before the sum, as the contract says: no fused multiply-add.
template <class T>
HWY_ATTR void RotateRow(const T* in, const float* cos, const float* sin, T* out, int64_t half) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(F32()));
  int64_t j = 0;
  for (; j + lanes <= half; j += lanes) {
    const V a = LoadF32(in + j), b = LoadF32(in + half + j), c = LoadF32(cos + j), s = LoadF32(sin + j);
    StoreF32(hn::Sub(hn::Mul(a, c), hn::Mul(b, s)), out + j);
    StoreF32(hn::Add(hn::Mul(b, c), hn::Mul(a, s)), out + half + j);
  }
  for (; j < half; ++j) {
    const float a = LoadScalar(in + j), b = LoadScalar(in + half + j);
    StoreScalar(a * cos[j] - b * sin[j], out + j);
    StoreScalar(b * cos[j] + a * sin[j], out + half + j);
  }
}

void RotateRows(int threads, const TensorView& in, const TensorView& cos, const TensorView& sin,
                const TensorView& out) {
  const int64_t heads = in.dim(0), half = in.dim(2) / 2;
  ParallelRanges(threads, in.dim(1), 16, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t)
      for (int64_t h = 0; h < heads; ++h) {
        const float *c = cos.at<float>(t), *s = sin.at<float>(t);
        if (in.dtype == DType::kF32)
          RotateRow(in.at<float>(h, t), c, s, out.at<float>(h, t), half);
        else
          RotateRow(in.at<Bf16>(h, t), c, s, out.at<Bf16>(h, t), half);
      }
  });
}

}  // namespace snapkv::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace snapkv::kernels::cpu {

HWY_EXPORT(NormRows);
HWY_EXPORT(RotateRows);

void RmsNorm(int threads, const TensorView& x, const TensorView& weight, float epsilon,
             const TensorView& out) {
  HWY_DYNAMIC_DISPATCH(NormRows)(threads, x, weight, epsilon, out);
}

void Rope(int threads, const TensorView& in, const TensorView& cos, const TensorView& sin,
          const TensorView& out) {
  HWY_DYNAMIC_DISPATCH(RotateRows)(threads, in, cos, sin, out);
}

}  // namespace snapkv::kernels::cpu
#endif  // HWY_ONCE
