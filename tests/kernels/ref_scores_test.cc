// SPDX-License-Identifier: Apache-2.0
// Hand-worked values for the reference WindowScores, PoolScores, selection, GatherRows and Sample.
#include <map>
#include <set>

#include "kernels/ref/ref.h"
#include "tests/kernels/host_tensor.h"

namespace snapkv::kernels::ref {
namespace {

constexpr DType kF32 = DType::kF32, kBF16 = DType::kBF16;
const double kLn2 = std::log(2.0), kLn4 = std::log(4.0), kLn8 = std::log(8.0);

TEST(RefWindowScores, SumsProbabilitiesOverTheWindow) {
  // q.k * scale is 0 for key 0 and ln 2, 0 for key 1; the lse are ln 4 and ln 8.
  const HostTensor q = HostTensor::Of(kF32, {1, 2, 2}, {2, 0, 0, 2}, 1);
  const HostTensor k = HostTensor::Of(kF32, {1, 2, 2}, {0, 0, kLn2, 0}, 1);
  HostTensor scores(kF32, {1, 2}, 1);
  WindowScores(q, HostTensor::Of(kF32, {1, 2}, {kLn4, kLn8}), k, 0.5f, GroupMode::kMean, scores);
  EXPECT_TRUE(Near(scores, {0.25 + 0.125, 0.5 + 0.125}, 1e-7));
  EXPECT_TRUE(scores.GapsIntact());
}

TEST(RefWindowScores, ReducesTheQueryHeadsOfAKvHead) {
  // Four heads on two KV heads, all q.k = 0: head h scores exp(-lse[h]) = 1, 1/2, 1/4, 1/8.
  HostTensor q(kBF16, {4, 1, 3}), k(kBF16, {2, 1, 3});
  q.Fill([](int64_t) { return 0; });
  k.Fill([](int64_t i) { return static_cast<double>(i); });
  const HostTensor lse = HostTensor::Of(kF32, {4, 1}, {0, kLn2, kLn4, kLn8});
  const std::map<GroupMode, std::vector<double>> cases = {{GroupMode::kMean, {0.75, 0.1875}},
                                                          {GroupMode::kSum, {1.5, 0.375}},
                                                          {GroupMode::kMax, {1, 0.25}},
                                                          {GroupMode::kNone, {1, 0.5, 0.25, 0.125}}};
  for (const auto& [mode, expected] : cases) {
    HostTensor scores(kF32, {static_cast<int64_t>(expected.size()), 1});
    WindowScores(q, lse, k, 1.0f, mode, scores);
    EXPECT_TRUE(Near(scores, expected, 1e-7)) << static_cast<int>(mode);
  }
}

TEST(RefWindowScores, HugeLogitsStayProbabilities) {
  // q.k = 2.5e5 with lse = 2.5e5 is probability 1; 1000 less is exactly 0 in f32.
  const HostTensor q = HostTensor::Of(kF32, {1, 1, 1}, {500});
  HostTensor scores(kF32, {1, 3});
  WindowScores(q, HostTensor::Of(kF32, {1, 1}, {250000}), HostTensor::Of(kF32, {1, 3, 1}, {500, 498, -500}),
               1.0f, GroupMode::kSum, scores);
  EXPECT_TRUE(Equal(scores, {1, 0, 0}));
}

TEST(RefPoolScores, AveragesAlwaysDivideByTheKernel) {
  const HostTensor in = HostTensor::Of(kF32, {2, 5}, {1, 2, 3, 4, 5, 6, 6, 6, 6, 6}, 1);
  HostTensor out(kF32, {2, 5}, 2);
  PoolScores(in, 0, 3, PoolMode::kAvg, out);
  EXPECT_TRUE(Equal(out, {1, 2, 3, 4, 3, 4, 6, 6, 6, 4}));
  PoolScores(in, 0, 3, PoolMode::kMax, out);
  EXPECT_TRUE(Equal(out, {2, 3, 4, 5, 5, 6, 6, 6, 6, 6}));
  PoolScores(in, 0, 1, PoolMode::kAvg, out);
  EXPECT_TRUE(Equal(out, in.Values()));
  PoolScores(in, 0, 1, PoolMode::kMax, out);
  EXPECT_TRUE(Equal(out, in.Values()));
  PoolScores(in, 0, 3, PoolMode::kNone, out);
  EXPECT_TRUE(Equal(out, in.Values()));
  // A kernel longer than the prefix: at i = 0 columns 0..3, then all of them, at i = 4 columns 1..4.
  PoolScores(in, 0, 7, PoolMode::kAvg, out);
  EXPECT_TRUE(
      Near(out, {10.0 / 7, 15.0 / 7, 15.0 / 7, 15.0 / 7, 2, 24.0 / 7, 30.0 / 7, 30.0 / 7, 30.0 / 7, 24.0 / 7},
           1e-6));
  PoolScores(in, 0, 7, PoolMode::kMax, out);
  EXPECT_TRUE(Equal(out, {4, 5, 5, 5, 5, 6, 6, 6, 6, 6}));
  EXPECT_TRUE(out.GapsIntact());
}

TEST(RefPoolScores, HalosCountAsNeighboursOnly) {
  const HostTensor in = HostTensor::Of(kF32, {1, 5}, {9, 1, 2, 7, 8});
  HostTensor out(kF32, {1, 2});
  PoolScores(in, 1, 3, PoolMode::kMax, out);
  EXPECT_TRUE(Equal(out, {9, 7}));
  PoolScores(in, 1, 3, PoolMode::kAvg, out);
  EXPECT_TRUE(Near(out, {4, 10.0 / 3}, 1e-6));
  PoolScores(in, 1, 5, PoolMode::kAvg, out);  // only one of two columns to the left exists
  EXPECT_TRUE(Near(out, {19.0 / 5, 27.0 / 5}, 1e-6));
  PoolScores(in, 1, 3, PoolMode::kNone, out);
  EXPECT_TRUE(Equal(out, {1, 2}));
}

TEST(RefPoolScores, SumsRunLeftToRight) {
  // 2^24 + 1 + 1 stays 2^24 in f32; 1 + 1 + 2^24 is 2^24 + 2.
  HostTensor out(kF32, {1, 3});
  PoolScores(HostTensor::Of(kF32, {1, 3}, {0x1p24, 1, 1}), 0, 3, PoolMode::kAvg, out);
  EXPECT_EQ(static_cast<float>(out.Get(1)), 0x1p24f / 3.0f);
  PoolScores(HostTensor::Of(kF32, {1, 3}, {1, 1, 0x1p24}), 0, 3, PoolMode::kAvg, out);
  EXPECT_EQ(static_cast<float>(out.Get(1)), (0x1p24f + 2) / 3.0f);
}

TEST(SelectKey, OrdersByScoreDescendingThenPositionAscending) {
  const float scores[] = {kInf, 3, 1, 0x1p-149f, 0, -0x1p-149f, -1, -kInf};
  for (size_t i = 0; i + 1 < std::size(scores); ++i) {
    EXPECT_GT(SelectKey(scores[i], 1000), SelectKey(scores[i + 1], 0)) << scores[i];
    EXPECT_GT(SelectKey(scores[i], 0), SelectKey(scores[i], 1)) << scores[i];
  }
  EXPECT_EQ(SelectKey(-0.0f, 7), SelectKey(0.0f, 7));
}

TEST(RefCountSelectKeys, CountsTheNextBitsOfKeysThatAgreeSoFar) {
  // 1.0f is 0x3f800000, so its key starts 0xbf 0x80; 2.0f is 0x40000000: 0xc0 0x00. Position p: ~p below.
  const HostTensor scores = HostTensor::Of(kF32, {2, 3}, {1, 2, 1, 2, 2, 2}, 1);
  const int32_t positions[] = {0, 5, 9};
  std::vector<int64_t> counts(2 * kSelectBins, 77), expected(2 * kSelectBins, 0);
  const uint64_t nothing[] = {0, 0};
  CountSelectKeys(scores, positions, nothing, 0, counts);
  expected[0xbf] = 2;
  expected[0xc0] = 1;
  expected[kSelectBins + 0xc0] = 3;
  EXPECT_EQ(counts, expected);

  const uint64_t agreed[] = {uint64_t{0xbf} << 56, uint64_t{0xbf} << 56};
  CountSelectKeys(scores, positions, agreed, 1, counts);
  expected.assign(expected.size(), 0);
  expected[0x80] = 2;
  EXPECT_EQ(counts, expected);

  // The last round sees the lowest byte of ~position: 0xff, 0xfa, 0xf6.
  const uint64_t ones = SelectKey(1, 0) >> 8 << 8, twos = SelectKey(2, 0) >> 8 << 8;
  const uint64_t all_but_last[] = {ones, twos};
  CountSelectKeys(scores, positions, all_but_last, 7, counts);
  expected.assign(expected.size(), 0);
  expected[0xff] = expected[0xf6] = 1;
  expected[kSelectBins + 0xff] = expected[kSelectBins + 0xfa] = expected[kSelectBins + 0xf6] = 1;
  EXPECT_EQ(counts, expected);
}

TEST(RefCollectSelected, TakesColumnsFromTheThresholdUp) {
  // Positions need not ascend with the columns: of the two 1s the one at position 3 comes first.
  const HostTensor scores = HostTensor::Of(kF32, {2, 3}, {1, 2, 1, 0, -0.0, -1}, 2);
  const int32_t positions[] = {8, 5, 3};
  const uint64_t threshold[] = {SelectKey(1, 3), SelectKey(0, 8)};
  EXPECT_EQ(CollectSelected(scores, positions, threshold),
            (std::vector<std::vector<int32_t>>{{1, 2}, {0, 1}}));
  const uint64_t extremes[] = {~uint64_t{0}, 0};
  EXPECT_EQ(CollectSelected(scores, positions, extremes), (std::vector<std::vector<int32_t>>{{}, {0, 1, 2}}));
}

TEST(RefGatherRows, StacksTheListsInOrder) {
  const HostTensor in = HostTensor::Of(kBF16, {2, 3, 2}, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, 1);
  HostTensor out(kBF16, {4, 2});
  const std::vector<std::vector<int32_t>> one_each = {{2, 0}, {1, 1}};
  GatherRows(in, one_each, out);
  EXPECT_TRUE(Equal(out, {5, 6, 1, 2, 9, 10, 9, 10}));
  const std::vector<std::vector<int32_t>> two_each = {{0}, {}, {2, 1}, {0}};  // two lists per KV head
  GatherRows(in, two_each, out);
  EXPECT_TRUE(Equal(out, {1, 2, 11, 12, 9, 10, 7, 8}));
}

int32_t Draw(const HostTensor& logits, SampleParams params, const std::vector<int32_t>& history = {}) {
  return Sample(logits, history, params);
}

TEST(RefSample, TemperatureZeroTakesTheFirstLargest) {
  EXPECT_EQ(Draw(HostTensor::Of(kF32, {4}, {1, 3, 3, 2}), {}), 1);
  EXPECT_EQ(Draw(HostTensor::Of(kF32, {3}, {-kInf, -kInf, -kInf}), {}), 0);
  EXPECT_EQ(Draw(HostTensor::Of(kF32, {3}, {-5, kInf, kInf}), {}), 1);
  EXPECT_EQ(Draw(HostTensor::Of(kF32, {2}, {-0.0, 0}), {}), 0);
}

TEST(RefSample, PenaltyDividesPositiveAndMultipliesNegativeLogitsOnce) {
  const HostTensor positive = HostTensor::Of(kF32, {3}, {4, 3, 1.5});
  EXPECT_EQ(Draw(positive, {.repeat_penalty = 2}), 0);
  EXPECT_EQ(Draw(positive, {.repeat_penalty = 2}, {0}), 1);        // 2, 3, 1.5
  EXPECT_EQ(Draw(positive, {.repeat_penalty = 2}, {0, 0, 1}), 0);  // 2, 1.5, 1.5: token 0 pays once
  const HostTensor negative = HostTensor::Of(kF32, {3}, {-1, -1.5, -3});
  EXPECT_EQ(Draw(negative, {.repeat_penalty = 2}, {0}), 1);        // -2, -1.5, -3
  EXPECT_EQ(Draw(negative, {.repeat_penalty = 0.25}, {2}), 2);     // -1, -1.5, -0.75
  EXPECT_EQ(positive.Values(), (std::vector<double>{4, 3, 1.5}));  // the logits are not changed
}

TEST(RefSample, DrawsFollowTheSoftmaxAndDependOnSeedAndStepOnly) {
  // ln 1, ln 2, ln 5 at temperature 1: 1/8, 2/8, 5/8; at temperature 1/2: 1/30, 4/30, 25/30.
  const HostTensor logits = HostTensor::Of(kF32, {4}, {0, kLn2, -kInf, std::log(5.0)});
  for (const auto& [temperature, weights] : std::map<float, std::vector<double>>{
           {1.0f, {0.125, 0.25, 0, 0.625}}, {0.5f, {1.0 / 30, 4.0 / 30, 0, 25.0 / 30}}}) {
    constexpr int kDraws = 20000;
    std::vector<int> counts(4);
    for (int64_t step = 0; step < kDraws; ++step) {
      const SampleParams params = {.temperature = temperature, .seed = 42, .step = step};
      const int32_t token = Draw(logits, params);
      ++counts[static_cast<size_t>(token)];
      ASSERT_EQ(Draw(logits, params), token);
    }
    for (size_t i = 0; i < 4; ++i) {  // five standard deviations
      const double deviation = std::sqrt(kDraws * weights[i] * (1 - weights[i]));
      EXPECT_NEAR(counts[i], kDraws * weights[i], 5 * deviation) << i << " at " << temperature;
    }
  }
}

TEST(RefSample, SeedsGiveDifferentSequences) {
  const HostTensor logits = HostTensor::Of(kF32, {2}, {0, 0});
  std::set<std::vector<int32_t>> sequences;
  for (uint64_t seed = 0; seed < 100; ++seed) {
    std::vector<int32_t> sequence;
    for (int64_t step = 0; step < 64; ++step) {
      sequence.push_back(Draw(logits, {.temperature = 1, .seed = seed, .step = step}));
    }
    sequences.insert(sequence);
  }
  EXPECT_EQ(sequences.size(), 100u);
}

TEST(RefSample, ColdDrawsAreTheLargestLogit) {
  const HostTensor logits = HostTensor::Of(kF32, {3}, {1e5, 1e5 + 1, -1e5});
  for (int64_t step = 0; step < 100; ++step) {
    EXPECT_EQ(Draw(logits, {.temperature = 1e-3f, .seed = 1, .step = step}), 1);
  }
  // All logits -inf: any token, but a token.
  const int32_t token = Draw(HostTensor::Of(kF32, {2}, {-kInf, -kInf}), {.temperature = 1});
  EXPECT_TRUE(token == 0 || token == 1);
}

}  // namespace
}  // namespace snapkv::kernels::ref
