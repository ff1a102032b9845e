// SPDX-License-Identifier: Apache-2.0
// Flags by CLI11: groups, defaults, checks.
#include "launch/flags.h"

#include <CLI/CLI.hpp>
#include <charconv>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "launch/exit_codes.h"
#include "launch/output/output_files.h"
#include "runtime/text/utf8.h"

#ifndef SNAPKV_VERSION
#error "SNAPKV_VERSION comes from CMake"
#endif

namespace snapkv::launch {
namespace {

using kernels::GroupMode;
using kernels::PoolMode;
using runtime::CachePolicy;

// Checks of one value; CLI11 puts the flag's name in front of the text, "" is success.
std::string NotEmpty(const std::string& value) { return value.empty() ? "must not be empty" : ""; }

std::string IsUtf8(const std::string& value) {
  const auto bad = runtime::ValidateUtf8(value);
  return bad.has_value() ? "is not UTF-8 at byte offset " + std::to_string(*bad) : "";
}

std::string IsFileName(const std::string& value) {
  return value == "-" ? "- is stdout, which has the result: name a file" : NotEmpty(value);
}

// CLI11 takes "-1" for the largest number and cuts what is larger.
std::string IsUnsigned(const std::string& value) {
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
  if (error == std::errc() && end == value.data() + value.size()) return "";
  return "'" + value + "' is not a whole number from 0 to " + std::to_string(UINT64_MAX);
}

// CLI::Range lets NaN pass.
auto RealRange(double least, double most) {
  return [least, most](const std::string& value) {
    double number = 0;
    if (CLI::detail::lexical_cast(value, number) && number >= least && number <= most) return std::string();
    return absl::StrCat("'", value, "' is not a number from ", least, " to ", most);
  };
}

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
      ->check(NotEmpty)
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
      ->check(RealRange(0.1, 1e6))
      ->capture_default_str()
      ->group(group);
}

void AddInputFlags(CLI::App& app, Flags& f) {
  const std::string group = "Input";
  CLI::Option* const input =
      app.add_option("--input", f.input, "text file to summarise; - is stdin")->check(NotEmpty)->group(group);
  CLI::Option* const prompt =
      app.add_option("--prompt", f.prompt,
                     "the question; it stands after the document, so that the window sees it")
          ->check(IsUtf8)
          ->capture_default_str()
          ->group(group);
  CLI::Option* const system =
      app.add_option("--system", f.system, "system message (default: the model's own)")
          ->check(IsUtf8)
          ->group(group);
  AddChoice(app, group, "--encoding", f.encoding, "of the input; latin1 is converted",
            {{"utf-8", std::string("utf-8")}, {"latin1", std::string("latin1")}});
  CLI::Option* const raw =
      app.add_flag(
             "--raw", f.raw,
             "the input is the whole prompt: no template, special tokens are parsed, BOS as the model says")
          ->group(group);
  CLI::Option* const token_ids =
      app.add_option("--token-ids", f.token_ids,
                     "JSON array of token ids as the whole prompt, instead of --input")
          ->check(NotEmpty)
          ->group(group);
  for (CLI::Option* const replaced : {prompt, system}) {
    raw->excludes(replaced);
    token_ids->excludes(replaced);
  }
  for (CLI::Option* const replaced : {input, raw, app.get_option("--encoding")})
    token_ids->excludes(replaced);
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
      ->check(RealRange(0, 100))
      ->capture_default_str()
      ->group(group);
  app.add_option("--repeat-penalty", f.repeat_penalty,
                 "divides the logits of tokens generated before; 1: off")
      ->check(RealRange(0.01, 100))
      ->capture_default_str()
      ->group(group);
  app.add_option("--seed", f.seed, "of sampling")->check(IsUnsigned)->capture_default_str()->group(group);
  app.add_flag("--ignore-eos", f.ignore_eos, "generate --max-tokens tokens whatever they are")->group(group);
  // One text per flag, read as results() after parsing: CLI11 would take "[a,b]" for two and "{}" for none.
  app.add_option("--stop", f.stops, "text that ends the summary; repeatable")
      ->check(NotEmpty)
      ->check(IsUtf8)
      ->expected(1)
      ->allow_extra_args(false)
      ->take_all()
      ->group(group);
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
  app.add_option("--output", f.output, "file for the result; - is stdout")->check(NotEmpty)->group(group);
  app.add_flag("--force", f.force, "overwrite an existing --output")->group(group);
  app.add_flag("--return-token-ids", f.return_token_ids,
               "add token_ids to the record (implied by --token-ids)")
      ->group(group);
  app.add_option("--stats", f.stats, "JSON file for time, bytes and memory per rank and phase")
      ->check(IsFileName)
      ->group(group);
  app.add_option("--dump-selection", f.dump_selection,
                 "safetensors file for the kept positions of each layer")
      ->check(IsFileName)
      ->group(group);
  app.add_option("--dump-logits", f.dump_logits, "safetensors file for the logits of the last prompt token")
      ->check(IsFileName)
      ->group(group);
}

// What no single flag can know.
absl::Status CheckTogether(Flags& f) {
  if (f.list_models) return absl::OkStatus();
  if (f.model.empty())
    return InvalidArgument("--model is required: a GGUF file, or a name from --list-models");
  if (f.token_ids.empty() && f.input.empty())
    return InvalidArgument("--input is required: a text file, or - for stdin (or --token-ids)");
  if (f.input.ends_with(".jsonl")) {
    return InvalidArgument("--input ", f.input,
                           ": one text document is read; JSONL batches are not supported yet");
  }
  if (f.force && f.output.empty()) return InvalidArgument("--force has no meaning without --output");
  if (f.return_token_ids && f.output_format() == OutputFormat::kText) {
    return InvalidArgument("--return-token-ids needs --format jsonl");
  }
  f.return_token_ids |= !f.token_ids.empty();
  return runtime::ValidateCompression(f.compression);
}

// --help and --version.
int ShowText(const std::string& text) {
  const absl::Status status = WriteStdout(text);
  if (status.ok()) return kExitOk;
  std::fprintf(stderr, "snapkv-prefill: error: %s\n", std::string(status.message()).c_str());
  return kExitOutputNotWritable;
}

}  // namespace

std::optional<int> ParseFlags(int argc, const char* const* argv, bool print, Flags& flags) {
  CLI::App app(
      "Summarises or questions one long document: ring prefill over MPI ranks, exact SnapKV, decode.",
      "snapkv-prefill");
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
  app.set_version_flag("--version", std::string("snapkv-prefill ") + SNAPKV_VERSION,
                       "print the version and end")
      ->group("Other");
  app.set_help_flag("-h,--help", "this text")->group("Other");  // last, as is its group
  absl::Status status;
  try {
    app.parse(argc, argv);
    flags.stops = app.get_option("--stop")->results();
    status = CheckTogether(flags);
  } catch (const CLI::CallForHelp&) {
    return print ? ShowText(app.help()) : kExitOk;
  } catch (const CLI::CallForVersion& e) {
    return print ? ShowText(std::string(e.what()) + "\n") : kExitOk;
  } catch (const CLI::ExtrasError& e) {
    status = InvalidArgument(std::string(e.what()), "; files are named by flags: --input FILE");
  } catch (const CLI::ParseError& e) {
    status = InvalidArgument(std::string(e.what()));
  }
  if (status.ok()) return std::nullopt;
  if (print)
    std::fprintf(stderr, "snapkv-prefill: error: %s\nRun with --help for all flags.\n",
                 std::string(status.message()).c_str());
  return kExitUsage;
}

}  // namespace snapkv::launch
