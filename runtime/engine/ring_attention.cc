// SPDX-License-Identifier: Apache-2.0
// The ring: post the next hop, compute with the block at hand, wait, repeat.
#include "runtime/engine/ring_attention.h"

#include <algorithm>
#include <cmath>

#include "kernels/op/attention.h"

namespace snapkv::runtime {
namespace {

// Queries per attention call: between calls the transport is polled, so that hops proceed and stopped ranks
// are noticed while the rank computes. Fewer when there are many keys, in whole query blocks.
int64_t QueriesPerPoll(int64_t keys) {
  constexpr int64_t kMost = 512, kLeast = 128, kPairs = int64_t{1} << 22;
  return std::clamp(kPairs / std::max<int64_t>(keys, 1) / kLeast * kLeast, kLeast, kMost);
}

kernels::AttentionState Rows(const kernels::AttentionState& state, int64_t begin, int64_t end) {
  return {state.m.Slice(1, begin, end), state.l.Slice(1, begin, end), state.o.Slice(1, begin, end)};
}

}  // namespace

absl::StatusOr<RingAttention> RingAttention::Create(const RankContext& context, const Plan& plan) {
  const ModelConfig& c = context.model.config();
  RingAttention ring(plan, context.model.dtype());
  Allocator& allocator = context.allocator;
  const int64_t tokens = plan.RankTokens(context.rank()), most = plan.MaxRankTokens();
  for (int i = 0; i < std::min(2, plan.ranks() - 1); ++i) {
    ASSIGN_OR_RETURN(ring.receive_[i], Buffer::Of(allocator, MemoryKind::kKvReceive, Device::kCpu,
                                                  ring.dtype_, 2, c.kv_heads, most, c.head_dim));
  }
  const DType carry = ring.dtype_ == DType::kF32 ? DType::kF64 : DType::kF32;
  ASSIGN_OR_RETURN(
      ring.m_, Buffer::Of(allocator, MemoryKind::kActivation, Device::kCpu, DType::kF32, c.heads, tokens));
  ASSIGN_OR_RETURN(ring.l_,
                   Buffer::Of(allocator, MemoryKind::kActivation, Device::kCpu, carry, c.heads, tokens));
  ASSIGN_OR_RETURN(ring.o_, Buffer::Of(allocator, MemoryKind::kActivation, Device::kCpu, carry, c.heads,
                                       tokens, c.head_dim));
  ring.state_ = {ring.m_.View(DType::kF32, c.heads, tokens), ring.l_.View(carry, c.heads, tokens),
                 ring.o_.View(carry, c.heads, tokens, c.head_dim)};
  return ring;
}

TensorView RingAttention::Receive(int step, int64_t kv_heads, int64_t head_dim, int64_t tokens) const {
  return receive_[step % 2].View(dtype_, 2, kv_heads, tokens, head_dim);
}

absl::Status RingAttention::Run(const RankContext& context, const TensorView& q, const KvShard& shard) {
  const ModelConfig& c = context.model.config();
  const int rank = context.rank(), ranks = plan_->ranks();
  {
    const PhaseTimer timer(context.stats, Phase::kAttention);
    RETURN_IF_ERROR(kernels::InitAttentionState(context.stream, state_));
  }
  TensorView kv = shard.kv();
  for (int step = 0; step < ranks; ++step) {
    const bool last = step == ranks - 1;
    comm::ExchangeId hop = 0;
    TensorView next;
    if (!last) {
      next = Receive(step, c.kv_heads, c.head_dim, plan_->RankTokens(plan_->RingSource(rank, step + 1)));
      ASSIGN_OR_RETURN(hop, context.device.StartSendRecv(context.stream, kv, (rank + 1) % ranks, next,
                                                         (rank + ranks - 1) % ranks));
    }
    {
      const PhaseTimer timer(context.stats, Phase::kAttention);
      RETURN_IF_ERROR(Compute(context, step, q, kv));
    }
    if (!last) {
      const PhaseTimer timer(context.stats, Phase::kRingWait);
      RETURN_IF_ERROR(context.device.FinishExchange(context.stream, hop));
      kv = next;
    }
  }
  context.stats.AddTokens(Phase::kAttention, q.dim(1));
  return absl::OkStatus();
}

absl::Status RingAttention::Compute(const RankContext& context, int step, const TensorView& q,
                                    const TensorView& kv) {
  const float scale = 1.0f / std::sqrt(static_cast<float>(q.dim(2)));
  for (const AttentionWork& work : plan_->RingWork(context.rank(), step)) {
    kernels::AttentionParams params;
    params.k = kv[0].Slice(1, work.keys.begin, work.keys.end);
    params.v = kv[1].Slice(1, work.keys.begin, work.keys.end);
    params.scale = scale;
    params.causal = work.causal;
    params.k_position = work.key_position;
    const int64_t step_queries = QueriesPerPoll(work.keys.size());
    for (int64_t at = work.queries.begin; at < work.queries.end; at += step_queries) {
      const int64_t end = std::min(at + step_queries, work.queries.end);
      params.q = q.Slice(1, at, end);
      params.state = Rows(state_, at, end);
      params.q_position = work.query_position + at - work.queries.begin;
      RETURN_IF_ERROR(kernels::Attention(context.stream, params));
      RETURN_IF_ERROR(context.device.Poll());
    }
  }
  return absl::OkStatus();
}

absl::Status RingAttention::Finish(const RankContext& context, Range rows, const TensorView& out,
                                   const TensorView& lse) const {
  const PhaseTimer timer(context.stats, Phase::kAttention);
  return kernels::FinishAttention(context.stream, Rows(state_, rows.begin, rows.end), out, lse);
}

}  // namespace snapkv::runtime
