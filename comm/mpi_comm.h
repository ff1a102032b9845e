// SPDX-License-Identifier: Apache-2.0
// mpi_comm: ranks are MPI processes. Every wait polls and has a deadline; MPI is called by one thread per
// rank.
#pragma once

#include <mpi.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "comm/device_comm.h"
#include "comm/host_comm.h"

namespace snapkv::comm {

struct MpiOptions {
  // A wait without progress for this long fails.
  absl::Duration timeout = absl::Seconds(60);
  // Larger messages travel in parts: MPI counts are int. The same on every rank.
  int64_t max_message_bytes = int64_t{1} << 30;
};

// A deadline asks the other ranks what they wait for, follows the answers to the rank that is really stuck,
// tells the others, and every rank's wait returns the same DEADLINE_EXCEEDED. The program must then call
// Abort.
class MpiComm {
 public:
  // Collective over `parent`, which must outlive this. Connects every rank with every other one; deadlines
  // hold from here on. The communicators made here are freed by MPI_Finalize.
  static absl::StatusOr<std::unique_ptr<MpiComm>> Create(MPI_Comm parent, const MpiOptions& options);
  ~MpiComm();

  HostComm& host();
  DeviceComm& device();
  // "node, process 17" of every rank.
  const std::vector<std::string>& node_names() const;
  void set_timeout(absl::Duration timeout);

  // Ends the whole job. One rank prints one line: after a deadline the lowest rank that waits, the verdict;
  // else the caller, the message of `status`, and the job's exit code is `exit_code`. The others wait to be
  // killed and do it themselves if that takes more than two seconds.
  [[noreturn]] void Abort(const absl::Status& status, int exit_code);

 private:
  class MpiEndpoint;
  struct State;
  explicit MpiComm(std::unique_ptr<State> state);

  std::unique_ptr<State> state_;
};

}  // namespace snapkv::comm
