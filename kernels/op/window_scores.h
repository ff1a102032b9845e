// SPDX-License-Identifier: Apache-2.0
// WindowScores: how much the observation window attends to each key before it (SnapKV, Li et al., arXiv
// 2404.14469).
#pragma once

#include "kernels/base/status.h"
#include "kernels/op/params.h"

namespace snapkv::kernels {

// score[h, j] = reduce over the query heads of KV head h of (sum over i < window of exp(scale * q[., i].k[h,
// j] - lse[., i])): softmax rows of full attention, since lse is the final one of each window query. All keys
// must lie before the window (no mask). The sum runs over i ascending and the heads ascending; every key goes
// through the same arithmetic, so equal keys give equal scores. q: f32 | bf16 [heads, window, head_dim]; lse:
// f32 [heads, window], natural log; k: as q [kv_heads, keys, head_dim], any strides but a contiguous last
// dimension; scores: f32 [kv_heads, keys], or [heads, keys] for GroupMode::kNone, last dimension contiguous.
// kMean divides the sum by the number of heads. No window gives 0.
absl::Status WindowScores(const Stream& stream, const TensorView& q, const TensorView& lse,
                          const TensorView& k, float scale, GroupMode group, const TensorView& scores);

}  // namespace snapkv::kernels
