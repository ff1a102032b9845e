// SPDX-License-Identifier: Apache-2.0
// The candidates of byte-pair merging in the order in which they are merged: lowest rank first, then
// leftmost. One queue for words, one for pieces of many megabytes; both give the same order.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <queue>
#include <vector>

namespace snapkv::runtime {

// A pair that may be merged: the rank of its merge and the index of its left symbol, both >= 0.
struct MergeCandidate {
  int32_t rank;
  int32_t left;
};

// For short pieces: a heap of packed candidates, warm in the cache.
class HeapMergeQueue {
 public:
  void Push(MergeCandidate candidate) {
    heap_.push_back(uint64_t{static_cast<uint32_t>(candidate.rank)} << 32 |
                    static_cast<uint32_t>(candidate.left));
    std::push_heap(heap_.begin(), heap_.end(), std::greater<>());
  }
  std::optional<MergeCandidate> Pop() {
    if (heap_.empty()) return std::nullopt;
    std::pop_heap(heap_.begin(), heap_.end(), std::greater<>());
    const uint64_t packed = heap_.back();
    heap_.pop_back();
    return MergeCandidate{static_cast<int32_t>(packed >> 32), static_cast<int32_t>(packed & 0xffffffffu)};
  }

 private:
  std::vector<uint64_t> heap_;
};

// For long pieces: a bucket of positions per rank. Merging sweeps from left to right, so that most positions
// reach their bucket in ascending order and cost O(1) there, where one heap of them all would cost its depth
// in cache misses. O(log n) in any case.
class BucketMergeQueue {
 public:
  void Push(MergeCandidate candidate);
  std::optional<MergeCandidate> Pop();

 private:
  struct Bucket {
    std::vector<int32_t> run;   // ascending; taken up to `next`
    std::vector<int32_t> heap;  // what came out of order; least on top
    size_t next = 0;
    bool queued = false;  // its rank is in `ranks_`
  };

  std::vector<Bucket> buckets_;  // [rank], as far as any was pushed
  std::priority_queue<int32_t, std::vector<int32_t>, std::greater<>> ranks_;
};

}  // namespace snapkv::runtime
