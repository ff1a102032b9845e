// SPDX-License-Identifier: Apache-2.0
// The two kinds of World, and the calls of MPI that have no deadline of their own.
#include "comm/bootstrap.h"

#include <mpi.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "comm/deadline.h"
#include "comm/mpi_comm.h"
#include "comm/thread_comm.h"
#include "comm/wait_graph.h"
#include "kernels/base/log.h"

namespace snapkv::comm {
namespace {

// Nobody waits for MPI_Init and MPI_Finalize but the launcher; they block until every rank takes part.
constexpr absl::Duration kStartTime = absl::Minutes(5);

// Ends this process if `call` blocks for too long. Rank 0 speaks first, and its end makes the launcher end
// the rest, which takes it up to a second.
Watchdog Guard(const char* call, int rank, absl::Duration timeout) {
  const absl::Duration turn =
      rank == 0 ? absl::ZeroDuration() : absl::Milliseconds(2000 + 100 * std::min(rank, 10));
  return Watchdog(timeout + turn, [call, timeout] {
    LogLine(LogLevel::kError, absl::StrCat(call, " did not return within ", Seconds(timeout),
                                           ": a rank is stopped, lost or was never started"));
    _exit(kExitLostRank);
  });
}

class SingleWorld final : public World {
 public:
  explicit SingleWorld(const BootstrapOptions& options) : group_(ThreadGroup::Create(1, options.timeout)) {
    char host[256] = "";
    gethostname(host, sizeof(host) - 1);
    names_ = {absl::StrCat("node ", host, ", process ", getpid())};
  }
  HostComm& host() override { return group_->host(0); }
  DeviceComm& device() override { return group_->device(0); }
  int local_rank() const override { return 0; }
  int local_size() const override { return 1; }
  const std::vector<std::string>& node_names() const override { return names_; }
  void set_timeout(absl::Duration) override {}  // one rank waits for nobody
  absl::Status Finalize() override { return absl::OkStatus(); }
  void Abort(const absl::Status& status, int exit_code) override {
    LogLine(LogLevel::kError, std::string(status.message()));
    std::fflush(nullptr);
    _exit(exit_code);
  }

 private:
  std::unique_ptr<ThreadGroup> group_;
  std::vector<std::string> names_;
};

class MpiWorld final : public World {
 public:
  MpiWorld(std::unique_ptr<MpiComm> comm, int local_rank, int local_size, absl::Duration timeout)
      : comm_(std::move(comm)), local_rank_(local_rank), local_size_(local_size), timeout_(timeout) {}

  HostComm& host() override { return comm_->host(); }
  DeviceComm& device() override { return comm_->device(); }
  int local_rank() const override { return local_rank_; }
  int local_size() const override { return local_size_; }
  const std::vector<std::string>& node_names() const override { return comm_->node_names(); }
  void set_timeout(absl::Duration timeout) override {
    timeout_ = timeout;
    comm_->set_timeout(timeout);
  }
  absl::Status Finalize() override {
    RETURN_IF_ERROR(host().Barrier());
    const Watchdog guard = Guard("MPI_Finalize", rank(), timeout_);
    MPI_Finalize();
    return absl::OkStatus();
  }
  void Abort(const absl::Status& status, int exit_code) override { comm_->Abort(status, exit_code); }

 private:
  std::unique_ptr<MpiComm> comm_;
  int local_rank_, local_size_;
  absl::Duration timeout_;
};

}  // namespace

void AbortJob(World& world, const absl::Status& status, int exit_code) {
  world.Abort(status, exit_code);
  _exit(exit_code);
}

bool StartedByMpiLauncher() {
  // Open MPI's mpirun, PMIx (Slurm, PRRTE), PMI-1 and PMI-2 (MPICH, Slurm), MVAPICH.
  for (const char* name :
       {"OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_SIZE", "PMI_RANK", "MV2_COMM_WORLD_SIZE"}) {
    if (std::getenv(name) != nullptr) return true;
  }
  return false;
}

absl::StatusOr<std::unique_ptr<World>> Bootstrap(int* argc, char*** argv, const BootstrapOptions& options) {
  if (!StartedByMpiLauncher()) return std::make_unique<SingleWorld>(options);
  const char* rank_text = std::getenv("OMPI_COMM_WORLD_RANK");
  const Watchdog guard = Guard("MPI_Init", rank_text != nullptr ? std::atoi(rank_text) : 0, kStartTime);
  int provided = 0;
  if (MPI_Init_thread(argc, argv, MPI_THREAD_FUNNELED, &provided) != MPI_SUCCESS) {
    return Internal("MPI_Init failed: start the program with mpirun, or without any launcher for one rank");
  }
  if (provided < MPI_THREAD_FUNNELED)
    return FailedPrecondition("this MPI does not support MPI_THREAD_FUNNELED");
  MPI_Comm node = MPI_COMM_NULL;
  int local_rank = 0, local_size = 1;
  MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node);
  MPI_Comm_rank(node, &local_rank);
  MPI_Comm_size(node, &local_size);
  MPI_Comm_free(&node);
  MpiOptions mpi;
  mpi.timeout = options.timeout;
  ASSIGN_OR_RETURN(std::unique_ptr<MpiComm> comm, MpiComm::Create(MPI_COMM_WORLD, mpi));
  return std::make_unique<MpiWorld>(std::move(comm), local_rank, local_size, options.timeout);
}

}  // namespace snapkv::comm
