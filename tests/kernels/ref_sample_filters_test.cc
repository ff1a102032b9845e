// SPDX-License-Identifier: Apache-2.0
// top_k, top_p and min_p of Sample: hand-worked cases, an oracle that sorts, and counts of many draws.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "kernels/ref/ref.h"
#include "tests/kernels/host_tensor.h"

namespace snapkv::kernels::ref {
namespace {

constexpr DType kF32 = DType::kF32;

HostTensor Logits(const std::vector<double>& values) {
  HostTensor logits(kF32, {static_cast<int64_t>(values.size())});
  logits.SetValues(values);
  return logits;
}

// Logits whose softmax at temperature 1 is proportional to `weights`, but for the rounding of f32.
HostTensor LogitsOf(std::vector<double> weights) {
  for (double& w : weights) w = std::log(w);
  return Logits(weights);
}

// The tokens that many draws give. A token of 1 % is missed with probability e^-40.
std::vector<int32_t> Drawn(const HostTensor& logits, SampleParams params,
                           const std::vector<int32_t>& history = {}) {
  std::set<int32_t> tokens;
  for (params.step = 0; params.step < 4000; ++params.step) tokens.insert(Sample(logits, history, params));
  return {tokens.begin(), tokens.end()};
}

using Ids = std::vector<int32_t>;

TEST(SampleTopK, KeepsTheLargest) {
  const HostTensor logits = Logits({1, 3, 2, 4, 0});
  EXPECT_EQ(Drawn(logits, {.temperature = 1}), (Ids{0, 1, 2, 3, 4}));
  EXPECT_EQ(Drawn(logits, {.temperature = 1, .top_k = 1}), (Ids{3}));
  EXPECT_EQ(Drawn(logits, {.temperature = 1, .top_k = 2}), (Ids{1, 3}));
  EXPECT_EQ(Drawn(logits, {.temperature = 1, .top_k = 4}), (Ids{0, 1, 2, 3}));
  for (const int64_t off : {int64_t{5}, int64_t{6}, std::numeric_limits<int64_t>::max()}) {
    EXPECT_EQ(Drawn(logits, {.temperature = 1, .top_k = off}), (Ids{0, 1, 2, 3, 4})) << off;
  }
}

TEST(SampleTopK, OfEqualLogitsTheLowerIdsStay) {
  EXPECT_EQ(Drawn(Logits({0, 1, 0, 1, 0}), {.temperature = 1, .top_k = 1}), (Ids{1}));
  EXPECT_EQ(Drawn(Logits({0, 1, 0, 1, 0}), {.temperature = 1, .top_k = 3}), (Ids{0, 1, 3}));
  EXPECT_EQ(Drawn(Logits({0, 1, 0, 1, 0}), {.temperature = 1, .top_k = 4}), (Ids{0, 1, 2, 3}));
  EXPECT_EQ(Drawn(Logits({7, 7, 7, 7}), {.temperature = 1, .top_k = 2}), (Ids{0, 1}));
  EXPECT_EQ(Drawn(Logits({0.0, -0.0, 0.0}), {.temperature = 1, .top_k = 2}), (Ids{0, 1}));
}

TEST(SampleTopK, CountsAfterThePenalty) {
  // 4 / 4 = 1 falls behind 3 and 2.
  EXPECT_EQ(Drawn(Logits({4, 3, 2}), {.temperature = 1, .repeat_penalty = 4, .top_k = 2}, {0}), (Ids{1, 2}));
}

TEST(SampleTopP, KeepsTheTokenThatCrosses) {
  const HostTensor logits = LogitsOf({2, 8, 4, 1, 1});  // of 16
  const auto kept = [&](double p) { return Drawn(logits, {.temperature = 1, .top_p = p}); };
  EXPECT_EQ(kept(1e-9), (Ids{1}));
  EXPECT_EQ(kept(0.499), (Ids{1}));
  EXPECT_EQ(kept(0.501), (Ids{1, 2}));
  EXPECT_EQ(kept(0.749), (Ids{1, 2}));
  EXPECT_EQ(kept(0.751), (Ids{0, 1, 2}));
  EXPECT_EQ(kept(0.874), (Ids{0, 1, 2}));
  EXPECT_EQ(kept(0.876), (Ids{0, 1, 2, 3}));  // of the two ones the lower id
  EXPECT_EQ(kept(0.95), (Ids{0, 1, 2, 3, 4}));
  EXPECT_EQ(kept(1), (Ids{0, 1, 2, 3, 4}));
}

TEST(SampleTopP, EqualLogits) {
  // Sums of ones are exact: a probability that is exactly top_p reaches it.
  EXPECT_EQ(Drawn(Logits({5, 5, 5, 5}), {.temperature = 1, .top_p = 0.5}), (Ids{0, 1}));
  EXPECT_EQ(Drawn(Logits({5, 5, 5, 5}), {.temperature = 1, .top_p = 0.501}), (Ids{0, 1, 2}));
  const HostTensor logits = Logits({5, 5, 5, 5, 5, 5, 5, 5, 5, 5});
  EXPECT_EQ(Drawn(logits, {.temperature = 1, .top_p = 0.3}), (Ids{0, 1, 2}));
  EXPECT_EQ(Drawn(logits, {.temperature = 1, .top_p = 0.31}), (Ids{0, 1, 2, 3}));
}

TEST(SampleTopP, SeesTheDistributionAtTheTemperature) {
  // Weights 1, 2, 4 at temperature 1; 1, 4, 16 at 1/2.
  EXPECT_EQ(Drawn(LogitsOf({1, 2, 4}), {.temperature = 1, .top_p = 0.7}), (Ids{1, 2}));
  EXPECT_EQ(Drawn(LogitsOf({1, 2, 4}), {.temperature = 0.5f, .top_p = 0.7}), (Ids{2}));
}

TEST(SampleTopP, SeesWhatTopKLeft) {
  // Of all 16, 12 do not reach 0.8; of the 14 that top_k = 3 leaves, they do.
  const HostTensor logits = LogitsOf({2, 8, 4, 1, 1});
  EXPECT_EQ(Drawn(logits, {.temperature = 1, .top_p = 0.8}), (Ids{0, 1, 2}));
  EXPECT_EQ(Drawn(logits, {.temperature = 1, .top_k = 3, .top_p = 0.8}), (Ids{1, 2}));
}

TEST(SampleMinP, IsRelativeToTheLargest) {
  const HostTensor logits = Logits({0, -1, -2, 0, -3});
  const auto kept = [&](double p) { return Drawn(logits, {.temperature = 1, .min_p = p}); };
  EXPECT_EQ(kept(0), (Ids{0, 1, 2, 3, 4}));
  EXPECT_EQ(kept(std::exp(-3.0)), (Ids{0, 1, 2, 3, 4}));  // at least that much stays
  EXPECT_EQ(kept(0.06), (Ids{0, 1, 2, 3}));               // e^-3 = 0.0498
  EXPECT_EQ(kept(0.2), (Ids{0, 1, 3}));                   // e^-2 = 0.1353
  EXPECT_EQ(kept(0.37), (Ids{0, 3}));                     // e^-1 = 0.3679
  EXPECT_EQ(kept(0.9999), (Ids{0, 3}));
  EXPECT_EQ(kept(1), (Ids{0, 3}));
  EXPECT_EQ(Drawn(logits, {.temperature = 2, .min_p = 0.37}), (Ids{0, 1, 3}));  // e^-1/2 = 0.6065, e^-1
}

TEST(SampleMinP, DoesNotChangeWhatTopPSees) {
  // Before top_p it would leave 8 + 4, of which 8 reach 0.6 by themselves.
  const HostTensor logits = LogitsOf({2, 8, 4, 1, 1});
  EXPECT_EQ(Drawn(logits, {.temperature = 1, .top_p = 0.6, .min_p = 0.3}), (Ids{1, 2}));
}

TEST(SampleFilters, TemperatureZeroIgnoresThem) {
  const HostTensor logits = Logits({1, 3, 3, 2});
  EXPECT_EQ(Drawn(logits, {.temperature = 0, .top_k = 2, .top_p = 0.1, .min_p = 1}), (Ids{1}));
}

TEST(SampleFilters, Infinities) {
  const double inf = std::numeric_limits<double>::infinity();
  const std::vector<SampleParams> filters = {{.temperature = 1, .top_k = 2},
                                             {.temperature = 1, .top_p = 0.6},
                                             {.temperature = 1, .min_p = 0.5},
                                             {.temperature = 1, .top_k = 2, .top_p = 0.6, .min_p = 0.5}};
  for (const SampleParams& params : filters) {
    const std::string where = ::testing::PrintToString(params.top_k) + " " +
                              ::testing::PrintToString(params.top_p) + " " +
                              ::testing::PrintToString(params.min_p);
    // What has no probability is not drawn, also where a filter has room for it.
    EXPECT_EQ(Drawn(Logits({-inf, 1, -inf}), params), (Ids{1})) << where;
    EXPECT_EQ(Drawn(Logits({0, inf, 5}), params), (Ids{1})) << where;
    EXPECT_EQ(Drawn(Logits({-inf}), params), (Ids{0})) << where;
    for (const int32_t token : Drawn(Logits({-inf, -inf, -inf}), params)) EXPECT_LT(token, 3) << where;
  }
  EXPECT_EQ(Drawn(Logits({-inf, 1, -inf, 1}), {.temperature = 1, .top_k = 3}), (Ids{1, 3}));
  EXPECT_EQ(Drawn(Logits({-inf, -inf, -inf}), {.temperature = 1, .top_k = 2}), (Ids{0, 1}));
  EXPECT_EQ(Drawn(Logits({inf, 0, inf, inf}), {.temperature = 1, .top_k = 2}), (Ids{0, 2}));
}

// What the filters keep, by sorting: logits of all other tokens become -inf.
HostTensor Filtered(const HostTensor& logits, const SampleParams& params) {
  const std::vector<double> x = logits.Values();
  const size_t vocab = x.size();
  std::vector<size_t> order(vocab);
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return x[a] > x[b]; });
  if (params.top_k > 0 && params.top_k < static_cast<int64_t>(vocab)) {
    order.resize(static_cast<size_t>(params.top_k));
  }
  const auto weight = [&](size_t i) { return std::exp((x[i] - x[order[0]]) / params.temperature); };
  if (params.top_p < 1) {
    double total = 0, sum = 0;
    for (const size_t i : order) total += weight(i);
    size_t count = 0;
    while (count < order.size() && sum < params.top_p * total) sum += weight(order[count++]);
    order.resize(count);
  }
  std::erase_if(order, [&](size_t i) { return weight(i) < params.min_p; });

