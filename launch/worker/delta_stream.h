// SPDX-License-Identifier: Apache-2.0
// DeltaStream: the text of one interactive document on its way to the server while it is made.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>

#include "absl/time/time.h"
#include "google/protobuf/empty.pb.h"
#include "grpcpp/grpcpp.h"
#include "snapkv/v1/workers.grpc.pb.h"

namespace snapkv::launch {

// Send never waits: what comes while a message is on its way is joined to the next one. A stream that breaks
// loses text, not the result, which has the whole summary. Thread-safe.
class DeltaStream {
 public:
  DeltaStream(v1::Workers::Stub& stub, const v1::Lease& lease);
  // Cancels what is not finished, and waits until gRPC is through with it: not for the network.
  ~DeltaStream();
  DeltaStream(const DeltaStream&) = delete;
  DeltaStream& operator=(const DeltaStream&) = delete;

  void Send(const std::string& text);
  void Send(const v1::Progress& progress);
  // Nobody wants the text any more.
  void Cancel();
  // Ends the stream and waits until the server has all of it; after `wait` it is cancelled.
  void Finish(absl::Duration wait);

 private:
  class Reactor;
  std::unique_ptr<Reactor> reactor_;
};

}  // namespace snapkv::launch
