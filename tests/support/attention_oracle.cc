// SPDX-License-Identifier: Apache-2.0
// Plain loops in double; nothing of the engine is used.
#include "tests/support/attention_oracle.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "tests/support/tensors.h"

namespace snapkv::testing {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// The softmax row of query t: probabilities of the keys 0 .. t. Returns the natural LSE.
double SoftmaxRow(const AttentionProblem& p, int64_t head, int64_t t, std::vector<double>& row) {
  const int64_t kv = head / (p.heads / p.kv_heads);
  row.resize(static_cast<size_t>(t + 1));
  double most = -kInfinity;
  for (int64_t j = 0; j <= t; ++j) {
    double dot = 0;
    for (int64_t e = 0; e < p.head_dim; ++e) dot += double{p.q_row(head, t)[e]} * p.k_row(kv, j)[e];
    most = std::max(most, row[static_cast<size_t>(j)] = dot / std::sqrt(static_cast<double>(p.head_dim)));
  }
  double sum = 0;
  for (double& x : row) sum += x = std::exp(x - most);
  for (double& x : row) x /= sum;
  return most + std::log(sum);
}

}  // namespace

AttentionProblem RandomProblem(int64_t heads, int64_t kv_heads, int64_t head_dim, int64_t tokens,
                               double logit_spread, uint64_t seed) {
  AttentionProblem p(heads, kv_heads, head_dim, tokens);
  FillNormal(ViewOf(p.q, {heads * tokens * head_dim}), seed * 3, std::sqrt(logit_spread));
  FillNormal(ViewOf(p.k, {kv_heads * tokens * head_dim}), seed * 3 + 1, std::sqrt(logit_spread));
  FillNormal(ViewOf(p.v, {kv_heads * tokens * head_dim}), seed * 3 + 2);
  return p;
}

DenseAttention Attend(const AttentionProblem& p) {
  DenseAttention result;
  std::vector<double> row;
  for (int64_t h = 0; h < p.heads; ++h)
    for (int64_t t = 0; t < p.tokens; ++t) {
      result.lse.push_back(SoftmaxRow(p, h, t, row));
      std::vector<double> out(static_cast<size_t>(p.head_dim), 0.0);
      for (int64_t j = 0; j <= t; ++j)
        for (size_t e = 0; e < out.size(); ++e)
          out[e] += row[static_cast<size_t>(j)] * p.v_row(h / (p.heads / p.kv_heads), j)[e];
      result.out.insert(result.out.end(), out.begin(), out.end());
    }
  return result;
}

std::vector<std::vector<double>> DenseScores(const AttentionProblem& p, int64_t window,
                                             kernels::GroupMode group) {
  const int64_t w = std::min(window, p.tokens), prefix = p.tokens - w, g = p.heads / p.kv_heads;
  std::vector<std::vector<double>> per_head(static_cast<size_t>(p.heads),
                                            std::vector<double>(static_cast<size_t>(prefix), 0.0));
  std::vector<double> row;
  for (int64_t h = 0; h < p.heads; ++h)
    for (int64_t t = prefix; t < p.tokens; ++t) {
      SoftmaxRow(p, h, t, row);
      for (size_t j = 0; j < static_cast<size_t>(prefix); ++j) per_head[static_cast<size_t>(h)][j] += row[j];
    }
  if (group == kernels::GroupMode::kNone) return per_head;
  std::vector<std::vector<double>> reduced;
  for (int64_t kv = 0; kv < p.kv_heads; ++kv) {
    std::vector<double> scores = per_head[static_cast<size_t>(kv * g)];
    for (int64_t h = kv * g + 1; h < (kv + 1) * g; ++h)
      for (size_t j = 0; j < scores.size(); ++j) {
        const double x = per_head[static_cast<size_t>(h)][j];
        scores[j] = group == kernels::GroupMode::kMax ? std::max(scores[j], x) : scores[j] + x;
      }
    if (group == kernels::GroupMode::kMean)
      for (double& x : scores) x /= static_cast<double>(g);
    reduced.push_back(std::move(scores));
  }
  return reduced;
}

std::vector<double> DensePool(const std::vector<double>& scores, int kernel, kernels::PoolMode mode) {
  if (mode == kernels::PoolMode::kNone) return scores;
  const int64_t n = static_cast<int64_t>(scores.size());
  std::vector<double> pooled;
  for (int64_t i = 0; i < n; ++i) {
    double most = -kInfinity, sum = 0;
    for (int64_t j = std::max<int64_t>(0, i - kernel / 2); j <= std::min(n - 1, i + kernel / 2); ++j) {
      most = std::max(most, scores[static_cast<size_t>(j)]);
      sum += scores[static_cast<size_t>(j)];
    }
    pooled.push_back(mode == kernels::PoolMode::kMax ? most : sum / kernel);
  }
  return pooled;
}

DenseSelection DenseTop(const std::vector<std::vector<double>>& pooled, int64_t tokens, int64_t window,
                        int64_t capacity) {
  const int64_t w = std::min(window, tokens), prefix = tokens - w;
  const int64_t keep = std::min(capacity - w, prefix);
  DenseSelection selection;
  for (const std::vector<double>& scores : pooled) {
    std::vector<int32_t> order(static_cast<size_t>(prefix));
    std::iota(order.begin(), order.end(), 0);
    const auto score = [&](int64_t rank) {
      return scores[static_cast<size_t>(order[static_cast<size_t>(rank)])];
    };
    std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
      return scores[static_cast<size_t>(a)] > scores[static_cast<size_t>(b)];
    });
    double gap = kInfinity;
    if (keep > 0 && keep < prefix) {
      const double last = score(keep - 1);
      const bool tied = score(keep) == last;
      for (int64_t i = 0; i < prefix; ++i) {
        if (score(i) == last || (!tied && i < keep)) continue;
        gap = std::min(gap, std::abs(score(i) - last) / std::max(std::abs(last), std::abs(score(i))));
      }
    }
    std::vector<int32_t> kept(order.begin(), order.begin() + keep);
    std::sort(kept.begin(), kept.end());
    for (int64_t t = prefix; t < tokens; ++t) kept.push_back(static_cast<int32_t>(t));
    selection.positions.push_back(std::move(kept));
    selection.cut_gap.push_back(gap);
  }
  return selection;
}

DenseSelection DenseSnapKv(const AttentionProblem& p, const runtime::CompressionOptions& options) {
  if (p.tokens <= options.capacity) {
    std::vector<int32_t> all(static_cast<size_t>(p.tokens));
    std::iota(all.begin(), all.end(), 0);
    const size_t heads = static_cast<size_t>(p.kv_heads);
    return {std::vector<std::vector<int32_t>>(heads, all), std::vector<double>(heads, kInfinity)};
  }
  std::vector<std::vector<double>> pooled = DenseScores(p, options.window, options.group);
  for (auto& scores : pooled) scores = DensePool(scores, options.kernel, options.pool);
  return DenseTop(pooled, p.tokens, options.window, options.capacity);
}

}  // namespace snapkv::testing
