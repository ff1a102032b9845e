// SPDX-License-Identifier: Apache-2.0
// Allocator: aligned memory, counted by kind, so that peak memory is a figure and not a guess.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>

#include "absl/status/statusor.h"

namespace snapkv {

enum class MemoryKind : uint8_t {
  kWeights,       // model parameters, packed for the device
  kActivation,    // hidden states, projections, attention state
  kKvShard,       // this rank's K and V of one layer
  kKvReceive,     // ring receive buffers
  kKvCompressed,  // kept rows: on the decode rank its caches, elsewhere rows on their way there
  kWorkspace,     // scores, histograms, scratch
};
inline constexpr int kMemoryKinds = 6;
const char* MemoryKindName(MemoryKind kind);

struct MemoryUse {
  int64_t current_bytes = 0;
  int64_t peak_bytes = 0;
};

// Host memory aligned to 64 bytes. Thread-safe. Must outlive every Buffer made from it.
class Allocator {
 public:
  Allocator() = default;
  Allocator(const Allocator&) = delete;
  Allocator& operator=(const Allocator&) = delete;

  // `bytes` of uninitialised memory; 0 gives a valid, empty block. RESOURCE_EXHAUSTED names the size and
  // kind.
  absl::StatusOr<void*> Allocate(int64_t bytes, MemoryKind kind);
  void Free(void* data, int64_t bytes, MemoryKind kind);

  MemoryUse use(MemoryKind kind) const;
  // Shard, receive buffers and compressed rows together; the peak is of the sum, not the sum of peaks.
  MemoryUse kv_use() const;
  // Peaks restart from the current use.
  void ResetPeaks();

 private:
  mutable std::mutex mutex_;
  std::array<MemoryUse, kMemoryKinds> use_;
  MemoryUse kv_;
};

}  // namespace snapkv
