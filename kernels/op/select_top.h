// SPDX-License-Identifier: Apache-2.0
// SelectTop: the best positions per head in the total order (score descending, position ascending), exact,
// also when the scores are spread over ranks: histogram rounds over SelectKey find the key of the last
// position kept.
#pragma once

#include <vector>

#include "absl/types/span.h"
#include "kernels/base/status.h"
#include "kernels/op/params.h"

namespace snapkv::kernels {

// One histogram round: counts[h, b] = number of i with SelectKey(scores[h, i], positions[i]) agreeing with
// prefix[h] in the highest kSelectBits * round bits and having the value b in the next kSelectBits bits; no
// columns give zeros. scores: f32 [heads, n], last dimension contiguous, no NaN; positions: one per column,
// distinct; prefix: one per head; counts: heads * kSelectBins values, overwritten.
absl::Status CountSelectKeys(const Stream& stream, const TensorView& scores,
                             absl::Span<const int32_t> positions, absl::Span<const uint64_t> prefix,
                             int round, absl::Span<int64_t> counts);

// The columns with SelectKey >= threshold[h], ascending, per head.
absl::StatusOr<std::vector<std::vector<int32_t>>> CollectSelected(const Stream& stream,
                                                                  const TensorView& scores,
                                                                  absl::Span<const int32_t> positions,
                                                                  absl::Span<const uint64_t> threshold);

// Narrows the search after a round: given the counts summed over all shards, appends the bin of the
// `need[h]`-th best key to prefix[h] and lowers need[h] by what lies above that bin. After kSelectRounds
// rounds prefix, 0 at first, is the threshold. need[h] <= 0 ends above every key, more than there are at 0.
void NarrowSelection(absl::Span<const int64_t> counts, int round, absl::Span<uint64_t> prefix,
                     absl::Span<int64_t> need);

// All rounds for a single shard: the best min(count, n) columns per head, ascending; none when count <= 0.
absl::StatusOr<std::vector<std::vector<int32_t>>> SelectTop(const Stream& stream, const TensorView& scores,
                                                            absl::Span<const int32_t> positions,
                                                            int64_t count);

}  // namespace snapkv::kernels
