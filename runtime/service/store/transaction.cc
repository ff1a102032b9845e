// SPDX-License-Identifier: Apache-2.0
// Jobs of a transaction and what follows its commit.
#include "runtime/service/store/transaction.h"

namespace snapkv::service {

absl::StatusOr<JobRow*> Transaction::Job(int64_t id) {
  const auto found = jobs_.find(id);
  if (found != jobs_.end()) return &found->second.row;
  ASSIGN_OR_RETURN(Rows rows,
                   database_.Query(absl::StrCat("SELECT ", kJobColumns, " FROM jobs WHERE id = ?"), id));
  ASSIGN_OR_RETURN(const bool exists, rows.Next());
  if (!exists) {
    return DataLoss(database_.path(), ": job ", id, " is missing; restore the state folder from a backup");
  }
  return &jobs_.emplace(id, Loaded{ReadJob(rows)}).first->second.row;
}

absl::StatusOr<JobRow*> Transaction::Find(const std::string& tenant, const std::string& name) {
  ASSIGN_OR_RETURN(JobRow row, FindJob(database_, tenant, name));
  const int64_t id = row.id;
  return &jobs_.emplace(id, Loaded{std::move(row)}).first->second.row;
}

absl::StatusOr<JobRow*> Transaction::Add(JobRow job) {
  RETURN_IF_ERROR(InsertJob(database_, job));
  const int64_t id = job.id;
  Loaded& added = jobs_.emplace(id, Loaded{std::move(job)}).first->second;
  added.created = true;
  Changed(&added.row);
  return &added.row;
}

void Transaction::Changed(JobRow* job) {
  bool& changed = jobs_.at(job->id).changed;
  if (!changed) ++job->version;
  changed = true;
}

void Transaction::End(JobRow* job, v1::Job::State state) {
  job->state = state;
  job->end_time = now_;
  job->expire_time = retention_ < absl::InfiniteDuration() ? now_ + MicrosOf(retention_) : 0;
  jobs_.at(job->id).ended = true;
  Changed(job);
}

absl::Status Transaction::EndIfDone(JobRow* job) {
  if (job->counts.running() > 0) return absl::OkStatus();
  if (job->state == v1::Job::RUNNING && job->counts.queued() == 0) {
    End(job, v1::Job::SUCCEEDED);
  } else if (job->state == v1::Job::CANCELLING) {
    End(job, v1::Job::CANCELLED);
    return Purge(job->id, false);
  }
  return absl::OkStatus();
}

absl::Status Transaction::Purge(int64_t job, bool everything) {
  return database_.Run("INSERT OR REPLACE INTO purges (job, everything, after) VALUES (?, ?, 0)", job,
                       int64_t{everything});
}

absl::Status Transaction::Delete(JobRow* job) {
  job->deleted = true;
  job->expire_time = 0;
  Changed(job);
  RETURN_IF_ERROR(database_.Run("DELETE FROM requests WHERE job = ?", job->id));
  return Purge(job->id, true);
}

void Transaction::Queued(const JobRow& job) {
  StoreEvent event;
  event.kind = StoreEvent::Kind::kQueued;
  event.job = job.name;
  event.model = job.model;
  events_.push_back(std::move(event));
}

void Transaction::Finished(const JobRow& job, const v1::Result& result) {
  StoreEvent event;
  event.kind = StoreEvent::Kind::kResult;
  event.job = job.name;
  event.model = job.model;
  event.worker = result.worker();
  event.result = result;
  event.result.clear_summary();
  event.result.clear_token_ids();
  events_.push_back(std::move(event));
}

void Transaction::LeaseGone(const DocumentRow& document, const JobRow& job, v1::LeaseEvent::Kind kind) {
  StoreEvent event;
  event.kind = StoreEvent::Kind::kLeaseGone;
  event.job = job.name;
  event.model = job.model;
  event.worker = document.worker;
  event.lease.set_kind(kind);
  event.lease.set_lease(LeaseText({document.id, document.lease}));
  event.lease.set_attempt(static_cast<int32_t>(document.attempt));
  events_.push_back(std::move(event));
}

absl::Status Transaction::Save() {
  for (auto& [id, job] : jobs_) {
    if (!job.changed) continue;
    RETURN_IF_ERROR(UpdateJob(database_, job.row));
    saved_.push_back(job.row);
    StoreEvent event;
    event.kind = StoreEvent::Kind::kJob;
    event.job = job.row.name;
    event.model = job.row.model;
    event.created = job.created;
    if (job.ended) event.ended = static_cast<v1::Job::State>(job.row.state);
    events_.push_back(std::move(event));
  }
  return absl::OkStatus();
}

}  // namespace snapkv::service
