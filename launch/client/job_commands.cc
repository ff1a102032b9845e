// SPDX-License-Identifier: Apache-2.0
// status, watch, results, cancel, delete, list.
#include <utility>

#include "absl/strings/str_cat.h"
#include "launch/client/command_support.h"
#include "launch/client/commands.h"
#include "launch/client/documents.h"
#include "launch/client/job_text.h"
#include "launch/client/streams.h"
#include "launch/client/text.h"
#include "launch/report.h"

namespace snapkv::launch {
namespace {

int PrintJob(const ClientFlags& flags, const v1::Job& job) {
  return Print(flags.json ? JsonLine(JobJson(job)) : JobText(job));
}

}  // namespace

int RunStatus(const ClientFlags& flags, Session& session) {
  const auto job = GetJob(session, flags.name, Patience::kConnect);
  return job.ok() ? PrintJob(flags, *job) : ReportRpc(session, job.status());
}

int RunWatch(const ClientFlags& flags, Session& session) {
  const auto job = GetJob(session, flags.name, Patience::kConnect);
  if (!job.ok()) return ReportRpc(session, job.status());
  Display display(flags.json ? ProgressMode::kNone : flags.progress);
  v1::Job now = *job;
  v1::Job::State shown = v1::Job::STATE_UNSPECIFIED;
  absl::Status written;
  const auto ended = FollowJob(session, *job, [&](const v1::JobEvent& event) {
    if (event.has_job()) now = event.job();
    if (flags.json && event.has_job()) {
      written.Update(display.Print(JsonLine(JobJson(now))));
      if (!written.ok()) session.Stop();
    }
    if (std::exchange(shown, now.state()) != now.state() && flags.progress != ProgressMode::kNone)
      LOG(Info) << Printable(now.name()) << ": " << StateName(now.state());
    display.Update(ToProgress(event, now, job->counts().succeeded()));
  });
  display.Finish();
  if (!written.ok()) return Report(written, kExitOutputNotWritable);
  if (!ended.ok()) return ReportRpc(session, ended.status());
  if (!flags.json) {
    if (const int code = PrintJob(flags, *ended); code != kExitOk) return code;
  }
  return JobExitCode(*ended);
}

int RunResults(const ClientFlags& flags, Session& session) {
  auto job = GetJob(session, flags.name, Patience::kConnect);
  if (!job.ok()) return ReportRpc(session, job.status());
  std::shared_ptr<OutputLog> log;
  int exit_code = kExitOk;
  if (!OpenOutput(flags, nullptr, {}, log, exit_code)) return exit_code;
  Display display(flags.follow && !flags.to_stdout() ? flags.progress : ProgressMode::kNone);
  RecordSink sink(log, /*ordered=*/false, flags.return_token_ids, display);
  sink.SetModel(job->model());
  int64_t after = flags.after;
  const absl::Status status =
      FollowResults(session, flags.name, flags.follow, after, [&](const v1::Result& result) {
        const absl::Status put =
            sink.Put(result.sequence(), ToDocumentResult(result, {}), result.params_sha256());
        const BatchTotals totals = sink.totals();
        display.Update({.total = job->counts().documents(),
                        .done = totals.done,
                        .failed = totals.failed,
                        .skipped = flags.after,
                        .prompt_tokens = totals.prompt_tokens,
                        .generated_tokens = totals.generated_tokens});
        return put;
      });
  sink.Finish(/*discard_if_empty=*/!status.ok()).IgnoreError();
  display.Finish();
  if (!status.ok() && sink.status().ok())
    LOG(Info) << "go on with: snapkv results " << flags.name << " --after " << after;
  if (!status.ok() || !sink.status().ok()) return ReportFetch(session, sink, status);
  if (flags.follow) {
    job = GetJob(session, flags.name, Patience::kWait);
    if (!job.ok()) return ReportRpc(session, job.status());
    if (job->state() != v1::Job::SUCCEEDED) return JobExitCode(*job);
  } else if (!HasEnded(job->state())) {
    LOG(Info) << flags.name << " is " << StateName(job->state()) << ": " << CountsText(job->counts())
              << "; these are the results up to now, --follow waits for the rest";
  }
  return sink.totals().failed > 0 ? kExitDocumentsFailed : kExitOk;
}

int RunCancel(const ClientFlags& flags, Session& session) {
  v1::CancelJobRequest request;
  request.set_name(flags.name);
  request.set_reason(flags.reason);
  const auto job =
      session.Call<v1::Job>(Patience::kConnect, [&](grpc::ClientContext& context, v1::Job& answer) {
        return session.jobs().CancelJob(&context, request, &answer);
      });
  return job.ok() ? PrintJob(flags, *job) : ReportRpc(session, job.status());
}

int RunDelete(const ClientFlags& flags, Session& session) {
  v1::DeleteJobRequest request;
  request.set_name(flags.name);
  const auto deleted = session.Call<google::protobuf::Empty>(
      Patience::kConnect, [&](grpc::ClientContext& context, google::protobuf::Empty& answer) {
        return session.jobs().DeleteJob(&context, request, &answer);
      });
  if (!deleted.ok()) return ReportRpc(session, deleted.status());
  if (flags.json) return Print(JsonLine({{"name", flags.name}, {"deleted", true}}));
  LOG(Info) << flags.name << " is deleted";
  return kExitOk;
}

int RunList(const ClientFlags& flags, Session& session) {
  v1::ListJobsRequest request;
  request.set_page_size(flags.page_size);
  request.set_filter(flags.filter);
  bool first = true;
  do {
    const auto page = session.Call<v1::ListJobsResponse>(
        Patience::kConnect, [&](grpc::ClientContext& context, v1::ListJobsResponse& answer) {
          return session.jobs().ListJobs(&context, request, &answer);
        });
    if (!page.ok()) return ReportRpc(session, page.status());
    std::string text;
    if (!flags.json) text = JobTable(page->jobs(), first);
    for (const v1::Job& job : page->jobs()) {
      if (flags.json) text += JsonLine(JobJson(job));
    }
    if (const int code = Print(text); code != kExitOk) return code;
    first = false;
    request.set_page_token(page->next_page_token());
  } while (flags.all && !request.page_token().empty());
  if (!request.page_token().empty()) LOG(Info) << "there are more jobs; --all lists them";
  return kExitOk;
}

}  // namespace snapkv::launch