  HostTensor kept = logits.Copy();
  kept.Fill([](int64_t) { return -std::numeric_limits<double>::infinity(); });
  for (const size_t i : order) kept.Set(static_cast<int64_t>(i), x[i]);
  return kept;
}

// Without a weight a token does not influence the draw, so filtering here and filtering beforehand must give
// the same token, and not only the same distribution.
TEST(SampleFilters, DrawTheSameTokensAsSortedLogits) {
  std::mt19937_64 rng(20240701);
  int64_t kept_tokens = 0, compared = 0;
  for (int round = 0; round < 600; ++round) {
    const int64_t vocab = std::uniform_int_distribution<int64_t>(1, round % 10 == 0 ? 5000 : 40)(rng);
    HostTensor logits = HostTensor::Normal(kF32, {vocab}, rng, std::array<double, 3>{0.1, 1, 6}[round % 3]);
    if (round % 2 == 0) logits.Fill([&](int64_t i) { return std::round(logits.Get(i) * 2) / 2; });  // ties
    for (int64_t i = 0; round % 5 == 0 && i + 1 < vocab; i += 3) logits.Set(i, -kInf);
    std::uniform_real_distribution<double> share(0, 1);
    SampleParams params = {.temperature = std::array<float, 3>{0.5f, 1, 3}[round / 3 % 3], .seed = 7};
    if (round & 1 || round % 7 == 0) params.top_k = std::uniform_int_distribution<int64_t>(0, vocab + 1)(rng);
    if (round & 2) params.top_p = 1 - std::pow(share(rng), 3);
    if (round & 4) params.min_p = std::pow(share(rng), 3);
    const HostTensor expected = Filtered(logits, params);
    for (int64_t i = 0; i < vocab; ++i) kept_tokens += expected.Get(i) > -kInf;
    const SampleParams unfiltered = {.temperature = params.temperature, .seed = params.seed};
    for (int64_t step = 0; step < 100; ++step, ++compared) {
      SampleParams a = params, b = unfiltered;
      a.step = b.step = step;
      ASSERT_EQ(Sample(logits, {}, a), Sample(expected, {}, b))
          << "round " << round << " step " << step << ", vocab " << vocab << ", top_k " << params.top_k
          << " top_p " << params.top_p << " min_p " << params.min_p << " T " << params.temperature;
    }
  }
  EXPECT_EQ(compared, 60000);
  EXPECT_GT(kept_tokens, 10000);
}

