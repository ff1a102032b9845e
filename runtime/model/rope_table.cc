// SPDX-License-Identifier: Apache-2.0
// Rotary frequencies and angles.
#include "runtime/model/rope_table.h"

#include <cmath>

namespace snapkv::runtime {

std::vector<float> RopeFrequencies(const ModelConfig& config, absl::Span<const float> factors) {
  std::vector<float> frequencies;
  for (int64_t i = 0; i < config.head_dim / 2; ++i) {
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(config.head_dim);
    const float power = static_cast<float>(std::pow(config.rope_base, double{exponent}));
    float frequency = 1.0f / power;
    if (config.rope_factor != 1.0) frequency /= static_cast<float>(config.rope_factor);
    if (!factors.empty()) frequency /= factors[static_cast<size_t>(i)];
    frequencies.push_back(frequency);
  }
  return frequencies;
}

absl::StatusOr<RopeTable> RopeTable::Create(Allocator& allocator, int threads,
                                            absl::Span<const float> frequencies,
                                            absl::Span<const int32_t> positions) {
  RopeTable table;
  table.rows_ = static_cast<int64_t>(positions.size());
  table.half_ = static_cast<int64_t>(frequencies.size());
  ASSIGN_OR_RETURN(table.buffer_, Buffer::Of(allocator, MemoryKind::kActivation, Device::kCpu, DType::kF32, 2,
                                             table.rows_, table.half_));
  const TensorView cos = table.cos(), sin = table.sin();
#pragma omp parallel for num_threads(threads) if (threads > 1)
  for (int64_t t = 0; t < table.rows_; ++t)
    for (int64_t i = 0; i < table.half_; ++i) {
      const float angle =
          static_cast<float>(positions[static_cast<size_t>(t)]) * frequencies[static_cast<size_t>(i)];
      *cos.at<float>(t, i) = static_cast<float>(std::cos(double{angle}));
      *sin.at<float>(t, i) = static_cast<float>(std::sin(double{angle}));
    }
  return table;
}

}  // namespace snapkv::runtime
