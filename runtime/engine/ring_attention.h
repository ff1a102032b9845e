// SPDX-License-Identifier: Apache-2.0
// RingAttention: exact causal attention of one prompt spread over the ranks (Liu et al., arXiv 2310.01889;
// zigzag chunks).
#pragma once

#include "runtime/cache/kv_shard.h"
#include "runtime/engine/context.h"
#include "runtime/plan/plan.h"

namespace snapkv::runtime {

// K and V of every rank travel once round the ring, KV heads only, one message per hop, ranks - 1 hops. Two
// receive buffers: the next block arrives while the present one is computed with. The state (m, l, O) is
// carried through the steps, in f64 when the model computes in f32, so that the result does not show how many
// ranks there were.
class RingAttention {
 public:
  // Buffers for the prompt of `plan`, which must outlive the object; no communication.
  static absl::StatusOr<RingAttention> Create(const RankContext& context, const Plan& plan);

  // q: [heads, local tokens, head_dim]. On return the state covers every visible key of every local query.
  // Every rank takes part in every step, with or without tokens.
  absl::Status Run(const RankContext& context, const TensorView& q, const KvShard& shard);

  // Output and LSE of local rows [begin, end): out [heads, rows, head_dim], lse f32 [heads, rows].
  absl::Status Finish(const RankContext& context, Range rows, const TensorView& out,
                      const TensorView& lse) const;

 private:
  RingAttention(const Plan& plan, DType dtype) : plan_(&plan), dtype_(dtype) {}
  absl::Status Compute(const RankContext& context, int step, const TensorView& q, const TensorView& kv);
  TensorView Receive(int step, int64_t kv_heads, int64_t head_dim, int64_t tokens) const;

  const Plan* plan_;
  DType dtype_;
  Buffer receive_[2];
  Buffer m_, l_, o_;
  kernels::AttentionState state_;
};

}  // namespace snapkv::runtime
