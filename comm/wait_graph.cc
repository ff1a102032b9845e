// SPDX-License-Identifier: Apache-2.0
// Breadth-first walk over the waits; a circle is reported as such.
#include "comm/wait_graph.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace snapkv::comm {
namespace {

bool IsWaiting(const RankState& state) {
  return state.activity == Activity::kWaiting && !state.peers.empty();
}

// Everybody reachable waits: walking along first peers must return to a rank seen before.
std::string DescribeCircle(int self, absl::Span<const RankState> states, absl::Duration timeout) {
  std::vector<int> path;
  int rank = self;
  while (std::find(path.begin(), path.end(), rank) == path.end()) {
    path.push_back(rank);
    rank = states[static_cast<size_t>(rank)].peers.front();
  }
  path.erase(path.begin(), std::find(path.begin(), path.end(), rank));
  // From the lowest rank on: the text is the same whoever finds the circle.
  std::rotate(path.begin(), std::min_element(path.begin(), path.end()), path.end());
  std::string text = absl::StrCat("deadlock: no rank moved for ", Seconds(timeout), " (--comm-timeout)");
  for (const int r : path) {
    const RankState& state = states[static_cast<size_t>(r)];
    absl::StrAppend(&text, r == path.front() ? ": " : ", ", "rank ", r, " waits for rank ",
                    state.peers.front(), " in ", state.operation);
  }
  return absl::StrCat(text, "; this is a bug in the program, please report it");
}

}  // namespace

std::string Seconds(absl::Duration duration) { return absl::StrCat(absl::ToDoubleSeconds(duration), " s"); }

std::string DescribeRanks(absl::Span<const int> ranks, absl::Span<const std::string> names) {
  constexpr size_t kListed = 8;
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < std::min(ranks.size(), kListed); ++i) {
    absl::StrAppend(&text, i == 0 ? "" : ", ", ranks[i]);
    const size_t r = static_cast<size_t>(ranks[i]);
    if (r < names.size() && !names[r].empty()) absl::StrAppend(&text, " (", names[r], ")");
  }
  if (ranks.size() > kListed) absl::StrAppend(&text, " and ", ranks.size() - kListed, " more");
  return text;
}

Verdict FindLateRanks(int self, absl::Span<const RankState> states, absl::Duration timeout,
                      absl::Span<const std::string> names) {
  std::vector<int> waiter_of(states.size(), -1), queue = {self};
  std::vector<int> silent, running;
  waiter_of[static_cast<size_t>(self)] = self;
  for (size_t i = 0; i < queue.size(); ++i) {
    const int rank = queue[i];
    const RankState& state = states[static_cast<size_t>(rank)];
    if (!IsWaiting(state)) {
      (state.activity == Activity::kSilent ? silent : running).push_back(rank);
      continue;
    }
    for (const int peer : state.peers) {
      if (waiter_of[static_cast<size_t>(peer)] >= 0) continue;
      waiter_of[static_cast<size_t>(peer)] = rank;
      queue.push_back(peer);
    }
  }
  Verdict verdict;
  verdict.suspects = silent.empty() ? running : silent;
  std::sort(verdict.suspects.begin(), verdict.suspects.end());
  if (verdict.suspects.empty()) {
    verdict.text = DescribeCircle(self, states, timeout);
    return verdict;
  }
  const int waiter = waiter_of[static_cast<size_t>(verdict.suspects.front())];
  verdict.text = absl::StrCat(
      DescribeRanks(verdict.suspects, names), " did not respond for ", Seconds(timeout),
      " (--comm-timeout): ", silent.empty() ? "still busy with something else" : "stopped, lost or too slow",
      "; rank ", waiter, " waits in ", states[static_cast<size_t>(waiter)].operation);
  return verdict;
}

}  // namespace snapkv::comm
