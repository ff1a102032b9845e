// SPDX-License-Identifier: Apache-2.0
// RankContext: what every part of the engine works with on one rank; and how a prompt is compressed.
#pragma once

#include <string>

#include "comm/device_comm.h"
#include "comm/host_comm.h"
#include "kernels/op/params.h"
#include "runtime/engine/stats.h"
#include "runtime/model/model.h"

namespace snapkv::runtime {

// The rank that decodes. It also owns the last token of every prompt.
inline constexpr int kDecodeRank = 0;

// References to objects that outlive every use. The engine is SPMD: each rank calls the same functions in the
// same order with the same arguments, each with a context of its own.
struct RankContext {
  const Model& model;
  comm::HostComm& host;
  comm::DeviceComm& device;
  Stream stream;
  Allocator& allocator;
  RankStats& stats;

  int rank() const { return host.rank(); }
  int ranks() const { return host.size(); }
};

enum class CachePolicy : uint8_t { kSnapKv, kFull };

struct CompressionOptions {
  CachePolicy policy = CachePolicy::kSnapKv;
  int64_t capacity = 2048;  // C: rows per layer and KV head, the window included
  int64_t window = 32;      // W
  int kernel = 7;
  kernels::PoolMode pool = kernels::PoolMode::kMax;
  kernels::GroupMode group = kernels::GroupMode::kMean;
};

// INVALID_ARGUMENT with the flag's name: window < 1, capacity < window, kernel even or < 1.
absl::Status ValidateCompression(const CompressionOptions& options);

// Whether a prompt is compressed at all; T <= C keeps everything without scoring.
inline bool Compresses(const CompressionOptions& options, int64_t tokens) {
  return options.policy == CachePolicy::kSnapKv && tokens > options.capacity;
}

// Rows that are kept per layer and head.
inline int64_t RowsKept(const CompressionOptions& options, int64_t tokens) {
  return Compresses(options, tokens) ? options.capacity : tokens;
}

// Heads of a prompt's decode cache: one per KV head, or per query head when each selects for itself.
inline int64_t CacheHeads(const ModelConfig& config, const CompressionOptions& options, int64_t tokens) {
  return Compresses(options, tokens) && options.group == kernels::GroupMode::kNone ? config.heads
                                                                                   : config.kv_heads;
}

}  // namespace snapkv::runtime
