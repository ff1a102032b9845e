// SPDX-License-Identifier: Apache-2.0
// JobStore: the durable queue. Jobs, their documents, leases and results in one SQLite database; documents
// that came inline (at most 1 MiB of a job) are in it, uploads are files beside it.
//
// Guarantees, whatever is killed at whatever moment:
//   * what a call has answered is on disk: WAL with synchronous=FULL; the bytes of an upload are fsynced
//     before they count as committed, its file is renamed and its folder fsynced before it is complete;
//   * every document of a job that ran has exactly one result: a result and the change of its document's
//     state are one transaction, unique(job, document), and (lease, attempt) fences late workers off;
//   * sequences of a job's results are 1, 2, ... without gaps.
//
// A document's text is removed when it has its result, or when its job has ended.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "absl/types/span.h"
#include "runtime/service/reason.h"
#include "snapkv/v1/common.pb.h"
#include "snapkv/v1/jobs.pb.h"
#include "snapkv/v1/workers.pb.h"

namespace snapkv::service {

// Bytes and counts; each a flag of snapkv-server.
struct StoreLimits {
  int64_t max_document_bytes = int64_t{16} << 20;
  int64_t max_job_documents = 50'000;
  int64_t max_job_bytes = 200'000'000;
  int64_t max_queued_jobs = 10'000;  // not ended, all tenants: QUEUE_FULL
  int64_t max_tenant_jobs = 0;       // not ended, of one tenant: QUOTA_EXCEEDED; 0: no limit of its own
  int max_attempts = 3;
  absl::Duration lease = absl::Seconds(30);
  absl::Duration job_ttl = absl::Hours(24 * 7);     // to be sealed and begun: EXPIRED
  absl::Duration retention = absl::Hours(24 * 30);  // of ended jobs
  absl::Duration request_id_ttl = absl::Hours(24);
  absl::Duration aging = absl::Minutes(1);  // waiting this long raises a job's priority by 1
};

struct StoreOptions {
  std::string folder;  // created; one process at a time (a lock file): FAILED_PRECONDITION
  StoreLimits limits;
  std::function<absl::Time()> clock = absl::Now;
};

// What has changed, for those who watch. Given after the commit, on the thread of the call that changed it,
// without locks held.
struct StoreEvent {
  enum class Kind : uint8_t {
    kJob,        // state, counts or results of `job`
    kResult,     // a result was committed: `result`, without summary and token_ids
    kQueued,     // documents of `model` wait for a worker
    kLeaseGone,  // `lease` of `worker` was cancelled or has expired
  };
  Kind kind = Kind::kJob;
  std::string job;     // jobs/{job}
  std::string model;   // models/{model}
  std::string worker;  // workers/{worker}
  // kJob: the change is that the job was created, or that it reached its last state (else STATE_UNSPECIFIED).
  bool created = false;
  v1::Job::State ended = v1::Job::STATE_UNSPECIFIED;
  v1::Result result;
  v1::LeaseEvent lease;
};

// Figures for metrics.
struct StoreStats {
  int64_t jobs_waiting = 0;  // UPLOADING or QUEUED
  int64_t jobs_running = 0;
  int64_t documents_queued = 0;
  int64_t documents_leased = 0;
  absl::Duration oldest_queued;  // age of the document that has waited longest; zero: none
};

// Thread-safe; calls block for the disk (a millisecond) and must not run on a thread that serves health
// checks. Writes go through one connection, BEGIN IMMEDIATE; reads through another and do not wait for
// writes. Requests are checked by the caller (validate.h) except for what only the store knows. Names are
// full resource names. `tenant` restricts to the caller's jobs: others are JOB_NOT_FOUND. A full disk is
// STORAGE_FULL with a retry delay; nothing is changed then, and the store goes on when there is room.
class JobStore {
 public:
  // Creates or opens. A newer schema is refused (FAILED_PRECONDITION, both numbers), older ones are brought
  // up to date. Leases that were open stay valid until their deadline, so that workers may go on over a
  // restart; their owners are known by name only.
  static absl::StatusOr<std::unique_ptr<JobStore>> Open(StoreOptions options);
  virtual ~JobStore() = default;

  // Called for every change; set once, before the first call.
  virtual void SetListener(std::function<void(const StoreEvent&)> listener) = 0;

