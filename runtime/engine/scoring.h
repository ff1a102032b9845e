// SPDX-License-Identifier: Apache-2.0
// ShardScores: the pooled SnapKV scores of one rank's own keys, bitwise those that a single device would
// compute.
#pragma once

#include <vector>

#include "runtime/cache/kv_shard.h"
#include "runtime/engine/context.h"
#include "runtime/engine/ring_attention.h"
#include "runtime/plan/plan.h"

namespace snapkv::runtime {

// The pooled scores of one chunk, and where its columns are.
struct ChunkScores {
  TensorView pooled;               // f32 [selecting head, columns]
  std::vector<int32_t> positions;  // global position of each column
  int64_t first_row = 0;           // local row of column 0
};

// Buffers for one prompt; Run once per layer.
class ShardScores {
 public:
  // `plan` must outlive the object. No communication.
  static absl::StatusOr<ShardScores> Create(const RankContext& context, const Plan& plan,
                                            const CompressionOptions& options);

  // Broadcasts the observation window from its owners, scores this rank's prefix keys, exchanges the scores
  // that pooling needs across chunk edges, pools. q: this rank's queries [heads, local tokens, head_dim].
  absl::Status Run(const RankContext& context, const RingAttention& ring, const TensorView& q,
                   const KvShard& shard);

  // Two entries, one per chunk of this rank; a chunk without prefix tokens has no columns.
  const ChunkScores& chunk(int which) const { return chunks_[which].scores; }

 private:
  struct Chunk {
    Range range;        // scored positions
    int64_t left = 0;   // halo columns before them
    int64_t right = 0;  // and after
    Buffer raw_buffer, pooled_buffer;
    TensorView raw;  // f32 [selecting head, left + columns + right]
    ChunkScores scores;
  };

  ShardScores(const Plan& plan, const CompressionOptions& options) : plan_(&plan), options_(options) {}
  absl::Status BroadcastWindow(const RankContext& context, const RingAttention& ring, const TensorView& q);
  absl::Status ExchangeHalos(const RankContext& context);
  // Scores of `range`, which lies in one of this rank's chunks: [selecting head, range].
  TensorView OwnColumns(Range range) const;

  const Plan* plan_;
  CompressionOptions options_;
  ObservationWindow window_;
  Chunk chunks_[2];
  std::vector<HaloTransfer> halos_;  // those that this rank sends or receives, in the common order
};

}  // namespace snapkv::runtime
