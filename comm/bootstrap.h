// SPDX-License-Identifier: Apache-2.0
// Bootstrap: from a started process to a group of ranks, over MPI if a launcher started it, else alone.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "comm/device_comm.h"
#include "comm/host_comm.h"

namespace snapkv::comm {

// Exit code of a job that lost a rank or a deadline.
inline constexpr int kExitLostRank = 70;

struct BootstrapOptions {
  absl::Duration timeout = absl::Seconds(60);  // --comm-timeout
};

// The group this process belongs to. Used by the main thread only.
class World {
 public:
  virtual ~World() = default;

  virtual HostComm& host() = 0;
  virtual DeviceComm& device() = 0;
  int rank() { return host().rank(); }
  int size() { return host().size(); }
  // Among the ranks on this node: this one's number, and how many there are.
  virtual int local_rank() const = 0;
  virtual int local_size() const = 0;
  // Where each rank runs, e.g. "node a, process 17".
  virtual const std::vector<std::string>& node_names() const = 0;
  // For a time-out that is known only after Bootstrap; the same on every rank.
  virtual void set_timeout(absl::Duration timeout) = 0;

  // Leaves MPI in good order, after a barrier. To be called once, at the end, on every rank, after success as
  // well as after an error all ranks agree on; then all must exit with the same code, or the launcher reports
  // a crash.
  virtual absl::Status Finalize() = 0;
  // Ends all ranks at once and does not return: call AbortJob.
  virtual void Abort(const absl::Status& status, int exit_code) = 0;
};

// True if the environment shows that an MPI launcher started this process.
bool StartedByMpiLauncher();

// Starts MPI only if a launcher did start this process (a singleton MPI_Init takes 0.6 s); else a group of
// one rank. `argc` and `argv` are main's. Call it once per process.
absl::StatusOr<std::unique_ptr<World>> Bootstrap(int* argc, char*** argv, const BootstrapOptions& options);

// The end after a failed communication (DEADLINE_EXCEEDED from any call; every rank calls this), or after an
// error that the other ranks cannot know (this rank alone calls it): all ranks end with `exit_code` and one
// line on stderr, the message of `status`. Errors that the ranks agree on end by Finalize and a common exit
// code instead.
[[noreturn]] void AbortJob(World& world, const absl::Status& status, int exit_code = kExitLostRank);

}  // namespace snapkv::comm
