// SPDX-License-Identifier: Apache-2.0
// Shared parts of the subcommands.
#include "launch/client/command_support.h"

#include <algorithm>
#include <cstdio>
#include <random>

#include "launch/client/job_text.h"
#include "launch/client/text.h"
#include "launch/output/output_files.h"
#include "launch/report.h"
#include "launch/signals.h"

namespace snapkv::launch {

int ReportRpc(const Session& session, const absl::Status& error) {
  const int code = RpcExitCode(error);
  if (code == kExitUnreachable || code == kExitServerRefused)
    LOG(Error) << ErrorSentence(error, session.server());
  return code;
}

int ReportFetch(const Session& session, const RecordSink& sink, const absl::Status& error) {
  if (const absl::Status written = sink.status(); !written.ok())
    return Report(written, kExitOutputNotWritable);
  return ReportRpc(session, error);
}

std::shared_ptr<DocumentSource> OpenSource(const ClientFlags& flags, int& exit_code) {
  SourceOptions options;
  options.inputs = flags.inputs;
  options.defaults = flags.params;
  options.encoding = flags.encoding;
  options.format = flags.input_format;
  options.max_document_bytes = flags.max_document_bytes;
  options.max_line_bytes = flags.max_line_bytes;
  options.stop = [] { return PendingSignal() != 0; };
  auto source = DocumentSource::Open(std::move(options));
  if (source.ok()) return *std::move(source);
  exit_code = Report(source.status(), kExitInputUnreadable);
  return nullptr;
}

bool OpenOutput(const ClientFlags& flags, const DocumentSource* source, OutputLogOptions options,
                std::shared_ptr<OutputLog>& log, int& exit_code) {
  if (flags.to_stdout()) return true;
  const std::vector<std::string> none;
  absl::Status status =
      CheckOutputs({{.flag = "--output", .path = flags.output}}, source != nullptr ? source->files() : none);
  if (status.ok()) {
    options.path = flags.output;
    options.force = flags.force;
    auto opened = OutputLog::Open(options);
    status = Annotate(opened.status(), "--output");
    if (opened.ok()) log = *std::move(opened);
  }
  if (status.ok()) return true;
  exit_code = Report(status, absl::IsInvalidArgument(status) ? kExitUsage : kExitOutputNotWritable);
  return false;
}

int JobExitCode(const v1::Job& job) {
  if (job.state() == v1::Job::SUCCEEDED) return job.counts().failed() > 0 ? kExitDocumentsFailed : kExitOk;
  const std::string why = Printable(job.status().message());
  const std::string reason = Printable(job.status().reason());
  LOG(Error) << StateName(job.state()) << ": the job " << Printable(job.name()) << " has ended with "
             << CountsText(job.counts()) << (why.empty() ? "" : ": ") << reason
             << (reason.empty() || why.empty() ? "" : ": ") << why;
  return kExitJobFailed;
}

ProgressState ToProgress(const v1::JobEvent& event, const v1::Job& job, int64_t before) {
  const v1::Job::Counts& c = job.counts();
  ProgressState state;
  state.total = c.documents();
  state.skipped = std::min(before, c.succeeded());
  state.done = c.succeeded() - state.skipped;
  state.failed = c.failed();
  state.active = c.running();
  state.prompt_tokens = c.prompt_tokens();
  state.generated_tokens = c.completion_tokens();
  for (const v1::DocumentProgress& document : event.documents()) {
    const v1::Progress& p = document.progress();
    state.prompt_tokens += static_cast<int64_t>(std::clamp(p.prefill_fraction(), 0.0, 1.0) *
                                                static_cast<double>(p.prompt_tokens()));
    state.generated_tokens += p.generated_tokens();
  }
  return state;
}

int Print(const std::string& text) {
  const absl::Status status = WriteStdout(text);
  return status.ok() ? kExitOk : Report(status, kExitOutputNotWritable);
}

std::string NewRequestId(const std::string& prefix) {
  std::random_device random;
  char digits[17];
  std::snprintf(digits, sizeof(digits), "%08x%08x", random(), random());
  return prefix + digits;
}

}  // namespace snapkv::launch
