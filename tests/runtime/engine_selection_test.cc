// SPDX-License-Identifier: Apache-2.0
// Selection on constructed attention, each case one that has misled somebody: ties, edges, halos, windows
// over several ranks, extreme logits. Attention is replayed from q, k, v through the ring, on 1 to 8 ranks.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "tests/support/engine_harness.h"
#include "tests/support/engine_observers.h"
#include "tests/support/tiny_model.h"

namespace snapkv::testing {
namespace {

using kernels::GroupMode;
using kernels::PoolMode;
using runtime::CompressionOptions;
using runtime::Plan;
using Positions = std::vector<int32_t>;

constexpr int kRanks[] = {1, 2, 3, 5, 8};
constexpr int64_t kHeads = 6, kKvHeads = 2, kDim = 16;

CompressionOptions Config(int64_t capacity, int64_t window, int kernel, PoolMode pool = PoolMode::kMax,
                          GroupMode group = GroupMode::kMean) {
  return {runtime::CachePolicy::kSnapKv, capacity, window, kernel, pool, group};
}

Positions Span(int64_t begin, int64_t end) {
  Positions p(static_cast<size_t>(end - begin));
  std::iota(p.begin(), p.end(), static_cast<int32_t>(begin));
  return p;
}
Positions Joined(Positions a, const Positions& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// Window queries that look along element 0 with `strength`, and keys whose element 0 says how much they are
// looked at. Everything else is zero.
AttentionProblem Looking(int64_t tokens, float strength) {
  AttentionProblem p(kHeads, kKvHeads, kDim, tokens);
  for (int64_t h = 0; h < kHeads; ++h)
    for (int64_t t = 0; t < tokens; ++t) p.q_row(h, t)[0] = strength;
  return p;
}
void LookAt(AttentionProblem& p, int64_t t, float weight) {
  for (int64_t h = 0; h < kKvHeads; ++h) p.k_row(h, t)[0] = weight;
}

class EngineSelection : public ::testing::Test {
 protected:
  static const runtime::Model& model() {
    static const auto* tiny = new auto(TinyModel::Create(
        {.layers = 1, .heads = kHeads, .kv_heads = kKvHeads, .head_dim = kDim, .hidden = 16, .ffn = 16}));
    return (**tiny)->model();
  }

  // What one device keeps, per head, after checking that every rank of every group agrees on it.
  static std::vector<Positions> Select(const AttentionProblem& problem, const CompressionOptions& config,
                                       std::vector<std::vector<int64_t>>* rows_of_ranks = nullptr) {
    std::vector<Positions> kept;
    for (const int ranks : kRanks) {
      SelectionObserver observer({config}, ranks, 1);
      const absl::Status status =
          ReplayAttention(model(), problem, config.window, {.ranks = ranks}, observer);
      EXPECT_TRUE(status.ok()) << "N " << ranks << ": " << status;
      if (!status.ok()) return {};
      if (ranks == 1) kept = observer.selections(0, 0)[0].positions;
      for (int rank = 0; rank < ranks; ++rank) {
        EXPECT_EQ(observer.selections(0, rank)[0].positions, kept) << "N " << ranks << " rank " << rank;
        if (rows_of_ranks != nullptr && ranks == 8) rows_of_ranks->push_back(observer.row_counts(0, rank)[0]);
      }
    }
    return kept;
  }

  static void ExpectAll(const std::vector<Positions>& kept, const Positions& want, const std::string& what) {
    ASSERT_EQ(kept.size(), static_cast<size_t>(kKvHeads)) << what;
    for (const Positions& head : kept) EXPECT_EQ(head, want) << what;
  }
};

TEST_F(EngineSelection, EqualScoresKeepTheLowestPositionsAndTheWindow) {
  for (const int64_t tokens : {100, 641, 1000}) {
    const AttentionProblem problem(kHeads, kKvHeads, kDim, tokens);  // q = k = 0: uniform attention
    for (const PoolMode pool : {PoolMode::kMax, PoolMode::kNone}) {
      ExpectAll(Select(problem, Config(50, 20, 7, pool)), Joined(Span(0, 30), Span(tokens - 20, tokens)),
                "T " + std::to_string(tokens));
    }
    // Zeros outside the prefix make the three edge positions score lower: they lose to all others.
    ExpectAll(Select(problem, Config(50, 20, 7, PoolMode::kAvg)),
              Joined(Span(3, 33), Span(tokens - 20, tokens)), "avg, T " + std::to_string(tokens));
  }
}

TEST_F(EngineSelection, AConstantKeyOfAnyValueTiesExactly) {
  // Not representable in few bits, so that equal scores need equal arithmetic for every column.
  AttentionProblem problem(kHeads, kKvHeads, kDim, 707);
  for (float& x : problem.k) x = 0.337f;
  for (size_t i = 0; i < problem.q.size(); ++i) problem.q[i] = 0.01f * static_cast<float>(i % 97) - 0.3f;
  for (const GroupMode group : {GroupMode::kMean, GroupMode::kMax, GroupMode::kSum})
    ExpectAll(Select(problem, Config(90, 33, 5, PoolMode::kMax, group)), Joined(Span(0, 57), Span(674, 707)),
              "group");
}

TEST_F(EngineSelection, ASpikeAtEveryEdgeKeepsItsNeighboursOnBothSides) {
  const int64_t tokens = 1000, window = 16;
  std::set<int64_t> spikes = {0, tokens - window - 1};
  for (const int ranks : kRanks) {
    const Plan plan = *Plan::Create(tokens, ranks, window, kernels::kKeyBlock);
    for (int c = 1; c < 2 * ranks; ++c) {
      spikes.insert(plan.Chunk(c).begin);
      spikes.insert(plan.Chunk(c).begin - 1);
    }
  }
  ASSERT_GE(spikes.size(), 20u);
  for (const int64_t spike : spikes) {
    ASSERT_GE(spike, 0);
    AttentionProblem problem = Looking(tokens, 8);
    LookAt(problem, spike, 2);
    // Seven places for the plateau of seven; at the prefix border the plateau is shorter and ties fall low.
    const int64_t begin = std::max<int64_t>(0, spike - 3), end = std::min(tokens - window, spike + 4);
    const int64_t rest = 7 - (end - begin);
    const Positions plateau = begin == 0 ? Span(0, end + rest) : Joined(Span(0, rest), Span(begin, end));
    for (const PoolMode pool : {PoolMode::kMax, PoolMode::kAvg}) {
      if (pool == PoolMode::kAvg && rest > 0) continue;  // the filler positions differ: edges score lower
      ExpectAll(Select(problem, Config(7 + window, window, 7, pool)),
                Joined(plateau, Span(tokens - window, tokens)), "spike at " + std::to_string(spike));
    }
  }
}

// The same rule with each chunk pooled alone, as an implementation without halos would.
std::vector<Positions> WithoutHalos(const AttentionProblem& problem, const CompressionOptions& config,
                                    int ranks) {
  const Plan plan = *Plan::Create(problem.tokens, ranks, config.window, kernels::kKeyBlock);
  std::vector<std::vector<double>> pooled;
  for (const std::vector<double>& scores : DenseScores(problem, config.window, config.group)) {
    std::vector<double> all;
    for (int c = 0; c < 2 * ranks; ++c) {
      const runtime::Range part = runtime::Intersect(plan.Chunk(c), {0, plan.prefix()});
      const auto chunk =
          DensePool({scores.begin() + part.begin, scores.begin() + part.end}, config.kernel, config.pool);
      all.insert(all.end(), chunk.begin(), chunk.end());
    }
    pooled.push_back(std::move(all));
  }
  return DenseTop(pooled, problem.tokens, config.window, config.capacity).positions;
}

TEST_F(EngineSelection, HalosMatter) {
  // Random attention: without halos the sets are nearly right, which is why this needs a test of its own.
  const AttentionProblem problem = RandomProblem(kHeads, kKvHeads, kDim, 1000, 1.5, 5);
  for (const PoolMode pool : {PoolMode::kMax, PoolMode::kAvg}) {
    for (const int kernel : {7, 15, 151}) {
      const CompressionOptions config = Config(200, 16, kernel, pool);
      const std::string what =
          "kernel " + std::to_string(kernel) + (pool == PoolMode::kMax ? " max" : " avg");
      const auto kept = Select(problem, config);
      const DenseSelection want = DenseSnapKv(problem, config);
      ASSERT_EQ(kept.size(), want.positions.size());
      for (size_t h = 0; h < kept.size(); ++h) {
        ASSERT_GT(want.cut_gap[h], 1e-5) << what << ": choose another seed";
        EXPECT_EQ(kept[h], want.positions[h]) << what << " head " << h;
      }
      EXPECT_EQ(WithoutHalos(problem, config, 1).size(), want.positions.size());
      for (const int ranks : {2, 3, 5, 8}) {
        const auto wrong = WithoutHalos(problem, config, ranks);
        int64_t lost = 0;
        for (size_t h = 0; h < wrong.size(); ++h) {
          Positions missing;
          std::set_difference(kept[h].begin(), kept[h].end(), wrong[h].begin(), wrong[h].end(),
                              std::back_inserter(missing));
          lost += static_cast<int64_t>(missing.size());
        }
        EXPECT_GT(lost, 0) << what << " N " << ranks << ": this problem does not need halos";
      }
    }
  }
}

TEST_F(EngineSelection, AWindowOverSeveralRanksIsScoredWhole) {
  // 300 tokens on 8 ranks: chunks of 0 or 64 tokens, the last one 44; a window of 150 lies on three of them.
  const AttentionProblem problem = RandomProblem(kHeads, kKvHeads, kDim, 300, 1.5, 7);
  const CompressionOptions config = Config(190, 150, 7);
  EXPECT_GE(Plan::Create(300, 8, 150, kernels::kKeyBlock)->WindowParts().size(), 3u);
  const auto kept = Select(problem, config);
  const DenseSelection want = DenseSnapKv(problem, config);
  for (size_t h = 0; h < kept.size(); ++h) {
    ASSERT_GT(want.cut_gap[h], 1e-5) << "choose another seed";
    EXPECT_EQ(kept[h], want.positions[h]) << "head " << h;
  }
}

TEST_F(EngineSelection, RanksThatKeepNothing) {
  // Everything is looked at within the first chunk of 8 ranks; the window lies in the last: both are rank
  // 0's.
  AttentionProblem problem = Looking(1024, 8);
  for (int64_t t = 0; t < 40; ++t) LookAt(problem, t, 1.0f + 0.01f * static_cast<float>(t));
  std::vector<std::vector<int64_t>> rows;
  ExpectAll(Select(problem, Config(46, 16, 1), &rows), Joined(Span(10, 40), Span(1008, 1024)), "kept");
  ASSERT_EQ(rows.size(), 8u);
  EXPECT_EQ(rows[0], (std::vector<int64_t>{46, 46}));
  for (size_t r = 1; r < rows.size(); ++r) EXPECT_EQ(rows[r], (std::vector<int64_t>{0, 0})) << "rank " << r;
}

TEST_F(EngineSelection, CapacityEqualToTheWindowKeepsTheWindowAlone) {
  const AttentionProblem problem = RandomProblem(kHeads, kKvHeads, kDim, 500, 2, 9);
  ExpectAll(Select(problem, Config(32, 32, 7)), Span(468, 500), "C = W");
}

TEST_F(EngineSelection, APromptThatFitsIsKeptWhole) {
  const AttentionProblem problem = RandomProblem(kHeads, kKvHeads, kDim, 130, 2, 9);
  ExpectAll(Select(problem, Config(130, 16, 7)), Span(0, 130), "C = T");
  ExpectAll(Select(problem, Config(1000, 200, 7)), Span(0, 130), "C - W > P, W > T");
  const auto one_less = Select(problem, Config(129, 16, 7));
  for (const Positions& head : one_less) EXPECT_EQ(head.size(), 129u);
}

TEST_F(EngineSelection, KernelOneIsNoPooling) {
  const AttentionProblem problem = RandomProblem(kHeads, kKvHeads, kDim, 600, 2, 21);
  const auto none = Select(problem, Config(100, 16, 7, PoolMode::kNone));
  EXPECT_EQ(Select(problem, Config(100, 16, 1, PoolMode::kMax)), none);
  EXPECT_EQ(Select(problem, Config(100, 16, 1, PoolMode::kAvg)), none);
  EXPECT_NE(Select(problem, Config(100, 16, 7, PoolMode::kMax)), none);
}

TEST_F(EngineSelection, TheGroupIsReducedBeforePooling) {
  // Mean of the group, then max pooling: not the same as the other way round.
  const AttentionProblem problem = RandomProblem(kHeads, kKvHeads, kDim, 600, 2, 23);
  const CompressionOptions config = Config(100, 16, 7);
  auto per_head = DenseScores(problem, 16, GroupMode::kNone);
  for (auto& scores : per_head) scores = DensePool(scores, 7, PoolMode::kMax);
  std::vector<std::vector<double>> pooled_first;
  for (size_t kv = 0; kv < 2; ++kv) {
    std::vector<double> sum(per_head[0].size(), 0.0);
    for (size_t h = 3 * kv; h < 3 * kv + 3; ++h)
      for (size_t j = 0; j < sum.size(); ++j) sum[j] += per_head[h][j];
    pooled_first.push_back(std::move(sum));
  }
  const auto kept = Select(problem, config);
  EXPECT_EQ(kept, DenseSnapKv(problem, config).positions);
  EXPECT_NE(kept, DenseTop(pooled_first, 600, 16, 100).positions) << "the order does not show here";
}

TEST_F(EngineSelection, ExtremeLogits) {
  // Integer q.k and a scale of 1/4, so that logits near 1e5 are exact in f32 and only their differences
  // count.
  const int64_t tokens = 900, window = 16;
  AttentionProblem problem(kHeads, kKvHeads, kDim, tokens);
  for (size_t i = 0; i < problem.q.size(); ++i) problem.q[i] = i % kDim == 0 ? 1 : 100;
  for (int64_t h = 0; h < kKvHeads; ++h)
    for (int64_t t = 0; t < tokens; ++t) {
      for (int64_t e = 1; e < kDim; ++e) problem.k_row(h, t)[e] = 267;
      problem.k_row(h, t)[0] = static_cast<float>((t * 37 + h * 11) % 41);  // logits 100125 .. 100135
    }
  const CompressionOptions config = Config(60, window, 1, PoolMode::kNone);
  const DenseSelection want = DenseSnapKv(problem, config);
  const auto kept = Select(problem, config);
  for (size_t h = 0; h < kept.size(); ++h) EXPECT_EQ(kept[h], want.positions[h]) << "offset 1e5, head " << h;

  // Spread over +-1e5: all but the largest have no weight at all, and tie at zero.
  for (int64_t t = 0; t < tokens; ++t)
    for (int64_t h = 0; h < kKvHeads; ++h)
      for (int64_t e = 1; e < kDim; ++e) problem.k_row(h, t)[e] = t % 100 == 50 ? 267.0f : -267.0f;
  const auto spread = Select(problem, config);
  const DenseSelection spread_want = DenseSnapKv(problem, config);
  for (size_t h = 0; h < spread.size(); ++h)
    EXPECT_EQ(spread[h], spread_want.positions[h]) << "+-1e5, head " << h;
}

TEST_F(EngineSelection, AHundredRunsKeepTheSame) {
  const AttentionProblem problem = RandomProblem(kHeads, kKvHeads, kDim, 333, 2, 31);
  const std::vector<CompressionOptions> configs = {Config(64, 16, 7), Config(64, 16, 5, PoolMode::kAvg)};
  std::vector<std::vector<Positions>> first;
  for (int run = 0; run < 100; ++run) {
    const int ranks = 1 + run % 4;
    SelectionObserver observer(configs, ranks, 1);
    ASSERT_TRUE(ReplayAttention(model(), problem, 16, {.ranks = ranks}, observer).ok());
    for (size_t i = 0; i < configs.size(); ++i) {
      if (run == 0) first.push_back(observer.selections(i, 0)[0].positions);
      for (int rank = 0; rank < ranks; ++rank)
        ASSERT_EQ(observer.selections(i, rank)[0].positions, first[i]) << "run " << run << " rank " << rank;
    }
  }
}

}  // namespace
}  // namespace snapkv::testing
