// SPDX-License-Identifier: Apache-2.0
// DecodeCache: the kept rows of one document on the decode rank, plus the rows appended while decoding.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/base/buffer.h"
#include "kernels/op/params.h"

namespace snapkv::runtime {

// Rows are contiguous per (layer, cache head): [layer][2, cache_head, capacity, head_dim]. Keys keep the RoPE
// of their original positions. Row counts and the next position are different things: after compression a
// head holds C rows while the next token stands at position T. Rows are appended and never evicted. Not
// thread-safe.
class DecodeCache {
 public:
  DecodeCache(Allocator& allocator, DType dtype, int64_t layers, int64_t cache_heads, int64_t head_dim)
      : allocator_(allocator),
        dtype_(dtype),
        cache_heads_(cache_heads),
        head_dim_(head_dim),
        layers_(static_cast<size_t>(layers)) {}

  // Makes room for `capacity` rows per head of one layer, of which the first `rows` will be written by the
  // caller.
  absl::Status Allocate(int64_t layer, int64_t rows, int64_t capacity);

  int64_t layers() const { return static_cast<int64_t>(layers_.size()); }
  int64_t cache_heads() const { return cache_heads_; }
  int64_t head_dim() const { return head_dim_; }
  DType dtype() const { return dtype_; }

  // Row counts: the same for all heads of a layer.
  int64_t rows(int64_t layer) const { return layers_[static_cast<size_t>(layer)].rows; }
  // Bytes of the rows held, headroom not counted.
  int64_t row_bytes() const;
  // Bytes with headroom.
  int64_t allocated_bytes() const;

  // [capacity, head_dim] of one head.
  TensorView k(int64_t layer, int64_t head) const { return Head(layer, 0, head); }
  TensorView v(int64_t layer, int64_t head) const { return Head(layer, 1, head); }
  // For kernels::DecodeAttention.
  kernels::CacheRows head_rows(int64_t layer, int64_t head) const;

  // Appends one row per cache head: k, v [kv_heads, head_dim] with kv_heads dividing cache_heads (each KV
  // head's row goes to all cache heads of its group); last dimension contiguous. RESOURCE_EXHAUSTED when the
  // capacity is used up.
  absl::Status Append(int64_t layer, const TensorView& k, const TensorView& v);

  // Position of the next token: T after prefill, plus one per decoded token. Never derived from row counts.
  int64_t next_position = 0;

 private:
  struct Layer {
    Buffer buffer;
    int64_t rows = 0;
    int64_t capacity = 0;
  };
  TensorView Head(int64_t layer, int64_t kv, int64_t head) const {
    const Layer& l = layers_[static_cast<size_t>(layer)];
    return l.buffer.View(dtype_, 2, cache_heads_, l.capacity, head_dim_)[kv][head];
  }

  Allocator& allocator_;
  DType dtype_;
  int64_t cache_heads_, head_dim_;
  std::vector<Layer> layers_;
};

}  // namespace snapkv::runtime
