// SPDX-License-Identifier: Apache-2.0
// Front doors of CountSelectKeys and CollectSelected, and the search that joins them.
#include "kernels/op/select_top.h"

#include <algorithm>
#include <numeric>

#include "kernels/cpu/cpu.h"
#include "kernels/op/validate.h"
#include "kernels/ref/ref.h"

namespace snapkv::kernels {
namespace {

absl::Status CheckSize(const char* op, const char* name, size_t size, int64_t expected,
                       const TensorView& scores) {
  if (static_cast<int64_t>(size) == expected) return absl::OkStatus();
  return InvalidArgument(op, ": ", name, " has ", size, " entries, expected ", expected, " for scores ",
                         scores.ToString());
}

absl::Status CheckScores(const char* op, const Stream& stream, const TensorView& scores,
                         absl::Span<const int32_t> positions) {
  RETURN_IF_ERROR(CheckStream(op, stream));
  RETURN_IF_ERROR(
      CheckTensor(op, "scores", scores, {DType::kF32}, {kAnySize, kAnySize}, Layout::kContiguousRows));
  return CheckSize(op, "positions", positions.size(), scores.dim(1), scores);
}

template <class T>
std::span<T> ToStd(absl::Span<T> span) {
  return {span.data(), span.size()};
}

}  // namespace

absl::Status CountSelectKeys(const Stream& stream, const TensorView& scores,
                             absl::Span<const int32_t> positions, absl::Span<const uint64_t> prefix,
                             int round, absl::Span<int64_t> counts) {
  constexpr const char* kOp = "CountSelectKeys";
  RETURN_IF_ERROR(CheckScores(kOp, stream, scores, positions));
  RETURN_IF_ERROR(CheckSize(kOp, "prefix", prefix.size(), scores.dim(0), scores));
  RETURN_IF_ERROR(CheckSize(kOp, "counts", counts.size(), scores.dim(0) * kSelectBins, scores));
  if (round < 0 || round >= kSelectRounds) {
    return InvalidArgument(kOp, ": round is ", round, ", expected 0 to ", kSelectRounds - 1);
  }
  if (scores.empty()) {
    std::fill(counts.begin(), counts.end(), 0);
    return absl::OkStatus();
  }
  switch (stream.device) {
    case Device::kRef:
      ref::CountSelectKeys(scores, ToStd(positions), ToStd(prefix), round, ToStd(counts));
      break;
    case Device::kCpu:
      cpu::CountSelectKeys(stream.threads, scores, ToStd(positions), ToStd(prefix), round, ToStd(counts));
      break;
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::vector<int32_t>>> CollectSelected(const Stream& stream,
                                                                  const TensorView& scores,
                                                                  absl::Span<const int32_t> positions,
                                                                  absl::Span<const uint64_t> threshold) {
  constexpr const char* kOp = "CollectSelected";
  RETURN_IF_ERROR(CheckScores(kOp, stream, scores, positions));
  RETURN_IF_ERROR(CheckSize(kOp, "threshold", threshold.size(), scores.dim(0), scores));
  std::vector<std::vector<int32_t>> columns(static_cast<size_t>(scores.dim(0)));
  if (scores.empty()) return columns;
  switch (stream.device) {
    case Device::kRef:
      columns = ref::CollectSelected(scores, ToStd(positions), ToStd(threshold));
      break;
    case Device::kCpu:
      columns = cpu::CollectSelected(stream.threads, scores, ToStd(positions), ToStd(threshold));
      break;
  }
  return columns;
}

void NarrowSelection(absl::Span<const int64_t> counts, int round, absl::Span<uint64_t> prefix,
                     absl::Span<int64_t> need) {
  const int shift = 64 - kSelectBits * (round + 1);
  for (size_t h = 0; h < prefix.size(); ++h) {
    const int64_t* bins = counts.data() + h * kSelectBins;
    int bin = kSelectBins - 1;
    for (; bin > 0 && need[h] > bins[bin]; --bin) need[h] -= bins[bin];
    prefix[h] |= static_cast<uint64_t>(bin) << shift;
  }
}

absl::StatusOr<std::vector<std::vector<int32_t>>> SelectTop(const Stream& stream, const TensorView& scores,
                                                            absl::Span<const int32_t> positions,
                                                            int64_t count) {
  RETURN_IF_ERROR(CheckScores("SelectTop", stream, scores, positions));
  const size_t heads = static_cast<size_t>(scores.dim(0));
  std::vector<std::vector<int32_t>> columns(heads);
  if (count <= 0 || scores.empty()) return columns;
  if (count >= scores.dim(1)) {
    for (std::vector<int32_t>& list : columns) {
      list.resize(positions.size());
      std::iota(list.begin(), list.end(), 0);
    }
    return columns;
  }
  std::vector<uint64_t> prefix(heads, 0);
  std::vector<int64_t> need(heads, count), counts(heads * kSelectBins);
  for (int round = 0; round < kSelectRounds; ++round) {
    RETURN_IF_ERROR(CountSelectKeys(stream, scores, positions, prefix, round, absl::MakeSpan(counts)));
    NarrowSelection(counts, round, absl::MakeSpan(prefix), absl::MakeSpan(need));
  }
  return CollectSelected(stream, scores, positions, prefix);
}

}  // namespace snapkv::kernels
