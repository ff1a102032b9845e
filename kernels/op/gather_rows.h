// SPDX-License-Identifier: Apache-2.0
// GatherRows: copies chosen rows of each head into one contiguous run.
#pragma once

#include <vector>

#include "absl/types/span.h"
#include "kernels/base/status.h"
#include "kernels/base/tensor_view.h"

namespace snapkv::kernels {

// out[offset(h) + i, :] = in[head(h), rows[h][i], :] with offset(h) = total length of the lists before h.
// in: f32 | bf16 [kv_heads, n, head_dim], any strides but a contiguous last dimension; rows: one list per
// output head, whose number is a multiple of kv_heads (head(h) = h / (lists / kv_heads)); out: same dtype
// [total, head_dim], contiguous; must not overlap. INVALID_ARGUMENT for a row outside [0, n).
absl::Status GatherRows(const Stream& stream, const TensorView& in,
                        absl::Span<const std::vector<int32_t>> rows, const TensorView& out);

}  // namespace snapkv::kernels
