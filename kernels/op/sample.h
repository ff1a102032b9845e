// SPDX-License-Identifier: Apache-2.0
// Sample: the next token from one row of logits.
#pragma once

#include "absl/types/span.h"
#include "kernels/base/status.h"
#include "kernels/op/params.h"

namespace snapkv::kernels {

// Draws a token (SampleParams in params.h). logits: f32 [vocab], contiguous, not changed; history: tokens
// that the repetition penalty applies to, each once however often it occurs. The draw depends on logits,
// history and params alone. INTERNAL when a logit is NaN, naming the first.
absl::StatusOr<int32_t> Sample(const Stream& stream, const TensorView& logits,
                               absl::Span<const int32_t> history, const SampleParams& params);

}  // namespace snapkv::kernels
