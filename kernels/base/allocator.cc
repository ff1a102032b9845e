// SPDX-License-Identifier: Apache-2.0
// Counted, 64-byte aligned host memory; large blocks ask for huge pages.
#include "kernels/base/allocator.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>

#include "kernels/base/log.h"
#include "kernels/base/status.h"

namespace snapkv {
namespace {

constexpr int64_t kAlignment = 64;
constexpr int64_t kHugePage = int64_t{2} << 20;

bool IsKv(MemoryKind kind) {
  return kind == MemoryKind::kKvShard || kind == MemoryKind::kKvReceive || kind == MemoryKind::kKvCompressed;
}

void Add(MemoryUse& use, int64_t bytes) {
  use.current_bytes += bytes;
  use.peak_bytes = std::max(use.peak_bytes, use.current_bytes);
}

}  // namespace

const char* MemoryKindName(MemoryKind kind) {
  constexpr const char* kNames[] = {"weights",    "activation",    "kv_shard",
                                    "kv_receive", "kv_compressed", "workspace"};
  return kNames[static_cast<int>(kind)];
}

absl::StatusOr<void*> Allocator::Allocate(int64_t bytes, MemoryKind kind) {
  CHECK(bytes >= 0) << bytes;
  const int64_t align = bytes >= 4 * kHugePage ? kHugePage : kAlignment;
  const int64_t padded = (std::max<int64_t>(bytes, 1) + align - 1) / align * align;
  void* data = std::aligned_alloc(static_cast<size_t>(align), static_cast<size_t>(padded));
  if (data == nullptr) {
    return ResourceExhausted("out of memory: ", bytes, " bytes of ", MemoryKindName(kind),
                             " could not be allocated; ",
                             kind == MemoryKind::kWeights
                                 ? "the model does not fit: use a smaller one, or fewer ranks on this machine"
                                 : "use a shorter prompt, a smaller --capacity or more ranks");
  }
  if (align == kHugePage) madvise(data, static_cast<size_t>(padded), MADV_HUGEPAGE);
  const std::lock_guard lock(mutex_);
  Add(use_[static_cast<size_t>(kind)], bytes);
  if (IsKv(kind)) Add(kv_, bytes);
  return data;
}

void Allocator::Free(void* data, int64_t bytes, MemoryKind kind) {
  std::free(data);
  const std::lock_guard lock(mutex_);
  use_[static_cast<size_t>(kind)].current_bytes -= bytes;
  if (IsKv(kind)) kv_.current_bytes -= bytes;
}

MemoryUse Allocator::use(MemoryKind kind) const {
  const std::lock_guard lock(mutex_);
  return use_[static_cast<size_t>(kind)];
}

MemoryUse Allocator::kv_use() const {
  const std::lock_guard lock(mutex_);
  return kv_;
}

void Allocator::ResetPeaks() {
  const std::lock_guard lock(mutex_);
  for (MemoryUse& use : use_) use.peak_bytes = use.current_bytes;
  kv_.peak_bytes = kv_.current_bytes;
}

}  // namespace snapkv
