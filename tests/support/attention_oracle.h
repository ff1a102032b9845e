// SPDX-License-Identifier: Apache-2.0
// An independent SnapKV: full attention matrices in double precision, written from the rule alone.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/engine/context.h"

namespace snapkv::testing {

// Queries, keys and values of one layer over a whole prompt, after RoPE.
struct AttentionProblem {
  int64_t heads = 0, kv_heads = 0, head_dim = 0, tokens = 0;
  std::vector<float> q;     // [heads, tokens, head_dim]
  std::vector<float> k, v;  // [kv_heads, tokens, head_dim]

  AttentionProblem() = default;
  // All zero.
  AttentionProblem(int64_t heads, int64_t kv_heads, int64_t head_dim, int64_t tokens)
      : heads(heads),
        kv_heads(kv_heads),
        head_dim(head_dim),
        tokens(tokens),
        q(static_cast<size_t>(heads * tokens * head_dim)),
        k(static_cast<size_t>(kv_heads * tokens * head_dim)),
        v(k.size()) {}
  // Element 0 of a row.
  const float* q_row(int64_t head, int64_t t) const { return q.data() + (head * tokens + t) * head_dim; }
  float* q_row(int64_t head, int64_t t) { return q.data() + (head * tokens + t) * head_dim; }
  const float* k_row(int64_t head, int64_t t) const { return k.data() + (head * tokens + t) * head_dim; }
  float* k_row(int64_t head, int64_t t) { return k.data() + (head * tokens + t) * head_dim; }
  const float* v_row(int64_t head, int64_t t) const { return v.data() + (head * tokens + t) * head_dim; }
};

// Normal q, k, v; q.k / sqrt(head_dim) has the standard deviation `logit_spread`.
AttentionProblem RandomProblem(int64_t heads, int64_t kv_heads, int64_t head_dim, int64_t tokens,
                               double logit_spread, uint64_t seed);

struct DenseAttention {
  std::vector<double> out;  // [heads, tokens, head_dim]
  std::vector<double> lse;  // [heads, tokens]
};
DenseAttention Attend(const AttentionProblem& problem);

// Per selecting head, the scores of the prefix positions: rules 2 to 4 of the SnapKV page.
std::vector<std::vector<double>> DenseScores(const AttentionProblem& problem, int64_t window,
                                             kernels::GroupMode group);
// Rule 5, over the whole prefix or over any part of it taken alone.
std::vector<double> DensePool(const std::vector<double>& scores, int kernel, kernels::PoolMode mode);

struct DenseSelection {
  std::vector<std::vector<int32_t>> positions;  // per selecting head, ascending
  // Relative distance from the last kept score to the nearest other score on the dropped side; when equal
  // scores lie on both sides of the cut, to the nearest different score. Infinite when nothing is dropped.
  std::vector<double> cut_gap;
};
// Rule 6 on pooled scores.
DenseSelection DenseTop(const std::vector<std::vector<double>>& pooled, int64_t tokens, int64_t window,
                        int64_t capacity);
// All rules. tokens <= C keeps everything.
DenseSelection DenseSnapKv(const AttentionProblem& problem, const runtime::CompressionOptions& options);

}  // namespace snapkv::testing
