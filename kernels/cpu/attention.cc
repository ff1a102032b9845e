// SPDX-License-Identifier: Apache-2.0
// Blocked flash attention with a carried state (Dao, arXiv 2307.08691; transposed so that lanes are queries).
//
// For kQueries queries of one head and one block of up to kKeyBlock keys: S^T = K Q^T has keys as rows and
// queries as lanes, and O^T = V^T P^T keeps queries as lanes too. So a query's arithmetic never leaves its
// lane: maximum, sum and both products are chains over the keys or the head dimension in ascending order, and
// a query's result depends neither on its lane, nor on the vector length, nor on its neighbours. A block's m,
// l and O are f32 values computed from that block alone; they are added to l and O carried in f64 (the order
// of blocks then shows in f64 rounding only).
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/attention.cc"
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

using F64 = hn::ScalableTag<double>;
inline constexpr int64_t kLanes = static_cast<int64_t>(hn::MaxLanes(F32()));
inline constexpr int64_t kQueries = 2 * kLanes;
inline constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Everything one task needs, allocated once per task: the queries and carried state of one KV head's query
// heads.
class QueryBlock {
 public:
  QueryBlock(int64_t group, int64_t dim)
      : dim_(dim),
        heads_(static_cast<size_t>(group)),
        keys_(static_cast<size_t>(kKeyBlock * dim)),
        values_(static_cast<size_t>(kKeyBlock * dim)),
        scores_(kKeyBlock * kQueries) {
    for (Head& head : heads_) {
      head.q.resize(static_cast<size_t>(dim * kQueries));
      head.o.resize(static_cast<size_t>(dim * kQueries));
    }
  }

  // Adds all keys of `p` to queries [first, first + kQueries) of the query heads of KV head `kv`.
  template <class T, class Carry>
  void Run(const AttentionParams& p, int64_t kv, int64_t first) {
    const int64_t rows = std::min(kQueries, p.q.dim(1) - first), keys = p.k.dim(1);
    const int64_t ahead = p.q_position + first - p.k_position;  // position of query 0 minus position of key 0
    const int64_t seen = p.causal ? std::clamp<int64_t>(ahead + rows, 0, keys) : keys;
    if (seen == 0) return;
    const int64_t group = static_cast<int64_t>(heads_.size());
    for (int64_t h = 0; h < group; ++h)
      Load<T, Carry>(p, heads_[static_cast<size_t>(h)], kv * group + h, first, rows);
    for (int64_t at = 0; at < seen; at += kKeyBlock) {
      const int64_t n = std::min(kKeyBlock, keys - at);
      int64_t k_stride = 0, v_stride = 0;
      const float* k = Widen(p.k.at<T>(kv, at), p.k.stride(1), n, keys_, k_stride);
      const float* v = Widen(p.v.at<T>(kv, at), p.v.stride(1), n, values_, v_stride);
      const bool masked = p.causal && ahead - at < n - 1;
      for (Head& head : heads_) AddBlock(head, k, k_stride, v, v_stride, n, p.scale, masked, ahead - at);
    }
    for (int64_t h = 0; h < group; ++h)
      Save<Carry>(p, heads_[static_cast<size_t>(h)], kv * group + h, first, rows);
  }

 private:
  struct Head {
    std::vector<float> q;   // [dim][kQueries]
    std::vector<double> o;  // [dim][kQueries]
    float m[kQueries];
    double l[kQueries];
  };

  // f32 rows are used in place; bf16 rows are widened into `scratch`.
  const float* Widen(const float* in, int64_t stride, int64_t, std::vector<float>&,
                     int64_t& out_stride) const {
    out_stride = stride;
    return in;
  }
  const float* Widen(const Bf16* in, int64_t stride, int64_t n, std::vector<float>& scratch,
                     int64_t& out_stride) const {
    out_stride = dim_;
    for (int64_t j = 0; j < n; ++j) {
      float* to = scratch.data() + j * dim_;
      int64_t c = 0;
      for (; c + kLanes <= dim_; c += kLanes) StoreF32(LoadF32(in + j * stride + c), to + c);
      for (; c < dim_; ++c) to[c] = ToFloat(in[j * stride + c]);
    }
    return scratch.data();
  }

