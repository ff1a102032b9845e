// SPDX-License-Identifier: Apache-2.0
// Who waits for whom: from what every rank is doing, finds the rank that really holds the others up.
#pragma once

#include <string>
#include <vector>

#include "absl/time/time.h"
#include "absl/types/span.h"

namespace snapkv::comm {

enum class Activity : int {
  kSilent,   // did not answer: stopped, lost, or computing without polling
  kRunning,  // answered, and waits for nobody
  kWaiting,  // waits for `peers`
};

struct RankState {
  Activity activity = Activity::kSilent;
  std::vector<int> peers;  // ranks waited for; used by kWaiting only
  std::string operation;   // what it waits in, e.g. "Barrier"
};

struct Verdict {
  std::vector<int> suspects;  // ascending; empty if the ranks wait for each other in a circle
  std::string text;           // one line that names the suspects, without a final dot
};

// `states[r]` is what rank r does; `self` has waited `timeout` without progress. Follows the waits from
// `self` until ranks that wait for nobody: these are the suspects, silent ones before running ones. A
// neighbour that only waits itself is never named. `names[r]` is put behind the rank's number if not empty;
// `names` may be empty.
Verdict FindLateRanks(int self, absl::Span<const RankState> states, absl::Duration timeout,
                      absl::Span<const std::string> names);

// "rank 3", "ranks 1, 4"; with names "rank 3 (node a, process 17)". At most eight are listed.
std::string DescribeRanks(absl::Span<const int> ranks, absl::Span<const std::string> names);

// "60 s", "0.5 s".
std::string Seconds(absl::Duration duration);

}  // namespace snapkv::comm
