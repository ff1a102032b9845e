// SPDX-License-Identifier: Apache-2.0
// PoolScores: smooths scores along the positions, stride 1, so that neighbours of a strong key are kept with
// it.
#pragma once

#include "kernels/base/status.h"
#include "kernels/op/params.h"

namespace snapkv::kernels {

// out[h, i] = max, or sum / kernel, of in[h, left + i - kernel / 2 .. left + i + kernel / 2]. Entries of that
// range outside `in` lie outside the prefix: -inf for max, 0 for avg, whose divisor stays kernel. Sums run
// left to right for each output (no running sum): equal neighbourhoods give equal results. kNone copies. in:
// f32 [heads, left + n + right] with halos of at most kernel / 2 on each side; out: f32 [heads, n]; kernel
// odd; last dimensions contiguous; must not overlap.
absl::Status PoolScores(const Stream& stream, const TensorView& in, int64_t left, int kernel, PoolMode mode,
                        const TensorView& out);

}  // namespace snapkv::kernels