// Long rows: where most of the vocabulary is left unsorted, and where it must be sorted to its end.
TEST(SampleFilters, LargeVocabulary) {
  std::mt19937_64 rng(5);
  for (const double sigma : {0.0, 0.01, 1.0, 4.0}) {
    const HostTensor logits = HostTensor::Normal(kF32, {151936}, rng, sigma);
    for (const SampleParams& params : std::vector<SampleParams>{
             {.temperature = 1, .top_k = 40, .top_p = 0.95, .min_p = 0.05},
             {.temperature = 1, .top_p = 0.1},
             {.temperature = 1, .top_p = 0.9},
             {.temperature = 1, .top_p = 0.9999999},
             {.temperature = 1, .top_p = std::nextafter(1.0, 0.0)},  // the rounded sums may not reach it
             {.temperature = 1, .top_k = 100000, .min_p = 1e-3}}) {
      const HostTensor expected = Filtered(logits, params);
      for (int64_t step = 0; step < 4; ++step) {
        SampleParams a = params, b = {.temperature = 1};
        a.step = b.step = step;
        ASSERT_EQ(Sample(logits, {}, a), Sample(expected, {}, b))
            << "sigma " << sigma << " step " << step << ", top_k " << params.top_k << " top_p "
            << params.top_p << " min_p " << params.min_p;
      }
    }
  }
}

