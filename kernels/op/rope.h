// SPDX-License-Identifier: Apache-2.0
// Rope: rotary position embedding, half-rotation form (Su et al., arXiv 2104.09864; pairs are (j, j +
// head_dim / 2)).
#pragma once

#include "kernels/base/status.h"
#include "kernels/base/tensor_view.h"

namespace snapkv::kernels {

// For each token t, head h and j < head_dim / 2, with c = cos[t, j] and s = sin[t, j]:
//   out[h, t, j] = in[h, t, j] * c - in[h, t, j + half] * s
//   out[h, t, j + half] = in[h, t, j + half] * c + in[h, t, j] * s
// each product rounded to f32 before the sum. in, out: f32 | bf16, same dtype, [heads, tokens, head_dim], any
// strides but a contiguous last dimension, head_dim even; out may be in. cos, sin: f32 [tokens, head_dim /
// 2].
absl::Status Rope(const Stream& stream, const TensorView& in, const TensorView& cos, const TensorView& sin,
                  const TensorView& out);

}  // namespace snapkv::kernels
