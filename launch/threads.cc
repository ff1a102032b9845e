// SPDX-License-Identifier: Apache-2.0
// Thread counts from affinity masks.
#include "launch/threads.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <vector>

namespace snapkv::launch {

absl::StatusOr<int> DefaultThreads(comm::HostComm& host) {
  struct Place {
    char host_name[256];
    cpu_set_t mask;
  } mine;
  std::memset(&mine, 0, sizeof(mine));
  gethostname(mine.host_name, sizeof(mine.host_name) - 1);
  if (sched_getaffinity(0, sizeof(mine.mask), &mine.mask) != 0) CPU_SET(0, &mine.mask);
  ASSIGN_OR_RETURN(const std::vector<Place> all, host.AllGather(mine));
  const auto sharing = std::count_if(all.begin(), all.end(), [&](const Place& other) {
    return std::strcmp(other.host_name, mine.host_name) == 0 && CPU_EQUAL(&other.mask, &mine.mask) != 0;
  });
  return std::max(1, CPU_COUNT(&mine.mask) / static_cast<int>(sharing));
}

}  // namespace snapkv::launch
