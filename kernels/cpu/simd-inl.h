// SPDX-License-Identifier: Apache-2.0
// SIMD helpers shared by the kernels, compiled once per instruction set: exp, bf16 loads and stores,
// transposes. Per-target include guard: see Highway's foreach_target.h.
#if defined(SNAPKV_KERNELS_CPU_SIMD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SNAPKV_KERNELS_CPU_SIMD_INL_H_
#undef SNAPKV_KERNELS_CPU_SIMD_INL_H_
#else
#define SNAPKV_KERNELS_CPU_SIMD_INL_H_
#endif

#include <hwy/highway.h>

#include "kernels/base/dtype.h"

HWY_BEFORE_NAMESPACE();
namespace snapkv::kernels::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using F32 = hn::ScalableTag<float>;
using V = hn::Vec<F32>;

// e^x with a relative error below 2 ulp (Cephes' reduction x = k ln 2 + r and a degree-6 polynomial on |r| <=
// ln 2 / 2). -inf gives exactly 0; results below the smallest normal are denormal when kDenormals, else 0. x
// must be <= 88.
template <bool kDenormals>
HWY_INLINE V Exp(V x) {
  const F32 d;
  const hn::Rebind<int32_t, F32> di;
  const V lowest = hn::Set(d, kDenormals ? -104.0f : -87.33654f);
  const auto underflow = hn::Lt(x, lowest);
  const V clamped = hn::Max(lowest, x);  // in this order x86 passes a NaN on
  const V k = hn::Round(hn::Mul(clamped, hn::Set(d, 1.44269504f)));
  V r = hn::NegMulAdd(k, hn::Set(d, 0.693359375f), clamped);
  r = hn::NegMulAdd(k, hn::Set(d, -2.12194440e-4f), r);
  V p = hn::Set(d, 1.9875691500e-4f);
  p = hn::MulAdd(p, r, hn::Set(d, 1.3981999507e-3f));
  p = hn::MulAdd(p, r, hn::Set(d, 8.3334519073e-3f));
  p = hn::MulAdd(p, r, hn::Set(d, 4.1665795894e-2f));
  p = hn::MulAdd(p, r, hn::Set(d, 1.6666665459e-1f));
  p = hn::MulAdd(p, r, hn::Set(d, 5.0000001201e-1f));
  p = hn::Add(hn::MulAdd(p, hn::Mul(r, r), r), hn::Set(d, 1.0f));
  const auto ki = hn::ConvertTo(di, k);
  const auto bias = hn::Set(di, 127);
  if constexpr (kDenormals) {
    // 2^k in two factors, so that each is a normal number.
    const auto half = hn::ShiftRight<1>(ki);
    p = hn::Mul(p, hn::BitCast(d, hn::ShiftLeft<23>(hn::Add(half, bias))));
    p = hn::Mul(p, hn::BitCast(d, hn::ShiftLeft<23>(hn::Add(hn::Sub(ki, half), bias))));
  } else {
    p = hn::Mul(p, hn::BitCast(d, hn::ShiftLeft<23>(hn::Add(ki, bias))));
  }
  return hn::IfThenZeroElse(underflow, p);
}

// Loads Lanes(F32) consecutive elements as f32.
HWY_INLINE V LoadF32(const float* p) { return hn::LoadU(F32(), p); }
HWY_INLINE V LoadF32(const Bf16* p) {
  const hn::Rebind<uint16_t, F32> d16;
  const hn::Rebind<uint32_t, F32> d32;
  return hn::BitCast(
      F32(), hn::ShiftLeft<16>(hn::PromoteTo(d32, hn::LoadU(d16, reinterpret_cast<const uint16_t*>(p)))));
}

// Stores Lanes(F32) consecutive elements, bf16 rounded to nearest even (NaN stays NaN).
HWY_INLINE void StoreF32(V v, float* p) { hn::StoreU(v, F32(), p); }
HWY_INLINE void StoreF32(V v, Bf16* p) {
  const hn::Rebind<uint16_t, F32> d16;
  const hn::Rebind<uint32_t, F32> d32;
  const hn::Rebind<int32_t, F32> di;
  const auto u = hn::BitCast(d32, v);
  const auto even = hn::And(hn::ShiftRight<16>(u), hn::Set(d32, 1));
  const auto rounded = hn::ShiftRight<16>(hn::Add(u, hn::Add(even, hn::Set(d32, 0x7fff))));
  const auto quiet = hn::Or(hn::ShiftRight<16>(u), hn::Set(d32, 0x40));
  const auto nan = hn::RebindMask(d32, hn::Ne(v, v));
  const auto word = hn::IfThenElse(nan, quiet, rounded);
  // Values fit 16 bits, so the saturating narrowing is exact.
  hn::StoreU(hn::DemoteTo(d16, hn::BitCast(di, word)), d16, reinterpret_cast<uint16_t*>(p));
}
HWY_INLINE float LoadScalar(const float* p) { return *p; }
HWY_INLINE float LoadScalar(const Bf16* p) { return ToFloat(*p); }
HWY_INLINE void StoreScalar(float x, float* p) { *p = x; }
HWY_INLINE void StoreScalar(float x, Bf16* p) { *p = ToBf16(x); }

