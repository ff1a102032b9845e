// SPDX-License-Identifier: Apache-2.0
// Reading and submitting on one thread, fetching on another.
#include "launch/client/batch_client.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "launch/client/command_support.h"
#include "launch/client/job_text.h"
#include "launch/client/streams.h"
#include "launch/client/text.h"
#include "launch/input/record_fields.h"
#include "launch/report.h"
#include "launch/signals.h"
#include "runtime/hash/sha256.h"
#include "runtime/service/reason.h"

namespace snapkv::launch {
namespace {

using service::Reason;

// How often the side file learns which results are on the disk.
constexpr absl::Duration kSaveInterval = absl::Seconds(2);
// The run that was killed a moment ago may still hold the lock.
constexpr absl::Duration kLockWait = absl::Seconds(5);
// Documents that no job has delivered are submitted again, this often.
constexpr int kMostPasses = 3;

bool Has(const absl::Status& status, Reason reason) { return service::ReasonOf(status) == reason; }

// What the texts depend on, as far as this side knows it.
std::string ParamsOf(const ClientFlags& flags) {
  std::string parameters;
  flags.job.parameters().SerializeToString(&parameters);
  return runtime::Sha256Hex(absl::StrCat("snapkv batch\n", flags.job.model(), "\n", flags.encoding, "\n",
                                         runtime::Sha256Hex(parameters)));
}

// An error of a file on this side, not an answer of the server.
bool IsLocal(const absl::Status& status) {
  return !service::ReasonOf(status).has_value() &&
         (absl::IsFailedPrecondition(status) || absl::IsNotFound(status));
}

// What Submission says when no document was left.
bool NothingAccepted(const absl::Status& status) {
  return absl::IsInvalidArgument(status) && !service::ReasonOf(status).has_value();
}

absl::Status Stopped() { return absl::CancelledError("stopped"); }

}  // namespace

BatchClient::BatchClient(const ClientFlags& flags, Session& session)
    : flags_(flags),
      session_(session),
      params_sha256_(ParamsOf(flags)),
      display_(flags.progress),
      jobs_(BatchJobs::PathFor(flags.output), params_sha256_),
      start_(absl::Now()) {}

int BatchClient::Run() {
  if (const auto exit_code = Prepare()) return *exit_code;
  std::thread fetcher([this] { FetchAll(); });
  absl::Status status;
  for (int pass = 1; pass <= kMostPasses; ++pass) {
    status = Pass();
    const bool reused = Has(status, Reason::kRequestIdReused);
    if (!status.ok() && !reused) break;
    if (!WaitIdle() || strict_ended_) break;
    const int64_t missing = index_.unfinished();
    if (missing == 0 && !reused) break;
    {
      const std::lock_guard lock(mutex_);
      if (!problems_.empty()) break;
    }
    if (pass == kMostPasses) {
      status = reused ? status : Internal(missing, " documents have no result though their jobs have ended");
      break;
    }
    if (!reused) covering_.clear();
    LOG(Warning) << DocumentsText(missing) << " of earlier jobs without a result: submitted again";
    if (std::find(flags_.inputs.begin(), flags_.inputs.end(), "-") != flags_.inputs.end()) {
      status = FailedPrecondition("stdin cannot be read again: start once more with --resume");
      break;
    }
    int ignored = 0;
    source_ = OpenSource(flags_, ignored);
    if (!source_) {
      status = FailedPrecondition("the input cannot be read again");
      break;
    }
  }
  if (!status.ok() && !strict_ended_) Fail(status);
  {
    const std::lock_guard lock(mutex_);
    input_ended_ = true;
    changed_.notify_all();
  }
  fetcher.join();
  return End(status);
}

std::optional<int> BatchClient::Prepare() {
  int exit_code = kExitOk;
  source_ = OpenSource(flags_, exit_code);
  if (!source_) return exit_code;
  OutputLogOptions options;
  options.resume = flags_.resume;
  options.retry_errors = flags_.retry_errors;
  options.params_sha256 = params_sha256_;
  if (flags_.resume) options.lock_wait = kLockWait;
  if (!OpenOutput(flags_, source_.get(), options, log_, exit_code)) return exit_code;
  sink_ = std::make_unique<RecordSink>(log_, flags_.ordered, flags_.return_token_ids, display_);
  const absl::Status loaded = LoadJobs();
  if (loaded.ok()) return std::nullopt;
  log_.reset();
  exit_code = IsLocal(loaded) ? Report(loaded, kExitOutputNotWritable) : ReportRpc(session_, loaded);
  sink_->Finish(/*discard_if_empty=*/true).IgnoreError();
  return exit_code;
}

// Limits of the server and, with --resume, jobs of the run before.
absl::Status BatchClient::LoadJobs() {
  const absl::StatusOr<v1::Limits> limits = FetchLimits(session_, flags_.job.model());
  // A reason or not: an error of the server, and not of the side file.
  if (!limits.ok()) return limits.status();
  limits_ = *limits;
  RETURN_IF_ERROR(jobs_.Load());
  for (const BatchJob& job : jobs_.All()) {
    if (!flags_.resume) {
      LOG(Warning) << "an earlier batch left the job " << Printable(job.name)
                   << " at the server, which goes on; its results are not used";
      RETURN_IF_ERROR(jobs_.Remove(job.request_id));
      continue;
    }
    Fetch fetch{job};
    if (!job.name.empty()) {
      const auto now = GetJob(session_, job.name, Patience::kConnect);
      if (Has(now.status(), Reason::kJobNotFound)) {
        LOG(Warning) << Printable(job.name) << " is no longer at the server: what it has not delivered is "
                     << "submitted again";
        RETURN_IF_ERROR(jobs_.Remove(job.request_id));
        continue;
      }
      if (!now.ok()) return now.status();
      fetch.ended_before = HasEnded(now->state()) && now->state() != v1::Job::SUCCEEDED;
    }
    if (job.end < 0) {
      unsealed_ = job;
    } else {
      earlier_.push_back(fetch);
      covering_.push_back(job);
    }
  }
  return absl::OkStatus();
}

absl::Status BatchClient::Pass() {
  int64_t ordinal = 0;
  for (;; ++ordinal) {
    ASSIGN_OR_RETURN(std::optional<InputItem> item, source_->Next());
    if (PendingSignal() != 0 || session_.stopped()) return Stopped();
    if (!item.has_value() || strict_ended_) break;
    RETURN_IF_ERROR(TakeItem(ordinal, *std::move(item)));
    seen_ = std::max(seen_, ordinal + 1);
    EnqueueEarlier(ordinal + 1);
  }
  if (strict_ended_) return absl::OkStatus();
  total_ = ordinal;
  if (unsealed_.has_value()) RETURN_IF_ERROR(GiveUp(*std::exchange(unsealed_, std::nullopt)));
  RETURN_IF_ERROR(FinishJob(ordinal));
  EnqueueEarlier(INT64_MAX);
  return absl::OkStatus();
}

absl::Status BatchClient::TakeItem(int64_t ordinal, InputItem item) {
  Document& document = item.document;
  const bool fresh = ordinal >= seen_;
  if (log_ && log_->Has(document.id)) {
    if (!fresh) return absl::OkStatus();
    ++skipped_;
    return sink_->Skip(ordinal);
  }
  if (!fresh) {
    const auto note = index_.Find(document.id);
    if (note.has_value() && note->finished) return absl::OkStatus();
  }
  DocumentNote note{.ordinal = ordinal, .line = document.line, .form = document.form};
  if (item.error.ok()) {
    if (const char* fault = IdFault(document.id); fault != nullptr)
      item.SetError(RecordError("DOCUMENT_ID_INVALID", 0, absl::StrCat("the document's id ", fault)));
  }
  if (!item.error.ok()) {
    note.finished = true;
    index_.Add(document.id, note);
    RETURN_IF_ERROR(
        sink_->Put(ordinal, ToFailedResult(document.id, note, std::move(item.error)), params_sha256_));
    ShowProgress();
    if (flags_.strict) StopForStrict();
    return absl::OkStatus();
  }
  index_.Add(document.id, note);
  return Submit(ordinal, std::move(document));
}

// Jobs of the run before whose items have all been seen, so that it is known how their records look.
void BatchClient::EnqueueEarlier(int64_t ordinal) {
  for (auto it = earlier_.begin(); it != earlier_.end();) {
    if (it->job.end > ordinal) {
      ++it;
      continue;
    }
    Enqueue(*it);
    it = earlier_.erase(it);
  }
}

absl::Status BatchClient::Submit(int64_t ordinal, Document document) {
  for (const BatchJob& job : covering_) {
    if (job.first <= ordinal && ordinal < job.end) return absl::OkStatus();
  }
  v1::Document proto = ToProto(std::move(document));
  const auto size = static_cast<int64_t>(proto.content().size());
  const bool full =
      current_ && (current_->documents() >= limits_.max_job_documents() ||
                   (current_->documents() > 0 && current_->bytes() + size > limits_.max_job_bytes()));
  const bool turn = unsealed_.has_value() && unsealed_->first <= ordinal;
  if (full || turn) RETURN_IF_ERROR(FinishJob(ordinal));
  if (!current_) RETURN_IF_ERROR(Begin(ordinal));
  const absl::Status added = current_->Add(std::move(proto));
  if (!added.ok() && Has(added, Reason::kRequestIdReused)) {
    current_ = nullptr;
    RETURN_IF_ERROR(jobs_.Remove(current_job_.request_id));
  }
  return added;
}

SubmissionOptions BatchClient::MakeOptions() {
  SubmissionOptions options;
  options.job = flags_.job;
  options.request_id = current_job_.request_id;
  Limit(limits_, options);
  options.parallel = flags_.parallel;
  options.patience = Patience::kWait;
  options.created = [this](const v1::Job& job) {
    current_job_.name = job.name();
    return jobs_.Put(current_job_);
  };
  options.refused = [this](const std::string& id, const absl::Status& status) { Refuse(id, status); };
  return options;
}

// The job that the documents from `ordinal` on go into.
absl::Status BatchClient::Begin(int64_t ordinal) {
  current_is_earlier_ = unsealed_.has_value() && unsealed_->first <= ordinal;
  if (current_is_earlier_) {
    current_job_ = *std::exchange(unsealed_, std::nullopt);
    SubmissionOptions options = MakeOptions();
    options.repeated = true;
    if (current_job_.name.empty()) {
      current_ = std::make_unique<Submission>(session_, std::move(options));
      return absl::OkStatus();
    }
    ASSIGN_OR_RETURN(const v1::Job job, GetJob(session_, current_job_.name, Patience::kWait));
    current_ = std::make_unique<Submission>(session_, std::move(options), job);
    return absl::OkStatus();
  }
  current_job_ = {.request_id = NewRequestId("batch-"), .first = ordinal};
  RETURN_IF_ERROR(jobs_.Put(current_job_));
  current_ = std::make_unique<Submission>(session_, MakeOptions());
  return absl::OkStatus();
}

absl::Status BatchClient::FinishJob(int64_t end) {
  if (!current_) return absl::OkStatus();
  const std::unique_ptr<Submission> submission = std::move(current_);
  const bool nothing = submission->documents() == 0 && submission->name().empty();
  if (nothing) return jobs_.Remove(current_job_.request_id);
  const auto job = submission->Finish();
  if (!job.ok()) {
    if (strict_ended_) return absl::OkStatus();
    // Documents are missing in it, or somebody has ended it meanwhile.
    if (current_is_earlier_ && Has(job.status(), Reason::kJobState)) return GiveUp(current_job_);
    const bool refused = NothingAccepted(job.status());
    if (refused || Has(job.status(), Reason::kRequestIdReused))
      RETURN_IF_ERROR(jobs_.Remove(current_job_.request_id));
    return refused ? absl::OkStatus() : job.status();
  }
  current_job_.end = end;
  RETURN_IF_ERROR(jobs_.Put(current_job_));
  LOG(Info) << Printable(job->name()) << ": " << DocumentsText(job->counts().documents()) << " submitted";
  sink_->SetModel(job->model());
  Enqueue({.job = current_job_});
  return absl::OkStatus();
}

absl::Status BatchClient::GiveUp(const BatchJob& job) {
  LOG(Warning) << "the input is not what an earlier run had: its job " << Printable(job.name)
               << " is given up, and documents without a record are submitted again";
  if (!job.name.empty()) Cancel(job.name, "the input of the batch has changed");
  return jobs_.Remove(job.request_id);
}

void BatchClient::Cancel(const std::string& job, const std::string& reason) {
  v1::CancelJobRequest request;
  request.set_name(job);
  request.set_reason(reason);
  const auto cancelled =
      session_.Call<v1::Job>(Patience::kConnect, [&](grpc::ClientContext& context, v1::Job& answer) {
        return session_.jobs().CancelJob(&context, request, &answer);
      });
  if (!cancelled.ok()) LOG(Warning) << ErrorSentence(cancelled.status(), session_.server());
}

void BatchClient::Refuse(const std::string& id, const absl::Status& status) {
  const DocumentNote note = index_.Find(id).value_or(DocumentNote());
  if (!index_.Finish(id)) return;
  const absl::Status put =
      sink_->Put(note.ordinal, ToFailedResult(id, note, ToDocumentError(status)), params_sha256_);
  if (!put.ok()) Fail(put);
  ShowProgress();
  if (flags_.strict) StopForStrict();
}

void BatchClient::Enqueue(Fetch fetch) {
  const std::lock_guard lock(mutex_);
  queue_.push_back(std::move(fetch));
  changed_.notify_all();
}

void BatchClient::Fail(const absl::Status& status) {
  {
    const std::lock_guard lock(mutex_);
    failure_.Update(status);
  }
  session_.Stop();
}

bool BatchClient::WaitIdle() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return (queue_.empty() && !fetching_) || !failure_.ok(); });
  return failure_.ok();
}

