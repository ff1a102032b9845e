// SPDX-License-Identifier: Apache-2.0
// Leases: taken, renewed, read through, completed, given up. The fence is (lease, attempt); the worker's name
// is no part of it, because a worker has another one after a restart of the server.
#include <algorithm>
#include <utility>

#include "runtime/service/store/sqlite_job_store.h"

namespace snapkv::service {
namespace {

absl::Status LeaseLost(const std::string& lease) {
  return ServiceError(
      Reason::kLeaseLost, "'", lease,
      "' is not the present lease of its document: it has expired, or its job was cancelled; ",
      "drop the work");
}

absl::StatusOr<std::optional<DocumentRow>> ReadLeaseRow(Database& database, const std::string& name,
                                                        LeaseName& lease) {
  if (!ParseLease(name, lease)) return std::nullopt;
  ASSIGN_OR_RETURN(Rows rows,
                   database.Query(absl::StrCat("SELECT ", kDocumentColumns, " FROM documents WHERE id = ?"),
                                  lease.document));
  ASSIGN_OR_RETURN(const bool found, rows.Next());
  if (!found) return std::nullopt;
  return ReadDocumentRow(rows);
}

// A document's parameters stand in place of the job's; a list as a whole.
v1::Parameters Merged(v1::Parameters job, const v1::Parameters& document) {
  if (document.stop_size() > 0) job.clear_stop();
  if (document.stop_token_ids_size() > 0) job.clear_stop_token_ids();
  job.MergeFrom(document);
  return job;
}

bool BelongsToCancelled(const JobRow& job) {
  return job.state == v1::Job::CANCELLING || job.state == v1::Job::CANCELLED;
}

}  // namespace

absl::StatusOr<std::optional<v1::Lease>> SqliteJobStore::Take(Transaction& transaction, JobRow* job,
                                                              const std::string& worker, int64_t deadline) {
  Database& database = transaction.database();
  DocumentRow document;
  {
    ASSIGN_OR_RETURN(Rows rows, database.Query(absl::StrCat("SELECT ", kDocumentColumns,
                                                            " FROM documents WHERE job = ? AND state = 1 "
                                                            "ORDER BY id LIMIT 1"),
                                               job->id));
    ASSIGN_OR_RETURN(const bool found, rows.Next());
    if (!found) return std::nullopt;
    document = ReadDocumentRow(rows);
  }
  LeaseName name = {document.id, RandomNumber()};
  RETURN_IF_ERROR(
      database.Run("UPDATE documents SET state = 2, attempt = ?, lease = ?, worker = ?, acquire_time = ?, "
                   "deadline = ? WHERE id = ?",
                   document.attempt + 1, name.number, worker, transaction.now(), deadline, document.id));
  if (job->state == v1::Job::QUEUED) {
    job->state = v1::Job::RUNNING;
    job->start_time = transaction.now();
    job->expire_time = 0;
  }
  job->counts.set_queued(job->counts.queued() - 1);
  job->counts.set_running(job->counts.running() + 1);
  transaction.Changed(job);
  v1::Lease lease;
  lease.set_name(LeaseText(name));
  lease.set_attempt(static_cast<int32_t>(document.attempt + 1));
  lease.set_job(job->name);
  lease.set_document_id(document.document_id);
  lease.set_size_bytes(document.size);
  lease.set_sha256(document.sha256);
  lease.set_media_type(document.media_type);
  *lease.mutable_deadline() = ToTimestamp(deadline);
  *lease.mutable_queue_time() = ToTimestamp(job->queue_time);
  ASSIGN_OR_RETURN(Rows rows,
                   database.Query("SELECT parameters FROM contents WHERE document = ?", document.id));
  ASSIGN_OR_RETURN(const bool found, rows.Next());
  if (!found || !lease.mutable_parameters()->ParseFromString(rows.Text(0))) {
    return DataLoss(database.path(), ": the parameters of a document of ", job->name,
                    " are damaged; cancel the job and submit it again");
  }
  return lease;
}

absl::StatusOr<std::vector<v1::Lease>> SqliteJobStore::AcquireLease(const std::string& worker,
                                                                    const std::string& model, int count) {
  std::vector<v1::Lease> leases;
  if (!scheduler_.HasWork(model)) return leases;  // an idle worker asks often
  RETURN_IF_ERROR(Write([&](Transaction& transaction) -> absl::Status {
    const int64_t deadline = transaction.now() + MicrosOf(options_.limits.lease);
    absl::flat_hash_set<int64_t> exhausted;
    std::map<int64_t, v1::Parameters> parameters;  // of jobs
    while (static_cast<int>(leases.size()) < count) {
      const std::optional<int64_t> id = scheduler_.Pick(model, exhausted);
      if (!id.has_value()) break;
      ASSIGN_OR_RETURN(JobRow * job, transaction.Job(*id));
      ASSIGN_OR_RETURN(std::optional<v1::Lease> lease, Take(transaction, job, worker, deadline));
      // The scheduler hears of what was taken when it is committed.
      if (!job->runnable() || !lease.has_value()) exhausted.insert(*id);
      if (!lease.has_value()) continue;
      if (!parameters.contains(*id)) {
        ASSIGN_OR_RETURN(v1::Job spec, ReadSpec(transaction.database(), *id));
        parameters[*id] = spec.parameters();
      }
      *lease->mutable_parameters() = Merged(parameters[*id], lease->parameters());
      leases.push_back(*std::move(lease));
    }
    return absl::OkStatus();
  }));
  return leases;
}

absl::StatusOr<SqliteJobStore::HeldLease> SqliteJobStore::FindLease(Transaction& transaction,
                                                                    const std::string& name,
                                                                    int32_t attempt) {
  HeldLease held;
  LeaseName lease;
  ASSIGN_OR_RETURN(std::optional<DocumentRow> document, ReadLeaseRow(transaction.database(), name, lease));
  if (!document.has_value()) return held;
  ASSIGN_OR_RETURN(JobRow * job, transaction.Job(document->job));
  if (job->deleted) return held;
  held.document = *std::move(document);
  held.job = job;
  const DocumentRow& row = held.document;
  // A lease given back keeps its number, but its attempt no longer counts.
  if (row.lease != lease.number) return held;
  if (row.state == DocumentState::kDone) {
    if (row.attempt == attempt) held.standing = LeaseStanding::kDone;
  } else if (BelongsToCancelled(*job)) {
    held.standing = LeaseStanding::kCancelled;
  } else if (row.state == DocumentState::kLeased && row.attempt == attempt) {
    held.standing = LeaseStanding::kPresent;
  }
  return held;
}

absl::Status SqliteJobStore::DropCancelled(Transaction& transaction, const HeldLease& lease) {
  if (lease.document.state != DocumentState::kLeased) return absl::OkStatus();  // was told before
  RETURN_IF_ERROR(
      transaction.database().Run("UPDATE documents SET state = 4 WHERE id = ?", lease.document.id));
  v1::Job::Counts& counts = lease.job->counts;
  counts.set_running(counts.running() - 1);
  counts.set_cancelled(counts.cancelled() + 1);
  transaction.Changed(lease.job);
  return transaction.EndIfDone(lease.job);
}

absl::StatusOr<v1::RenewLeaseResponse> SqliteJobStore::RenewLease(const std::string& worker,
                                                                  absl::Span<const v1::LeaseRenewal> leases) {
  v1::RenewLeaseResponse response;
  RETURN_IF_ERROR(Write([&](Transaction& transaction) -> absl::Status {
    const int64_t deadline = transaction.now() + MicrosOf(options_.limits.lease);
    for (const v1::LeaseRenewal& renewal : leases) {
      ASSIGN_OR_RETURN(const HeldLease held, FindLease(transaction, renewal.lease(), renewal.attempt()));
      if (held.standing == LeaseStanding::kPresent) {
        RETURN_IF_ERROR(
            transaction.database().Run("UPDATE documents SET deadline = ?, worker = ? WHERE id = ?", deadline,
                                       worker, held.document.id));
        *response.mutable_deadline() = ToTimestamp(deadline);
        continue;
      }
      const bool cancelled = held.standing == LeaseStanding::kCancelled;
      if (cancelled) RETURN_IF_ERROR(DropCancelled(transaction, held));
      v1::LeaseEvent* event = response.add_events();
      event->set_kind(cancelled ? v1::LeaseEvent::CANCELLED : v1::LeaseEvent::LOST);
      event->set_lease(renewal.lease());
      event->set_attempt(renewal.attempt());
    }
    return absl::OkStatus();
  }));
  return response;
}

absl::StatusOr<std::string> SqliteJobStore::ReadDocument(const std::string& name, int32_t attempt,
                                                         int64_t offset, int64_t max_bytes) {
  std::string data;
  DocumentRow document;
  max_bytes = std::max<int64_t>(max_bytes, 0);
  const auto read = [&](Database& database) -> absl::Status {
    LeaseName lease;
    ASSIGN_OR_RETURN(std::optional<DocumentRow> row, ReadLeaseRow(database, name, lease));
    if (!row.has_value() || row->state != DocumentState::kLeased || row->lease != lease.number ||
        row->attempt != attempt) {
      return LeaseLost(name);
    }
    document = *std::move(row);
    ASSIGN_OR_RETURN(Rows job, database.Query("SELECT state FROM jobs WHERE id = ?", document.job));
    ASSIGN_OR_RETURN(const bool found, job.Next());
    if (!found || job.Int(0) != v1::Job::RUNNING) return LeaseLost(name);
    if (offset < 0 || offset > document.size) {
      return WithFigure(ServiceError(Reason::kOffsetMismatch, "document '", document.document_id,
                                     "': offset ", offset, " lies outside its ", document.size, " bytes"),
                        "size_bytes", absl::StrCat(document.size));
    }
    if (document.uploaded) return absl::OkStatus();
    ASSIGN_OR_RETURN(Rows text, database.Query("SELECT substr(text, ?, ?) FROM contents WHERE document = ?",
                                               offset + 1, max_bytes, document.id));
    RETURN_IF_ERROR(text.Next().status());
    data = text.Text(0);
    return absl::OkStatus();
  };
  RETURN_IF_ERROR(Read(read));
  if (!document.uploaded) return data;
  absl::StatusOr<std::string> bytes =
      files_->Read(document.id, offset, std::min(max_bytes, document.size - offset));
  // The file goes when the lease does: then that is what happened.
  if (!bytes.ok()) RETURN_IF_ERROR(Read(read));
  return bytes;
}

absl::Status SqliteJobStore::Requeue(Transaction& transaction, const DocumentRow& document, JobRow* job,
                                     bool count_attempt) {
  RETURN_IF_ERROR(transaction.database().Run("UPDATE documents SET state = 1, attempt = ? WHERE id = ?",
                                             document.attempt - (count_attempt ? 0 : 1), document.id));
  job->counts.set_running(job->counts.running() - 1);
  job->counts.set_queued(job->counts.queued() + 1);
  transaction.Changed(job);
  transaction.Queued(*job);
  return absl::OkStatus();
}

absl::StatusOr<v1::Result> SqliteJobStore::Finish(Transaction& transaction, const DocumentRow& document,
                                                  JobRow* job, int64_t lease, v1::Result result) {
  Database& database = transaction.database();
  v1::Job::Counts& counts = job->counts;
  const bool failed = result.status().code() != 0;
  if (failed) {
    result.clear_summary();
    result.clear_token_ids();
    result.set_finish_reason(v1::FINISH_REASON_ERROR);
  } else {
    result.clear_status();
  }
  result.set_sequence(++job->results);
  result.set_document_id(document.document_id);
  result.set_attempt(static_cast<int32_t>(document.attempt));
  *result.mutable_create_time() = ToTimestamp(transaction.now());
  // By one clock, the server's.
  result.mutable_timings()->set_queue_ms(
      static_cast<double>(std::max<int64_t>(0, document.acquire_time - job->queue_time)) / 1000);
  RETURN_IF_ERROR(
      database.Run("INSERT INTO results (document, job, sequence, lease, result) VALUES (?, ?, ?, ?, ?)",
                   document.id, job->id, job->results, lease, Blob{result.SerializeAsString()}));
  RETURN_IF_ERROR(database.Run("UPDATE documents SET state = 3 WHERE id = ?", document.id));
  RETURN_IF_ERROR(database.Run("DELETE FROM contents WHERE document = ?", document.id));
  if (document.uploaded) transaction.RemoveFile(document.id);
  counts.set_running(counts.running() - 1);
  failed ? counts.set_failed(counts.failed() + 1) : counts.set_succeeded(counts.succeeded() + 1);
  // A worker's figures; what they are added to must not overflow.
  const auto sane = [](int64_t tokens) { return std::clamp<int64_t>(tokens, 0, int64_t{1} << 40); };
  counts.set_prompt_tokens(counts.prompt_tokens() + sane(result.usage().prompt_tokens()));
  counts.set_completion_tokens(counts.completion_tokens() + sane(result.usage().completion_tokens()));
  transaction.Changed(job);
  transaction.Finished(*job, result);
  RETURN_IF_ERROR(transaction.EndIfDone(job));
  return result;
}

absl::StatusOr<v1::Result> SqliteJobStore::FinishLease(const std::string& name, int32_t attempt,
                                                       const std::string& worker, const v1::Result& result) {
  // OK or LEASE_LOST; the end of a cancelled lease is committed either way.
  absl::StatusOr<v1::Result> answer = LeaseLost(name);
  RETURN_IF_ERROR(Write([&](Transaction& transaction) -> absl::Status {
    ASSIGN_OR_RETURN(const HeldLease held, FindLease(transaction, name, attempt));
    if (held.standing == LeaseStanding::kCancelled) return DropCancelled(transaction, held);
    if (held.standing == LeaseStanding::kLost) return absl::OkStatus();
    if (held.standing == LeaseStanding::kPresent) {
      v1::Result made = result;
      made.set_worker(worker.empty() ? held.document.worker : worker);
      ASSIGN_OR_RETURN(answer,
                       Finish(transaction, held.document, held.job, held.document.lease, std::move(made)));
      return absl::OkStatus();
    }
    // The call has been repeated, or Sweep gave up on the document (then no lease made the result).
    ASSIGN_OR_RETURN(
        Rows rows, transaction.database().Query("SELECT result FROM results WHERE document = ? AND lease = ?",
                                                held.document.id, held.document.lease));
    ASSIGN_OR_RETURN(const bool found, rows.Next());
    v1::Result committed;
    if (found && committed.ParseFromString(rows.Text(0))) answer = std::move(committed);
    return absl::OkStatus();
  }));
  return answer;
}

absl::StatusOr<v1::Result> SqliteJobStore::CompleteDocument(const v1::CompleteDocumentRequest& request,
                                                            const std::string& worker) {
  return FinishLease(request.lease(), request.attempt(), worker, request.result());
}

absl::Status SqliteJobStore::FailDocument(const v1::FailDocumentRequest& request, const std::string& worker) {
  if (!request.retry()) {
    v1::Result result = request.result();
    *result.mutable_status() = request.status();
    if (request.status().code() == 0) {
      result.mutable_status()->set_code(static_cast<int>(CodeOf(Reason::kInternal)));
      result.mutable_status()->set_reason(ReasonName(Reason::kInternal));
      result.mutable_status()->set_message("the worker reported a failure without a reason; see its log");
    }
    return FinishLease(request.lease(), request.attempt(), worker, result).status();
  }
  absl::Status answer;
  RETURN_IF_ERROR(Write([&](Transaction& transaction) -> absl::Status {
    ASSIGN_OR_RETURN(const HeldLease held, FindLease(transaction, request.lease(), request.attempt()));
    if (held.standing == LeaseStanding::kCancelled) return DropCancelled(transaction, held);
    if (held.standing == LeaseStanding::kPresent) return Requeue(transaction, held.document, held.job, false);
    // Repeated: it still waits, and nobody else has had it.
    LeaseName lease;
    const bool repeated =
        held.job != nullptr && ParseLease(request.lease(), lease) && held.document.lease == lease.number &&
        held.document.state == DocumentState::kQueued && held.document.attempt + 1 == request.attempt();
    if (!repeated) answer = LeaseLost(request.lease());
    return absl::OkStatus();
  }));
  return answer;
}

absl::Status SqliteJobStore::ReleaseLeases(const std::string& worker) {
  return Write([&](Transaction& transaction) -> absl::Status {
    std::vector<DocumentRow> documents;
    ASSIGN_OR_RETURN(Rows rows, transaction.database().Query(
                                    absl::StrCat("SELECT ", kDocumentColumns,
                                                 " FROM documents WHERE worker = ? AND state = 2"),
                                    worker));
    while (true) {
      ASSIGN_OR_RETURN(const bool found, rows.Next());
      if (!found) break;
      documents.push_back(ReadDocumentRow(rows));
    }
    for (DocumentRow& document : documents) {
      ASSIGN_OR_RETURN(JobRow * job, transaction.Job(document.job));
      if (job->state == v1::Job::CANCELLING) {
        RETURN_IF_ERROR(DropCancelled(transaction, {LeaseStanding::kCancelled, std::move(document), job}));
      } else {
        RETURN_IF_ERROR(Requeue(transaction, document, job, false));
      }
    }
    return absl::OkStatus();
  });
}

}  // namespace snapkv::service