// c[kRows][lanes of kVectors vectors] (+)= sum over i < n, ascending, of a(r, i) * b[i][lanes], one chain of
// fused multiply-adds per element, so that an element does not depend on its row or lane. a(r, i) at a[r *
// row + i * step]; b and c have `width` floats per row. The body of attention, window scores and the portable
// GEMM.
template <int kRows, int kVectors, class Store>
HWY_INLINE void BroadcastProduct(const float* HWY_RESTRICT a, int64_t row, int64_t step,
                                 const float* HWY_RESTRICT b, int64_t width, int64_t n, const Store& store) {
  const F32 d;
  constexpr int kLanes = static_cast<int>(hn::MaxLanes(F32()));
  V acc[kRows][kVectors];
  for (int r = 0; r < kRows; ++r)
    for (int g = 0; g < kVectors; ++g) acc[r][g] = hn::Zero(d);
  for (int64_t i = 0; i < n; ++i) {
    V bv[kVectors];
    for (int g = 0; g < kVectors; ++g) bv[g] = hn::LoadU(d, b + i * width + g * kLanes);
    for (int r = 0; r < kRows; ++r) {
      const V x = hn::Set(d, a[r * row + i * step]);
      for (int g = 0; g < kVectors; ++g) acc[r][g] = hn::MulAdd(x, bv[g], acc[r][g]);
    }
  }
  for (int r = 0; r < kRows; ++r)
    for (int g = 0; g < kVectors; ++g) store(r, g, acc[r][g]);
}

// Rows that BroadcastProduct handles at once: as many as the registers hold with two vectors per row.
#if HWY_TARGET == HWY_AVX3
inline constexpr int kProductRows = 8;
#else
inline constexpr int kProductRows = 4;
#endif

// All `rows` rows, kProductRows at a time and the rest singly. store(row, vector, value).
template <int kVectors, class Store>
HWY_INLINE void BroadcastProductRows(int64_t rows, const float* a, int64_t row, int64_t step, const float* b,
                                     int64_t width, int64_t n, const Store& store) {
  int64_t r = 0;
  for (; r + kProductRows <= rows; r += kProductRows)
    BroadcastProduct<kProductRows, kVectors>(a + r * row, row, step, b, width, n,
                                             [&](int i, int g, V v) HWY_ATTR { store(r + i, g, v); });
  for (; r < rows; ++r)
    BroadcastProduct<1, kVectors>(a + r * row, row, step, b, width, n,
                                  [&](int, int g, V v) HWY_ATTR { store(r, g, v); });
}

// Products of a chain that is added up at once. At |q.k| near 1e5 one chain over a whole head_dim is off by
// several ulp, chains of 8 added to each other by about one (16 and 32 are not enough for the golden LSEs).
inline constexpr int64_t kScoreChain = 8;

// s[r][lanes of two vectors] = scale * (a(r) . b[][lanes]) for `rows` rows of `dim` products: the one way
// scores are made, so that attention and window scores agree to the last bit.
HWY_INLINE void ScaledScores(int64_t rows, const float* a, int64_t row, const float* b, int64_t width,
                             int64_t dim, float scale, float* s) {
  const F32 d;
  constexpr int kLanes = static_cast<int>(hn::MaxLanes(F32()));
  const V scale_v = hn::Set(d, scale);
  for (int64_t at = 0; at < dim; at += kScoreChain) {
    const int64_t n = dim - at < kScoreChain ? dim - at : kScoreChain;
    const bool first = at == 0, last = at + n == dim;
    BroadcastProductRows<2>(rows, a + at, row, 1, b + at * width, width, n,
                            [&](int64_t r, int g, V x) HWY_ATTR {
                              float* to = s + r * width + g * kLanes;
                              if (!first) x = hn::Add(hn::LoadU(d, to), x);
                              if (last) x = hn::Mul(x, scale_v);
                              hn::StoreU(x, d, to);
                            });
  }
}

}  // namespace snapkv::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
