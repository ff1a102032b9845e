// SPDX-License-Identifier: Apache-2.0
// Metrics: what the job server tells Prometheus. Names begin with snapkv_, units are base units (seconds,
// bytes); docs/operations.md lists them. Label values come from bounded sets, never from documents or ids.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "runtime/service/store/job_store.h"

namespace snapkv::service {

// Thread-safe.
class Metrics {
 public:
  Metrics();
  ~Metrics();

  // An answered call. `method` must be one of ours.
  void RpcFinished(const char* method, absl::StatusCode code, absl::Duration took);
  void StreamOpened(const char* method);
  void StreamClosed(const char* method);
  // Streams of all methods.
  int64_t open_streams() const;
  void UploadedBytes(int64_t bytes);
  // A committed result: its outcome, tokens, cache bytes, times.
  void ObserveResult(const v1::Result& result);
  void ObserveCommit(absl::Duration took);
  void LeaseExpired(int64_t leases);
  void SetQueue(const StoreStats& stats);
  void SetWorkers(int64_t workers);

  // Serves http://ADDRESS/metrics from now on; an address that cannot be bound is FAILED_PRECONDITION.
  absl::Status Expose(const std::string& address);
  // The exposition, for tests.
  std::string Text() const;

 private:
  struct Families;
  std::unique_ptr<Families> families_;
};

}  // namespace snapkv::service
