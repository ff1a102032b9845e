// SPDX-License-Identifier: Apache-2.0
// batch --dry-run: the input is read and checked as a batch would, and nothing is sent.
#include "launch/client/command_support.h"
#include "launch/client/commands.h"
#include "launch/client/documents.h"
#include "launch/client/job_text.h"
#include "launch/client/submission.h"
#include "launch/client/text.h"
#include "launch/output/output_files.h"
#include "launch/report.h"
#include "launch/signals.h"

namespace snapkv::launch {

int RunDryRun(const ClientFlags& flags) {
  int exit_code = kExitOk;
  const auto source = OpenSource(flags, exit_code);
  if (!source) return exit_code;
  if (!flags.to_stdout()) {
    const absl::Status status = CheckOutputs({{.flag = "--output", .path = flags.output}}, source->files());
    if (!status.ok())
      return Report(status, absl::IsInvalidArgument(status) ? kExitUsage : kExitOutputNotWritable);
  }
  constexpr int64_t kMostShown = 20;
  const v1::Limits limits = DefaultLimits();
  int64_t documents = 0, bad = 0, bytes = 0, jobs = 0, job_documents = 0, job_bytes = 0;
  for (;;) {
    auto item = source->Next();
    if (!item.ok()) return Report(item.status(), InputExitCode(item.status()));
    if (PendingSignal() != 0) return 128 + PendingSignal();
    if (!item->has_value()) break;
    if (!(*item)->error.ok()) {
      if (++bad <= kMostShown) {
        const DocumentError& error = (*item)->error;
        std::string place;
        if (error.line > 0) place = absl::StrCat("line ", error.line, ": ");
        if (error.line > 0 && error.column > 0)
          place = absl::StrCat("line ", error.line, " column ", error.column, ": ");
        LOG(Error) << error.reason << ": " << place << Printable(ErrorLine((*item)->document, error));
      }
      if (bad == kMostShown) LOG(Error) << "further errors are counted only";
      if (flags.strict) return kExitJobFailed;
      continue;
    }
    const v1::Document document = ToProto(std::move((*item)->document));
    const auto size = static_cast<int64_t>(document.content().size());
    ++documents;
    bytes += size;
    if (jobs == 0 || job_documents == limits.max_job_documents() ||
        job_bytes + size > limits.max_job_bytes()) {
      ++jobs;
      job_documents = job_bytes = 0;
    }
    ++job_documents;
    job_bytes += size;
  }
  const int printed =
      Print(flags.json ? JsonLine({{"documents", documents}, {"bad", bad}, {"bytes", bytes}, {"jobs", jobs}})
                       : absl::StrCat(DocumentsText(documents), ", ", bytes, " bytes, ", jobs,
                                      jobs == 1 ? " job, " : " jobs, ", bad,
                                      bad == 1 ? " bad line\n" : " bad lines\n"));
  if (printed != kExitOk) return printed;
  return bad > 0 ? kExitDocumentsFailed : kExitOk;
}

}  // namespace snapkv::launch
