// SPDX-License-Identifier: Apache-2.0
// Zigzag ownership, the ring schedule and the halo edges.
#include "runtime/plan/plan.h"

#include <algorithm>

namespace snapkv::runtime {

Range Intersect(Range a, Range b) {
  const Range r{std::max(a.begin, b.begin), std::min(a.end, b.end)};
  return r.empty() ? Range{r.begin, r.begin} : r;
}

absl::StatusOr<Plan> Plan::Create(int64_t tokens, int ranks, int64_t window, int64_t block) {
  if (tokens < 1) return InvalidArgument("plan: a prompt has at least one token, got ", tokens);
  if (tokens > INT32_MAX) return InvalidArgument("plan: positions are 32 bit, got ", tokens, " tokens");
  if (ranks < 1) return InvalidArgument("plan: at least one rank, got ", ranks);
  if (window < 1) return InvalidArgument("plan: the window has at least one token, got ", window);
  if (block < 1) return InvalidArgument("plan: the key block has at least one token, got ", block);
  Plan plan;
  plan.tokens_ = tokens;
  plan.ranks_ = ranks;
  plan.window_ = std::min(window, tokens);
  const int64_t blocks = (tokens + block - 1) / block, chunks = 2 * int64_t{ranks};
  for (int64_t i = 0; i < chunks; ++i) plan.edges_.push_back(std::min(tokens, block * (i * blocks / chunks)));
  plan.edges_.push_back(tokens);
  return plan;
}

int64_t Plan::MaxRankTokens() const {
  int64_t most = 0;
  for (int r = 0; r < ranks_; ++r) most = std::max(most, RankTokens(r));
  return most;
}

int Plan::Owner(int64_t position) const {
  // The last edge that is <= position starts the chunk (empty chunks before it share the edge).
  const auto it = std::upper_bound(edges_.begin(), edges_.end(), position) - 1;
  const int chunk = static_cast<int>(it - edges_.begin());
  return chunk < ranks_ ? chunk : 2 * ranks_ - 1 - chunk;
}

std::vector<int32_t> Plan::Positions(int rank) const {
  std::vector<int32_t> positions;
  positions.reserve(static_cast<size_t>(RankTokens(rank)));
  for (const int which : {0, 1}) {
    const Range chunk = RankChunk(rank, which);
    for (int64_t p = chunk.begin; p < chunk.end; ++p) positions.push_back(static_cast<int32_t>(p));
  }
  return positions;
}

std::vector<Plan::LocalRun> Plan::LocalRuns(int rank, Range range) const {
  std::vector<LocalRun> runs;
  int64_t first_row = 0;
  for (const int which : {0, 1}) {
    const Range chunk = RankChunk(rank, which), part = Intersect(chunk, range);
    if (!part.empty()) {
      const int64_t row = first_row + part.begin - chunk.begin;
      runs.push_back({{row, row + part.size()}, part.begin});
    }
    first_row += chunk.size();
  }
  return runs;
}

std::vector<AttentionWork> Plan::RingWork(int rank, int step) const {
  const int source = RingSource(rank, step);
  const Range low = RankChunk(rank, 0), high = RankChunk(rank, 1);
  const Range low_rows{0, low.size()}, high_rows{low.size(), low.size() + high.size()};
  const Range source_low = RankChunk(source, 0);
  const Range source_low_rows{0, source_low.size()}, source_all_rows{0, RankTokens(source)};
  // Positions of the first local row; either chunk may be empty.
  const auto position = [](Range first, Range second, int64_t row) {
    return row < first.size() ? first.begin + row : second.begin + row - first.size();
  };
  std::vector<AttentionWork> work;
  const auto add = [&](Range queries, Range keys, bool causal) {
    if (queries.empty() || keys.empty()) return;
    work.push_back({queries, keys, causal, position(low, high, queries.begin),
                    position(source_low, RankChunk(source, 1), keys.begin)});
  };
  if (source == rank) {
    add(low_rows, low_rows, true);
    add(high_rows, low_rows, false);
    add(high_rows, high_rows, true);
  } else if (source < rank) {  // its first chunk lies before both of ours, its second behind both
    add({0, high_rows.end}, source_low_rows, false);
  } else {  // its chunks lie between ours
    add(high_rows, source_all_rows, false);
  }
  return work;
}

std::vector<Plan::WindowPart> Plan::WindowParts() const {
  std::vector<WindowPart> parts;
  for (int c = 0; c < 2 * ranks_; ++c) {
    const Range part = Intersect(Chunk(c), {prefix(), tokens_});
    if (!part.empty()) parts.push_back({c < ranks_ ? c : 2 * ranks_ - 1 - c, part});
  }
  return parts;
}

std::vector<HaloTransfer> Plan::HaloTransfers(int kernel) const {
  const int64_t reach = kernel / 2;
  const Range scored{0, prefix()};
  std::vector<HaloTransfer> transfers;
  for (int rank = 0; rank < ranks_; ++rank) {
    for (const int which : {0, 1}) {
      const Range chunk = ScoredChunk(rank, which);
      if (chunk.empty()) continue;
      for (const Range edge :
           {Range{chunk.begin - reach, chunk.begin}, Range{chunk.end, chunk.end + reach}}) {
        const Range wanted = Intersect(edge, scored);
        for (int owner = 0; owner < ranks_ && !wanted.empty(); ++owner) {
          for (const int w : {0, 1}) {
            const Range part = Intersect(RankChunk(owner, w), wanted);
            if (!part.empty()) transfers.push_back({owner, rank, which, part});
          }
        }
      }
    }
  }
  return transfers;
}

}  // namespace snapkv::runtime
