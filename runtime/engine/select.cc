// SPDX-License-Identifier: Apache-2.0
// Global selection by summed histograms.
#include "runtime/engine/select.h"

#include <algorithm>
#include <numeric>

#include "kernels/op/select_top.h"

namespace snapkv::runtime {
namespace {

// The key of the last prefix position kept, per head.
absl::StatusOr<std::vector<uint64_t>> FindThresholds(const RankContext& context, const ShardScores& scores,
                                                     int64_t heads, int64_t keep) {
  std::vector<uint64_t> prefix(static_cast<size_t>(heads), 0);
  std::vector<int64_t> need(static_cast<size_t>(heads), keep);
  std::vector<int64_t> counts(static_cast<size_t>(heads * kernels::kSelectBins)), part(counts.size());
  for (int round = 0; round < kernels::kSelectRounds; ++round) {
    std::fill(counts.begin(), counts.end(), 0);
    for (const int which : {0, 1}) {
      const ChunkScores& chunk = scores.chunk(which);
      RETURN_IF_ERROR(kernels::CountSelectKeys(context.stream, chunk.pooled, chunk.positions, prefix, round,
                                               absl::MakeSpan(part)));
      for (size_t i = 0; i < counts.size(); ++i) counts[i] += part[i];
    }
    RETURN_IF_ERROR(context.host.AllReduceSum(absl::MakeSpan(counts)));
    kernels::NarrowSelection(counts, round, absl::MakeSpan(prefix), absl::MakeSpan(need));
  }
  return prefix;
}

// Every rank's kept positions, merged per head.
absl::Status ShareSelection(const RankContext& context, const std::vector<int32_t>& positions,
                            ShardSelection& selection) {
  // Per rank: the head counts, then the positions head by head.
  std::vector<int32_t> mine;
  for (const auto& rows : selection.rows) mine.push_back(static_cast<int32_t>(rows.size()));
  for (const auto& rows : selection.rows)
    for (const int32_t row : rows) mine.push_back(positions[static_cast<size_t>(row)]);
  std::vector<int64_t> lengths;
  ASSIGN_OR_RETURN(const std::vector<int32_t> all, context.host.AllGatherVector(mine, &lengths));
  const size_t heads = selection.rows.size();
  selection.global.positions.assign(heads, {});
  auto from = all.begin();
  for (size_t r = 0; r < lengths.size(); ++r) {
    auto next = from + static_cast<int64_t>(heads);
    for (size_t h = 0; h < heads; ++h) {
      auto& to = selection.global.positions[h];
      to.insert(to.end(), next, next + from[static_cast<int64_t>(h)]);
      next += from[static_cast<int64_t>(h)];
    }
    from += lengths[r];
  }
  for (auto& list : selection.global.positions) std::sort(list.begin(), list.end());
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ShardSelection> SelectGlobal(const RankContext& context, const Plan& plan,
                                            const CompressionOptions& options, const ShardScores& scores) {
  const PhaseTimer timer(context.stats, Phase::kSelect);
  const int64_t heads = scores.chunk(0).pooled.dim(0), keep = options.capacity - plan.window();
  ShardSelection selection;
  selection.rows.resize(static_cast<size_t>(heads));
  if (keep > 0) {
    ASSIGN_OR_RETURN(const std::vector<uint64_t> thresholds, FindThresholds(context, scores, heads, keep));
    for (const int which : {0, 1}) {
      const ChunkScores& chunk = scores.chunk(which);
      ASSIGN_OR_RETURN(const auto kept,
                       kernels::CollectSelected(context.stream, chunk.pooled, chunk.positions, thresholds));
      for (size_t h = 0; h < kept.size(); ++h)
        for (const int32_t column : kept[h])
          selection.rows[h].push_back(static_cast<int32_t>(chunk.first_row) + column);
      context.stats.AddTokens(Phase::kSelect, chunk.pooled.dim(1));
    }
  }
  for (const Plan::LocalRun& run : plan.LocalRuns(context.rank(), {plan.prefix(), plan.tokens()})) {
    for (auto& rows : selection.rows)
      for (int64_t row = run.rows.begin; row < run.rows.end; ++row) rows.push_back(static_cast<int32_t>(row));
  }
  // A first chunk's window rows were appended after the second chunk's prefix rows.
  for (auto& rows : selection.rows) std::sort(rows.begin(), rows.end());
  RETURN_IF_ERROR(ShareSelection(context, plan.Positions(context.rank()), selection));
  return selection;
}

ShardSelection SelectAll(const Plan& plan, int rank, int64_t heads) {
  ShardSelection selection;
  std::vector<int32_t> rows(static_cast<size_t>(plan.RankTokens(rank))),
      positions(static_cast<size_t>(plan.tokens()));
  std::iota(rows.begin(), rows.end(), 0);
  std::iota(positions.begin(), positions.end(), 0);
  selection.rows.assign(static_cast<size_t>(heads), rows);
  selection.global.positions.assign(static_cast<size_t>(heads), positions);
  return selection;
}

}  // namespace snapkv::runtime
