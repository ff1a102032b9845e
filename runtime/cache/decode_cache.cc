// SPDX-License-Identifier: Apache-2.0
// Rows of the decode cache.
#include "runtime/cache/decode_cache.h"

#include <cstring>

#include "kernels/base/log.h"

namespace snapkv::runtime {

absl::Status DecodeCache::Allocate(int64_t layer, int64_t rows, int64_t capacity) {
  CHECK(rows <= capacity) << rows << " rows in a cache for " << capacity;
  Layer& l = layers_[static_cast<size_t>(layer)];
  ASSIGN_OR_RETURN(l.buffer, Buffer::Of(allocator_, MemoryKind::kKvCompressed, Device::kCpu, dtype_, 2,
                                        cache_heads_, capacity, head_dim_));
  l.rows = rows;
  l.capacity = capacity;
  return absl::OkStatus();
}

int64_t DecodeCache::row_bytes() const {
  int64_t rows = 0;
  for (const Layer& l : layers_) rows += l.rows;
  return rows * 2 * cache_heads_ * head_dim_ * BlockBytes(dtype_);
}

int64_t DecodeCache::allocated_bytes() const {
  int64_t bytes = 0;
  for (const Layer& l : layers_) bytes += l.buffer.bytes();
  return bytes;
}

kernels::CacheRows DecodeCache::head_rows(int64_t layer, int64_t head) const {
  return {k(layer, head).data, v(layer, head).data, rows(layer)};
}

absl::Status DecodeCache::Append(int64_t layer, const TensorView& k, const TensorView& v) {
  Layer& l = layers_[static_cast<size_t>(layer)];
  if (l.rows >= l.capacity) {
    return ResourceExhausted("decode cache of layer ", layer, " is full at ", l.rows, " rows");
  }
  const int64_t group = cache_heads_ / k.dim(0), element = BlockBytes(dtype_);
  const auto copy = [&](const TensorView& from, const TensorView& to, int64_t kv_head) {
    std::memcpy(to.as<char>() + l.rows * head_dim_ * element,
                from.as<char>() + kv_head * from.stride(0) * element,
                static_cast<size_t>(head_dim_ * element));
  };
  for (int64_t h = 0; h < cache_heads_; ++h) {
    copy(k, this->k(layer, h), h / group);
    copy(v, this->v(layer, h), h / group);
  }
  ++l.rows;
  return absl::OkStatus();
}

}  // namespace snapkv::runtime
