// SPDX-License-Identifier: Apache-2.0
// Flags by CLI11: groups, defaults, checks.
#include "launch/flags.h"

#include <CLI/CLI.hpp>
#include <cmath>
#include <cstdio>
#include <map>
#include <sstream>

#include "launch/exit_codes.h"

#ifndef SNAPKV_VERSION
#error "SNAPKV_VERSION comes from CMake"
#endif

namespace snapkv::launch {
namespace {

using kernels::GroupMode;
using kernels::PoolMode;
using runtime::CachePolicy;

// A flag that takes one of a few words.
template <class T>
void AddChoice(CLI::App& app, const std::string& group, const std::string& name, T& value,
               const std::string& help, std::vector<std::pair<std::string, T>> choices) {
  std::string shown, fallback;
  for (const auto& [word, choice] : choices) {
    shown += (shown.empty() ? "" : "|") + word;
    if (choice == value) fallback = word;
  }
  app.add_option_function<std::string>(
         name,
         [&value, choices, name, shown](const std::string& word) {
           for (const auto& [known, choice] : choices) {
             if (word == known) {
               value = choice;
               return;
             }
           }
           throw CLI::ValidationError(name, "'" + word + "' is not one of " + shown);
         },
         help)
      ->type_name(shown)
      ->default_str(fallback)
      ->group(group);
}

void AddModelFlags(CLI::App& app, Flags& f) {
  const std::string group = "Model and device";
  app.add_option("--model", f.model, "GGUF file, or the name of a cached model (see --list-models)")
      ->group(group);
  AddChoice(app, group, "--dtype", f.dtype,
            "type of weights, activations and cache; auto: bf16 where the CPU multiplies it fast (AMX)",
            {{"auto", DTypeChoice::kAuto}, {"f32", DTypeChoice::kF32}, {"bf16", DTypeChoice::kBf16}});
  app.add_option("--threads", f.threads,
                 "threads per rank; 0: this process's CPUs divided by the ranks that share them")
      ->check(CLI::Range(0, 4096))
      ->capture_default_str()
      ->group(group);
  app.add_option("--comm-timeout", f.comm_timeout_s,
                 "seconds to wait for another rank before all ranks end with code 70")
      ->check(CLI::Range(0.1, 1e6))
      ->capture_default_str()
      ->group(group);
}

void AddInputFlags(CLI::App& app, Flags& f) {
  const std::string group = "Input";
  app.add_option("--input", f.input, "text file to summarise; - is stdin")->group(group);
  app.add_option("--prompt", f.prompt,
                 "the question; it stands after the document, so that the window sees it")
      ->capture_default_str()
      ->group(group);
  app.add_option("--system", f.system, "system message (default: the model's own)")->group(group);
  AddChoice(app, group, "--encoding", f.encoding, "of the input; latin1 is converted",
            {{"utf-8", std::string("utf-8")}, {"latin1", std::string("latin1")}});
  app.add_flag("--raw", f.raw,
               "the input is the whole prompt: no template, special tokens are parsed, BOS as the model says")
      ->group(group);
  app.add_option("--token-ids", f.token_ids,
                 "JSON array of token ids as the whole prompt, instead of --input")
      ->group(group);
  app.add_option("--context", f.context, "limit of prompt plus generated tokens; 0: the model's")
      ->check(CLI::Range(int64_t{0}, int64_t{INT32_MAX}))
      ->capture_default_str()
      ->group(group);
}

void AddCompressionFlags(CLI::App& app, Flags& f) {
  const std::string group = "Cache compression";
  AddChoice(app, group, "--policy", f.compression.policy,
            "snapkv keeps --capacity rows per layer and KV head; full keeps all",
            {{"snapkv", CachePolicy::kSnapKv}, {"full", CachePolicy::kFull}});
  app.add_option("--capacity", f.compression.capacity, "rows kept, window included")
      ->check(CLI::Range(int64_t{1}, int64_t{INT32_MAX}))
      ->capture_default_str()
      ->group(group);
  app.add_option("--window", f.compression.window, "prompt tokens at the end that observe the rest")
      ->check(CLI::Range(int64_t{1}, int64_t{INT32_MAX}))
      ->capture_default_str()
      ->group(group);
  app.add_option("--kernel", f.compression.kernel, "pooling width, odd")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str()
      ->group(group);
  AddChoice(app, group, "--pool", f.compression.pool, "pooling of scores along positions",
            {{"max", PoolMode::kMax}, {"avg", PoolMode::kAvg}, {"none", PoolMode::kNone}});
  AddChoice(app, group, "--group", f.compression.group,
            "reduction over the query heads of a KV head; none: a selection per query head",
            {{"mean", GroupMode::kMean},
             {"max", GroupMode::kMax},
             {"sum", GroupMode::kSum},
             {"none", GroupMode::kNone}});
}

void AddGenerationFlags(CLI::App& app, Flags& f) {
  const std::string group = "Generation";
  app.add_option("--max-tokens", f.max_tokens, "tokens to generate at most")
      ->check(CLI::Range(int64_t{1}, int64_t{INT32_MAX}))
      ->capture_default_str()
      ->group(group);
  app.add_option("--temperature", f.temperature, "0 takes the likeliest token")
      ->check(CLI::Range(0.0, 100.0))
      ->capture_default_str()
      ->group(group);
  app.add_option("--repeat-penalty", f.repeat_penalty,
                 "divides the logits of tokens generated before; 1: off")
      ->check(CLI::Range(0.01, 100.0))
      ->capture_default_str()
      ->group(group);
  app.add_option("--seed", f.seed, "of sampling")->capture_default_str()->group(group);
  app.add_flag("--ignore-eos", f.ignore_eos, "generate --max-tokens tokens whatever they are")->group(group);
  app.add_option("--stop", f.stops, "text that ends the summary; repeatable")->take_all()->group(group);
}

void AddOutputFlags(CLI::App& app, Flags& f) {
  const std::string group = "Output";
  app.add_option_function<std::string>(
         "--format",
         [&f](const std::string& word) {
           if (word == "text")
             f.format = OutputFormat::kText;
           else if (word == "jsonl")
             f.format = OutputFormat::kJsonl;
           else
             throw CLI::ValidationError("--format", "'" + word + "' is not one of text|jsonl");
         },
         "text: the summary; jsonl: a record (default with --output or --token-ids)")
      ->type_name("text|jsonl")
      ->group(group);
  app.add_option("--output", f.output, "file for the result; - is stdout")->group(group);
  app.add_flag("--force", f.force, "overwrite an existing --output")->group(group);
  app.add_flag("--return-token-ids", f.return_token_ids,
               "add token_ids to the record (implied by --token-ids)")
      ->group(group);
  app.add_option("--stats", f.stats, "JSON file for time, bytes and memory per rank and phase")->group(group);
  app.add_option("--dump-selection", f.dump_selection,
                 "safetensors file for the kept positions of each layer")
      ->group(group);
  app.add_option("--dump-logits", f.dump_logits, "safetensors file for the logits of the last prompt token")
      ->group(group);
}

// What no single flag can know.
absl::Status CheckTogether(Flags& f) {
  if (f.list_models) return absl::OkStatus();
  if (f.model.empty())
    return InvalidArgument("--model is required: a GGUF file, or a name from --list-models");
  if (!f.token_ids.empty() && (!f.input.empty() || f.raw)) {
    return InvalidArgument("--token-ids is the whole prompt: it excludes --input and --raw");
  }
  if (f.token_ids.empty() && f.input.empty())
    return InvalidArgument("--input is required: a text file, or - for stdin");
  if (f.input.ends_with(".jsonl")) {
    return InvalidArgument("--input ", f.input,
                           ": one text document is read; JSONL batches are not supported yet");
  }
  if (f.force && f.output.empty()) return InvalidArgument("--force has no meaning without --output");
  if (f.output_format() == OutputFormat::kText && (f.return_token_ids || !f.token_ids.empty()) &&
      f.format.has_value() && f.return_token_ids) {
    return InvalidArgument("--return-token-ids needs --format jsonl");
  }
  f.return_token_ids |= !f.token_ids.empty();
  if (!std::isfinite(f.temperature) || !std::isfinite(f.repeat_penalty)) {
    return InvalidArgument("--temperature and --repeat-penalty must be finite numbers");
  }
  for (const std::string& stop : f.stops) {
    if (stop.empty()) return InvalidArgument("--stop must not be empty");
  }
  return runtime::ValidateCompression(f.compression);
}

}  // namespace

std::optional<int> ParseFlags(int argc, const char* const* argv, bool print, Flags& flags) {
  CLI::App app(
      "Summarises or questions one long document: ring prefill over MPI ranks, exact SnapKV, decode.",
      "snapkv-prefill");
  app.set_version_flag("--version", std::string("snapkv-prefill ") + SNAPKV_VERSION)->group("Other");
  app.set_help_flag("-h,--help", "this text")->group("Other");
  app.footer(
      "Example:\n  mpirun -np 4 snapkv-prefill --model smollm2 --input report.txt --capacity 1024\n"
      "Exit codes: 0 done, 1 the document failed, 2 usage, 3 input or model unreadable, 6 output not "
      "writable, 7 the job\n"
      "failed, 70 a rank was lost or late.");
  AddInputFlags(app, flags);
  AddGenerationFlags(app, flags);
  AddCompressionFlags(app, flags);
  AddModelFlags(app, flags);
  AddOutputFlags(app, flags);
  app.add_flag("--dry-run", flags.dry_run, "check everything, print what would be done, load no weights")
      ->group("Other");
  app.add_flag("--print-tokens", flags.print_tokens, "print the prompt's tokens, one a line, and end")
      ->group("Other");
  app.add_flag("--list-models", flags.list_models, "print the cached models and end")->group("Other");
  absl::Status status;
  try {
    app.parse(argc, argv);
    status = CheckTogether(flags);
  } catch (const CLI::ParseError& e) {
    if (e.get_exit_code() == static_cast<int>(CLI::ExitCodes::Success)) {  // --help, --version
      if (print) app.exit(e);
      return kExitOk;
    }
    status = InvalidArgument(std::string(e.what()));
  }
  if (status.ok()) return std::nullopt;
  if (print)
    std::fprintf(stderr, "snapkv-prefill: error: %s\nRun with --help for all flags.\n",
                 std::string(status.message()).c_str());
  return kExitUsage;
}

}  // namespace snapkv::launch
