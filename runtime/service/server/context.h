// SPDX-License-Identifier: Apache-2.0
// ServiceContext: what all services of one server share.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "absl/time/time.h"
#include "runtime/service/metrics.h"
#include "runtime/service/server/executor.h"
#include "runtime/service/server/tenants.h"
#include "runtime/service/store/job_store.h"
#include "snapkv/v1/models.pb.h"

namespace snapkv::service {

class WatchHub;
class WorkerRegistry;
class InteractiveQueue;
class LeaseDesk;

// Each a flag of snapkv-server, beside StoreLimits.
struct ServiceLimits {
  int64_t max_message_bytes = 4 << 20;
  int64_t max_chunk_bytes = 1 << 20;
  int64_t max_inline_bytes = 1 << 20;
  int64_t max_streams = 2'000;      // of WatchJob, StreamResults and Summarize together
  int64_t max_interactive = 1'000;  // documents of Summarize that wait or are worked on
  absl::Duration heartbeat = absl::Seconds(15);
};

// Pointers outlive every call.
struct ServiceContext {
  const StoreLimits& store_limits;
  const ServiceLimits& limits;
  JobStore& store;
  const Tenants& tenants;
  Metrics& metrics;
  Executor& writers;  // calls that change the store
  Executor& readers;  // calls that only read it
  WorkerRegistry& registry;
  WatchHub& hub;
  InteractiveQueue& interactive;
  LeaseDesk& desk;
  std::string default_model;  // models/{model}, for jobs that name none
  std::atomic<bool> draining{false};
  std::atomic<int64_t> open_streams{0};

  // `method` as gRPC names it: /snapkv.v1.Jobs/CreateJob.
  void RpcFinished(const char* method, const absl::Status& status, absl::Duration took) {
    metrics.RpcFinished(method, static_cast<int>(status.code()), took, ReasonOf(status));
  }
  void StreamOpened(const char* method) {
    ++open_streams;
    metrics.StreamOpened(method);
  }
  void StreamClosed(const char* method) {
    --open_streams;
    metrics.StreamClosed(method);
  }

  v1::Limits Limits() const {
    v1::Limits result;
    result.set_max_message_bytes(limits.max_message_bytes);
    result.set_max_chunk_bytes(limits.max_chunk_bytes);
    result.set_max_document_bytes(store_limits.max_document_bytes);
    result.set_max_inline_bytes(limits.max_inline_bytes);
    result.set_max_job_documents(store_limits.max_job_documents);
    result.set_max_job_bytes(store_limits.max_job_bytes);
    result.set_max_queued_jobs(store_limits.max_queued_jobs);
    result.set_max_tenant_jobs(store_limits.max_tenant_jobs);
    return result;
  }
  // DRAINING, once the server is about to end.
  absl::Status CheckNotDraining() const {
    if (!draining) return absl::OkStatus();
    return WithRetryDelay(
        ServiceError(Reason::kDraining, "the server is about to end; try again in a moment"),
        absl::Seconds(5));
  }
};

}  // namespace snapkv::service