void BatchClient::FetchAll() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return !queue_.empty() || input_ended_ || !failure_.ok(); });
    if (queue_.empty() || !failure_.ok()) return;
    const Fetch fetch = std::move(queue_.front());
    queue_.pop_front();
    fetching_ = true;
    lock.unlock();
    const absl::Status status = FetchJob(fetch);
    if (!status.ok()) Fail(status);
    lock.lock();
    fetching_ = false;
    changed_.notify_all();
  }
}

absl::Status BatchClient::FetchJob(const Fetch& fetch) {
  BatchJob job = fetch.job;
  int64_t after = job.after;
  const absl::Status fetched = FollowResults(session_, job.name, /*follow=*/true, after,
                                             [&](const v1::Result& result) { return Take(result, job); });
  if (Has(fetched, Reason::kJobNotFound)) {
    LOG(Warning) << Printable(job.name) << " was deleted before all its results were fetched";
    return jobs_.Remove(job.request_id);
  }
  RETURN_IF_ERROR(fetched);
  ASSIGN_OR_RETURN(const v1::Job now, GetJob(session_, job.name, Patience::kWait));
  if (now.state() != v1::Job::SUCCEEDED && !fetch.ended_before && !strict_ended_) {
    JobExitCode(now);  // says why
    const std::lock_guard lock(mutex_);
    problems_.push_back(job.name);
  }
  ASSIGN_OR_RETURN(const bool complete, sink_->Sync());
  // With --ordered its records may wait for those of another job; then it is fetched again after a kill.
  return complete ? jobs_.Remove(job.request_id) : absl::OkStatus();
}

