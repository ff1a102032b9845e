// SPDX-License-Identifier: Apache-2.0
// SnapKV scores and their pooling. Lanes are keys, so that every key goes through the same chain of
// operations: max pooling and the tie rule need equal scores to be equal to the last bit.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/window_scores.cc"
#include <hwy/foreach_target.h>
// After foreach_target.h.
#include <algorithm>
#include <limits>
#include <vector>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace snapkv::kernels::cpu::HWY_NAMESPACE {

inline constexpr int64_t kLanes = static_cast<int64_t>(hn::MaxLanes(F32()));
inline constexpr int64_t kKeys = 2 * kLanes;

// Scores of keys [first, first + kKeys) of one KV head for its query heads.
template <class T>
class KeyTile {
 public:
  KeyTile(int64_t dim, int64_t group)
      : dim_(dim),
        keys_(static_cast<size_t>(dim * kKeys)),
        query_(static_cast<size_t>(kProductRows * dim)),
        sums_(static_cast<size_t>(group * kKeys)) {}

  void Run(const TensorView& q, const TensorView& lse, const TensorView& k, int64_t kv, int64_t first,
           float scale, GroupMode mode, const TensorView& scores) {
    const F32 d;
    const int64_t rows = std::min(kKeys, k.dim(1) - first), group = q.dim(0) / k.dim(0);
    for (int64_t j = 0; j < kKeys; ++j)
      for (int64_t c = 0; c < dim_; ++c)
        keys_[static_cast<size_t>(c * kKeys + j)] = j < rows ? LoadScalar(k.at<T>(kv, first + j) + c) : 0.0f;
    for (int64_t h = 0; h < group; ++h) SumHead(q, lse, kv * group + h, scale, sums_.data() + h * kKeys);
    if (mode == GroupMode::kNone) {
      for (int64_t h = 0; h < group; ++h)
        std::copy_n(sums_.data() + h * kKeys, rows, scores.at<float>(kv * group + h, first));
      return;
    }
    for (int64_t g = 0; g < kKeys; g += kLanes) {
      V total = hn::LoadU(d, sums_.data() + g);
      for (int64_t h = 1; h < group; ++h) {
        const V x = hn::LoadU(d, sums_.data() + h * kKeys + g);
        total = mode == GroupMode::kMax ? hn::Max(total, x) : hn::Add(total, x);
      }
      if (mode == GroupMode::kMean) total = hn::Div(total, hn::Set(d, static_cast<float>(group)));
      hn::StoreU(total, d, sums_.data() + g);
    }
    std::copy_n(sums_.data(), rows, scores.at<float>(kv, first));
  }

 private:
  // sums[j] = sum over the window of exp(scale * q.k_j - lse), ascending.
  void SumHead(const TensorView& q, const TensorView& lse, int64_t h, float scale, float* sums) {
    const F32 d;
    const int64_t window = q.dim(1);
    V sum[2] = {hn::Zero(d), hn::Zero(d)};
    for (int64_t at = 0; at < window; at += kProductRows) {
      const int64_t n = std::min<int64_t>(kProductRows, window - at);
      for (int64_t i = 0; i < n; ++i)
        for (int64_t c = 0; c < dim_; ++c)
          query_[static_cast<size_t>(i * dim_ + c)] = LoadScalar(q.at<T>(h, at + i) + c);
      float logits[kProductRows * kKeys];
      ScaledScores(n, query_.data(), dim_, keys_.data(), kKeys, dim_, scale, logits);
      for (int64_t i = 0; i < n; ++i)
        for (int64_t g = 0; g < 2; ++g) {
          const V exponent =
              hn::Sub(hn::LoadU(d, logits + i * kKeys + g * kLanes), hn::Set(d, *lse.at<float>(h, at + i)));
          sum[g] = hn::Add(sum[g], Exp<true>(hn::Min(hn::Set(d, 88.0f), exponent)));
        }
    }
    hn::StoreU(sum[0], d, sums);
    hn::StoreU(sum[1], d, sums + kLanes);
  }

