// SPDX-License-Identifier: Apache-2.0
// RmsNorm: root-mean-square normalisation of rows (Zhang and Sennrich, arXiv 1910.07467).
#pragma once

#include "kernels/base/status.h"
#include "kernels/base/tensor_view.h"

namespace snapkv::kernels {

// out[i, j] = x[i, j] / sqrt(mean_j(x[i, j]^2) + epsilon) * weight[j]. x: f32 [rows, columns]; weight: f32
// [columns]; out: f32 | bf16 [rows, columns]; last dimensions contiguous; out may be x. A row depends on that
// row alone.
absl::Status RmsNorm(const Stream& stream, const TensorView& x, const TensorView& weight, float epsilon,
                     const TensorView& out);

}  // namespace snapkv::kernels
