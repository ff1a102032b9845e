// SPDX-License-Identifier: Apache-2.0
// A handler that notes the first signal.
#include "launch/signals.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>

namespace snapkv::launch {
namespace {

std::atomic<int> pending{0};
static_assert(std::atomic<int>::is_always_lock_free);

void Handle(int signal) {
  int none = 0;
  if (!pending.compare_exchange_strong(none, signal)) _exit(128 + signal);
}

}  // namespace

void CatchSignals() {
  signal(SIGPIPE, SIG_IGN);  // a reader of stdout that has gone is an error of writing,
  signal(SIGXFSZ, SIG_IGN);  // and so is a limit of the file size
  for (const int signal : {SIGINT, SIGTERM}) {
    struct sigaction old {};
    sigaction(signal, nullptr, &old);
    if (old.sa_handler == SIG_IGN) continue;
    struct sigaction action {};
    action.sa_handler = Handle;
    action.sa_flags = SA_RESTART;
    sigaction(signal, &action, nullptr);
  }
}

int PendingSignal() { return pending.load(); }

}  // namespace snapkv::launch