  template <class T, class Carry>
  void Load(const AttentionParams& p, Head& head, int64_t h, int64_t first, int64_t rows) const {
    for (int64_t i = 0; i < kQueries; ++i) {
      const bool live = i < rows;
      const T* q = live ? p.q.at<T>(h, first + i) : nullptr;
      const Carry* o = live ? p.state.o.at<Carry>(h, first + i) : nullptr;
      for (int64_t c = 0; c < dim_; ++c) {
        head.q[static_cast<size_t>(c * kQueries + i)] = live ? LoadScalar(q + c) : 0.0f;
        head.o[static_cast<size_t>(c * kQueries + i)] = live ? static_cast<double>(o[c]) : 0.0;
      }
      head.m[i] = live ? *p.state.m.at<float>(h, first + i) : -kInfinity;
      head.l[i] = live ? static_cast<double>(*p.state.l.at<Carry>(h, first + i)) : 0.0;
    }
  }

  template <class Carry>
  void Save(const AttentionParams& p, const Head& head, int64_t h, int64_t first, int64_t rows) const {
    for (int64_t i = 0; i < rows; ++i) {
      Carry* o = p.state.o.at<Carry>(h, first + i);
      for (int64_t c = 0; c < dim_; ++c)
        o[c] = static_cast<Carry>(head.o[static_cast<size_t>(c * kQueries + i)]);
      *p.state.m.at<float>(h, first + i) = head.m[i];
      *p.state.l.at<Carry>(h, first + i) = static_cast<Carry>(head.l[i]);
    }
  }

  // One block of n keys. `ahead`: position of query 0 minus that of the block's key 0, used when masked.
  void AddBlock(Head& head, const float* k, int64_t k_stride, const float* v, int64_t v_stride, int64_t n,
                float scale, bool masked, int64_t ahead) {
    const F32 d;
    float* s = scores_.data();
    ScaledScores(n, k, k_stride, head.q.data(), kQueries, dim_, scale, s);
    if (masked) {  // query i sees keys j <= ahead + i
      for (int64_t j = std::max<int64_t>(0, ahead + 1); j < n; ++j)
        for (int64_t i = 0; i < std::min(kQueries, j - ahead); ++i) s[j * kQueries + i] = -kInfinity;
    }
    float block_m[kQueries], block_l[kQueries];
    for (int64_t g = 0; g < kQueries; g += kLanes) {
      V top = hn::Set(d, -kInfinity);
      for (int64_t j = 0; j < n; ++j) top = hn::Max(top, hn::LoadU(d, s + j * kQueries + g));
      // A query that sees nothing: reference 0, so that exp(-inf - 0) is 0 and not NaN.
      const V m = hn::IfThenElse(hn::Eq(top, hn::Set(d, -kInfinity)), hn::Zero(d), top);
      V sum = hn::Zero(d);
      for (int64_t j = 0; j < n; ++j) {
        const V e = Exp<false>(hn::Sub(hn::LoadU(d, s + j * kQueries + g), m));
        hn::StoreU(e, d, s + j * kQueries + g);
        sum = hn::Add(sum, e);
      }
      hn::StoreU(top, d, block_m + g);
      hn::StoreU(sum, d, block_l + g);
    }
    // Carried and block factors; one of the two is 1 for every query that sees a key.
    double alpha[kQueries], beta[kQueries];
    bool rescale = false;
    for (int64_t i = 0; i < kQueries; ++i) {
      const float m = std::max(head.m[i], block_m[i]);
      alpha[i] = head.m[i] == m ? 1.0 : std::exp(double{head.m[i]} - m);
      beta[i] = block_m[i] == m ? 1.0 : std::exp(double{block_m[i]} - m);
      if (m == -kInfinity) beta[i] = 0.0;
      rescale |= alpha[i] != 1.0;
      head.m[i] = m;
      head.l[i] = head.l[i] * alpha[i] + block_l[i] * beta[i];
    }
    AddOutput(head, v, v_stride, n, alpha, beta, rescale);
  }

  // o = o * alpha + (P V) * beta: the f32 product goes from its registers into the f64 carry.
  void AddOutput(Head& head, const float* v, int64_t v_stride, int64_t n, const double* alpha,
                 const double* beta, bool rescale) {
    const F64 d64;
    const hn::Rebind<float, F64> half;
    constexpr int64_t kHalf = kLanes / 2;
    BroadcastProductRows<2>(
        dim_, v, 1, v_stride, scores_.data(), kQueries, n, [&](int64_t c, int g, V x) HWY_ATTR {
          double* o = head.o.data() + c * kQueries + g * kLanes;
          const auto low = hn::PromoteTo(d64, hn::LowerHalf(half, x)),
                     high = hn::PromoteTo(d64, hn::UpperHalf(half, x));
          const double *a = alpha + g * kLanes, *b = beta + g * kLanes;
          auto o0 = hn::LoadU(d64, o), o1 = hn::LoadU(d64, o + kHalf);
          if (rescale) {
            o0 = hn::Mul(o0, hn::LoadU(d64, a));
            o1 = hn::Mul(o1, hn::LoadU(d64, a + kHalf));
          }
          hn::StoreU(hn::Add(o0, hn::Mul(low, hn::LoadU(d64, b))), d64, o);
          hn::StoreU(hn::Add(o1, hn::Mul(high, hn::LoadU(d64, b + kHalf))), d64, o + kHalf);
        });
  }