// The rest is renormalised: within five standard deviations.
TEST(SampleFilters, CountsFollowTheRenormalisedDistribution) {
  const std::vector<double> weights = {2, 8, 4, 1, 1, 6};
  const HostTensor logits = LogitsOf(weights);
  struct Case {
    SampleParams params;
    std::vector<double> kept;
  };
  for (const Case& c : std::vector<Case>{
           {{.temperature = 1, .top_k = 3}, {0, 8, 4, 0, 0, 6}},
           {{.temperature = 1, .top_p = 0.9}, {2, 8, 4, 0, 0, 6}},
           {{.temperature = 1, .min_p = 0.7}, {0, 8, 0, 0, 0, 6}},
           {{.temperature = 0.5f, .top_k = 5, .top_p = 0.99, .min_p = 0.05}, {4, 64, 16, 0, 0, 36}}}) {
    constexpr int kDraws = 40000;
    SampleParams params = c.params;
    params.seed = 99;
    std::vector<int> counts(weights.size());
    for (params.step = 0; params.step < kDraws; ++params.step) {
      ++counts[static_cast<size_t>(Sample(logits, {}, params))];
    }
    const double total = std::accumulate(c.kept.begin(), c.kept.end(), 0.0);
    for (size_t i = 0; i < counts.size(); ++i) {
      const double p = c.kept[i] / total;
      EXPECT_NEAR(counts[i], kDraws * p, 5 * std::sqrt(kDraws * p * (1 - p)))
          << "token " << i << ", top_k " << params.top_k << " top_p " << params.top_p << " min_p "
          << params.min_p;
    }
  }
}

}  // namespace
}  // namespace snapkv::kernels::ref
