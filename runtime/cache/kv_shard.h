// SPDX-License-Identifier: Apache-2.0
// KvShard: this rank's keys and values of ONE layer. ObservationWindow: what every rank needs to score its
// keys.
#pragma once

#include <cstdint>

#include "kernels/base/buffer.h"

namespace snapkv::runtime {

// K and V in one block, so that a ring step sends both in one message: [2, kv_head, local_token, head_dim].
class KvShard {
 public:
  static absl::StatusOr<KvShard> Create(Allocator& allocator, DType dtype, int64_t kv_heads, int64_t tokens,
                                        int64_t head_dim) {
    KvShard shard;
    ASSIGN_OR_RETURN(shard.buffer_, Buffer::Of(allocator, MemoryKind::kKvShard, Device::kCpu, dtype, 2,
                                               kv_heads, tokens, head_dim));
    shard.kv_ = shard.buffer_.View(dtype, 2, kv_heads, tokens, head_dim);
    return shard;
  }
  TensorView kv() const { return kv_; }
  TensorView k() const { return kv_[0]; }  // [kv_head, local_token, head_dim]
  TensorView v() const { return kv_[1]; }

 private:
  Buffer buffer_;
  TensorView kv_;
};

// Queries of the last W prompt tokens after RoPE, and the natural-log-sum-exp of their full attention rows.
class ObservationWindow {
 public:
  static absl::StatusOr<ObservationWindow> Create(Allocator& allocator, DType dtype, int64_t heads,
                                                  int64_t window, int64_t head_dim) {
    ObservationWindow w;
    ASSIGN_OR_RETURN(w.q_buffer_, Buffer::Of(allocator, MemoryKind::kWorkspace, Device::kCpu, dtype, heads,
                                             window, head_dim));
    ASSIGN_OR_RETURN(w.lse_buffer_,
                     Buffer::Of(allocator, MemoryKind::kWorkspace, Device::kCpu, DType::kF32, heads, window));
    w.q_ = w.q_buffer_.View(dtype, heads, window, head_dim);
    w.lse_ = w.lse_buffer_.View(DType::kF32, heads, window);
    return w;
  }
  TensorView q() const { return q_; }      // [head, W, head_dim]
  TensorView lse() const { return lse_; }  // f32 [head, W]

 private:
  Buffer q_buffer_, lse_buffer_;
  TensorView q_, lse_;
};

}  // namespace snapkv::runtime
