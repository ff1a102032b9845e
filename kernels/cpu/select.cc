// SPDX-License-Identifier: Apache-2.0
// Histogram rounds and collection for the exact top selection: integer work, one pass over the scores each.
#include <algorithm>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/parallel.h"

namespace snapkv::kernels::cpu {

void CountSelectKeys(int threads, const TensorView& scores, std::span<const int32_t> positions,
                     std::span<const uint64_t> prefix, int round, std::span<int64_t> counts) {
  const int shift = 64 - kSelectBits * (round + 1);
  ParallelFor(threads, scores.dim(0), [&](int64_t h) {
    int64_t* bins = counts.data() + h * kSelectBins;
    std::fill_n(bins, kSelectBins, 0);
    const float* row = scores.at<float>(h);
    const uint64_t wanted = prefix[static_cast<size_t>(h)];
    for (int64_t i = 0; i < scores.dim(1); ++i) {
      const uint64_t key = SelectKey(row[i], positions[static_cast<size_t>(i)]);
      // Shifting by 64 is undefined, hence the two steps.
      if (((key ^ wanted) >> shift >> kSelectBits) == 0) ++bins[(key >> shift) & (kSelectBins - 1)];
    }
  });
}

std::vector<std::vector<int32_t>> CollectSelected(int threads, const TensorView& scores,
                                                  std::span<const int32_t> positions,
                                                  std::span<const uint64_t> threshold) {
  std::vector<std::vector<int32_t>> kept(static_cast<size_t>(scores.dim(0)));
  ParallelFor(threads, scores.dim(0), [&](int64_t h) {
    const float* row = scores.at<float>(h);
    std::vector<int32_t>& list = kept[static_cast<size_t>(h)];
    for (int64_t i = 0; i < scores.dim(1); ++i)
      if (SelectKey(row[i], positions[static_cast<size_t>(i)]) >= threshold[static_cast<size_t>(h)])
        list.push_back(static_cast<int32_t>(i));
  });
  return kept;
}

}  // namespace snapkv::kernels::cpu
