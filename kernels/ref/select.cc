// SPDX-License-Identifier: Apache-2.0
// Reference CountSelectKeys, CollectSelected and GatherRows.
#include <algorithm>

#include "kernels/ref/element.h"
#include "kernels/ref/ref.h"

namespace snapkv::kernels::ref {
namespace {

uint64_t KeyOf(const TensorView& scores, std::span<const int32_t> positions, int64_t h, int64_t i) {
  return SelectKey(*scores.at<float>(h, i), positions[static_cast<size_t>(i)]);
}

}  // namespace

void CountSelectKeys(const TensorView& scores, std::span<const int32_t> positions,
                     std::span<const uint64_t> prefix, int round, std::span<int64_t> counts) {
  std::fill(counts.begin(), counts.end(), 0);
  const int shift = 64 - kSelectBits * (round + 1);  // of the bits counted in this round
  // The bits above those: a shift by 64 is undefined, so round 0 compares nothing.
  const auto above = [&](uint64_t key) { return round == 0 ? 0 : key >> (shift + kSelectBits); };
  for (int64_t h = 0; h < scores.dim(0); ++h) {
    for (int64_t i = 0; i < scores.dim(1); ++i) {
      const uint64_t key = KeyOf(scores, positions, h, i);
      if (above(key) != above(prefix[static_cast<size_t>(h)])) continue;
      const int64_t bin = static_cast<int64_t>(key >> shift) & (kSelectBins - 1);
      ++counts[static_cast<size_t>(h * kSelectBins + bin)];
    }
  }
}

std::vector<std::vector<int32_t>> CollectSelected(const TensorView& scores,
                                                  std::span<const int32_t> positions,
                                                  std::span<const uint64_t> threshold) {
  std::vector<std::vector<int32_t>> columns(static_cast<size_t>(scores.dim(0)));
  for (int64_t h = 0; h < scores.dim(0); ++h) {
    for (int64_t i = 0; i < scores.dim(1); ++i) {
      if (KeyOf(scores, positions, h, i) >= threshold[static_cast<size_t>(h)]) {
        columns[static_cast<size_t>(h)].push_back(static_cast<int32_t>(i));
      }
    }
  }
  return columns;
}

void GatherRows(const TensorView& in, std::span<const std::vector<int32_t>> rows, const TensorView& out) {
  const int64_t group = static_cast<int64_t>(rows.size()) / in.dim(0);
  int64_t next = 0;
  for (size_t h = 0; h < rows.size(); ++h) {
    for (const int32_t row : rows[h]) {
      for (int64_t d = 0; d < in.dim(2); ++d) {
        Store(Load(in, static_cast<int64_t>(h) / group, row, d), out, next, d);
      }
      ++next;
    }
  }
}

}  // namespace snapkv::kernels::ref
