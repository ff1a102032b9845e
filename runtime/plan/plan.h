// SPDX-License-Identifier: Apache-2.0
// Plan: who owns which tokens of a prompt, what each ring step computes, and what travels at the chunk edges.
// Pure functions of (tokens, ranks, window, ...): every rank computes the same Plan without communicating.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/base/status.h"

namespace snapkv::runtime {

// Half-open range of token positions (or of local rows, where stated).
struct Range {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t size() const { return end - begin; }
  bool empty() const { return end <= begin; }
  bool operator==(const Range&) const = default;
};
// The common part, empty (begin == end) when there is none.
Range Intersect(Range a, Range b);

// One attention call of a ring step. Queries are local rows of this rank, keys local rows of the arriving
// block's owner.
struct AttentionWork {
  Range queries;
  Range keys;
  bool causal;             // false: every query sees every key
  int64_t query_position;  // global position of the first query
  int64_t key_position;  // global position of the first key; keys of one call have consecutive positions when
                         // causal
};

// Scores of positions `range` that `from` sends to `to`, to complete the pooling neighbourhood of a chunk of
// `to`.
struct HaloTransfer {
  int from;
  int to;
  int to_chunk;  // which chunk of `to` (0 or 1) has this edge
  Range range;
};

// Zigzag ownership: the prompt is cut into 2N chunks whose inner edges are multiples of `block`; rank r owns
// chunks r and 2N - 1 - r, so that every ring step costs every rank about the same. A rank's local rows are
// its first chunk followed by its second. Chunks may be empty, but never the last one: rank 0 always owns the
// last token.
class Plan {
 public:
  // tokens >= 1, ranks >= 1, window >= 1 (a window above tokens becomes tokens), block >= 1; INVALID_ARGUMENT
  // otherwise.
  static absl::StatusOr<Plan> Create(int64_t tokens, int ranks, int64_t window, int64_t block);

  int64_t tokens() const { return tokens_; }
  int ranks() const { return ranks_; }
  int64_t window() const { return window_; }
  int64_t prefix() const { return tokens_ - window_; }  // P: the tokens that compete for a place

  // Positions of chunk c in [0, 2 * ranks).
  Range Chunk(int c) const { return {edges_[static_cast<size_t>(c)], edges_[static_cast<size_t>(c) + 1]}; }
  // Positions of a rank's first (0) and second (1) chunk.
  Range RankChunk(int rank, int which) const { return Chunk(which == 0 ? rank : 2 * ranks_ - 1 - rank); }
  int64_t RankTokens(int rank) const { return RankChunk(rank, 0).size() + RankChunk(rank, 1).size(); }
  int64_t MaxRankTokens() const;
  // The rank that owns a position in [0, tokens).
  int Owner(int64_t position) const;
  // The global position of every local row, ascending.
  std::vector<int32_t> Positions(int rank) const;
  // The local rows that hold the positions of `range`, as at most two non-empty runs, ascending: {local rows,
  // first position}.
  struct LocalRun {
    Range rows;
    int64_t position;
  };
  std::vector<LocalRun> LocalRuns(int rank, Range range) const;

  // Ring: at step s, 0 <= s < ranks, `rank` computes with the block of RingSource(rank, s), having received
  // it from its lower neighbour (rank - 1) in step s - 1. Step 0 is its own block.
  int RingSource(int rank, int step) const { return (rank - step % ranks_ + ranks_) % ranks_; }
  // The attention calls of a step; none when nothing is visible or a side is empty.
  std::vector<AttentionWork> RingWork(int rank, int step) const;

  // Window queries by owner, ascending in position: {rank, positions}.
  struct WindowPart {
    int rank;
    Range range;
  };
  std::vector<WindowPart> WindowParts() const;

  // Every score that some rank needs from another for pooling with `kernel`: for each chunk [a, b) cut at the
  // prefix border, the positions [a - kernel / 2, a) and [b, b + kernel / 2) clipped to [0, prefix), from
  // whichever ranks own them. All ranks see the same list in the same order. Parts of a rank's own other
  // chunk are included with from == to.
  std::vector<HaloTransfer> HaloTransfers(int kernel) const;
  // The scored part of a rank's chunk: its positions below prefix().
  Range ScoredChunk(int rank, int which) const { return Intersect(RankChunk(rank, which), {0, prefix()}); }

 private:
  int64_t tokens_ = 0;
  int ranks_ = 1;
  int64_t window_ = 0;
  std::vector<int64_t> edges_;  // 2 * ranks + 1
};

}  // namespace snapkv::runtime
