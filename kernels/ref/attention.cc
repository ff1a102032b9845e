// SPDX-License-Identifier: Apache-2.0
// Reference attention: the carried state, its merge law, and decoding over ragged caches.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/ref/element.h"
#include "kernels/ref/ref.h"

namespace snapkv::kernels::ref {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

double Dot(const TensorView& a, int64_t a_head, int64_t a_row, const TensorView& b, int64_t b_head,
           int64_t b_row) {
  double sum = 0;
  for (int64_t d = 0; d < a.dim(2); ++d) sum += Load(a, a_head, a_row, d) * Load(b, b_head, b_row, d);
  return sum;
}

// exp(x - reference) where the reference of an empty part is -inf: nothing weighs nothing.
double Weight(double x, double reference) { return x == -kInfinity ? 0.0 : std::exp(x - reference); }

// Adds keys [0, keys) of KV head `kv_head` to the state of query i of head h.
void AddKeys(const AttentionParams& p, int64_t h, int64_t i, int64_t kv_head, int64_t keys) {
  std::vector<double> scores(static_cast<size_t>(keys));
  for (int64_t j = 0; j < keys; ++j) {
    scores[static_cast<size_t>(j)] = static_cast<double>(p.scale) * Dot(p.q, h, i, p.k, kv_head, j);
  }
  const double old_reference = Load(p.state.m, h, i);
  const double largest = *std::max_element(scores.begin(), scores.end());
  // The reference is kept as f32, so the sums are made relative to the f32 value.
  const double reference = static_cast<float>(std::max(old_reference, largest));
  const double keep = Weight(old_reference, reference);
  double l = keep * Load(p.state.l, h, i);
  for (double& s : scores) {
    s = Weight(s, reference);
    l += s;
  }
  for (int64_t d = 0; d < p.v.dim(2); ++d) {
    double o = keep * Load(p.state.o, h, i, d);
    for (int64_t j = 0; j < keys; ++j) o += scores[static_cast<size_t>(j)] * Load(p.v, kv_head, j, d);
    Store(o, p.state.o, h, i, d);
  }
  Store(l, p.state.l, h, i);
  Store(reference, p.state.m, h, i);
}

}  // namespace

void InitAttentionState(const AttentionState& state) {
  for (int64_t h = 0; h < state.o.dim(0); ++h) {
    for (int64_t i = 0; i < state.o.dim(1); ++i) {
      Store(-kInfinity, state.m, h, i);
      Store(0.0, state.l, h, i);
      for (int64_t d = 0; d < state.o.dim(2); ++d) Store(0.0, state.o, h, i, d);
    }
  }
}

void Attention(const AttentionParams& p) {
  const int64_t heads = p.q.dim(0), keys = p.k.dim(1), group = heads / p.k.dim(0);
  for (int64_t h = 0; h < heads; ++h) {
    for (int64_t i = 0; i < p.q.dim(1); ++i) {
      // A query at position P sees the keys at positions <= P.
      const int64_t seen =
          p.causal ? std::clamp<int64_t>(p.q_position + i - p.k_position + 1, 0, keys) : keys;
      if (seen > 0) AddKeys(p, h, i, h / group, seen);
    }
  }
}

void FinishAttention(const AttentionState& state, const TensorView& out, const TensorView& lse) {
  for (int64_t h = 0; h < out.dim(0); ++h) {
    for (int64_t i = 0; i < out.dim(1); ++i) {
      const double m = Load(state.m, h, i), l = Load(state.l, h, i);
      const bool empty = l == 0.0;
      for (int64_t d = 0; d < out.dim(2); ++d) {
        Store(empty ? 0.0 : Load(state.o, h, i, d) / l, out, h, i, d);
      }
      Store(empty ? -kInfinity : m + std::log(l), lse, h, i);
    }
  }
}

void MergeState(const TensorView& o, const TensorView& lse, const TensorView& other_o,
                const TensorView& other_lse) {
  for (int64_t h = 0; h < o.dim(0); ++h) {
    for (int64_t i = 0; i < o.dim(1); ++i) {
      const double a = Load(lse, h, i), b = Load(other_lse, h, i), largest = std::max(a, b);
      if (largest == -kInfinity) continue;  // two empty parts: (o, lse) is the identity already
      const double wa = Weight(a, largest), wb = Weight(b, largest);
      for (int64_t d = 0; d < o.dim(2); ++d) {
        Store((wa * Load(o, h, i, d) + wb * Load(other_o, h, i, d)) / (wa + wb), o, h, i, d);
      }
      Store(largest + std::log(wa + wb), lse, h, i);
    }
  }
}

void DecodeAttention(const TensorView& q, std::span<const CacheRows> caches, int64_t cache_heads, float scale,
                     const TensorView& out) {
  const int64_t heads = q.dim(1), head_dim = q.dim(2), group = heads / cache_heads;
  for (int64_t b = 0; b < q.dim(0); ++b) {
    for (int64_t h = 0; h < heads; ++h) {
      const CacheRows& cache = caches[static_cast<size_t>(b * cache_heads + h / group)];
      const auto rows_of = [&](const void* data) {
        return TensorView::Of(const_cast<void*>(data), q.dtype, q.device, 1, cache.rows, head_dim);
      };
      const TensorView k = rows_of(cache.k), v = rows_of(cache.v);
      std::vector<double> weights(static_cast<size_t>(cache.rows));
      double largest = -kInfinity, sum = 0;
      for (int64_t r = 0; r < cache.rows; ++r) {
        weights[static_cast<size_t>(r)] = static_cast<double>(scale) * Dot(q, b, h, k, 0, r);
        largest = std::max(largest, weights[static_cast<size_t>(r)]);
      }
      for (double& w : weights) {
        w = Weight(w, largest);
        sum += w;
      }
      for (int64_t d = 0; d < head_dim; ++d) {
        double o = 0;
        for (int64_t r = 0; r < cache.rows; ++r) o += weights[static_cast<size_t>(r)] * Load(v, 0, r, d);
        Store(cache.rows == 0 ? 0.0 : o / sum, out, b, h, d);
      }
    }
  }
}

}  // namespace snapkv::kernels::ref
