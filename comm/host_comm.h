// SPDX-License-Identifier: Apache-2.0
// HostComm: metadata between ranks. Small, blocking collectives of trivially copyable values in host memory.
#pragma once

#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include "absl/types/span.h"
#include "kernels/base/status.h"

namespace snapkv::comm {

// One rank's end of a fixed group. Collectives are called by every rank, in the same order, with sizes that
// agree; one thread per rank calls them. Every wait has a deadline: a rank that does not arrive in time makes
// the call return DEADLINE_EXCEEDED with a message that names the late rank, and the group is unusable
// afterwards.
class HostComm {
 public:
  virtual ~HostComm() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;

  virtual absl::Status Barrier() = 0;
  // Root's bytes to everybody.
  virtual absl::Status BroadcastBytes(void* data, int64_t bytes, int root) = 0;
  // Rank r's `in` (counts[r] bytes) to everybody; `out` holds the ranks' parts in rank order.
  virtual absl::Status AllGatherBytes(const void* in, absl::Span<const int64_t> counts, void* out) = 0;
  // Element-wise over the ranks, in place, exact.
  virtual absl::Status AllReduceSum(absl::Span<int64_t> values) = 0;
  virtual absl::Status AllReduceMax(absl::Span<int64_t> values) = 0;

  template <class T>
  absl::Status Broadcast(T& value, int root) {
    static_assert(std::is_trivially_copyable_v<T>);
    return BroadcastBytes(&value, sizeof(T), root);
  }
  // `values` takes root's length and contents.
  template <class T>
  absl::Status BroadcastVector(std::vector<T>& values, int root) {
    static_assert(std::is_trivially_copyable_v<T>);
    int64_t n = static_cast<int64_t>(values.size());
    RETURN_IF_ERROR(Broadcast(n, root));
    values.resize(static_cast<size_t>(n));
    return BroadcastBytes(values.data(), n * static_cast<int64_t>(sizeof(T)), root);
  }
  absl::Status BroadcastString(std::string& text, int root);
  // One value per rank, in rank order.
  template <class T>
  absl::StatusOr<std::vector<T>> AllGather(const T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    std::vector<T> all(static_cast<size_t>(size()));
    const std::vector<int64_t> counts(all.size(), sizeof(T));
    RETURN_IF_ERROR(AllGatherBytes(&value, counts, all.data()));
    return all;
  }
  // A vector of any length per rank, concatenated in rank order; `lengths`, if given, receives each rank's
  // length.
  template <class T>
  absl::StatusOr<std::vector<T>> AllGatherVector(const std::vector<T>& values,
                                                 std::vector<int64_t>* lengths = nullptr) {
    static_assert(std::is_trivially_copyable_v<T>);
    ASSIGN_OR_RETURN(std::vector<int64_t> counts, AllGather(static_cast<int64_t>(values.size())));
    int64_t total = 0;
    for (const int64_t n : counts) total += n;
    if (lengths != nullptr) *lengths = counts;
    for (int64_t& n : counts) n *= static_cast<int64_t>(sizeof(T));
    std::vector<T> all(static_cast<size_t>(total));
    RETURN_IF_ERROR(AllGatherBytes(values.data(), counts, all.data()));
    return all;
  }
  // The first rank's error if any rank has one (prefixed by "rank N: " unless N is 0), else OK: after it, all
  // ranks agree whether to go on. An error on one rank only would leave the others waiting.
  absl::Status Agree(const absl::Status& mine);
};

}  // namespace snapkv::comm
