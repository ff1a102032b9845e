// SPDX-License-Identifier: Apache-2.0
// What time does: leases and jobs expire, what has been kept long enough goes.
#include <utility>

#include "runtime/service/store/sqlite_job_store.h"

namespace snapkv::service {
namespace {

// Rows of one transaction: some 10 ms under the write lock.
constexpr int64_t kBatch = 256;
// Transactions of one call that empty jobs.
constexpr int kPurgeSteps = 8;

}  // namespace

absl::Status SqliteJobStore::SweepLeases(Transaction& transaction, int64_t& expired) {
  std::vector<DocumentRow> documents;
  {
    ASSIGN_OR_RETURN(Rows rows,
                     transaction.database().Query(absl::StrCat("SELECT ", kDocumentColumns,
                                                               " FROM documents WHERE state = 2 AND deadline "
                                                               "<= ? ORDER BY deadline LIMIT ?"),
                                                  transaction.now(), kBatch));
    while (true) {
      ASSIGN_OR_RETURN(const bool found, rows.Next());
      if (!found) break;
      documents.push_back(ReadDocumentRow(rows));
    }
  }
  expired = static_cast<int64_t>(documents.size());
  for (const DocumentRow& document : documents) {
    ASSIGN_OR_RETURN(JobRow * job, transaction.Job(document.job));
    if (job->state == v1::Job::CANCELLING) {
      RETURN_IF_ERROR(DropCancelled(transaction, {LeaseStanding::kCancelled, document, job}));
      continue;
    }
    transaction.LeaseGone(document, *job, v1::LeaseEvent::LOST);
    if (document.attempt < options_.limits.max_attempts) {
      RETURN_IF_ERROR(Requeue(transaction, document, job, true));
      continue;
    }
    v1::Result result;
    result.mutable_status()->set_code(static_cast<int>(CodeOf(Reason::kAttemptsExhausted)));
    result.mutable_status()->set_reason(ReasonName(Reason::kAttemptsExhausted));
    result.mutable_status()->set_message(absl::StrCat(
        "given up after ", document.attempt,
        " attempts (--max-attempts): every worker that took the document was lost; see the workers' "
        "logs, and submit it again"));
    RETURN_IF_ERROR(Finish(transaction, document, job, 0, std::move(result)).status());
  }
  return absl::OkStatus();
}

absl::Status SqliteJobStore::SweepJobs(Transaction& transaction) {
  std::vector<int64_t> jobs;
  {
    ASSIGN_OR_RETURN(Rows rows, transaction.database().Query(
                                    "SELECT id FROM jobs WHERE expire_time <= ? ORDER BY expire_time LIMIT ?",
                                    transaction.now(), kBatch));
    while (true) {
      ASSIGN_OR_RETURN(const bool found, rows.Next());
      if (!found) break;
      jobs.push_back(rows.Int(0));
    }
  }
  for (const int64_t id : jobs) {
    ASSIGN_OR_RETURN(JobRow * job, transaction.Job(id));
    if (job->ended()) {
      RETURN_IF_ERROR(transaction.Delete(job));
      continue;
    }
    // Only jobs without any lease or result have an expire_time and have not ended.
    job->status.set_code(static_cast<int>(absl::StatusCode::kDeadlineExceeded));
    job->status.set_reason("EXPIRED");
    job->status.set_message(absl::StrCat("not ", job->state == v1::Job::UPLOADING ? "sealed" : "begun",
                                         " within ", absl::FormatDuration(options_.limits.job_ttl),
                                         " (--job-ttl); submit it again"));
    job->counts.set_cancelled(job->counts.documents());
    job->counts.set_queued(0);
    transaction.End(job, v1::Job::EXPIRED);
    RETURN_IF_ERROR(transaction.Purge(id, false));
  }
  return absl::OkStatus();
}

absl::Status SqliteJobStore::SweepRequests(Transaction& transaction) {
  const int64_t ttl = MicrosOf(options_.limits.request_id_ttl);
  return transaction.database().Run(
      "DELETE FROM requests WHERE (tenant, request_id) IN (SELECT tenant, request_id FROM requests WHERE "
      "create_time <= ? LIMIT ?)",
      transaction.now() - ttl, kBatch);
}

absl::Status SqliteJobStore::SweepPurges(Transaction& transaction, bool& left) {
  Database& database = transaction.database();
  int64_t job = 0, after = 0;
  bool everything = false;
  {
    ASSIGN_OR_RETURN(Rows rows,
                     database.Query("SELECT job, everything, after FROM purges ORDER BY job LIMIT 1"));
    ASSIGN_OR_RETURN(left, rows.Next());
    if (!left) return absl::OkStatus();
    job = rows.Int(0);
    everything = rows.Int(1) != 0;
    after = rows.Int(2);
  }
  std::vector<DocumentRow> documents;
  {
    ASSIGN_OR_RETURN(
        Rows rows,
        database.Query(absl::StrCat("SELECT ", kDocumentColumns,
                                    " FROM documents WHERE job = ? AND id > ? ORDER BY id LIMIT ?"),
                       job, after, kBatch));
    while (true) {
      ASSIGN_OR_RETURN(const bool found, rows.Next());
      if (!found) break;
      documents.push_back(ReadDocumentRow(rows));
    }
  }
  for (const DocumentRow& document : documents) {
    after = document.id;
    RETURN_IF_ERROR(database.Run("DELETE FROM contents WHERE document = ?", document.id));
    if (document.uploaded) transaction.RemoveFile(document.id);
    if (!everything) {
      // Not kDone: a start that finds its file may remove it.
      if (document.state != DocumentState::kDone) {
        RETURN_IF_ERROR(database.Run("UPDATE documents SET state = 4 WHERE id = ?", document.id));
      }
      continue;
    }
    RETURN_IF_ERROR(database.Run("DELETE FROM results WHERE document = ?", document.id));
    RETURN_IF_ERROR(database.Run("DELETE FROM documents WHERE id = ?", document.id));
  }
  if (static_cast<int64_t>(documents.size()) == kBatch) {
    return database.Run("UPDATE purges SET after = ? WHERE job = ?", after, job);
  }
  RETURN_IF_ERROR(database.Run("DELETE FROM purges WHERE job = ?", job));
  if (!everything) return absl::OkStatus();
  RETURN_IF_ERROR(database.Run("DELETE FROM labels WHERE job = ?", job));
  RETURN_IF_ERROR(database.Run("DELETE FROM job_specs WHERE job = ?", job));
  return database.Run("DELETE FROM jobs WHERE id = ?", job);
}

absl::StatusOr<int64_t> SqliteJobStore::Sweep() {
  int64_t expired = 0;
  RETURN_IF_ERROR(Write([&](Transaction& transaction) { return SweepLeases(transaction, expired); }));
  RETURN_IF_ERROR(Write([&](Transaction& transaction) { return SweepJobs(transaction); }));
  RETURN_IF_ERROR(Write([&](Transaction& transaction) { return SweepRequests(transaction); }));
  bool left = true;
  for (int i = 0; i < kPurgeSteps && left; ++i) {
    RETURN_IF_ERROR(Write([&](Transaction& transaction) { return SweepPurges(transaction, left); }));
  }
  return expired;
}

}  // namespace snapkv::service
