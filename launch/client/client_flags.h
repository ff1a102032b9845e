// SPDX-License-Identifier: Apache-2.0
// The command line of snapkv.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "launch/client/session.h"
#include "launch/input/document_source.h"
#include "launch/output/progress.h"
#include "snapkv/v1/jobs.pb.h"

namespace snapkv::launch {

struct ClientFlags {
  std::string command;  // of which what follows is filled in as far as it has such flags
  // All.
  SessionOptions session;
  bool json = false;
  bool quiet = false;
  ProgressMode progress = ProgressMode::kAuto;
  // submit and batch: documents.
  std::vector<std::string> inputs;
  InputFormat input_format = InputFormat::kAuto;
  std::string encoding = "utf-8";
  int64_t max_document_bytes = int64_t{16} << 20;
  int64_t max_line_bytes = int64_t{32} << 20;
  DocumentParams params;
  // submit and batch: the job. Of its parameters only those that were given.
  v1::Job job;
  std::string request_id;
  int parallel = 4;
  // Output of submit, results and batch.
  std::string output;
  bool force = false;
  bool return_token_ids = false;
  bool wait = false;  // submit
  std::string resume_job;
  bool resume = false;  // batch
  bool retry_errors = false;
  bool ordered = false;
  bool strict = false;
  bool dry_run = false;
  // The others.
  std::string name;  // jobs/{job}
  std::string reason;
  bool follow = false;
  int64_t after = 0;
  std::string filter;
  int page_size = 50;
  bool all = false;
  std::string service;

  bool to_stdout() const { return output.empty() || output == "-"; }
};

// Parses and checks. Returns the exit code when the program is to end at once (after --help or an error);
// texts go to stdout and stderr.
std::optional<int> ParseClientFlags(int argc, const char* const* argv, ClientFlags& flags);

// "jobs/x" for "x"; "models/m" for "m".
std::string FullName(const std::string& kind, const std::string& name);

}  // namespace snapkv::launch
