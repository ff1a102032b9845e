// SPDX-License-Identifier: Apache-2.0
// Dequantize: GGML blocks to f32.
#pragma once

#include "kernels/base/status.h"
#include "kernels/base/tensor_view.h"

namespace snapkv::kernels {

// out = in as f32, exactly as ggml defines each block type. in: f32, f16, bf16 or quantised, contiguous;
// out: f32, contiguous, same shape.
absl::Status Dequantize(const Stream& stream, const TensorView& in, const TensorView& out);

}  // namespace snapkv::kernels
