// SPDX-License-Identifier: Apache-2.0
// SelectGlobal: the top C - W prefix positions per head over all ranks, plus the window.
#pragma once

#include <vector>

#include "runtime/cache/selection.h"
#include "runtime/engine/context.h"
#include "runtime/engine/scoring.h"
#include "runtime/plan/plan.h"

namespace snapkv::runtime {

struct ShardSelection {
  std::vector<std::vector<int32_t>> rows;  // per selecting head: this rank's kept local rows, ascending
  Selection global;                        // the same on every rank
};

// Exact and the same for any number of ranks: histogram rounds over the total order (score descending,
// position ascending), summed over the ranks, find each head's last kept key. Window rows are kept by
// position, not by score.
absl::StatusOr<ShardSelection> SelectGlobal(const RankContext& context, const Plan& plan,
                                            const CompressionOptions& options, const ShardScores& scores);

// Everything, for prompts that are not compressed: no communication.
ShardSelection SelectAll(const Plan& plan, int rank, int64_t heads);

}  // namespace snapkv::runtime