absl::Status BatchClient::Take(const v1::Result& result, BatchJob& job) {
  const std::string& id = result.document_id();
  const bool had = log_ && log_->Has(id);
  const auto note = index_.Find(id);
  const DocumentResult record = ToDocumentResult(result, note.value_or(DocumentNote()));
  if (!had && !note.has_value()) {
    // The input has changed since; the result is there all the same.
    index_.Add(id, {.finished = true});
    RETURN_IF_ERROR(sink_->PutUnplaced(record, params_sha256_));
  } else if (!had && index_.Finish(id)) {
    RETURN_IF_ERROR(sink_->Put(note->ordinal, record, params_sha256_));
  }
  ShowProgress();
  if (flags_.strict && !record.error.ok()) StopForStrict();
  return NoteProgress(result, job);
}

absl::Status BatchClient::NoteProgress(const v1::Result& result, BatchJob& job) {
  const absl::Time now = absl::Now();
  if (now - last_saved_ < kSaveInterval) return absl::OkStatus();
  last_saved_ = now;
  ASSIGN_OR_RETURN(const bool complete, sink_->Sync());
  if (!complete) return absl::OkStatus();
  job.after = result.sequence();
  return jobs_.Put(job);
}

void BatchClient::StopForStrict() {
  if (strict_ended_.exchange(true)) return;
  LOG(Error) << "--strict: the batch ends at the first document that failed; its jobs are cancelled";
  for (const BatchJob& job : jobs_.All()) {
    if (!job.name.empty()) Cancel(job.name, "snapkv batch --strict");
  }
}

