// SPDX-License-Identifier: Apache-2.0
// FakeWorkers: a job server of one purpose, in this process. It hands out documents under leases, fences late
// results off as the real one does, and misbehaves on request.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "grpcpp/grpcpp.h"
#include "kernels/base/status.h"
#include "snapkv/v1/workers.grpc.pb.h"

namespace snapkv::testing {

// What a document of the fake was, and what has become of it.
struct FakeDocument {
  // As given.
  std::string id{};
  std::string content{};
  v1::Parameters parameters{};
  std::string media_type{};
  bool interactive = false;
  std::string sha256{};  // "": of the content
  // As it went.
  int attempts = 0;
  int renewals = 0;
  int handed_back = 0;                   // FailDocument with retry
  std::vector<v1::Progress> progress{};  // of its renewals
  std::string deltas{};
  bool deltas_ended = false;  // before the result came
  int results = 0;            // accepted
  bool completed = false;     // CompleteDocument, not FailDocument
  v1::Result result{};        // status: of FailDocument
  int refused = 0;            // LEASE_LOST
};

// Thread-safe.
class FakeWorkers final : public v1::Workers::Service {
 public:
  struct Options {
    std::chrono::milliseconds lease{2000};
    int64_t chunk_bytes = 100;
    std::string fingerprint{};  // of the model; "": any
    std::string token{};        // that callers must bring; "": none
  };
  FakeWorkers();  // listens
  explicit FakeWorkers(Options options);
  ~FakeWorkers() override;

  std::string address() const;
  // No server listens on the port any more; connections are cut.
  void Stop();
  // It listens again; `forget`: the workers are unknown.
  void Start(bool forget);

  void Add(const std::string& id, const std::string& content);
  void Add(FakeDocument document);
  FakeDocument document(const std::string& id) const;
  // Documents with a result.
  int done() const;
  std::vector<v1::Worker> registered() const;  // as often as they registered
  int drains_seen() const;                     // calls of AcquireLease since Drain()

  // By WatchLeases, while the lease is held; by RenewLease otherwise.
  void Cancel(const std::string& id);
  void Lose(const std::string& id);
  void Drain();
  bool watched() const;  // a watch is open
  // Only by RenewLease.
  void set_quiet(bool quiet);

  // The next calls of this method ("AcquireLease") fail.
  void Fail(const std::string& method, const absl::Status& status, int calls = 1);
  // Streams of ReadDocument break after so many bytes, the next `times`; 0 bytes corrupts the content
  // instead.
  void BreakReads(int64_t after_bytes, int times);
  // Largest number of leases held at once.
  int most_held() const;
  // A worker may read documents only while it is true.
  void set_readable(bool readable);

  // Waits until `done`, called with the lock held, is true; false after `timeout`.
  bool WaitUntil(const std::function<bool()>& done,
                 std::chrono::milliseconds timeout = std::chrono::seconds(60)) const;
  bool WaitForDone(int count) const;

  grpc::Status RegisterWorker(grpc::ServerContext*, const v1::RegisterWorkerRequest*, v1::Worker*) override;
  grpc::Status AcquireLease(grpc::ServerContext*, const v1::AcquireLeaseRequest*,
                            v1::AcquireLeaseResponse*) override;
  grpc::Status ReadDocument(grpc::ServerContext*, const v1::ReadDocumentRequest*,
                            grpc::ServerWriter<v1::Chunk>*) override;
  grpc::Status RenewLease(grpc::ServerContext*, const v1::RenewLeaseRequest*,
                          v1::RenewLeaseResponse*) override;
  grpc::Status StreamDeltas(grpc::ServerContext*, grpc::ServerReader<v1::StreamDeltasRequest>*,
                            google::protobuf::Empty*) override;
  grpc::Status WatchLeases(grpc::ServerContext*, const v1::WatchLeasesRequest*,
                           grpc::ServerWriter<v1::LeaseEvent>*) override;
  grpc::Status CompleteDocument(grpc::ServerContext*, const v1::CompleteDocumentRequest*,
                                google::protobuf::Empty*) override;
  grpc::Status FailDocument(grpc::ServerContext*, const v1::FailDocumentRequest*,
                            google::protobuf::Empty*) override;

 private:
  using Clock = std::chrono::system_clock;
  enum class State : uint8_t { kQueued, kLeased, kDone };
  struct Entry {
    FakeDocument document;
    State state = State::kQueued;
    std::string lease;  // of its present attempt
    Clock::time_point deadline;
    v1::LeaseEvent::Kind gone = v1::LeaseEvent::KIND_UNSPECIFIED;  // and the worker is to be told
    bool told = false;
  };
  // Begins every call: scripted errors, the token, an unknown worker (unless "").
  absl::Status EnterLocked(const grpc::ServerContext& context, const std::string& method,
                           const std::string& worker);
  Entry* FindLocked(const std::string& lease);
  // The entry of a lease that is its document's present one, or LEASE_LOST.
  absl::StatusOr<Entry*> HeldLocked(const std::string& lease, int32_t attempt);
  void SweepLocked();

  const Options options_;
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  // All guarded by mutex_.
  std::vector<Entry> entries_;
  std::vector<v1::Worker> registered_;
  std::map<std::string, bool> known_;  // workers
  std::map<std::string, std::deque<absl::Status>> failures_;
  std::deque<v1::LeaseEvent> broadcast_;
  int watches_ = 0, next_name_ = 1, most_held_ = 0, since_drain_ = 0;
  bool quiet_ = false, stopping_ = false, draining_ = false, readable_ = true;
  int64_t break_after_ = -1;
  int breaks_ = 0;
};

}  // namespace snapkv::testing
