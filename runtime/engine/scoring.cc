// SPDX-License-Identifier: Apache-2.0
// Window broadcast, scores, halo exchange and pooling of one layer.
#include "runtime/engine/scoring.h"

#include <algorithm>
#include <cmath>

#include "kernels/base/log.h"
#include "kernels/op/elementwise.h"
#include "kernels/op/pool_scores.h"
#include "kernels/op/window_scores.h"

namespace snapkv::runtime {

absl::StatusOr<ShardScores> ShardScores::Create(const RankContext& context, const Plan& plan,
                                                const CompressionOptions& options) {
  const ModelConfig& c = context.model.config();
  ShardScores shard(plan, options);
  if (options.pool == kernels::PoolMode::kNone) shard.options_.kernel = 1;
  ASSIGN_OR_RETURN(shard.window_, ObservationWindow::Create(context.allocator, context.model.dtype(), c.heads,
                                                            plan.window(), c.head_dim));
  const int64_t selecting = options.group == kernels::GroupMode::kNone ? c.heads : c.kv_heads;
  const int64_t reach = shard.options_.kernel / 2;
  for (const int which : {0, 1}) {
    Chunk& chunk = shard.chunks_[which];
    chunk.range = plan.ScoredChunk(context.rank(), which);
    const int64_t columns = chunk.range.size();
    if (columns > 0) {
      chunk.left = std::min(reach, chunk.range.begin);
      chunk.right = std::min(reach, plan.prefix() - chunk.range.end);
    }
    const int64_t width = chunk.left + columns + chunk.right;
    ASSIGN_OR_RETURN(chunk.raw_buffer, Buffer::Of(context.allocator, MemoryKind::kWorkspace, Device::kCpu,
                                                  DType::kF32, selecting, width));
    ASSIGN_OR_RETURN(chunk.pooled_buffer, Buffer::Of(context.allocator, MemoryKind::kWorkspace, Device::kCpu,
                                                     DType::kF32, selecting, columns));
    chunk.raw = chunk.raw_buffer.View(DType::kF32, selecting, width);
    chunk.scores.pooled = chunk.pooled_buffer.View(DType::kF32, selecting, columns);
    chunk.scores.first_row = which == 0 ? 0 : plan.RankChunk(context.rank(), 0).size();
    for (int64_t p = chunk.range.begin; p < chunk.range.end; ++p)
      chunk.scores.positions.push_back(static_cast<int32_t>(p));
  }
  for (const HaloTransfer& t : plan.HaloTransfers(shard.options_.kernel)) {
    if (t.from == context.rank() || t.to == context.rank()) shard.halos_.push_back(t);
  }
  return shard;
}

absl::Status ShardScores::Run(const RankContext& context, const RingAttention& ring, const TensorView& q,
                              const KvShard& shard) {
  {
    const PhaseTimer timer(context.stats, Phase::kScore);
    RETURN_IF_ERROR(BroadcastWindow(context, ring, q));
    const float scale = 1.0f / std::sqrt(static_cast<float>(q.dim(2)));
    for (const Chunk& chunk : chunks_) {
      const int64_t row = chunk.scores.first_row, columns = chunk.range.size();
      RETURN_IF_ERROR(kernels::WindowScores(context.stream, window_.q(), window_.lse(),
                                            shard.k().Slice(1, row, row + columns), scale, options_.group,
                                            chunk.raw.Slice(1, chunk.left, chunk.left + columns)));
      context.stats.AddTokens(Phase::kScore, columns);
    }
  }
  const PhaseTimer timer(context.stats, Phase::kPool);
  RETURN_IF_ERROR(ExchangeHalos(context));
  for (const Chunk& chunk : chunks_) {
    RETURN_IF_ERROR(kernels::PoolScores(context.stream, chunk.raw, chunk.left, options_.kernel, options_.pool,
                                        chunk.scores.pooled));
    context.stats.AddTokens(Phase::kPool, chunk.range.size());
  }
  return absl::OkStatus();
}

absl::Status ShardScores::BroadcastWindow(const RankContext& context, const RingAttention& ring,
                                          const TensorView& q) {
  const int64_t heads = q.dim(0), dim = q.dim(2);
  for (const Plan::WindowPart& part : plan_->WindowParts()) {
    const int64_t n = part.range.size(), at = part.range.begin - plan_->prefix();
    // Contiguous on the way, in place afterwards.
    ASSIGN_OR_RETURN(const Buffer q_buffer, Buffer::Of(context.allocator, MemoryKind::kWorkspace,
                                                       Device::kCpu, q.dtype, heads, n, dim));
    ASSIGN_OR_RETURN(const Buffer lse_buffer, Buffer::Of(context.allocator, MemoryKind::kWorkspace,
                                                         Device::kCpu, DType::kF32, heads, n));
    const TensorView part_q = q_buffer.View(q.dtype, heads, n, dim),
                     part_lse = lse_buffer.View(DType::kF32, heads, n);
    if (part.rank == context.rank()) {
      const auto runs = plan_->LocalRuns(part.rank, part.range);
      CHECK(runs.size() == 1) << "a window part lies in one chunk";
      const Range rows = runs[0].rows;
      // The output is not needed here: it is written to part_q and then replaced by the queries.
      RETURN_IF_ERROR(ring.Finish(context, rows, part_q, part_lse));
      RETURN_IF_ERROR(kernels::Cast(context.stream, q.Slice(1, rows.begin, rows.end), part_q));
    }
    RETURN_IF_ERROR(context.device.Broadcast(context.stream, part_q, part.rank));
    RETURN_IF_ERROR(context.device.Broadcast(context.stream, part_lse, part.rank));
    RETURN_IF_ERROR(kernels::Cast(context.stream, part_q, window_.q().Slice(1, at, at + n)));
    RETURN_IF_ERROR(kernels::Cast(context.stream, part_lse, window_.lse().Slice(1, at, at + n)));
  }
  return absl::OkStatus();
}

TensorView ShardScores::OwnColumns(Range range) const {
  const Chunk& chunk =
      chunks_[chunks_[0].range.begin <= range.begin && range.end <= chunks_[0].range.end ? 0 : 1];
  const int64_t column = chunk.left + range.begin - chunk.range.begin;
  return chunk.raw.Slice(1, column, column + range.size());
}

absl::Status ShardScores::ExchangeHalos(const RankContext& context) {
  const int rank = context.rank();
  const int64_t selecting = chunks_[0].raw.dim(0);
  std::vector<Buffer> buffers;  // contiguous copies of what travels
  std::vector<comm::Message> sends, receives;
  std::vector<TensorView> targets;  // of receives
  for (const HaloTransfer& t : halos_) {
    const Chunk& chunk = chunks_[t.to_chunk];
    const auto target = [&] {
      const int64_t column = chunk.left + t.range.begin - chunk.range.begin;
      return chunk.raw.Slice(1, column, column + t.range.size());
    };
    if (t.from == t.to) {
      RETURN_IF_ERROR(kernels::Cast(context.stream, OwnColumns(t.range), target()));
      continue;
    }
    ASSIGN_OR_RETURN(Buffer buffer, Buffer::Of(context.allocator, MemoryKind::kWorkspace, Device::kCpu,
                                               DType::kF32, selecting, t.range.size()));
    const TensorView view = buffer.View(DType::kF32, selecting, t.range.size());
    if (t.from == rank) {
      RETURN_IF_ERROR(kernels::Cast(context.stream, OwnColumns(t.range), view));
      sends.push_back({view, t.to});
    } else {
      receives.push_back({view, t.from});
      targets.push_back(target());
    }
    buffers.push_back(std::move(buffer));
  }
  if (sends.empty() && receives.empty()) return absl::OkStatus();
  ASSIGN_OR_RETURN(const comm::ExchangeId id, context.device.StartExchange(context.stream, sends, receives));
  RETURN_IF_ERROR(context.device.FinishExchange(context.stream, id));
  for (size_t i = 0; i < receives.size(); ++i)
    RETURN_IF_ERROR(kernels::Cast(context.stream, receives[i].view, targets[i]));
  return absl::OkStatus();
}

}  // namespace snapkv::runtime
