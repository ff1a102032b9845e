// SPDX-License-Identifier: Apache-2.0
// The command line of snapkv-prefill.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kernels/base/status.h"
#include "launch/input/document.h"
#include "launch/input/input_files.h"
#include "launch/output/progress.h"
#include "launch/prompt_builder.h"
#include "launch/rpc/channel.h"
#include "runtime/engine/context.h"

namespace snapkv::launch {

enum class OutputFormat : uint8_t { kText, kJsonl };
enum class LogFormat : uint8_t { kText, kJson };
enum class DTypeChoice : uint8_t { kAuto, kF32, kBf16 };

struct Flags {
  std::string model;
  std::vector<std::string> inputs;  // files, folders, patterns, "-" for stdin
  InputFormat input_format = InputFormat::kAuto;
  std::string token_ids;  // a JSON file instead of inputs
  std::string encoding = "utf-8";
  bool raw = false;
  bool strict = false;
  Overflow overflow = Overflow::kError;
  int64_t max_document_bytes = int64_t{16} << 20;
  int64_t max_line_bytes = int64_t{32} << 20;
  DocumentParams params;  // for documents that do not say otherwise
  bool ignore_eos = false;
  int64_t context = 0;  // 0: the model's
  runtime::CompressionOptions compression;
  int64_t max_batch = 8;
  int64_t cache_bytes = 0;  // 0: chosen
  DTypeChoice dtype = DTypeChoice::kAuto;
  int threads = 0;  // 0: chosen
  double comm_timeout_s = 60;
  double time_limit_s = 0;  // 0: none
  std::optional<OutputFormat> format;
  std::string output;
  bool force = false;
  bool resume = false;
  bool retry_errors = false;
  bool ordered = false;
  bool return_token_ids = false;
  ProgressMode progress = ProgressMode::kAuto;
  ServerAddress server;    // server.server not empty: a worker
  std::string model_name;  // that the worker registers; empty: of the model's file
  int64_t lease_ahead = 4;
  int64_t hold_results = 256;
  double connect_timeout_s = 0;  // 0: none
  LogFormat log_format = LogFormat::kText;
  std::string stats;
  std::string dump_selection;
  std::string dump_logits;
  bool dry_run = false;
  bool print_tokens = false;
  bool list_models = false;

  // Documents come from a job server.
  bool worker() const { return !server.server.empty(); }
  bool to_stdout() const { return output.empty() || output == "-"; }
  bool reads_jsonl() const;
  OutputFormat output_format() const {
    const bool text = output.empty() && token_ids.empty() && !reads_jsonl();
    return format.value_or(text ? OutputFormat::kText : OutputFormat::kJsonl);
  }
};

// As the flags spell them.
const char* PolicyName(runtime::CachePolicy policy);
const char* PoolName(kernels::PoolMode mode);
const char* GroupName(kernels::GroupMode mode);

// Parses and checks. Returns the exit code when the program is to end at once (after --help or an error); the
// text goes to stdout or stderr if `print`, which is true on one rank only.
std::optional<int> ParseFlags(int argc, const char* const* argv, bool print, Flags& flags);

}  // namespace snapkv::launch
