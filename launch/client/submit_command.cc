// SPDX-License-Identifier: Apache-2.0
// submit: documents to one job, and with --wait its records.
#include <thread>

#include "launch/client/command_support.h"
#include "launch/client/commands.h"
#include "launch/client/documents.h"
#include "launch/client/job_text.h"
#include "launch/client/streams.h"
#include "launch/client/submission.h"
#include "launch/client/text.h"
#include "launch/input/record_fields.h"
#include "launch/report.h"
#include "launch/signals.h"

namespace snapkv::launch {
namespace {

// One run of `snapkv submit`.
class SubmitRun {
 public:
  SubmitRun(const ClientFlags& flags, Session& session)
      : flags_(flags),
        session_(session),
        display_(flags.progress),
        request_id_(flags.request_id.empty() ? NewRequestId("cli-") : flags.request_id) {}
  int Run();

 private:
  absl::StatusOr<std::unique_ptr<Submission>> Begin();
  absl::Status Send(Submission& submission);
  void Reject(const std::string& id, const DocumentNote& note, DocumentError error);
  int Failed(const absl::Status& status, const std::string& job);
  int Wait(const v1::Job& job);
  int Announce(const v1::Job& job) const;

  const ClientFlags& flags_;
  Session& session_;
  Display display_;
  const std::string request_id_;
  std::shared_ptr<DocumentSource> source_;
  std::unique_ptr<RecordSink> sink_;  // null without --wait
  DocumentIndex index_;
  std::atomic<int64_t> rejected_ = 0;
  int64_t errors_shown_ = 0;
};

int SubmitRun::Run() {
  int exit_code = kExitOk;
  source_ = OpenSource(flags_, exit_code);
  if (!source_) return exit_code;
  std::shared_ptr<OutputLog> log;
  if (!OpenOutput(flags_, source_.get(), {}, log, exit_code)) return exit_code;
  if (flags_.wait)
    sink_ = std::make_unique<RecordSink>(log, /*ordered=*/false, flags_.return_token_ids, display_);
  auto submission = Begin();
  if (!submission.ok()) return ReportRpc(session_, submission.status());
  const absl::Status sent = Send(**submission);
  if (!sent.ok()) return Failed(sent, (*submission)->name());
  if ((*submission)->documents() == 0 && flags_.resume_job.empty()) {
    if (sink_ && !sink_->Finish(true).ok()) return Report(sink_->status(), kExitOutputNotWritable);
    if (rejected_ > 0) return kExitDocumentsFailed;
    return Report(InvalidArgument("the input holds no document: nothing was submitted"),
                  kExitInputUnreadable);
  }
  const auto job = (*submission)->Finish();
  if (!job.ok()) return Failed(job.status(), (*submission)->name());
  LOG(Info) << Printable(job->name()) << ": " << DocumentsText(job->counts().documents()) << " submitted";
  if (flags_.wait) return Wait(*job);
  const int printed = Announce(*job);
  if (printed != kExitOk) return printed;
  return rejected_ > 0 ? kExitDocumentsFailed : kExitOk;
}

absl::StatusOr<std::unique_ptr<Submission>> SubmitRun::Begin() {
  ASSIGN_OR_RETURN(const v1::Limits limits, FetchLimits(session_, flags_.job.model()));
  SubmissionOptions options;
  options.job = flags_.job;
  options.request_id = request_id_;
  Limit(limits, options);
  options.parallel = flags_.parallel;
  options.repeated = !flags_.request_id.empty();
  options.refused = [this](const std::string& id, const absl::Status& status) {
    const auto note = index_.Find(id);
    Reject(id, note.value_or(DocumentNote()), ToDocumentError(status));
  };
  if (!flags_.resume_job.empty()) {
    ASSIGN_OR_RETURN(const v1::Job job, GetJob(session_, flags_.resume_job, Patience::kConnect));
    return std::make_unique<Submission>(session_, std::move(options), job);
  }
  if (flags_.request_id.empty())
    LOG(Info) << "request id " << request_id_ << ": with --request-id it is safe to repeat this call";
  return std::make_unique<Submission>(session_, std::move(options));
}

absl::Status SubmitRun::Send(Submission& submission) {
  for (int64_t ordinal = 0;; ++ordinal) {
    ASSIGN_OR_RETURN(std::optional<InputItem> item, source_->Next());
    if (PendingSignal() != 0) return absl::CancelledError("stopped");
    if (!item.has_value()) return absl::OkStatus();
    Document& document = item->document;
    const DocumentNote note{.ordinal = ordinal, .line = document.line, .form = document.form};
    if (item->error.ok()) {
      if (const char* fault = IdFault(document.id); fault != nullptr)
        item->SetError(RecordError("DOCUMENT_ID_INVALID", 0, absl::StrCat("the document's id ", fault)));
    }
    if (!item->error.ok()) {
      Reject(document.id, note, std::move(item->error));
      if (sink_) RETURN_IF_ERROR(sink_->status());
      continue;
    }
    if (sink_) index_.Add(document.id, note);
    RETURN_IF_ERROR(submission.Add(ToProto(std::move(document))));
  }
}

void SubmitRun::Reject(const std::string& id, const DocumentNote& note, DocumentError error) {
  const int64_t count = ++rejected_;
  if (sink_) {
    sink_->Put(note.ordinal, ToFailedResult(id, note, std::move(error)), "").IgnoreError();
    return;
  }
  constexpr int64_t kMostShown = 20;
  if (count > kMostShown) return;
  Document document;
  document.id = id;
  LOG(Error) << error.reason << ": " << Printable(ErrorLine(document, error));
  if (count == kMostShown) LOG(Error) << "further documents that are left out are not listed";
}

// The submission ended early.
int SubmitRun::Failed(const absl::Status& status, const std::string& job) {
  int exit_code = kExitServerRefused;
  if (sink_ && !sink_->status().ok()) {
    exit_code = Report(sink_->status(), kExitOutputNotWritable);
  } else if (absl::IsInvalidArgument(status) && !service::ReasonOf(status).has_value() && rejected_ > 0) {
    LOG(Error) << status.message();  // all documents were refused, and named
    exit_code = kExitDocumentsFailed;
  } else {
    exit_code = ReportRpc(session_, status);
  }
  if (!job.empty() && exit_code != kExitDocumentsFailed) {
    LOG(Info) << "what was sent is kept; go on with the same command and --resume-job " << Printable(job);
  } else if (job.empty() && RpcExitCode(status) == kExitUnreachable) {
    LOG(Info) << "repeat the command with --request-id " << request_id_
              << ": should the job have been made, it is not made twice";
  }
  if (sink_) sink_->Finish(/*discard_if_empty=*/true).IgnoreError();
  session_.Stop();  // uploads that are still under way
  return exit_code;
}

int SubmitRun::Announce(const v1::Job& job) const {
  if (!flags_.json) return Print(Printable(job.name()) + "\n");
  nlohmann::ordered_json json = JobJson(job);
  if (flags_.resume_job.empty()) json["request_id"] = request_id_;
  json["rejected"] = rejected_.load();
  return Print(JsonLine(json));
}

int SubmitRun::Wait(const v1::Job& job) {
  sink_->SetModel(job.model());
  std::thread watcher([&] {
    v1::Job now = job;
    FollowJob(session_, job,
              [&](const v1::JobEvent& event) {
                if (event.has_job()) now = event.job();
                ProgressState state = ToProgress(event, now, 0);
                state.total += rejected_;
                state.failed += rejected_;
                display_.Update(state);
              })
        .status()
        .IgnoreError();  // FollowResults meets the same error
  });
  int64_t after = 0;
  const absl::Status status =
      FollowResults(session_, job.name(), /*follow=*/true, after, [&](const v1::Result& result) {
        const auto note = index_.Find(result.document_id());
        return sink_->Put(result.sequence(), ToDocumentResult(result, note.value_or(DocumentNote())),
                          result.params_sha256());
      });
  const auto ended = status.ok() ? GetJob(session_, job.name(), Patience::kWait) : status;
  if (!status.ok()) session_.Stop();
  watcher.join();
  sink_->Finish(/*discard_if_empty=*/false).IgnoreError();
  display_.Finish();
  if (!ended.ok() || !sink_->status().ok()) {
    const int exit_code = ReportFetch(session_, *sink_, ended.status());
    LOG(Info) << "the job goes on without this program; fetch its results with: snapkv results --follow "
              << Printable(job.name());
    return exit_code;
  }
  LOG(Info) << Printable(job.name()) << ": " << CountsText(ended->counts());
  const int exit_code = JobExitCode(*ended);
  return exit_code == kExitOk && rejected_ > 0 ? kExitDocumentsFailed : exit_code;
}

}  // namespace

int RunSubmit(const ClientFlags& flags, Session& session) { return SubmitRun(flags, session).Run(); }

}  // namespace snapkv::launch
