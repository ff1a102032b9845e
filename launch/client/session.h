// SPDX-License-Identifier: Apache-2.0
// Session: calls to the job server that are repeated while it cannot be reached, and that signals end.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>

#include "absl/time/time.h"
#include "grpc/health/v1/health.grpc.pb.h"
#include "launch/rpc/channel.h"
#include "runtime/service/grpc_status.h"
#include "snapkv/v1/jobs.grpc.pb.h"
#include "snapkv/v1/models.grpc.pb.h"

namespace snapkv::launch {

namespace v1 = snapkv::v1;

struct SessionOptions {
  ServerAddress address;
  absl::Duration call_timeout = absl::Seconds(30);     // of one call that is no stream
  absl::Duration connect_timeout = absl::Seconds(30);  // how long failures are repeated, see Patience
  bool bounded_waits = false;                          // connect_timeout holds under kWait as well
};

// How long a call that fails for want of a server is repeated.
enum class Patience : uint8_t {
  kNone,     // once
  kConnect,  // for connect_timeout
  kWait,     // for ever: somebody waits for a job that goes on whatever happens to this connection
};

// Thread-safe.
class Session {
 public:
  // Connects when first used. Errors are those of the flags, see Connect.
  static absl::StatusOr<std::unique_ptr<Session>> Open(const SessionOptions& options);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  v1::Jobs::Stub& jobs() { return *jobs_; }
  v1::Models::Stub& models() { return *models_; }
  grpc::health::v1::Health::Stub& health() { return *health_; }
  const std::string& server() const { return options_.address.server; }
  const SessionOptions& options() const { return options_; }

  // Ends all calls, also future ones, with CANCELLED. SIGINT and SIGTERM do the same.
  void Stop();
  bool stopped() const;
  // False, at once, when stopped.
  bool Sleep(absl::Duration duration);

  // The answer of one call, repeated as `patience` says. `call` is Status(grpc::ClientContext&, Response&).
  template <class Response, class F>
  absl::StatusOr<Response> Call(Patience patience, const F& call);

 private:
  friend class CallContext;
  friend class Retry;
  explicit Session(SessionOptions options) : options_(std::move(options)) {}
  void Run();
  void CancelAllLocked();
  void NoteFailure(const absl::Status& error);
  void NoteSuccess();

  const SessionOptions options_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::Jobs::Stub> jobs_;
  std::unique_ptr<v1::Models::Stub> models_;
  std::unique_ptr<grpc::health::v1::Health::Stub> health_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  // All guarded by mutex_.
  std::set<grpc::ClientContext*> calls_;
  bool stopped_ = false;
  bool closing_ = false;
  bool failing_ = false;  // said on stderr
  absl::Time last_note_ = absl::InfinitePast();
  std::thread interrupter_;
};

// The context of a call that Stop ends.
class CallContext {
 public:
  // A stream without a deadline, or a call with one.
  explicit CallContext(Session& session, absl::Duration timeout = absl::InfiniteDuration());
  ~CallContext();
  CallContext(const CallContext&) = delete;
  CallContext& operator=(const CallContext&) = delete;
  grpc::ClientContext& operator*() { return context_; }
  grpc::ClientContext* get() { return &context_; }

 private:
  Session& session_;
  grpc::ClientContext context_;
};

// When a call that failed is made again. One thread uses it.
class Retry {
 public:
  Retry(Session& session, Patience patience) : session_(session), patience_(patience) {}
  // Waits and returns true, or false when it is time to give up: not transient, stopped, patience at its
  // end. Says once on stderr that the server is away.
  bool Again(const absl::Status& error);
  // There was an answer: counts from the beginning again.
  void Succeeded();

 private:
  Session& session_;
  const Patience patience_;
  Backoff backoff_;
  absl::Time first_failure_ = absl::InfiniteFuture();
  int odd_failures_ = 0;  // in a row, other than UNAVAILABLE
};

template <class Response, class F>
absl::StatusOr<Response> Session::Call(Patience patience, const F& call) {
  Retry retry(*this, patience);
  for (;;) {
    CallContext context(*this, options_.call_timeout);
    Response response;
    const absl::Status status = service::FromGrpc(call(*context, response));
    if (status.ok()) {
      retry.Succeeded();
      return response;
    }
    if (!retry.Again(status)) return status;
  }
}

}  // namespace snapkv::launch
