// SPDX-License-Identifier: Apache-2.0
// Element-wise ops: Add, AddBias, Cast, SiluMul.
#pragma once

#include "kernels/base/status.h"
#include "kernels/base/tensor_view.h"

namespace snapkv::kernels {

// x += y. x: f32 [rows, columns]; y: f32 | bf16, same shape. Last dimensions contiguous; must not overlap.
absl::Status Add(const Stream& stream, const TensorView& x, const TensorView& y);

// x[i, :] += bias. x: f32 | bf16 [rows, columns] (bf16: added in f32, rounded to nearest even); bias: f32
// [columns].
absl::Status AddBias(const Stream& stream, const TensorView& x, const TensorView& bias);

// out = in, converted (to nearest even). f32 | f64 | f16 | bf16 to f32 | f64 | bf16; same shape, any strides,
// no overlap. One rounding, f64 to bf16 included.
absl::Status Cast(const Stream& stream, const TensorView& in, const TensorView& out);

// out = silu(gate) * up with silu(x) = x / (1 + exp(-x)), computed in f32. gate_up: f32 | bf16 [rows, 2 *
// columns], the gates first; out: same dtype [rows, columns], which may be the gates of gate_up itself. Last
// dimensions contiguous.
absl::Status SiluMul(const Stream& stream, const TensorView& gate_up, const TensorView& out);

}  // namespace snapkv::kernels
