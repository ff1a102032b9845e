// SPDX-License-Identifier: Apache-2.0
// Attention with a carried state: one call adds one part of the keys, in any order of the parts.
#pragma once

#include "kernels/base/status.h"
#include "kernels/op/params.h"

namespace snapkv::kernels {

// state = identity.
absl::Status InitAttentionState(const Stream& stream, const AttentionState& state);

// Adds the keys of one part to the state of every query (AttentionParams in params.h). Keys are taken in
// blocks of kKeyBlock from key 0; a block's maximum, sum and output are computed in f32 from that block alone
// and then added to the carried state, so that with an f64 state the order of the parts does not show in the
// f32 result but for f64 rounding. Queries that see no key keep their state; no queries or no keys is OK.
// When causal, blocks that no query sees are skipped.
absl::Status Attention(const Stream& stream, const AttentionParams& params);

// out[h, i, :] = o / l, lse[h, i] = m + ln(l); a query that saw no key gets 0 and -inf.
// out: f32 | bf16 [heads, queries, head_dim], any strides but a contiguous last dimension; lse: f32 [heads,
// queries].
absl::Status FinishAttention(const Stream& stream, const AttentionState& state, const TensorView& out,
                             const TensorView& lse);

}  // namespace snapkv::kernels
