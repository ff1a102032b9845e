// SPDX-License-Identifier: Apache-2.0
// Decode attention: the query heads that share a cache head read its rows together, once for K and once for
// V.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/decode_attention.cc"
#include <hwy/foreach_target.h>
// After foreach_target.h.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace snapkv::kernels::cpu::HWY_NAMESPACE {

// Two chains hide the latency of the fused multiply-add.
template <class T>
HWY_ATTR float Dot(const float* HWY_RESTRICT a, const T* HWY_RESTRICT b, int64_t n) {
  const F32 d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  V sum0 = hn::Zero(d), sum1 = hn::Zero(d);
  int64_t i = 0;
  for (; i + 2 * lanes <= n; i += 2 * lanes) {
    sum0 = hn::MulAdd(hn::LoadU(d, a + i), LoadF32(b + i), sum0);
    sum1 = hn::MulAdd(hn::LoadU(d, a + i + lanes), LoadF32(b + i + lanes), sum1);
  }
  for (; i + lanes <= n; i += lanes) sum0 = hn::MulAdd(hn::LoadU(d, a + i), LoadF32(b + i), sum0);
  float sum = hn::GetLane(hn::SumOfLanes(d, hn::Add(sum0, sum1)));
  for (; i < n; ++i) sum += a[i] * LoadScalar(b + i);
  return sum;
}

// out[c] += sum over j of p[j] * v[j][c] for n rows, ascending.
template <class T>
HWY_ATTR void AddRowsWeighted(const float* HWY_RESTRICT p, const T* HWY_RESTRICT v, int64_t n, int64_t dim,
                              double* HWY_RESTRICT out) {
  const F32 d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t c = 0;
  HWY_ALIGN float part[hn::MaxLanes(F32())];
  for (; c + lanes <= dim; c += lanes) {
    V sum = hn::Zero(d);
    for (int64_t j = 0; j < n; ++j) sum = hn::MulAdd(hn::Set(d, p[j]), LoadF32(v + j * dim + c), sum);
    hn::StoreU(sum, d, part);
    for (int64_t i = 0; i < lanes; ++i) out[c + i] += double{part[i]};
  }
  for (; c < dim; ++c) {
    float sum = 0;
    for (int64_t j = 0; j < n; ++j) sum += p[j] * LoadScalar(v + j * dim + c);
    out[c] += double{sum};
  }
}

// p[j] = exp(p[j] - max); returns the sum.
HWY_ATTR double SoftmaxRow(float* p, int64_t n) {
  const F32 d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const float top = *std::max_element(p, p + n);
  const V m = hn::Set(d, top);
  double sum = 0;
  for (int64_t j = 0; j < n; j += lanes) {  // the row is padded to whole vectors
    hn::StoreU(Exp<false>(hn::Sub(hn::LoadU(d, p + j), m)), d, p + j);
  }
  for (int64_t j = 0; j < n; ++j) sum += double{p[j]};
  return sum;
}

template <class T>
void DecodeOne(const TensorView& q, int64_t b, int64_t first_head, int64_t group, const CacheRows& cache,
               float scale, const TensorView& out) {
  const int64_t dim = q.dim(2), rows = cache.rows;
  if (rows == 0) {
    for (int64_t h = 0; h < group; ++h)
      for (int64_t c = 0; c < dim; ++c) StoreScalar(0.0f, out.at<T>(b, first_head + h) + c);
    return;
  }
  const T *k = static_cast<const T*>(cache.k), *v = static_cast<const T*>(cache.v);
  const int64_t padded = (rows + 15) / 16 * 16 + 16;
  std::vector<float> p(static_cast<size_t>(group * padded), -std::numeric_limits<float>::infinity());
  std::vector<float> query(static_cast<size_t>(group * dim));
  std::vector<double> sum(static_cast<size_t>(group)), o(static_cast<size_t>(group * dim), 0.0);
  for (int64_t h = 0; h < group; ++h)
    for (int64_t c = 0; c < dim; ++c)
      query[static_cast<size_t>(h * dim + c)] = LoadScalar(q.at<T>(b, first_head + h) + c);
  for (int64_t j = 0; j < rows; ++j)
    for (int64_t h = 0; h < group; ++h)
      p[static_cast<size_t>(h * padded + j)] = Dot(query.data() + h * dim, k + j * dim, dim) * scale;
  for (int64_t h = 0; h < group; ++h) sum[static_cast<size_t>(h)] = SoftmaxRow(p.data() + h * padded, rows);
  for (int64_t j = 0; j < rows; j += kKeyBlock)
    for (int64_t h = 0; h < group; ++h)
      AddRowsWeighted(p.data() + h * padded + j, v + j * dim, std::min(kKeyBlock, rows - j), dim,
                      o.data() + h * dim);
  for (int64_t h = 0; h < group; ++h)
    for (int64_t c = 0; c < dim; ++c)
      StoreScalar(static_cast<float>(o[static_cast<size_t>(h * dim + c)] / sum[static_cast<size_t>(h)]),
                  out.at<T>(b, first_head + h) + c);
}

void DecodeAll(int threads, const TensorView& q, std::span<const CacheRows> caches, int64_t cache_heads,
               float scale, const TensorView& out) {
  const int64_t group = q.dim(1) / cache_heads;
  ParallelFor(threads, static_cast<int64_t>(caches.size()), [&](int64_t i) {
    const CacheRows& cache = caches[static_cast<size_t>(i)];
    const int64_t b = i / cache_heads, first_head = i % cache_heads * group;
    if (q.dtype == DType::kF32)
      DecodeOne<float>(q, b, first_head, group, cache, scale, out);
    else
      DecodeOne<Bf16>(q, b, first_head, group, cache, scale, out);
  });
}

}  // namespace snapkv::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace snapkv::kernels::cpu {

HWY_EXPORT(DecodeAll);

void DecodeAttention(int threads, const TensorView& q, std::span<const CacheRows> caches, int64_t cache_heads,
                     float scale, const TensorView& out) {
  HWY_DYNAMIC_DISPATCH(DecodeAll)(threads, q, caches, cache_heads, scale, out);
}

}  // namespace snapkv::kernels::cpu
#endif  // HWY_ONCE