  int64_t dim_;
  std::vector<float> keys_;   // [dim][kKeys]
  std::vector<float> query_;  // [kProductRows][dim]
  std::vector<float> sums_;   // [group][kKeys]
};

template <class T>
void ScoresOf(int threads, const TensorView& q, const TensorView& lse, const TensorView& k, float scale,
              GroupMode group, const TensorView& scores) {
  constexpr int64_t kTilesPerTask = 8;
  const int64_t kv_heads = k.dim(0), tasks = (k.dim(1) + kTilesPerTask * kKeys - 1) / (kTilesPerTask * kKeys);
  ParallelFor(threads, tasks * kv_heads, [&](int64_t t) {
    KeyTile<T> tile(q.dim(2), q.dim(0) / kv_heads);
    const int64_t begin = t / kv_heads * kTilesPerTask * kKeys;
    for (int64_t first = begin; first < std::min(begin + kTilesPerTask * kKeys, k.dim(1)); first += kKeys)
      tile.Run(q, lse, k, t % kv_heads, first, scale, group, scores);
  });
}

void ScoresAll(int threads, const TensorView& q, const TensorView& lse, const TensorView& k, float scale,
               GroupMode group, const TensorView& scores) {
  if (q.dtype == DType::kF32)
    ScoresOf<float>(threads, q, lse, k, scale, group, scores);
  else
    ScoresOf<Bf16>(threads, q, lse, k, scale, group, scores);
}

// Outputs [begin, end) of one head; `padded` holds the head's scores with kernel / 2 neutral elements on each
// side.
HWY_ATTR void PoolRange(const float* padded, int64_t begin, int64_t end, int kernel, PoolMode mode,
                        float* out) {
  const F32 d;
  const V divisor = hn::Set(d, static_cast<float>(kernel));
  for (int64_t i = begin; i < end; i += kLanes) {  // both rows have room for whole vectors
    V x = hn::LoadU(d, padded + i);
    for (int j = 1; j < kernel; ++j) {
      const V y = hn::LoadU(d, padded + i + j);
      x = mode == PoolMode::kMax ? hn::Max(x, y) : hn::Add(x, y);
    }
    hn::StoreU(mode == PoolMode::kAvg ? hn::Div(x, divisor) : x, d, out + i);
  }
}

void PoolAll(int threads, const TensorView& in, int64_t left, int kernel, PoolMode mode,
             const TensorView& out) {
  const int64_t n = out.dim(1), reach = kernel / 2, right = in.dim(1) - left - n;
  const float neutral = mode == PoolMode::kMax ? -std::numeric_limits<float>::infinity() : 0.0f;
  ParallelFor(threads, out.dim(0), [&](int64_t h) {
    std::vector<float> padded(static_cast<size_t>(n + 2 * reach + kLanes), neutral);
    std::vector<float> result(static_cast<size_t>(n + kLanes));
    // Input column 0 is output column -left.
    const int64_t take_left = std::min(left, reach), take_right = std::min(right, reach);
    std::copy_n(in.at<float>(h, left - take_left), take_left + n + take_right,
                padded.data() + reach - take_left);
    PoolRange(padded.data(), 0, n, kernel, mode, result.data());
    std::copy_n(result.data(), n, out.at<float>(h));
  });
}

}  // namespace snapkv::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace snapkv::kernels::cpu {

HWY_EXPORT(ScoresAll);
HWY_EXPORT(PoolAll);

void WindowScores(int threads, const TensorView& q, const TensorView& lse, const TensorView& k, float scale,
                  GroupMode group, const TensorView& scores) {
  HWY_DYNAMIC_DISPATCH(ScoresAll)(threads, q, lse, k, scale, group, scores);
}

void PoolScores(int threads, const TensorView& in, int64_t left, int kernel, PoolMode mode,
                const TensorView& out) {
  if (mode == PoolMode::kNone)
    Cast(threads, in.Slice(1, left, left + out.dim(1)), out);
  else
    HWY_DYNAMIC_DISPATCH(PoolAll)(threads, in, left, kernel, mode, out);
}

}  // namespace snapkv::kernels::cpu
#endif  // HWY_ONCE
