// SPDX-License-Identifier: Apache-2.0
// Sample: one implementation for every host device. A vocabulary row is short beside a forward pass.
#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <limits>
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

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Where the largest values of a list end: those above `value` belong to them, and the first `equals` of those
// equal to it. Asked about every value in the order of the list.
struct Cut {
  double value;
  size_t equals;

  bool Admits(double x) {
    if (x != value) return x > value;
    if (equals == 0) return false;
    --equals;
    return true;
  }
};

// The k largest of `values`, 1 <= k <= size. Expected linear time.
Cut LargestK(std::vector<double> values, size_t k) {
  const auto last = values.begin() + static_cast<std::ptrdiff_t>(k) - 1;
  std::nth_element(values.begin(), last, values.end(), std::greater<>());
  const double value = *last;
  return {value, static_cast<size_t>(std::count(values.begin(), last + 1, value))};
}

// The fewest largest of `weights` whose sum reaches top_p * total.
Cut LargestShare(const std::vector<double>& weights, double total, double top_p) {
  // Together, weights under this threshold make less than half of what may be left out: they are not needed.
  // It spares sorting the vocabulary's long tail. Not when top_p is so near to 1 that the rounding of the
  // sums counts.
  const double spare = 1 - top_p;
  const double negligible = spare > 1e-6 ? spare * total / 2 / static_cast<double>(weights.size()) : 0;
  std::vector<double> values;
  std::copy_if(weights.begin(), weights.end(), std::back_inserter(values),
               [&](double w) { return w > 0 && w >= negligible; });

  // Sorted from the top in growing blocks: most often the first is enough.
  double sum = 0;
  size_t block = 256;
  for (size_t begin = 0; begin < values.size(); block *= 4) {
    const auto first = values.begin() + static_cast<std::ptrdiff_t>(begin);
    const size_t count = std::min(block, values.size() - begin);
    const auto end = first + static_cast<std::ptrdiff_t>(count);
    if (end != values.end()) std::nth_element(first, end, values.end(), std::greater<>());
    std::sort(first, end, std::greater<>());
    for (auto it = first; it != end; ++it) {
      sum += *it;
      if (sum < top_p * total) continue;
      return {*it, static_cast<size_t>(std::count(values.begin(), it + 1, *it))};
    }
    begin += count;
  }
  return {0, weights.size()};  // only the rounding of the sums kept them below `total`: all
}

double Sum(const std::vector<double>& weights) {
  double sum = 0;
  for (const double w : weights) sum += w;
  return sum;
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
  // Outside the top k no weight is computed: exp of a whole vocabulary is the most expensive part.
  const bool few = params.top_k > 0 && static_cast<uint64_t>(params.top_k) < vocab;
  Cut largest_k = few ? LargestK(x, static_cast<size_t>(params.top_k)) : Cut{-kInfinity, vocab};
  for (double& w : x) {
    if (!largest_k.Admits(w)) {
      w = 0;
    } else {
      w = w == top ? 1.0 : std::exp((w - top) / params.temperature);  // equal infinities weigh the same
    }
  }
  if (params.top_p < 1) {
    Cut share = LargestShare(x, Sum(x), params.top_p);
    for (double& w : x) {
      if (!share.Admits(w)) w = 0;
    }
  }
  for (double& w : x) {
    if (w < params.min_p) w = 0;  // the largest weight is 1
  }
  const double total = Sum(x);
  const double target = Uniform(params.seed, params.step) * total;
  double sum = 0;
  for (size_t i = 0; i < vocab; ++i) {
    sum += x[i];
    if (sum > target) return static_cast<int32_t>(i);
  }
  return best;  // not reached: target < total, and the last sum is total
}

}  // namespace snapkv::kernels::ref