  // --- Jobs.
  // `content_sha256` identifies the request's content for request_id. Documents are all of the job's when not
  // `open`.
  virtual absl::StatusOr<v1::Job> CreateJob(const std::string& tenant,
                                            const v1::CreateJobRequest& request) = 0;
  // Where the upload of this header stands; begins it if it is new. JOB_STATE when the job is not UPLOADING,
  // DOCUMENT_ID_DUPLICATE when another header was given for the id, JOB_TOO_LARGE, DOCUMENT_TOO_LARGE.
  virtual absl::StatusOr<v1::UploadStatus> BeginUpload(const std::string& tenant,
                                                       const v1::UploadHeader& header) = 0;
  // Appends; `offset` must equal the committed size (OFFSET_MISMATCH with committed_size). On disk when it
  // returns. The last byte completes the document: CHECKSUM_MISMATCH drops what was there; DOCUMENT_NOT_UTF8
  // and DOCUMENT_EMPTY likewise.
  virtual absl::StatusOr<v1::UploadStatus> Append(const std::string& tenant, const std::string& job,
                                                  const std::string& document_id, const v1::Chunk& chunk) = 0;
  virtual absl::StatusOr<v1::UploadStatus> GetUpload(const std::string& tenant, const std::string& job,
                                                     const std::string& document_id) = 0;
  virtual absl::StatusOr<v1::Job> SealJob(const std::string& tenant, const std::string& job) = 0;
  virtual absl::StatusOr<v1::Job> CancelJob(const std::string& tenant, const std::string& job,
                                            const std::string& reason) = 0;
  virtual absl::Status DeleteJob(const std::string& tenant, const std::string& job) = 0;
  virtual absl::StatusOr<v1::Job> GetJob(const std::string& tenant, const std::string& job) = 0;
  // request.page_size is 1 to 1,000 here.
  virtual absl::StatusOr<v1::ListJobsResponse> ListJobs(const std::string& tenant,
                                                        const v1::ListJobsRequest& request) = 0;
  // At most `count` results with sequence > after, ascending, and at most about 1 MiB of them (but at least
  // one).
  virtual absl::StatusOr<std::vector<v1::Result>> Results(const std::string& tenant, const std::string& job,
                                                          int64_t after, int count) = 0;

  // --- Leases.
  // Up to `count` documents of jobs for `model`: tenants in turn, in a tenant the job with the highest aged
  // priority, then the older one, in a job its documents in their order. Moves QUEUED jobs to RUNNING. The
  // deadline is computed after the lock is held.
  virtual absl::StatusOr<std::vector<v1::Lease>> AcquireLease(const std::string& worker,
                                                              const std::string& model, int count) = 0;
  // Renews; those that are gone (LOST: expired and reassigned or completed; CANCELLED, which ends the lease)
  // come back as events. A lease whose deadline has passed is present until Sweep takes it. The lease becomes
  // `worker`'s: after a restart of the server its owner has another name.
  virtual absl::StatusOr<v1::RenewLeaseResponse> RenewLease(const std::string& worker,
                                                            absl::Span<const v1::LeaseRenewal> leases) = 0;
  // Up to `max_bytes` of the leased document from `offset`; empty at its end. LEASE_LOST, OUT_OF_RANGE /
  // OFFSET_MISMATCH.
  virtual absl::StatusOr<std::string> ReadDocument(const std::string& lease, int32_t attempt, int64_t offset,
                                                   int64_t max_bytes) = 0;
  // The result, with its sequence, in one transaction with the document's state; the last one ends the job.
  // LEASE_LOST for any lease that is not the document's present one, and the end of a cancelled one; OK for a
  // repeated call. `worker` may be empty: the lease's owner.
  virtual absl::StatusOr<v1::Result> CompleteDocument(const v1::CompleteDocumentRequest& request,
                                                      const std::string& worker) = 0;
  // Final: as CompleteDocument with the status. Retry: queued again, without counting the attempt.
  virtual absl::Status FailDocument(const v1::FailDocumentRequest& request, const std::string& worker) = 0;

  // --- Time. Called every second or so.
  // Requeues (or, after max_attempts, fails with ATTEMPTS_EXHAUSTED) documents whose lease has expired,
  // expires jobs, deletes what is past its retention, removes files nobody refers to. Bounded work per call.
  // Returns the number of leases that expired.
  virtual absl::StatusOr<int64_t> Sweep() = 0;
  // Hands back all leases of a worker that has said goodbye.
  virtual absl::Status ReleaseLeases(const std::string& worker) = 0;
  virtual absl::StatusOr<StoreStats> Stats() = 0;
  // Duration of the latest commits, for the metric: called after each commit if set; set once, before the
  // first call.
  virtual void SetCommitObserver(std::function<void(absl::Duration)> observer) = 0;
};

}  // namespace snapkv::service
