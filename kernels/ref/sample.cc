// SPDX-License-Identifier: Apache-2.0
// Sample: one implementation for every host device. A vocabulary row is short beside a forward pass.
#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/ref/element.h"
#include "kernels/ref/ref.h"

namespace snapkv::kernels::ref {
namespace {

// The finaliser of SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators",
// OOPSLA 2014): a bijection whose output bits all depend on all input bits.
uint64_t Mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

// A number in [0, 1) with 53 random bits, fixed by (seed, step) alone: no generator state to carry about.
double Uniform(uint64_t seed, int64_t step) {
  constexpr uint64_t kGolden = 0x9e3779b97f4a7c15u;  // 2^64 / golden ratio: spreads consecutive inputs
  const uint64_t bits = Mix(Mix(seed + kGolden) + kGolden * (static_cast<uint64_t>(step) + 1));
  return static_cast<double>(bits >> 11) * 0x1p-53;
}

}  // namespace

int32_t Sample(const TensorView& logits, std::span<const int32_t> history, const SampleParams& params) {
  const size_t vocab = static_cast<size_t>(logits.dim(0));
  std::vector<double> x(vocab);
  for (size_t i = 0; i < vocab; ++i) x[i] = Load(logits, static_cast<int64_t>(i));
  const double penalty = params.repeat_penalty;
  if (penalty != 1.0) {
    std::vector<bool> seen(vocab);
    for (const int32_t token : history) {
      const size_t i = static_cast<size_t>(token);
      if (seen[i]) continue;
      seen[i] = true;
      x[i] = x[i] > 0 ? x[i] / penalty : x[i] * penalty;
    }
  }
  const auto largest = std::max_element(x.begin(), x.end());  // the first of equals: the lowest id
  const int32_t best = static_cast<int32_t>(largest - x.begin());
  if (params.temperature == 0.0f) return best;

  const double top = *largest;
  double total = 0;
  for (double& w : x) {
    w = w == top ? 1.0 : std::exp((w - top) / params.temperature);  // equal infinities weigh the same
    total += w;
  }
  const double target = Uniform(params.seed, params.step) * total;
  double sum = 0;
  for (size_t i = 0; i < vocab; ++i) {
    sum += x[i];
    if (sum > target) return static_cast<int32_t>(i);
  }
  return best;  // not reached: target < total, and the last sum is total
}

}  // namespace snapkv::kernels::ref
