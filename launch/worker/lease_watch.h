// SPDX-License-Identifier: Apache-2.0
// LeaseWatch: what the server says of this worker's leases, as it happens.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "grpcpp/grpcpp.h"
#include "kernels/base/status.h"
#include "snapkv/v1/workers.grpc.pb.h"

namespace snapkv::launch {

class LeaseWatch {
 public:
  // Opens the stream. `on_event` and, once at the end, `on_end` are called on a thread of gRPC's: they must
  // not wait, and both may still be called while the destructor runs, never behind it.
  LeaseWatch(v1::Workers::Stub& stub, const std::string& worker,
             std::function<void(const v1::LeaseEvent&)> on_event,
             std::function<void(const absl::Status&)> on_end);
  // Cancels it and waits for its end.
  ~LeaseWatch();
  LeaseWatch(const LeaseWatch&) = delete;
  LeaseWatch& operator=(const LeaseWatch&) = delete;

 private:
  class Reactor;
  std::unique_ptr<Reactor> reactor_;
};

}  // namespace snapkv::launch
