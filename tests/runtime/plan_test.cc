// SPDX-License-Identifier: Apache-2.0
// The Plan, exhaustively: ownership, every visible pair computed once, window parts and halo edges.
#include "runtime/plan/plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>
#include <string>
#include <tuple>

namespace snapkv::runtime {
namespace {

Plan Make(int64_t tokens, int ranks, int64_t window = 1, int64_t block = 1) {
  auto plan = Plan::Create(tokens, ranks, window, block);
  EXPECT_TRUE(plan.ok()) << plan.status();
  return *plan;
}

TEST(Plan, TwoRanksByHand) {
  const Plan plan = Make(/*tokens=*/300, /*ranks=*/2, /*window=*/32, /*block=*/64);  // 5 blocks over 4 chunks
  EXPECT_EQ(plan.Chunk(0), (Range{0, 64}));
  EXPECT_EQ(plan.Chunk(1), (Range{64, 128}));
  EXPECT_EQ(plan.Chunk(2), (Range{128, 192}));
  EXPECT_EQ(plan.Chunk(3), (Range{192, 300}));
  EXPECT_EQ(plan.RankTokens(0), 64 + 108);
  EXPECT_EQ(plan.RankTokens(1), 128);
  EXPECT_EQ(plan.Owner(0), 0);
  EXPECT_EQ(plan.Owner(64), 1);
  EXPECT_EQ(plan.Owner(191), 1);
  EXPECT_EQ(plan.Owner(192), 0);
  EXPECT_EQ(plan.prefix(), 268);
  // Rank 1 meets rank 0's first chunk with all its queries; rank 0 meets all of rank 1 with its second chunk.
  const auto later = plan.RingWork(1, 1), earlier = plan.RingWork(0, 1);
  ASSERT_EQ(later.size(), 1u);
  EXPECT_EQ(later[0].queries, (Range{0, 128}));
  EXPECT_EQ(later[0].keys, (Range{0, 64}));
  EXPECT_FALSE(later[0].causal);
  ASSERT_EQ(earlier.size(), 1u);
  EXPECT_EQ(earlier[0].queries, (Range{64, 172}));
  EXPECT_EQ(earlier[0].keys, (Range{0, 128}));
}

TEST(Plan, RejectsWhatHasNoPlan) {
  EXPECT_EQ(Plan::Create(0, 1, 1, 1).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Plan::Create(int64_t{INT32_MAX} + 1, 1, 1, 1).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Plan::Create(1, 0, 1, 1).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Plan::Create(1, 1, 0, 1).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Plan::Create(1, 1, 1, 0).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(Plan, WindowLongerThanThePromptIsThePrompt) {
  EXPECT_EQ(Make(5, 2, 32).window(), 5);
  EXPECT_EQ(Make(5, 2, 32).prefix(), 0);
}

class PlanSweep : public ::testing::TestWithParam<int64_t> {
 protected:
  int64_t block() const { return GetParam(); }
};

// Every pair (q, k <= q) exactly once, nothing else, for all T up to 320 and N up to 16.
TEST_P(PlanSweep, EveryVisiblePairIsComputedOnce) {
  for (int64_t tokens = 1; tokens <= 320; tokens += tokens < 140 ? 1 : 9) {
    for (int ranks = 1; ranks <= 16; ++ranks) {
      const Plan plan = Make(tokens, ranks, 1, block());
      std::vector<uint8_t> count(static_cast<size_t>(tokens * tokens), 0);
      for (int rank = 0; rank < ranks; ++rank) {
        const std::vector<int32_t> mine = plan.Positions(rank);
        for (int step = 0; step < ranks; ++step) {
          const std::vector<int32_t> theirs = plan.Positions(plan.RingSource(rank, step));
          for (const AttentionWork& w : plan.RingWork(rank, step)) {
            ASSERT_EQ(mine[static_cast<size_t>(w.queries.begin)], w.query_position);
            ASSERT_EQ(theirs[static_cast<size_t>(w.keys.begin)], w.key_position);
            // Blocks counted from the first key of a call are blocks of the whole prompt.
            ASSERT_EQ(w.key_position % block(), 0);
            for (int64_t i = w.queries.begin; i < w.queries.end; ++i)
              for (int64_t j = w.keys.begin; j < w.keys.end; ++j) {
                const int64_t q = mine[static_cast<size_t>(i)], k = theirs[static_cast<size_t>(j)];
                if (w.causal) {
                  ASSERT_EQ(q, w.query_position + i - w.queries.begin);
                  ASSERT_EQ(k, w.key_position + j - w.keys.begin);
                  if (k > q) continue;
                }
                ++count[static_cast<size_t>(q * tokens + k)];
              }
          }
        }
      }
      for (int64_t q = 0; q < tokens; ++q)
        for (int64_t k = 0; k < tokens; ++k)
          ASSERT_EQ(count[static_cast<size_t>(q * tokens + k)], k <= q ? 1 : 0)
              << "T " << tokens << " N " << ranks << " B " << block() << " query " << q << " key " << k;
    }
  }
}

TEST_P(PlanSweep, ChunksCoverThePromptAndTheLastBelongsToRankZero) {
  for (int64_t tokens = 1; tokens <= 700; ++tokens)
    for (int ranks = 1; ranks <= 16; ++ranks) {
      const Plan plan = Make(tokens, ranks, 1, block());
      std::vector<int> owner(static_cast<size_t>(tokens), -1);
      int64_t most = 0;
      for (int rank = 0; rank < ranks; ++rank) {
        const std::vector<int32_t> positions = plan.Positions(rank);
        ASSERT_TRUE(std::is_sorted(positions.begin(), positions.end()));
        ASSERT_EQ(static_cast<int64_t>(positions.size()), plan.RankTokens(rank));
        most = std::max(most, plan.RankTokens(rank));
        for (const int32_t p : positions) {
          ASSERT_EQ(owner[static_cast<size_t>(p)], -1)
              << "T " << tokens << " N " << ranks << " position " << p;
          owner[static_cast<size_t>(p)] = rank;
        }
      }
      ASSERT_EQ(most, plan.MaxRankTokens());
      for (int64_t p = 0; p < tokens; ++p) ASSERT_EQ(owner[static_cast<size_t>(p)], plan.Owner(p));
      ASSERT_EQ(plan.Owner(tokens - 1), 0);
      ASSERT_GT(plan.Chunk(2 * ranks - 1).size(), 0);
      for (int c = 1; c < 2 * ranks; ++c) ASSERT_EQ(plan.Chunk(c).begin % block(), 0);
    }
}

TEST_P(PlanSweep, WindowPartsAreTheLastTokensInOrder) {
  for (const int64_t tokens : {1, 2, 31, 64, 65, 129, 300, 511})
    for (int ranks = 1; ranks <= 16; ++ranks)
      for (const int64_t window : {1, 3, 32, 64, 200, 600}) {
        const Plan plan = Make(tokens, ranks, window, block());
        int64_t next = plan.prefix();
        for (const auto& part : plan.WindowParts()) {
          ASSERT_EQ(part.range.begin, next);
          ASSERT_FALSE(part.range.empty());
          for (int64_t p = part.range.begin; p < part.range.end; ++p) ASSERT_EQ(plan.Owner(p), part.rank);
          next = part.range.end;
        }
        ASSERT_EQ(next, tokens);
      }
}

// The halo of a chunk is exactly what pooling reads outside it, each position once, from its owner.
TEST_P(PlanSweep, HalosAreWhatPoolingReads) {
  for (const int64_t tokens : {1, 2, 5, 33, 64, 65, 100, 129, 257, 300, 640})
    for (int ranks = 1; ranks <= 16; ++ranks)
      for (const int64_t window : {1, 32, 70})
        for (const int kernel : {1, 3, 7, 63, 301}) {
          const Plan plan = Make(tokens, ranks, window, block());
          std::vector<std::vector<int64_t>> got(static_cast<size_t>(ranks)), want(static_cast<size_t>(ranks));
          for (const HaloTransfer& t : plan.HaloTransfers(kernel))
            for (int64_t p = t.range.begin; p < t.range.end; ++p) {
              ASSERT_EQ(plan.Owner(p), t.from);
              got[static_cast<size_t>(t.to)].push_back(p);
            }
          for (int rank = 0; rank < ranks; ++rank)
            for (const int which : {0, 1}) {
              const Range chunk = plan.ScoredChunk(rank, which);
              if (chunk.empty()) continue;
              for (int64_t p = std::max<int64_t>(0, chunk.begin - kernel / 2);
                   p < std::min(plan.prefix(), chunk.end + kernel / 2); ++p)
                if (p < chunk.begin || p >= chunk.end) want[static_cast<size_t>(rank)].push_back(p);
            }
          for (int rank = 0; rank < ranks; ++rank) {
            auto &g = got[static_cast<size_t>(rank)], &w = want[static_cast<size_t>(rank)];
            std::sort(g.begin(), g.end());
            std::sort(w.begin(), w.end());
            ASSERT_EQ(g, w) << "T " << tokens << " N " << ranks << " W " << window << " k " << kernel
                            << " rank " << rank;
          }
        }
}

TEST_P(PlanSweep, LocalRunsFindEveryPosition) {
  for (const int64_t tokens : {1, 64, 65, 200, 257})
    for (int ranks = 1; ranks <= 8; ++ranks) {
      const Plan plan = Make(tokens, ranks, 1, block());
      for (int64_t begin = 0; begin <= tokens; begin += 7)
        for (int64_t end = begin; end <= tokens; end += 13) {
          int64_t found = 0;
          for (int rank = 0; rank < ranks; ++rank) {
            const std::vector<int32_t> positions = plan.Positions(rank);
            for (const auto& run : plan.LocalRuns(rank, {begin, end}))
              for (int64_t row = run.rows.begin; row < run.rows.end; ++row, ++found)
                ASSERT_EQ(positions[static_cast<size_t>(row)], run.position + row - run.rows.begin);
          }
          ASSERT_EQ(found, end - begin);
        }
    }
}

// Zigzag's point: with whole blocks the pairs per step differ little between ranks.
TEST(Plan, StepsCostEveryRankAboutTheSame) {
  const Plan plan = Make(/*tokens=*/65536, /*ranks=*/8, 32, 64);
  for (int step = 1; step < 8; ++step) {
    int64_t least = INT64_MAX, most = 0;
    for (int rank = 0; rank < 8; ++rank) {
      int64_t pairs = 0;
      for (const AttentionWork& w : plan.RingWork(rank, step)) pairs += w.queries.size() * w.keys.size();
      least = std::min(least, pairs);
      most = std::max(most, pairs);
    }
    EXPECT_EQ(least, most) << "step " << step;
  }
}

INSTANTIATE_TEST_SUITE_P(Blocks, PlanSweep, ::testing::Values(1, 64),
                         [](const auto& info) { return "B" + std::to_string(info.param); });

}  // namespace
}  // namespace snapkv::runtime
