// SPDX-License-Identifier: Apache-2.0
// MergeState: joins two finished parts of attention. For references and tests; the engine carries
// AttentionState.
#pragma once

#include "kernels/base/status.h"
#include "kernels/base/tensor_view.h"

namespace snapkv::kernels {

// (o, lse) = merge of (o, lse) and (other_o, other_lse): with M = max of the two LSEs and w = exp(lse - M),
// o = (w o + w' o') / (w + w'), lse = M + ln(w + w'). o: f32 [heads, queries, head_dim], normalised; lse: f32
// [heads, queries], natural log. Identity (0, -inf): two empty parts merge to an empty one. Last dimensions
// contiguous; the two parts must not overlap.
absl::Status MergeState(const Stream& stream, const TensorView& o, const TensorView& lse,
                        const TensorView& other_o, const TensorView& other_lse);

}  // namespace snapkv::kernels
