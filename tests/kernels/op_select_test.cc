// SPDX-License-Identifier: Apache-2.0
// Contract tests of the selection: equal to a stable sort on many ties, and the same set however the scores
// are spread over shards.
#include <algorithm>
#include <map>
#include <numeric>

#include "kernels/op/select_top.h"
#include "kernels/ref/ref.h"
#include "tests/kernels/op_testing.h"

namespace snapkv::kernels {
namespace {

using Lists = std::vector<std::vector<int32_t>>;

// The best `count` columns of each head, ascending, by a stable sort in the total order.
Lists BySorting(const HostTensor& scores, const std::vector<int32_t>& positions, int64_t count) {
  const int64_t n = scores.view().dim(1);
  Lists lists;
  for (int64_t h = 0; h < scores.view().dim(0); ++h) {
    std::vector<int32_t> columns(static_cast<size_t>(n));
    std::iota(columns.begin(), columns.end(), 0);
    std::sort(columns.begin(), columns.end(), [&](int32_t a, int32_t b) {
      return positions[static_cast<size_t>(a)] < positions[static_cast<size_t>(b)];
    });
    std::stable_sort(columns.begin(), columns.end(),
                     [&](int32_t a, int32_t b) { return scores.Get(h * n + a) > scores.Get(h * n + b); });
    columns.resize(static_cast<size_t>(std::clamp<int64_t>(count, 0, n)));
    std::sort(columns.begin(), columns.end());
    lists.push_back(columns);
  }
  return lists;
}

// Scores with few distinct values, or many: ties at every cut.
HostTensor TiedScores(int64_t heads, int64_t n, uint64_t levels, std::mt19937_64& rng) {
  HostTensor scores(kF32, {heads, n}, 3);
  scores.Fill([&](int64_t) {
    const uint64_t level = rng() % levels;
    if (level == 0) return rng() % 2 == 0 ? 0.0 : -0.0;
    if (level == 1 && levels > 2) return 1e-42;  // subnormal
    if (level == 2 && levels > 100) return static_cast<double>(rng() % 2 == 0 ? kInf : -kInf);
    return std::ldexp(static_cast<double>(level), static_cast<int>(level % 40) - 20);
  });
  return scores;
}

class OpSelect : public ::testing::TestWithParam<Device> {
 protected:
  Stream stream() const { return {GetParam(), 2}; }
  std::mt19937_64 rng_{314};
};
INSTANTIATE_TEST_SUITE_P(Ops, OpSelect, ::testing::Values(Device::kRef, Device::kCpu),
                         [](const auto& info) { return std::string(DeviceName(info.param)); });

TEST_P(OpSelect, EqualsAStableSort) {
  for (const int64_t n : {0, 1, 2, 7, 16, 33, 64, 129, 300}) {
    for (const uint64_t levels : {1, 2, 5, 1000}) {
      for (const bool scattered : {false, true}) {
        const HostTensor scores = TiedScores(3, n, levels, rng_);
        std::vector<int32_t> positions(static_cast<size_t>(n));
        std::iota(positions.begin(), positions.end(), 1000);
        if (scattered) {
          for (int32_t& p : positions) p = p * 7001 % 999983;  // distinct: 999983 is prime
        }
        for (const int64_t count : {int64_t{-1}, int64_t{0}, int64_t{1}, n / 3, n / 2, n - 1, n, n + 1}) {
          SCOPED_TRACE(Case(n, levels, scattered, count));
          const absl::StatusOr<Lists> columns = SelectTop(stream(), scores, positions, count);
          ASSERT_OK(columns.status());
          ASSERT_EQ(*columns, BySorting(scores, positions, count));
        }
      }
    }
  }
}

TEST_P(OpSelect, EqualScoresKeepTheLowestPositions) {
  HostTensor scores(kF32, {2, 100});
  scores.Fill([](int64_t) { return 0.25; });
  std::vector<int32_t> positions(100), first(30);
  std::iota(positions.begin(), positions.end(), 0);
  std::iota(first.begin(), first.end(), 0);
  for (int run = 0; run < 100; ++run) {
    const absl::StatusOr<Lists> columns = SelectTop(stream(), scores, positions, 30);
    ASSERT_OK(columns.status());
    ASSERT_EQ(*columns, (Lists{first, first}));
  }
}

// The rounds as ranks run them: counts are summed over the shards, every rank narrows the same search.
Lists Sharded(const Stream& stream, const std::vector<HostTensor>& scores,
              const std::vector<std::vector<int32_t>>& positions, int64_t heads, int64_t count) {
  std::vector<uint64_t> prefix(static_cast<size_t>(heads), 0);
  std::vector<int64_t> need(static_cast<size_t>(heads), count);
  for (int round = 0; round < kSelectRounds; ++round) {
    std::vector<int64_t> total(static_cast<size_t>(heads) * kSelectBins, 0);
    for (size_t s = 0; s < scores.size(); ++s) {
      std::vector<int64_t> counts(total.size(), -1);
      const absl::Status status =
          CountSelectKeys(stream, scores[s], positions[s], prefix, round, absl::MakeSpan(counts));
      EXPECT_TRUE(status.ok()) << status;
      for (size_t i = 0; i < counts.size(); ++i) total[i] += counts[i];
    }
    NarrowSelection(total, round, absl::MakeSpan(prefix), absl::MakeSpan(need));
  }
  Lists kept(static_cast<size_t>(heads));  // global positions
  for (size_t s = 0; s < scores.size(); ++s) {
    const absl::StatusOr<Lists> columns = CollectSelected(stream, scores[s], positions[s], prefix);
    EXPECT_TRUE(columns.ok()) << columns.status();
    for (size_t h = 0; columns.ok() && h < kept.size(); ++h) {
      for (const int32_t column : (*columns)[h]) {
        kept[h].push_back(positions[s][static_cast<size_t>(column)]);
      }
    }
  }
  for (std::vector<int32_t>& list : kept) std::sort(list.begin(), list.end());
  return kept;
}

TEST_P(OpSelect, ShardsFindTheSameSet) {
  constexpr int64_t kHeads = 3, kSize = 211;
  for (const uint64_t levels : {1, 3, 1000}) {
    const HostTensor scores = TiedScores(kHeads, kSize, levels, rng_);
    std::vector<int32_t> positions(kSize);
    std::iota(positions.begin(), positions.end(), 0);
    for (size_t shards = 1; shards <= 8; ++shards) {
      // Columns go to random shards; the last of five and more stays empty.
      std::vector<std::vector<int32_t>> owned(shards);
      for (const int32_t p : positions) owned[rng_() % (shards >= 5 ? shards - 1 : shards)].push_back(p);
      std::vector<HostTensor> parts;
      for (const std::vector<int32_t>& own : owned) {
        HostTensor part(kF32, {kHeads, static_cast<int64_t>(own.size())}, 1);
        part.Fill([&](int64_t i) {
          const int64_t columns = static_cast<int64_t>(own.size());
          return scores.Get(i / columns * kSize + own[static_cast<size_t>(i % columns)]);
        });
        parts.push_back(std::move(part));
      }
      for (const int64_t count : {0, 1, 50, 105, 210, 211, 500}) {
        SCOPED_TRACE(Case(levels, shards, count));
        ASSERT_EQ(Sharded(stream(), parts, owned, kHeads, count), BySorting(scores, positions, count));
      }
    }
  }
}

TEST_P(OpSelect, CountsAndCollectionEqualTheReference) {
  const HostTensor scores = TiedScores(4, 129, 7, rng_);
  std::vector<int32_t> positions(129);
  std::iota(positions.begin(), positions.end(), 77);
  std::vector<uint64_t> prefix;  // of a key of each head, cut at every round
  for (int round = 0; round < kSelectRounds; ++round) {
    prefix.clear();
    for (int64_t h = 0; h < 4; ++h) {
      const uint64_t key = SelectKey(static_cast<float>(scores.Get(h * 129 + 40)), positions[40]);
      prefix.push_back(round == 0 ? 0 : key >> (64 - kSelectBits * round) << (64 - kSelectBits * round));
    }
    std::vector<int64_t> counts(4 * kSelectBins, -1), expected(4 * kSelectBins, -1);
    ASSERT_OK(CountSelectKeys(stream(), scores, positions, prefix, round, absl::MakeSpan(counts)));
    ref::CountSelectKeys(scores, positions, prefix, round, expected);
    ASSERT_EQ(counts, expected) << round;
    const absl::StatusOr<Lists> columns = CollectSelected(stream(), scores, positions, prefix);
    ASSERT_OK(columns.status());
    ASSERT_EQ(*columns, ref::CollectSelected(scores, positions, prefix)) << round;
  }
}

TEST_P(OpSelect, NoColumnsGiveZeroCountsAndEmptyLists) {
  const HostTensor scores(kF32, {2, 0});
  std::vector<int64_t> counts(2 * kSelectBins, -1);
  const std::vector<uint64_t> prefix = {0, 0};
  ASSERT_OK(CountSelectKeys(stream(), scores, {}, prefix, 3, absl::MakeSpan(counts)));
  EXPECT_EQ(counts, std::vector<int64_t>(2 * kSelectBins, 0));
  const absl::StatusOr<Lists> columns = CollectSelected(stream(), scores, {}, prefix);
  ASSERT_OK(columns.status());
  EXPECT_EQ(*columns, (Lists{{}, {}}));
}

TEST(NarrowSelection, TakesTheBinOfTheNeededKey) {
  std::vector<int64_t> counts(2 * kSelectBins, 0), need = {3, 1};
  counts[255] = 2;
  counts[200] = 5;
  counts[kSelectBins] = 4;
  std::vector<uint64_t> prefix = {0, 0};
  NarrowSelection(counts, 0, absl::MakeSpan(prefix), absl::MakeSpan(need));
  EXPECT_EQ(prefix, (std::vector<uint64_t>{uint64_t{200} << 56, 0}));
  EXPECT_EQ(need, (std::vector<int64_t>{1, 1}));
  NarrowSelection(counts, 1, absl::MakeSpan(prefix), absl::MakeSpan(need));
  EXPECT_EQ(prefix, (std::vector<uint64_t>{uint64_t{200} << 56 | uint64_t{255} << 48, 0}));
  EXPECT_EQ(need, (std::vector<int64_t>{1, 1}));
}

}  // namespace
}  // namespace snapkv::kernels