  int64_t dim_;
  std::vector<Head> heads_;
  std::vector<float> keys_, values_;
  std::vector<float> scores_;  // [kKeyBlock][kQueries]: S^T, then P^T
};

template <class T, class Carry>
void AttentionOf(int threads, const AttentionParams& p) {
  const int64_t kv_heads = p.k.dim(0), group = p.q.dim(0) / kv_heads;
  const int64_t blocks = (p.q.dim(1) + kQueries - 1) / kQueries;
  ParallelFor(threads, blocks * kv_heads, [&](int64_t t) {
    QueryBlock block(group, p.q.dim(2));
    block.Run<T, Carry>(p, t % kv_heads,
                        (blocks - 1 - t / kv_heads) * kQueries);  // longest causal tasks first
  });
}

void AttentionAll(int threads, const AttentionParams& p) {
  const bool exact = p.state.o.dtype == DType::kF64;
  if (p.q.dtype == DType::kF32)
    exact ? AttentionOf<float, double>(threads, p) : AttentionOf<float, float>(threads, p);
  else
    exact ? AttentionOf<Bf16, double>(threads, p) : AttentionOf<Bf16, float>(threads, p);
}

}  // namespace snapkv::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace snapkv::kernels::cpu {
namespace {

template <class Carry>
void InitRow(const AttentionState& state, int64_t h) {
  for (int64_t i = 0; i < state.m.dim(1); ++i) {
    *state.m.at<float>(h, i) = -std::numeric_limits<float>::infinity();
    *state.l.at<Carry>(h, i) = 0;
    std::fill_n(state.o.at<Carry>(h, i), state.o.dim(2), Carry{0});
  }
}

template <class Carry, class Out>
void FinishRow(const AttentionState& state, const TensorView& out, const TensorView& lse, int64_t h,
               int64_t i) {
  const double l = static_cast<double>(*state.l.at<Carry>(h, i));
  const Carry* o = state.o.at<Carry>(h, i);
  Out* to = out.at<Out>(h, i);
  for (int64_t c = 0; c < out.dim(2); ++c) {
    const float x = l != 0 ? static_cast<float>(static_cast<double>(o[c]) / l) : 0.0f;
    if constexpr (std::is_same_v<Out, float>)
      to[c] = x;
    else
      to[c] = ToBf16(x);
  }
  *lse.at<float>(h, i) = l != 0 ? static_cast<float>(double{*state.m.at<float>(h, i)} + std::log(l))
                                : -std::numeric_limits<float>::infinity();
}

}  // namespace

HWY_EXPORT(AttentionAll);

void Attention(int threads, const AttentionParams& params) {
  HWY_DYNAMIC_DISPATCH(AttentionAll)(threads, params);
}

void InitAttentionState(int threads, const AttentionState& state) {
  ParallelFor(threads, state.m.dim(0), [&](int64_t h) {
    if (state.o.dtype == DType::kF64)
      InitRow<double>(state, h);
    else
      InitRow<float>(state, h);
  });
}

void FinishAttention(int threads, const AttentionState& state, const TensorView& out, const TensorView& lse) {
  const bool exact = state.o.dtype == DType::kF64, wide = out.dtype == DType::kF32;
  ParallelRanges(threads, state.m.dim(1), 64, [&](int64_t begin, int64_t end) {
    for (int64_t h = 0; h < state.m.dim(0); ++h)
      for (int64_t i = begin; i < end; ++i) {
        if (exact)
          wide ? FinishRow<double, float>(state, out, lse, h, i)
               : FinishRow<double, Bf16>(state, out, lse, h, i);
        else
          wide ? FinishRow<float, float>(state, out, lse, h, i)
               : FinishRow<float, Bf16>(state, out, lse, h, i);
      }
  });
}

}  // namespace snapkv::kernels::cpu
#endif  // HWY_ONCE
