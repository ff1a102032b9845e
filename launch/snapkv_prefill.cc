// SPDX-License-Identifier: Apache-2.0
// snapkv-prefill: main() of the MPI program. Runs as one rank when no launcher started it.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

#include "comm/bootstrap.h"
#include "kernels/base/log.h"
#include "launch/exit_codes.h"
#include "launch/flags.h"
#include "launch/job.h"
#include "launch/model_store.h"
#include "launch/output/output_files.h"
#include "launch/signals.h"
#include "runtime/service/event_log.h"

namespace snapkv::launch {
namespace {

// Before MPI starts, by the launcher's variables: whether this process speaks for the job.
bool IsFirstProcess() {
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"}) {
    if (const char* rank = std::getenv(name); rank != nullptr) return std::string(rank) == "0";
  }
  return true;
}

int PrintModels() {
  const std::vector<CachedModel> models = ListModels();
  if (models.empty())
    LOG(Info) << "no model is cached in " << ModelFolder() << "; launch/setup.sh fetches smollm2";
  std::string text;
  for (const CachedModel& model : models) {
    text += absl::StrCat(model.name, "\t", model.path, "\t", model.bytes / 1'000'000, " MB\n");
  }
  const absl::Status status = WriteStdout(text);
  if (status.ok()) return kExitOk;
  LOG(Error) << status.message();
  return kExitOutputNotWritable;
}

// OpenMP threads spin for milliseconds between parallel regions by default; on a machine that does anything
// else as well that costs several times the run time. Its runtime reads the setting when it is loaded, hence
// the restart. A setting of the user's stays. 2,000 turns are tens of microseconds, about what waking a
// sleeping thread takes.
void LimitSpinning(char** argv) {
  if (std::getenv("OMP_WAIT_POLICY") != nullptr || std::getenv("GOMP_SPINCOUNT") != nullptr) return;
  setenv("GOMP_SPINCOUNT", "2000", 1);
  std::error_code error;
  const std::string self = std::filesystem::read_symlink("/proc/self/exe", error).string();
  execv(self.c_str(), argv);  // returns only when it fails: then we run on as we are
}

int Main(int argc, char** argv) {
  LimitSpinning(argv);
  SetLogPrefix("snapkv-prefill: ");
  Flags flags;
  const bool first = IsFirstProcess();
  if (const auto exit_code = ParseFlags(argc, argv, first, flags)) return *exit_code;
  if (flags.log_format == LogFormat::kJson) {
    service::SetEventFormat(service::EventFormat::kJson);
    flags.progress = ProgressMode::kNone;  // it is not JSON, and a bar would take the log's writer
  }
  if (flags.list_models) return first ? PrintModels() : kExitOk;

  CatchSignals();
  auto world = comm::Bootstrap(&argc, &argv, {.timeout = absl::Seconds(flags.comm_timeout_s)});
  if (!world.ok()) {
    LOG(Error) << world.status().message();
    return absl::IsDeadlineExceeded(world.status()) ? comm::kExitLostRank : kExitJobFailed;
  }
  const absl::StatusOr<int> exit_code = PrefillJob(**world, flags).Run();
  if (!exit_code.ok()) {
    comm::AbortJob(**world, exit_code.status(),
                   absl::IsDeadlineExceeded(exit_code.status()) ? comm::kExitLostRank : kExitJobFailed);
  }
  if (const absl::Status status = (*world)->Finalize(); !status.ok()) {
    comm::AbortJob(**world, status);
  }
  return *exit_code;
}

// Before the initializers of shared libraries, not in main(): gRPC's opens an event fd, which would become
// stdin where that is closed.
void ReserveStreamsFirst(int, char**, char**) { ReserveStandardStreams(); }
__attribute__((section(".preinit_array"), used)) void (*reserve_streams_first)(int, char**,
                                                                               char**) = ReserveStreamsFirst;

}  // namespace
}  // namespace snapkv::launch

int main(int argc, char** argv) {
  const int exit_code = snapkv::launch::Main(argc, argv);
  // Not by way of destructors of static objects: a thread that reads ahead may still be at work, or blocked.
  std::fflush(nullptr);
  _exit(exit_code);
}
