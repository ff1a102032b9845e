// SPDX-License-Identifier: Apache-2.0
// thread_comm: N virtual ranks inside one process, one thread each. The transport of unit tests and of a
// single rank.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "absl/time/time.h"
#include "comm/device_comm.h"
#include "comm/host_comm.h"

namespace snapkv::comm {

// Sends are copied when they start but finish only when the receiver has taken them, so a program that relies
// on buffering hangs here as it would with large messages elsewhere; a send buffer that was modified before
// its exchange was finished is an error. No thread ever touches another rank's buffers.
//
// A rank that fails, returns early or is late ends all other ranks' waits with an error that names it.
class ThreadGroup {
 public:
  // `ranks` >= 1. A wait without progress for `timeout` fails.
  static std::unique_ptr<ThreadGroup> Create(int ranks, absl::Duration timeout);
  ~ThreadGroup();

  int size() const;
  // The endpoints live as long as the group. Each is used by one thread at a time.
  HostComm& host(int rank);
  DeviceComm& device(int rank);

  // Tells the group that `rank` makes no further calls. Waits for it fail now instead of at their deadline.
  void Leave(int rank);
  // Ends all waits, now and later, with `error`; the first error stays.
  void Fail(const absl::Status& error);
  // The error the group failed with, or OK.
  absl::Status failure() const;

 private:
  struct State;
  class ThreadEndpoint;
  struct Rank;
  explicit ThreadGroup(std::unique_ptr<State> state);

  std::unique_ptr<State> state_;  // outlives ranks_
  std::vector<std::unique_ptr<Rank>> ranks_;
};

// Runs `body` once per rank, each in a thread of its own, and returns when all have returned: OK, or the
// first error in time, prefixed by "rank N: " unless it is the group's own and names the rank already.
absl::Status RunRanks(int ranks, absl::Duration timeout,
                      const std::function<absl::Status(HostComm&, DeviceComm&)>& body);

}  // namespace snapkv::comm
