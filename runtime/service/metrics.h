// SPDX-License-Identifier: Apache-2.0
// Metrics: what the job server measures about itself, for Prometheus to pull.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/time/time.h"
#include "runtime/service/reason.h"
#include "runtime/service/store/job_store.h"
#include "snapkv/v1/common.pb.h"
#include "snapkv/v1/jobs.pb.h"

namespace snapkv::service {

// All names begin with snapkv_; units are seconds, bytes and tokens; docs/operations.md has the table. Values
// of labels come from fixed sets (methods of snapkv.v1 and health, names of codes, reasons and states):
// whatever a client or a worker sends, the number of series is bounded. Figures of workers that are no
// numbers (NaN, infinite, negative) are left out. Thread-safe; no call blocks for longer than a short lock.
class Metrics {
 public:
  // `version` of snapkv-server, for snapkv_build_info.
  explicit Metrics(const std::string& version);
  ~Metrics();
  Metrics(const Metrics&) = delete;
  Metrics& operator=(const Metrics&) = delete;

  // --- Documents and jobs.
  // A result that was committed: documents by result and reason, tokens, cache bytes, and of those with a
  // summary time to first token (queue_ms + prefill_ms) and inter-token latency (decode_ms /
  // (completion_tokens - 1)). Call it once per result, not for repeated calls of CompleteDocument.
  void ObserveResult(const v1::Result& result);
  void JobCreated();
  // When a job reaches SUCCEEDED, FAILED, CANCELLED or EXPIRED; other states are ignored.
  void JobEnded(v1::Job::State state);
  void LeaseExpired(int64_t leases);

  // --- The queue as it is now; call it every second or so.
  void SetQueue(const StoreStats& stats);
  // Workers that are registered and alive.
  void SetWorkers(int64_t workers);

  // --- The state folder.
  void ObserveCommit(absl::Duration duration);
  void UploadedBytes(int64_t bytes);
  // Free and total bytes of the file system that holds `folder`; call it every few seconds.
  absl::Status UpdateDisk(const std::string& folder);

  // --- RPCs. `method` as gRPC names it ("/snapkv.v1.Jobs/CreateJob"); the label is "Jobs/CreateJob", "other"
  // for what is not ours. `code` is a google.rpc.Code. Durations are kept of unary methods only: a stream
  // lasts as long as its client likes. AcquireLease waits for work, up to 30 s, by design.
  void RpcFinished(const std::string& method, int code, absl::Duration duration,
                   std::optional<Reason> reason = std::nullopt);
  // Streams that are open now. Each StreamOpened needs its StreamClosed.
  void StreamOpened(const std::string& method);
  void StreamClosed(const std::string& method);

  // Serves http://ADDRESS/metrics until this object is destroyed; port 0 takes a free one. Without
  // authentication, so listen on a loopback or a private address. Returns the port. UNAVAILABLE when it
  // cannot listen there.
  absl::StatusOr<int> Expose(const std::string& address);

  // What is exposed, in Prometheus' text format.
  std::string Text() const;

 private:
  struct Families;
  std::unique_ptr<Families> families_;
};

}  // namespace snapkv::service