void BatchClient::ShowProgress() {
  const BatchTotals totals = sink_->totals();
  display_.Update({.total = total_,
                   .done = totals.done,
                   .failed = totals.failed,
                   .skipped = skipped_,
                   .prompt_tokens = totals.prompt_tokens,
                   .generated_tokens = totals.generated_tokens});
}

int BatchClient::End(const absl::Status& status) {
  BatchTotals totals = sink_->totals();
  const bool nothing = totals.done + totals.failed == 0;
  absl::Status failure, kept;
  bool problems = false;
  {
    const std::lock_guard lock(mutex_);
    failure = failure_.ok() && !strict_ended_ ? status : failure_;
    problems = !problems_.empty();
  }
  if (current_) session_.Stop();  // its uploads are given up
  current_ = nullptr;
  const absl::Status written = sink_->Finish(/*discard_if_empty=*/nothing && !failure.ok());
  display_.Finish();
  totals.skipped = skipped_;
  totals.seconds = absl::ToDoubleSeconds(absl::Now() - start_);
  if (flags_.progress != ProgressMode::kNone) LOG(Info) << ClosingLine(totals);
  if (!written.ok()) return Report(written, kExitOutputNotWritable);
  if (!failure.ok()) {
    const int exit_code =
        IsLocal(failure) ? Report(failure, kExitOutputNotWritable) : ReportRpc(session_, failure);
    const std::vector<BatchJob> left = jobs_.All();
    if (!left.empty() && log_) {
      LOG(Info)
          << "what was submitted goes on at the server; the same command with --resume fetches the rest";
    }
    for (const BatchJob& job : left) {
      if (!log_ && !job.name.empty())
        LOG(Info) << Printable(job.name)
                  << " goes on at the server; see `snapkv results` and `snapkv cancel`";
    }
    return exit_code;
  }
  // With --ordered the last jobs may have waited for the end.
  for (const BatchJob& job : jobs_.All()) kept.Update(jobs_.Remove(job.request_id));
  if (!kept.ok()) return Report(kept, kExitOutputNotWritable);
  if (problems) {
    LOG(Info) << "the same command with --resume submits the documents again that have no record";
    return kExitJobFailed;
  }
  if (strict_ended_) return kExitJobFailed;
  const int64_t failed_before = log_ ? log_->kept_errors() : 0;
  return totals.failed + failed_before > 0 ? kExitDocumentsFailed : kExitOk;
}

}  // namespace snapkv::launch
