// SPDX-License-Identifier: Apache-2.0
// Who is named when ranks wait for each other: hand-made situations.
#include "comm/wait_graph.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace snapkv::comm {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

RankState Waits(std::vector<int> peers) { return {Activity::kWaiting, std::move(peers), "Barrier"}; }
const RankState kQuiet{};
const RankState kBusy{Activity::kRunning, {}, {}};

Verdict Find(int self, std::vector<RankState> states) {
  return FindLateRanks(self, states, absl::Seconds(60), {});
}

TEST(WaitGraph, SilentNeighbour) {
  const Verdict v = Find(0, {Waits({1}), kQuiet});
  EXPECT_THAT(v.suspects, ElementsAre(1));
  EXPECT_EQ(
      v.text,
      "rank 1 did not respond for 60 s (--comm-timeout): stopped, lost or too slow; rank 0 waits in Barrier");
}

TEST(WaitGraph, BusyNeighbour) {
  const Verdict v = Find(1, {kBusy, Waits({0})});
  EXPECT_THAT(v.suspects, ElementsAre(0));
  EXPECT_THAT(v.text, HasSubstr("rank 0 did not respond for 60 s (--comm-timeout): still busy"));
}

TEST(WaitGraph, EveryPlaceInARing) {
  for (int n = 2; n <= 9; ++n) {
    for (int stuck = 0; stuck < n; ++stuck) {
      for (int self = 0; self < n; ++self) {
        if (self == stuck) continue;
        std::vector<RankState> states;
        for (int r = 0; r < n; ++r) states.push_back(r == stuck ? kQuiet : Waits({(r + n - 1) % n}));
        EXPECT_THAT(Find(self, states).suspects, ElementsAre(stuck)) << n << " ranks, self " << self;
      }
    }
  }
}

TEST(WaitGraph, SilentRankThatNobodyWaitsForIsNotNamed) {
  EXPECT_THAT(Find(0, {Waits({1}), Waits({2}), kQuiet, kQuiet}).suspects, ElementsAre(2));
}

TEST(WaitGraph, SilentGoesBeforeBusy) {
  EXPECT_THAT(Find(0, {Waits({1, 2}), kBusy, kQuiet}).suspects, ElementsAre(2));
}

TEST(WaitGraph, SeveralAreAscending) {
  const Verdict v = Find(2, {kQuiet, kQuiet, Waits({3, 1, 0}), kQuiet});
  EXPECT_THAT(v.suspects, ElementsAre(0, 1, 3));
  EXPECT_THAT(v.text, HasSubstr("ranks 0, 1, 3 did not respond"));
}

TEST(WaitGraph, CircleHasNoSuspect) {
  const std::vector<RankState> states = {Waits({1}), Waits({2}), Waits({1})};
  const Verdict v = Find(0, states);
  EXPECT_THAT(v.suspects, IsEmpty());
  for (const int self : {1, 2}) EXPECT_EQ(Find(self, states).text, v.text) << self;
  EXPECT_EQ(v.text,
            "deadlock: no rank moved for 60 s (--comm-timeout): rank 1 waits for rank 2 in Barrier, "
            "rank 2 waits for rank 1 in Barrier; this is a bug in the program, please report it");
}

TEST(WaitGraph, RankThatWaitsForItself) {
  EXPECT_THAT(Find(0, {Waits({0})}).text, HasSubstr("rank 0 waits for rank 0"));
}

TEST(WaitGraph, NamesAndLongLists) {
  EXPECT_EQ(DescribeRanks({1}, {"x", "node a, process 7"}), "rank 1 (node a, process 7)");
  EXPECT_EQ(DescribeRanks({0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, {}), "ranks 0, 1, 2, 3, 4, 5, 6, 7 and 2 more");
}

TEST(WaitGraph, SecondsAreReadable) {
  EXPECT_EQ(Seconds(absl::Minutes(2)), "120 s");
  EXPECT_EQ(Seconds(absl::Milliseconds(500)), "0.5 s");
}

}  // namespace
}  // namespace snapkv::comm
