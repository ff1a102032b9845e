// SPDX-License-Identifier: Apache-2.0
// DecodeAttention: one new query per document against that document's ragged cache.
#pragma once

#include "absl/types/span.h"
#include "kernels/base/status.h"
#include "kernels/op/params.h"

namespace snapkv::kernels {

// out[b, h, :] = softmax(scale * q[b, h].K) V over the rows of caches[b * cache_heads + h / (heads /
// cache_heads)], in f32. q, out: f32 | bf16 [batch, heads, head_dim], last dimension contiguous; caches:
// batch * cache_heads entries of q's dtype (heads a multiple of cache_heads). No rows gives 0. A document's
// result does not depend on the others in the batch.
absl::Status DecodeAttention(const Stream& stream, const TensorView& q, absl::Span<const CacheRows> caches,
                             int64_t cache_heads, float scale, const TensorView& out);

}  // namespace snapkv::kernels
