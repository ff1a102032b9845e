// SPDX-License-Identifier: Apache-2.0
// Transaction: one write of the store: the jobs it changes, and what is to be done once it is on disk.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "runtime/service/store/database.h"
#include "runtime/service/store/job_store.h"
#include "runtime/service/store/rows.h"

namespace snapkv::service {

// Lives between BEGIN IMMEDIATE and COMMIT or ROLLBACK, under the store's write lock.
class Transaction {
 public:
  // `now` was read after the lock was taken.
  Transaction(Database& database, int64_t now, absl::Duration retention)
      : database_(database), now_(now), retention_(retention) {}

  Database& database() { return database_; }
  int64_t now() const { return now_; }

  // Jobs, as this transaction has left them. A pointer stays valid as long as the transaction.
  absl::StatusOr<JobRow*> Job(int64_t id);
  absl::StatusOr<JobRow*> Find(const std::string& tenant, const std::string& name);
  // Inserts it.
  absl::StatusOr<JobRow*> Add(JobRow job);
  // Its row will be written and a kJob event sent; its version grows at the first of these calls.
  void Changed(JobRow* job);

  // Gives the job its last state.
  void End(JobRow* job, v1::Job::State state);
  // RUNNING to SUCCEEDED, CANCELLING to CANCELLED, if nothing is left to wait for.
  absl::Status EndIfDone(JobRow* job);
  // Texts that nobody will read any more, or (`everything`) the job itself, go step by step in Sweep.
  absl::Status Purge(int64_t job, bool everything);

  // From now on nobody finds it; its parts go in Sweep.
  absl::Status Delete(JobRow* job);

  // To be given to the listener after the commit.
  void Queued(const JobRow& job);
  void Finished(const JobRow& job, const v1::Result& result);
  void LeaseGone(const DocumentRow& document, const JobRow& job, v1::LeaseEvent::Kind kind);
  // A document's file, to be removed after the commit.
  void RemoveFile(int64_t document) { files_.push_back(document); }

  // Writes the changed jobs. Then come COMMIT and these.
  absl::Status Save();
  const std::vector<JobRow>& saved() const { return saved_; }
  std::vector<StoreEvent>& events() { return events_; }
  const std::vector<int64_t>& files() const { return files_; }

 private:
  struct Loaded {
    JobRow row;
    bool changed = false;
    bool created = false;
    bool ended = false;
  };

  Database& database_;
  const int64_t now_;
  const absl::Duration retention_;
  std::map<int64_t, Loaded> jobs_;
  std::vector<JobRow> saved_;
  std::vector<StoreEvent> events_;
  std::vector<int64_t> files_;
};

}  // namespace snapkv::service
