// SPDX-License-Identifier: Apache-2.0
// SqliteJobStore: the JobStore on SQLite and files.
//
// Inline documents (at most 1 MiB per job) are kept in the database: with the job in one transaction, and
// small. Uploads are files. Locks, always in this order: a document's upload lock, the write lock, the
// scheduler's own. A reader has its own connection and takes none of them.
#pragma once

#include <array>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "runtime/service/store/blob_files.h"
#include "runtime/service/store/database.h"
#include "runtime/service/store/job_store.h"
#include "runtime/service/store/scheduler.h"
#include "runtime/service/store/transaction.h"

namespace snapkv::service {

class SqliteJobStore final : public JobStore {
 public:
  static absl::StatusOr<std::unique_ptr<SqliteJobStore>> Open(StoreOptions options);
  ~SqliteJobStore() override;

  void SetListener(std::function<void(const StoreEvent&)> listener) override;
  void SetCommitObserver(std::function<void(absl::Duration)> observer) override;
  absl::StatusOr<v1::Job> CreateJob(const std::string& tenant, const v1::CreateJobRequest& request) override;
  absl::StatusOr<v1::UploadStatus> BeginUpload(const std::string& tenant,
                                               const v1::UploadHeader& header) override;
  absl::StatusOr<v1::UploadStatus> Append(const std::string& tenant, const std::string& job,
                                          const std::string& document_id, const v1::Chunk& chunk) override;
  absl::StatusOr<v1::UploadStatus> GetUpload(const std::string& tenant, const std::string& job,
                                             const std::string& document_id) override;
  absl::StatusOr<v1::Job> SealJob(const std::string& tenant, const std::string& job) override;
  absl::StatusOr<v1::Job> CancelJob(const std::string& tenant, const std::string& job,
                                    const std::string& reason) override;
  absl::Status DeleteJob(const std::string& tenant, const std::string& job) override;
  absl::StatusOr<v1::Job> GetJob(const std::string& tenant, const std::string& job) override;
  absl::StatusOr<v1::ListJobsResponse> ListJobs(const std::string& tenant,
                                                const v1::ListJobsRequest& request) override;
  absl::StatusOr<std::vector<v1::Result>> Results(const std::string& tenant, const std::string& job,
                                                  int64_t after, int count) override;
  absl::StatusOr<std::vector<v1::Lease>> AcquireLease(const std::string& worker, const std::string& model,
                                                      int count) override;
  absl::StatusOr<v1::RenewLeaseResponse> RenewLease(const std::string& worker,
                                                    absl::Span<const v1::LeaseRenewal> leases) override;
  absl::StatusOr<std::string> ReadDocument(const std::string& lease, int32_t attempt, int64_t offset,
                                           int64_t max_bytes) override;
  absl::StatusOr<v1::Result> CompleteDocument(const v1::CompleteDocumentRequest& request,
                                              const std::string& worker) override;
  absl::Status FailDocument(const v1::FailDocumentRequest& request, const std::string& worker) override;
  absl::StatusOr<int64_t> Sweep() override;
  absl::Status ReleaseLeases(const std::string& worker) override;
  absl::StatusOr<StoreStats> Stats() override;

 private:
  static constexpr int kReaders = 4;

  // Why a lease is not what its holder believes.
  enum class LeaseStanding : uint8_t { kPresent, kCancelled, kLost, kDone };
  struct HeldLease {
    LeaseStanding standing = LeaseStanding::kLost;
    DocumentRow document;
    JobRow* job = nullptr;  // null: there is no such document any more
  };

  explicit SqliteJobStore(StoreOptions options);

  // store.cc: runs `body` in one transaction. An error of body, or of the commit, leaves nothing changed.
  absl::Status Write(absl::FunctionRef<absl::Status(Transaction&)> body);
  absl::Status WriteLocked(absl::FunctionRef<absl::Status(Transaction&)> body,
                           std::vector<StoreEvent>& events, std::vector<int64_t>& files,
                           std::optional<absl::Duration>& commit_time);
  // Runs `body` on one snapshot, beside writes.
  absl::Status Read(absl::FunctionRef<absl::Status(Database&)> body);
  absl::Status Initialize();
  absl::Status RemoveOrphans();

  // jobs.cc
  absl::Status CheckRoom(const std::string& tenant) const;
  absl::StatusOr<JobRow*> AddJob(Transaction& transaction, const std::string& tenant,
                                 const v1::CreateJobRequest& request);

  // uploads.cc
  absl::StatusOr<DocumentRow> FindUpload(const std::string& tenant, const std::string& job,
                                         const std::string& document_id);
  // The document of a complete upload is not what was announced: forget it. Returns `reason`.
  absl::Status DropUpload(const DocumentRow& document, absl::Status reason);
  absl::Status CheckUpload(const DocumentRow& document);
  std::mutex& UploadLock(int64_t document) { return upload_locks_[document % upload_locks_.size()]; }

  // leases.cc
  absl::StatusOr<HeldLease> FindLease(Transaction& transaction, const std::string& name, int32_t attempt);
  absl::StatusOr<std::optional<v1::Lease>> Take(Transaction& transaction, JobRow* job,
                                                const std::string& worker, int64_t deadline);
  // Ends a lease whose job was cancelled.
  absl::Status DropCancelled(Transaction& transaction, const HeldLease& lease);
  // Puts a leased document back into the queue.
  absl::Status Requeue(Transaction& transaction, const DocumentRow& document, JobRow* job,
                       bool count_attempt);
  // Commits the result of a leased document; `lease`: 0 when no worker made it.
  absl::StatusOr<v1::Result> Finish(Transaction& transaction, const DocumentRow& document, JobRow* job,
                                    int64_t lease, v1::Result result);
  // A final result by its lease; LEASE_LOST.
  absl::StatusOr<v1::Result> FinishLease(const std::string& name, int32_t attempt, const std::string& worker,
                                         const v1::Result& result);

  // sweep.cc: each one bounded step; `left` is set when there is more to do.
  absl::Status SweepLeases(Transaction& transaction, int64_t& expired);
  absl::Status SweepJobs(Transaction& transaction);
  absl::Status SweepRequests(Transaction& transaction);
  absl::Status SweepPurges(Transaction& transaction, bool& left);

  const StoreOptions options_;
  std::function<void(const StoreEvent&)> listener_;
  std::function<void(absl::Duration)> commit_observer_;
  int lock_fd_ = -1;
  std::optional<BlobFiles> files_;
  std::string token_secret_;
  Scheduler scheduler_;

  std::mutex write_mutex_;
  std::unique_ptr<Database> writer_;

  std::mutex readers_mutex_;
  std::condition_variable reader_free_;
  std::vector<std::unique_ptr<Database>> readers_;  // those not in use

  std::array<std::mutex, 64> upload_locks_;
};

// A random number that no one can guess.
int64_t RandomNumber();

}  // namespace snapkv::service
