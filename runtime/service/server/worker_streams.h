// SPDX-License-Identifier: Apache-2.0
// The streams of workers: their documents, their leases' events, and the text they send.
#pragma once

#include <mutex>
#include <string>

#include "runtime/service/server/call.h"
#include "runtime/service/server/worker_registry.h"

namespace snapkv::service {

// A document in chunks; the next one is read when the one before is on its way.
class DocumentStream final : public OutStream<v1::Chunk> {
 public:
  DocumentStream(ServiceContext& service, grpc::CallbackServerContext* context,
                 const v1::ReadDocumentRequest& request);
  // Reads the first chunk.
  void Begin();

 private:
  void OnDrained() override { Begin(); }
  void Read();

  const v1::ReadDocumentRequest request_;
  int64_t offset_;  // of the next chunk; one read at a time
};

class LeaseStream final : public OutStream<v1::LeaseEvent>, public LeaseEventSink {
 public:
  LeaseStream(ServiceContext& service, grpc::CallbackServerContext* context);
  void Put(const v1::LeaseEvent& event) override;
  void OnTick(absl::Time now) override;

 private:
  std::mutex mutex_;
  absl::Time last_sent_ = absl::Now();  // guarded by mutex_
};

// Text of interactive documents from one worker.
class DeltaCall final : public grpc::ServerReadReactor<v1::StreamDeltasRequest> {
 public:
  // An error ends it at once.
  DeltaCall(ServiceContext& service, grpc::CallbackServerContext* context, const absl::Status& status);

 private:
  void OnReadDone(bool ok) override;
  void OnDone() override;
  void End(const absl::Status& status);

  ServiceContext& service_;
  grpc::CallbackServerContext* const context_;
  const absl::Time start_ = absl::Now();
  v1::StreamDeltasRequest message_;
};

}  // namespace snapkv::service
