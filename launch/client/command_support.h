// SPDX-License-Identifier: Apache-2.0
// What several subcommands need: errors and their exit codes, the input, the output, the end of a job.
#pragma once

#include <memory>
#include <string>

#include "launch/client/client_flags.h"
#include "launch/client/record_sink.h"
#include "launch/client/session.h"

namespace snapkv::launch {

// Says what a call ended with; the exit code.
int ReportRpc(const Session& session, const absl::Status& error);
// An error while records are fetched: of the output if `sink` failed, else of the call.
int ReportFetch(const Session& session, const RecordSink& sink, const absl::Status& error);

// Errors of the flags and unreadable inputs are said; then null and the exit code.
std::shared_ptr<DocumentSource> OpenSource(const ClientFlags& flags, int& exit_code);

// The file of --output, with the checks of OutputLog; null for stdout. `source`: null without an input.
// False: said, and exit_code is set.
bool OpenOutput(const ClientFlags& flags, const DocumentSource* source, OutputLogOptions options,
                std::shared_ptr<OutputLog>& log, int& exit_code);

// What a job's last state means: 0, 1, or 7 (said on stderr).
int JobExitCode(const v1::Job& job);

// What Progress shows of a job. `before`: documents that were done when watching began.
ProgressState ToProgress(const v1::JobEvent& event, const v1::Job& job, int64_t before);

// To stdout; kExitOk or kExitOutputNotWritable.
int Print(const std::string& text);

// "cli-" and 16 random hexadecimal digits.
std::string NewRequestId(const std::string& prefix);

}  // namespace snapkv::launch
