// SPDX-License-Identifier: Apache-2.0
// WorkerLink: the worker's tie to the server. Who is registered, whether the server can be reached, and what
// an answer of it means.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <set>
#include <string>

#include "absl/time/time.h"
#include "grpcpp/grpcpp.h"
#include "launch/rpc/channel.h"
#include "snapkv/v1/workers.grpc.pb.h"

namespace snapkv::launch {

// What is to be done after a call.
enum class Verdict : uint8_t {
  kOk,
  kRetry,    // the server is away, or asks to be called later
  kRenew,    // it does not know this worker any more: again after WaitRegistered
  kLost,     // the lease belongs to somebody else
  kRefused,  // this call will never succeed
  kFatal,    // no call will: the worker ends
};

// Thread-safe.
class WorkerLink {
 public:
  // `connect_timeout`: how long the server may be away at the start; zero: for ever.
  WorkerLink(std::shared_ptr<grpc::Channel> channel, std::string server, v1::Worker worker,
             absl::Duration connect_timeout);

  v1::Workers::Stub& stub() { return *stub_; }

  // Registers if need be; one thread calls it. False after Close and after a fatal error.
  bool Register();
  // Waits until the worker is registered: its name; "" when that took longer than `wait`, and after Close or
  // a fatal error.
  std::string WaitRegistered(absl::Duration wait);
  // How long a lease lasts.
  absl::Duration lease_duration() const;

  // What the outcome of a call means; keeps book of it. `worker` is the name the call was made with, or "".
  Verdict Judge(const absl::Status& status, const std::string& worker);
  // The server wants no further work to be begun. Ends with its return: with a registration, or the first
  // good answer after the watch has broken.
  void Drain();
  void WatchBroke();
  bool draining() const;

  // Waits; less when the server is back meanwhile. False after Close or a fatal error.
  bool Pause(absl::Duration wait);
  bool closed() const;
  // Why the worker must end, or OK.
  absl::Status fatal() const;
  // Cancels all calls, lets no further one begin, and wakes everybody.
  void Close();

  // A context that Close cancels. One call each.
  class Call {
   public:
    Call(WorkerLink& link, absl::Duration deadline);
    ~Call();
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;
    grpc::ClientContext* context() { return &context_; }

   private:
    WorkerLink& link_;
    grpc::ClientContext context_;
  };

 private:
  bool EndedLocked() const { return closed_ || !fatal_.ok(); }
  void SetFatalLocked(const absl::Status& status);
  void NoteAwayLocked(const absl::Status& status);

  const std::string server_;
  const v1::Worker worker_;
  const absl::Duration connect_timeout_;
  const absl::Time start_;
  std::unique_ptr<v1::Workers::Stub> stub_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  // All guarded by mutex_.
  std::string name_;  // workers/{worker}; "": not registered
  absl::Duration lease_duration_ = absl::Seconds(30);
  bool was_registered_ = false;
  bool draining_ = false;
  bool watch_broke_ = false;  // since draining_
  bool closed_ = false;
  absl::Status fatal_;
  bool away_ = false;  // the last call did not reach the server
  absl::Time away_since_, away_logged_;
  int64_t returns_ = 0;  // how often the server has come back
  std::set<grpc::ClientContext*> calls_;
};

}  // namespace snapkv::launch
