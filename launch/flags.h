// SPDX-License-Identifier: Apache-2.0
// The command line of snapkv-prefill.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kernels/base/status.h"
#include "runtime/engine/context.h"

namespace snapkv::launch {

enum class OutputFormat : uint8_t { kText, kJsonl };
enum class DTypeChoice : uint8_t { kAuto, kF32, kBf16 };

struct Flags {
  std::string model;
  std::string input;      // a path, or "-" for stdin
  std::string token_ids;  // a JSON file instead of text
  std::string encoding = "utf-8";
  bool raw = false;
  std::string prompt = "Summarize the document above in one short paragraph.";
  std::string system;
  int64_t max_tokens = 256;
  int64_t context = 0;  // 0: the model's
  runtime::CompressionOptions compression;
  DTypeChoice dtype = DTypeChoice::kAuto;
  int threads = 0;  // 0: chosen
  double temperature = 0;
  double repeat_penalty = 1;
  uint64_t seed = 0;
  bool ignore_eos = false;
  std::vector<std::string> stops;
  double comm_timeout_s = 60;
  std::optional<OutputFormat> format;
  std::string output;
  bool force = false;
  bool return_token_ids = false;
  std::string stats;
  std::string dump_selection;
  std::string dump_logits;
  bool dry_run = false;
  bool print_tokens = false;
  bool list_models = false;

  OutputFormat output_format() const {
    return format.value_or(output.empty() && token_ids.empty() ? OutputFormat::kText : OutputFormat::kJsonl);
  }
};

// Parses and checks. Returns the exit code when the program is to end at once (after --help or an error); the
// text goes to stdout or stderr if `print`, which is true on one rank only.
std::optional<int> ParseFlags(int argc, const char* const* argv, bool print, Flags& flags);

}  // namespace snapkv::launch
