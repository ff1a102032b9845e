// SPDX-License-Identifier: Apache-2.0
// Reference WindowScores and PoolScores.
#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/ref/element.h"
#include "kernels/ref/ref.h"

namespace snapkv::kernels::ref {
namespace {

// Attention that query head h of the window pays to key j of KV head kv_head.
double HeadScore(const TensorView& q, const TensorView& lse, const TensorView& k, float scale, int64_t h,
                 int64_t kv_head, int64_t j) {
  double score = 0;
  for (int64_t i = 0; i < q.dim(1); ++i) {
    double dot = 0;
    for (int64_t d = 0; d < q.dim(2); ++d) dot += Load(q, h, i, d) * Load(k, kv_head, j, d);
    // Rounded to f32 as lse is: for a key that takes all of a query's attention both roundings are the same
    // and its probability is 1, however large the logit.
    const float logit = static_cast<float>(static_cast<double>(scale) * dot);
    score += std::exp(static_cast<double>(logit) - Load(lse, h, i));
  }
  return score;
}

}  // namespace

void WindowScores(const TensorView& q, const TensorView& lse, const TensorView& k, float scale,
                  GroupMode mode, const TensorView& scores) {
  const int64_t heads = q.dim(0), kv_heads = k.dim(0), group = heads / kv_heads;
  for (int64_t j = 0; j < k.dim(1); ++j) {
    for (int64_t kv_head = 0; kv_head < kv_heads; ++kv_head) {
      double reduced = 0;  // scores are >= 0, so it is the identity of max as well
      for (int64_t h = kv_head * group; h < (kv_head + 1) * group; ++h) {
        const double score = HeadScore(q, lse, k, scale, h, kv_head, j);
        if (mode == GroupMode::kNone) Store(score, scores, h, j);
        reduced = mode == GroupMode::kMax ? std::max(reduced, score) : reduced + score;
      }
      if (mode == GroupMode::kMean) reduced /= static_cast<double>(group);
      if (mode != GroupMode::kNone) Store(reduced, scores, kv_head, j);
    }
  }
}

// In f32, as the contract fixes the order of the additions: equal neighbourhoods give equal bits.
void PoolScores(const TensorView& in, int64_t left, int kernel, PoolMode mode, const TensorView& out) {
  const int64_t half = kernel / 2;
  for (int64_t h = 0; h < out.dim(0); ++h) {
    for (int64_t i = 0; i < out.dim(1); ++i) {
      if (mode == PoolMode::kNone) {
        *out.at<float>(h, i) = *in.at<float>(h, left + i);
        continue;
      }
      float largest = -std::numeric_limits<float>::infinity(), sum = 0;
      for (int64_t j = left + i - half; j <= left + i + half; ++j) {
        if (j < 0 || j >= in.dim(1)) continue;  // outside the prefix: -inf for max, 0 for avg
        const float score = *in.at<float>(h, j);
        largest = std::max(largest, score);
        sum += score;
      }
      *out.at<float>(h, i) = mode == PoolMode::kMax ? largest : sum / static_cast<float>(kernel);
    }
  }
}

}  // namespace snapkv::kernels::ref
