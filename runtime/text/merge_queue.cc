// SPDX-License-Identifier: Apache-2.0
// The queue of merges for long pieces.
#include "runtime/text/merge_queue.h"

namespace snapkv::runtime {

void BucketMergeQueue::Push(MergeCandidate candidate) {
  const auto rank = static_cast<size_t>(candidate.rank);
  if (rank >= buckets_.size()) buckets_.resize(std::max(rank + 1, 2 * buckets_.size()));
  Bucket& bucket = buckets_[rank];
  if (!bucket.queued) {
    bucket.queued = true;
    ranks_.push(candidate.rank);
  }
  if (bucket.run.empty() || bucket.run.back() <= candidate.left) {
    bucket.run.push_back(candidate.left);
  } else {
    bucket.heap.push_back(candidate.left);
    std::push_heap(bucket.heap.begin(), bucket.heap.end(), std::greater<>());
  }
}

std::optional<MergeCandidate> BucketMergeQueue::Pop() {
  while (!ranks_.empty()) {
    const int32_t rank = ranks_.top();
    Bucket& bucket = buckets_[static_cast<size_t>(rank)];
    const bool run_left = bucket.next < bucket.run.size();
    if (!bucket.heap.empty() && (!run_left || bucket.heap.front() < bucket.run[bucket.next])) {
      const int32_t left = bucket.heap.front();
      std::pop_heap(bucket.heap.begin(), bucket.heap.end(), std::greater<>());
      bucket.heap.pop_back();
      return MergeCandidate{rank, left};
    }
    if (run_left) return MergeCandidate{rank, bucket.run[bucket.next++]};
    bucket = Bucket();  // its memory is needed by the ranks that follow
    ranks_.pop();
  }
  return std::nullopt;
}

}  // namespace snapkv::runtime
