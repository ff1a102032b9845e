// SPDX-License-Identifier: Apache-2.0
// Embed: rows of the token embedding table.
#pragma once

#include "absl/types/span.h"
#include "kernels/base/status.h"
#include "kernels/base/tensor_view.h"

namespace snapkv::kernels {

// out[i, :] = table[ids[i], :]. table: [vocab, hidden] f32, f16, bf16 or quantised, contiguous; out: f32
// [ids.size(), hidden], last dimension contiguous. INVALID_ARGUMENT for an id outside [0, vocab), named with
// its index.
absl::Status Embed(const Stream& stream, const TensorView& table, absl::Span<const int32_t> ids,
                   const TensorView& out);

}  // namespace snapkv::kernels
