// SPDX-License-Identifier: Apache-2.0
// snapkv-server: main() of the job server.
#include <pthread.h>
#include <signal.h>
#include <sys/stat.h>

#include <cstdio>
#include <cstdlib>
#include <thread>

#include "google/protobuf/stubs/logging.h"
#include "grpc/support/log.h"
#include "kernels/base/log.h"
#include "launch/exit_codes.h"
#include "launch/server/flags.h"
#include "runtime/service/event_log.h"

namespace snapkv::launch {
namespace {

sigset_t HandledSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&signals, signal);
  return signals;
}

int WaitForSignal(const sigset_t& signals) {
  int signal = 0;
  while (sigwait(&signals, &signal) != 0) {
  }
  return signal;
}

// Until SIGINT or SIGTERM; SIGHUP reads the tokens again.
void Serve(service::Server& server, const sigset_t& signals) {
  for (;;) {
    const int signal = WaitForSignal(signals);
    if (signal != SIGHUP) return;
    const absl::Status status = server.ReloadTokens();
    if (status.ok()) {
      service::Event(LogLevel::kInfo, "tokens read again", {});
    } else {
      service::Event(LogLevel::kError, "the old tokens stay", {{"error", std::string(status.message())}});
    }
  }
}

int Main(int argc, char** argv) {
  SetLogPrefix("snapkv-server: ");
  ServerFlags flags;
  if (const auto exit_code = ParseServerFlags(argc, argv, flags)) return *exit_code;
  if (flags.json_log) service::SetEventFormat(service::EventFormat::kJson);
  umask(077);  // documents and prompts are nobody else's, whoever made the state folder
  // gRPC's own lines (a failed handshake, say) are for those who debug it.
  if (std::getenv("GRPC_VERBOSITY") == nullptr) gpr_set_log_function([](gpr_log_func_args*) {});
  // Before any thread exists, so that all of them leave these signals to us.
  const sigset_t signals = HandledSignals();
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  signal(SIGPIPE, SIG_IGN);
  signal(SIGXFSZ, SIG_IGN);                  // a file size limit is a full disk
  google::protobuf::SetLogHandler(nullptr);  // damaged messages of clients are no news for our log

  auto server = service::Server::Start(flags.options);
  if (!server.ok()) {
    LOG(Error) << server.status().message();
    if (absl::IsInvalidArgument(server.status())) return kExitUsage;
    return absl::IsNotFound(server.status()) ? kExitInputUnreadable : kExitJobFailed;
  }
  for (size_t i = 0; i < flags.options.listen.size(); ++i) {
    service::Event(LogLevel::kInfo, "serving",
                   {{"address", flags.options.listen[i]},
                    {"port", (*server)->ports()[i]},
                    {"state", flags.options.state}});
  }
  Serve(**server, signals);
  service::Event(LogLevel::kInfo, "draining; a second signal ends at once", {});
  std::thread second([&] {
    WaitForSignal(signals);
    (*server)->HurryUp();
  });
  (*server)->Drain();
  // Not waiting for a signal that may never come.
  pthread_kill(second.native_handle(), SIGTERM);
  second.join();
  server->reset();
  service::Event(LogLevel::kInfo, "ended", {});
  return kExitOk;
}

}  // namespace
}  // namespace snapkv::launch

int main(int argc, char** argv) { return snapkv::launch::Main(argc, argv); }
