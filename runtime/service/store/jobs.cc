// SPDX-License-Identifier: Apache-2.0
// The life of a job: created, sealed, cancelled, deleted, read.
#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "runtime/hash/sha256.h"
#include "runtime/service/store/sqlite_job_store.h"
#include "runtime/service/validate.h"

namespace snapkv::service {
namespace {

constexpr absl::Duration kQueueRetry = absl::Seconds(30);
constexpr int kNamedDocuments = 10;             // in a message
constexpr int64_t kMaxResultBytes = 1'048'576;  // of one call of Results

std::string BytesOf(const std::array<uint8_t, 32>& digest) {
  return std::string(digest.begin(), digest.end());
}

// What two requests with one request_id must have in common.
std::string ContentHash(v1::CreateJobRequest request) {
  request.clear_request_id();
  request.clear_validate_only();
  if (request.has_job()) ClearOutputOnly(*request.mutable_job());
  return BytesOf(runtime::Sha256(DeterministicBytes(request)));
}

// What is kept of a request's job beside its columns.
v1::Job SpecOf(const v1::Job& job) {
  v1::Job spec;
  if (job.has_parameters()) *spec.mutable_parameters() = job.parameters();
  *spec.mutable_labels() = job.labels();
  return spec;
}

absl::StatusOr<JobRow> NewRow(const std::string& tenant, const v1::CreateJobRequest& request,
                              const StoreLimits& limits, int64_t now) {
  JobRow row;
  row.tenant = tenant;
  row.model = request.job().model();
  row.display_name = request.job().display_name();
  row.priority = request.job().priority();
  row.state = request.open() ? v1::Job::UPLOADING : v1::Job::QUEUED;
  row.create_time = now;
  if (!request.open()) row.queue_time = now;
  if (limits.job_ttl < absl::InfiniteDuration()) {
    row.expire_time = now + MicrosOf(limits.job_ttl);
  }
  int64_t bytes = 0;
  for (const v1::Document& document : request.documents()) {
    bytes += static_cast<int64_t>(document.content().size());
  }
  row.counts.set_documents(request.documents_size());
  row.counts.set_queued(request.documents_size());
  row.counts.set_bytes(bytes);
  RETURN_IF_ERROR(CheckJobSize(request.documents_size(), bytes, limits));
  return row;
}

absl::Status AddDocument(Database& database, const JobRow& job, const v1::Document& document) {
  const std::string& text = document.content();
  const absl::Status added = database.Run(
      "INSERT INTO documents (job, document_id, state, uploaded, media_type, size, sha256, committed) "
      "VALUES (?, ?, 1, 0, ?, ?, ?, ?)",
      job.id, document.document_id(), MediaTypeOf(document.media_type()), static_cast<int64_t>(text.size()),
      Blob{BytesOf(runtime::Sha256(text))}, static_cast<int64_t>(text.size()));
  if (absl::IsAlreadyExists(added)) {
    return ServiceError(Reason::kDocumentIdDuplicate, "document_id '", document.document_id(),
                        "' occurs twice in the job: every document needs an id of its own");
  }
  RETURN_IF_ERROR(added);
  return database.Run("INSERT INTO contents (document, parameters, text) VALUES (?, ?, ?)", database.LastId(),
                      Blob{document.parameters().SerializeAsString()}, Blob{text});
}

absl::Status StateError(const JobRow& job, const std::string& what) {
  const std::string& state = v1::Job::State_Name(job.state);
  return WithFigure(ServiceError(Reason::kJobState, job.name, " is ", state, ": ", what), "state", state);
}

absl::Status MissingDocuments(Database& database, const JobRow& job) {
  std::vector<std::string> names;
  ASSIGN_OR_RETURN(
      Rows rows,
      database.Query("SELECT document_id FROM documents WHERE job = ? AND state = 0 ORDER BY id LIMIT ?",
                     job.id, int64_t{kNamedDocuments}));
  while (true) {
    ASSIGN_OR_RETURN(const bool found, rows.Next());
    if (!found) break;
    names.push_back(absl::StrCat("'", rows.Text(0), "'"));
  }
  const int64_t missing = job.counts.documents() - job.counts.queued();
  return StateError(
      job, absl::StrCat(missing, missing == 1 ? " document is" : " documents are",
                        " not complete: ", absl::StrJoin(names, ", "),
                        missing > kNamedDocuments ? ", ..." : "", "; finish the uploads before SealJob"));
}

}  // namespace

absl::Status SqliteJobStore::CheckRoom(const std::string& tenant) const {
  const StoreLimits& limits = options_.limits;
  if (scheduler_.active() >= limits.max_queued_jobs) {
    return WithRetryDelay(ServiceError(Reason::kQueueFull, "the queue is full: ", limits.max_queued_jobs,
                                       " jobs have not ended (--max-queued-jobs); try again later"),
                          kQueueRetry);
  }
  if (limits.max_tenant_jobs > 0 && scheduler_.active(tenant) >= limits.max_tenant_jobs) {
    return WithRetryDelay(
        ServiceError(Reason::kQuotaExceeded, "tenant '", tenant, "' has ", limits.max_tenant_jobs,
                     " jobs that have not ended (--max-tenant-jobs); wait for one, or cancel one"),
        kQueueRetry);
  }
  return absl::OkStatus();
}

absl::StatusOr<JobRow*> SqliteJobStore::AddJob(Transaction& transaction, const std::string& tenant,
                                               const v1::CreateJobRequest& request) {
  Database& database = transaction.database();
  ASSIGN_OR_RETURN(JobRow row, NewRow(tenant, request, options_.limits, transaction.now()));
  row.name = absl::StrFormat("jobs/%016x", static_cast<uint64_t>(RandomNumber()));
  ASSIGN_OR_RETURN(JobRow * job, transaction.Add(std::move(row)));
  RETURN_IF_ERROR(database.Run("INSERT INTO job_specs (job, spec) VALUES (?, ?)", job->id,
                               Blob{SpecOf(request.job()).SerializeAsString()}));
  for (const auto& [key, value] : request.job().labels()) {
    RETURN_IF_ERROR(
        database.Run("INSERT INTO labels (job, key, value) VALUES (?, ?, ?)", job->id, key, value));
  }
  for (const v1::Document& document : request.documents()) {
    RETURN_IF_ERROR(AddDocument(database, *job, document));
  }
  return job;
}

absl::StatusOr<v1::Job> SqliteJobStore::CreateJob(const std::string& tenant,
                                                  const v1::CreateJobRequest& request) {
  const std::string& request_id = request.request_id();
  const std::string hash = request_id.empty() ? "" : ContentHash(request);
  v1::Job answer;
  RETURN_IF_ERROR(Write([&](Transaction& transaction) -> absl::Status {
    Database& database = transaction.database();
    const int64_t now = transaction.now();
    if (!request_id.empty()) {
      const int64_t ttl = MicrosOf(options_.limits.request_id_ttl);
      ASSIGN_OR_RETURN(Rows rows, database.Query("SELECT sha256, job FROM requests WHERE tenant = ? AND "
                                                 "request_id = ? AND create_time > ?",
                                                 tenant, request_id, now - ttl));
      ASSIGN_OR_RETURN(const bool known, rows.Next());
      if (known && rows.Text(0) != hash) {
        return ServiceError(Reason::kRequestIdReused, "request_id '", request_id,
                            "' was used for another request; choose a new one for a new job");
      }
      if (known) {
        ASSIGN_OR_RETURN(const JobRow* job, transaction.Job(rows.Int(1)));
        ASSIGN_OR_RETURN(answer, ToProto(database, *job));
        return absl::OkStatus();
      }
    }
    RETURN_IF_ERROR(CheckRoom(tenant));
    if (request.validate_only()) {
      ASSIGN_OR_RETURN(const JobRow row, NewRow(tenant, request, options_.limits, now));
      answer = ToProto(row, SpecOf(request.job()));
      return absl::OkStatus();
    }
    ASSIGN_OR_RETURN(const JobRow* job, AddJob(transaction, tenant, request));
    if (!request_id.empty()) {
      RETURN_IF_ERROR(
          database.Run("INSERT OR REPLACE INTO requests (tenant, request_id, sha256, job, create_time) "
                       "VALUES (?, ?, ?, ?, ?)",
                       tenant, request_id, Blob{hash}, job->id, now));
    }
    if (job->runnable()) transaction.Queued(*job);
    answer = ToProto(*job, SpecOf(request.job()));
    return absl::OkStatus();
  }));
  return answer;
}

absl::StatusOr<v1::Job> SqliteJobStore::SealJob(const std::string& tenant, const std::string& name) {
  v1::Job answer;
  RETURN_IF_ERROR(Write([&](Transaction& transaction) -> absl::Status {
    ASSIGN_OR_RETURN(JobRow * job, transaction.Find(tenant, name));
    if (job->state != v1::Job::UPLOADING)
      return StateError(*job, "only a job that is UPLOADING can be sealed");
    if (job->counts.queued() < job->counts.documents()) return MissingDocuments(transaction.database(), *job);
    if (job->counts.documents() == 0) {
      return StateError(*job, "it has no documents; upload at least one before SealJob, or cancel it");
    }
    job->state = v1::Job::QUEUED;
    job->queue_time = transaction.now();
    transaction.Changed(job);
    transaction.Queued(*job);
    ASSIGN_OR_RETURN(answer, ToProto(transaction.database(), *job));
    return absl::OkStatus();
  }));
  return answer;
}

absl::StatusOr<v1::Job> SqliteJobStore::CancelJob(const std::string& tenant, const std::string& name,
                                                  const std::string& reason) {
  v1::Job answer;
  RETURN_IF_ERROR(Write([&](Transaction& transaction) -> absl::Status {
    Database& database = transaction.database();
    ASSIGN_OR_RETURN(JobRow * job, transaction.Find(tenant, name));
    if (job->ended() || job->state == v1::Job::CANCELLING) {
      ASSIGN_OR_RETURN(answer, ToProto(database, *job));
      return absl::OkStatus();
    }
    v1::Job::Counts& counts = job->counts;
    // Documents that wait, and those whose upload is not complete. Their rows stay as they are: what may be
    // leased is decided by the job's state.
    const int64_t waiting =
        counts.documents() - counts.running() - counts.succeeded() - counts.failed() - counts.cancelled();
    counts.set_cancelled(counts.cancelled() + waiting);
    counts.set_queued(0);
    job->status.set_code(static_cast<int>(CodeOf(Reason::kCancelled)));
    job->status.set_reason(ReasonName(Reason::kCancelled));
    job->status.set_message(reason.empty() ? "cancelled by the client" : reason);
    job->state = v1::Job::CANCELLING;
    job->expire_time = 0;
    transaction.Changed(job);
    ASSIGN_OR_RETURN(Rows rows, database.Query(absl::StrCat("SELECT ", kDocumentColumns,
                                                            " FROM documents WHERE job = ? AND state = 2"),
                                               job->id));
    while (counts.running() > 0) {
      ASSIGN_OR_RETURN(const bool found, rows.Next());
      if (!found) break;
      transaction.LeaseGone(ReadDocumentRow(rows), *job, v1::LeaseEvent::CANCELLED);
    }
    RETURN_IF_ERROR(transaction.EndIfDone(job));
    ASSIGN_OR_RETURN(answer, ToProto(database, *job));
    return absl::OkStatus();
  }));
  return answer;
}

absl::Status SqliteJobStore::DeleteJob(const std::string& tenant, const std::string& name) {
  return Write([&](Transaction& transaction) -> absl::Status {
    ASSIGN_OR_RETURN(JobRow * job, transaction.Find(tenant, name));
    if (!job->ended()) return StateError(*job, "only a job that has ended can be deleted; cancel it first");
    return transaction.Delete(job);
  });
}

absl::StatusOr<v1::Job> SqliteJobStore::GetJob(const std::string& tenant, const std::string& name) {
  v1::Job answer;
  RETURN_IF_ERROR(Read([&](Database& database) -> absl::Status {
    ASSIGN_OR_RETURN(const JobRow job, FindJob(database, tenant, name));
    ASSIGN_OR_RETURN(answer, ToProto(database, job));
    return absl::OkStatus();
  }));
  return answer;
}

absl::StatusOr<std::vector<v1::Result>> SqliteJobStore::Results(const std::string& tenant,
                                                                const std::string& name, int64_t after,
                                                                int count) {
  std::vector<v1::Result> results;
  RETURN_IF_ERROR(Read([&](Database& database) -> absl::Status {
    ASSIGN_OR_RETURN(const JobRow job, FindJob(database, tenant, name));
    ASSIGN_OR_RETURN(Rows rows, database.Query("SELECT result FROM results WHERE job = ? AND sequence > ? "
                                               "ORDER BY sequence LIMIT ?",
                                               job.id, after, int64_t{std::max(count, 0)}));
    int64_t bytes = 0;
    while (true) {
      ASSIGN_OR_RETURN(const bool found, rows.Next());
      if (!found) return absl::OkStatus();
      const std::string row = rows.Text(0);
      bytes += static_cast<int64_t>(row.size());
      if (!results.empty() && bytes > kMaxResultBytes) return absl::OkStatus();
      if (!results.emplace_back().ParseFromString(row)) {
        return DataLoss(database.path(), ": a result of ", name, " is damaged; restore from a backup");
      }
    }
  }));
  return results;
}

}  // namespace snapkv::service
