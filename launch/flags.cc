// SPDX-License-Identifier: Apache-2.0
// Flags by CLI11: groups, defaults, checks.
#include "launch/flags.h"

#include <CLI/CLI.hpp>
#include <algorithm>
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

// "64K" -> 65536; nullopt for anything that is no such number.
std::optional<int64_t> ParseBytes(const std::string& text) {
  int64_t number = 0;
  const char* const last = text.data() + text.size();
  auto [end, error] = std::from_chars(text.data(), last, number);
  if (error != std::errc() || number < 0) return std::nullopt;
  int shift = 0;
  if (end != last) {
    const size_t unit = std::string("KMGT").find(*end++);
    if (unit == std::string::npos || end != last) return std::nullopt;
    shift = 10 * (static_cast<int>(unit) + 1);
  }
  if (number > INT64_MAX >> shift) return std::nullopt;
  return number << shift;
}

std::string ShowBytes(int64_t bytes) {
  const char* const units[] = {"", "K", "M", "G", "T"};
  size_t unit = 0;
  for (; bytes != 0 && bytes % 1024 == 0 && unit < 4; ++unit) bytes /= 1024;
  return absl::StrCat(bytes, units[unit]);
}

// CLI::Range lets NaN pass.
auto RealRange(double least, double most) {
  return [least, most](const std::string& value) {
    double number = 0;
    if (CLI::detail::lexical_cast(value, number) && number >= least && number <= most) return std::string();
    return absl::StrCat("'", value, "' is not a number from ", least, " to ", most);
  };
}

// A repeatable flag of texts, read as results() after parsing: CLI11 would take "[a,b]" for two and "{}" for
// none.
CLI::Option* AddTexts(CLI::App& app, const std::string& name, std::vector<std::string>& values,
                      const std::string& help) {
  return app.add_option(name, values, help)
      ->check(NotEmpty)
      ->expected(1)
      ->allow_extra_args(false)
      ->take_all();
}

// A flag of bytes, at least 1, with an optional unit: K, M, G, T are powers of 1024.
CLI::Option* AddBytes(CLI::App& app, const std::string& group, const std::string& name, int64_t& value,
                      const std::string& help, int64_t least = 1) {
  return app
      .add_option_function<std::string>(
          name,
          [&value, name, least](const std::string& text) {
            const auto bytes = ParseBytes(text);
            if (!bytes.has_value() || *bytes < least) {
              throw CLI::ValidationError(name, absl::StrCat("'", text, "' is not a number of bytes from ",
                                                            least, "; write e.g. 500000, 64K, 16M or 2G"));
            }
            value = *bytes;
          },
          help)
      ->type_name("BYTES")
      ->default_str(ShowBytes(value))
      ->group(group);
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

// The words that `name` has for `values`.
template <class T>
std::vector<std::pair<std::string, T>> Named(const char* (*name)(T), std::initializer_list<T> values) {
  std::vector<std::pair<std::string, T>> choices;
  for (const T value : values) choices.emplace_back(name(value), value);
  return choices;
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
      AddTexts(app, "--input", f.inputs,
               "text file, JSONL file, folder (its *.txt and *.md), pattern, or - for stdin; repeatable")
          ->group(group);
  AddChoice(app, group, "--input-format", f.input_format,
            "of files; auto: *.jsonl and *.ndjson are JSONL, all else and stdin text",
            {{"auto", InputFormat::kAuto}, {"text", InputFormat::kText}, {"jsonl", InputFormat::kJsonl}});
  CLI::Option* const prompt =
      app.add_option("--prompt", f.params.prompt,
                     "the question; it stands after the document, so that the window sees it")
          ->check(IsUtf8)
          ->capture_default_str()
          ->group(group);
  CLI::Option* const system =
      app.add_option("--system", f.params.system, "system message (default: the model's own)")
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
  for (CLI::Option* const replaced :
       {input, raw, app.get_option("--encoding"), app.get_option("--input-format")})
    token_ids->excludes(replaced);
  AddChoice(app, group, "--overflow", f.overflow,
            "a document over the context is an error, or its middle is left out",
            {{"error", Overflow::kError}, {"middle", Overflow::kMiddle}});
  app.add_flag("--strict", f.strict, "the first bad line or document ends the batch (exit code 7)")
      ->group(group);
  AddBytes(app, group, "--max-document-bytes", f.max_document_bytes, "a longer document is an error");
  AddBytes(app, group, "--max-line-bytes", f.max_line_bytes, "a longer JSONL line is an error");
  app.add_option("--context", f.context, "limit of prompt plus generated tokens; 0: the model's")
      ->check(CLI::Range(int64_t{0}, int64_t{INT32_MAX}))
      ->capture_default_str()
      ->group(group);
}

void AddCompressionFlags(CLI::App& app, Flags& f) {
  const std::string group = "Cache compression";
  AddChoice(app, group, "--policy", f.compression.policy,
            "snapkv keeps --capacity rows per layer and KV head; full keeps all",
            Named(PolicyName, {CachePolicy::kSnapKv, CachePolicy::kFull}));
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
            Named(PoolName, {PoolMode::kMax, PoolMode::kAvg, PoolMode::kNone}));
  AddChoice(app, group, "--group", f.compression.group,
            "reduction over the query heads of a KV head; none: a selection per query head",
            Named(GroupName, {GroupMode::kMean, GroupMode::kMax, GroupMode::kSum, GroupMode::kNone}));
}

void AddGenerationFlags(CLI::App& app, Flags& f) {
  const std::string group = "Generation";
  DocumentParams& p = f.params;
  app.add_option("--max-tokens", p.max_tokens, "tokens to generate at most")
      ->check(CLI::Range(int64_t{1}, int64_t{INT32_MAX}))
      ->capture_default_str()
      ->group(group);
  app.add_option("--temperature", p.temperature, "0 takes the likeliest token")
      ->check(RealRange(0, 100))
      ->capture_default_str()
      ->group(group);
  app.add_option("--top-k", p.top_k, "draw from the k likeliest tokens; 0: off")
      ->check(CLI::Range(int64_t{0}, int64_t{INT32_MAX}))
      ->capture_default_str()
      ->group(group);
  app.add_option("--top-p", p.top_p,
                 "draw from the likeliest tokens that together have this probability; 1: off")
      ->check(RealRange(1e-6, 1))
      ->capture_default_str()
      ->group(group);
  app.add_option("--min-p", p.min_p, "draw from tokens at least this probable beside the likeliest; 0: off")
      ->check(RealRange(0, 1))
      ->capture_default_str()
      ->group(group);
  app.add_option("--repeat-penalty", p.repeat_penalty,
                 "divides the logits of tokens generated before; 1: off")
      ->check(RealRange(0.01, 100))
      ->capture_default_str()
      ->group(group);
  app.add_option("--seed", p.seed, "of sampling; a document's draws depend on it and the document's id")
      ->check(IsUnsigned)
      ->capture_default_str()
      ->group(group);
  app.add_flag("--ignore-eos", f.ignore_eos, "generate --max-tokens tokens whatever they are")->group(group);
  AddTexts(app, "--stop", p.stops, "text that ends the summary; repeatable")->check(IsUtf8)->group(group);
  app.add_option("--stop-token-id", p.stop_token_ids, "token that ends the summary; repeatable")
      ->check(CLI::Range(0, INT32_MAX))
      ->expected(1)
      ->allow_extra_args(false)
      ->take_all()
      ->group(group);
}

void AddBatchFlags(CLI::App& app, Flags& f) {
  const std::string group = "Batch";
  app.add_option("--max-batch", f.max_batch, "documents that decode together")
      ->check(CLI::Range(int64_t{1}, runtime::kTokenBlock))
      ->capture_default_str()
      ->group(group);
  AddBytes(app, group, "--cache-bytes", f.cache_bytes,
           "limit for the caches of documents that decode together; more documents wait; 0: half of the "
           "memory that is free at the start",
           0);
  app.add_option("--time-limit", f.time_limit_s,
                 "seconds after which no further document is started; open ones are finished, exit code 124; "
                 "0: none")
      ->check(RealRange(0, 1e9))
      ->capture_default_str()
      ->group(group);
  AddChoice(app, group, "--progress", f.progress,
            "on stderr; auto: a bar on a terminal, else a line every 30 s",
            {{"auto", ProgressMode::kAuto},
             {"bar", ProgressMode::kBar},
             {"lines", ProgressMode::kLines},
             {"none", ProgressMode::kNone}});
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
         "text: summaries; jsonl: a record per document (default with --output, --token-ids or JSONL input)")
      ->type_name("text|jsonl")
      ->group(group);
  app.add_option("--output", f.output, "file for the results; - is stdout")->check(NotEmpty)->group(group);
  app.add_flag("--force", f.force, "overwrite an existing --output")->group(group);
  app.add_flag("--resume", f.resume, "go on with an existing --output: skip the documents it has")
      ->group(group);
  app.add_flag("--retry-errors", f.retry_errors, "with --resume: do the documents again that failed")
      ->group(group);
  app.add_flag("--ordered", f.ordered, "results in the order of the input, not as they finish")->group(group);
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

absl::Status CheckOutputFlags(const Flags& f) {
  const bool to_file = !f.output.empty() && f.output != "-";
  if (f.force && f.output.empty()) return InvalidArgument("--force has no meaning without --output");
  if (f.force && f.resume)
    return InvalidArgument("--resume goes on with --output, --force overwrites it: choose one");
  if (f.resume && !to_file) return InvalidArgument("--resume needs the --output FILE to go on with");
  if (f.resume && f.output_format() == OutputFormat::kText)
    return InvalidArgument("--resume needs --format jsonl: text does not say which documents it has");
  if (f.retry_errors && !f.resume) return InvalidArgument("--retry-errors has no meaning without --resume");
  if (f.return_token_ids && f.output_format() == OutputFormat::kText)
    return InvalidArgument("--return-token-ids needs --format jsonl");
  return absl::OkStatus();
}

// What no single flag can know.
absl::Status CheckTogether(Flags& f) {
  if (f.list_models) return absl::OkStatus();
  if (f.model.empty())
    return InvalidArgument("--model is required: a GGUF file, or a name from --list-models");
  if (f.token_ids.empty() && f.inputs.empty())
    return InvalidArgument("--input is required: a file or folder, or - for stdin (or --token-ids)");
  RETURN_IF_ERROR(CheckOutputFlags(f));
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

const char* PolicyName(CachePolicy policy) { return policy == CachePolicy::kFull ? "full" : "snapkv"; }

const char* PoolName(PoolMode mode) {
  constexpr const char* kNames[] = {"none", "max", "avg"};
  return kNames[static_cast<int>(mode)];
}

const char* GroupName(GroupMode mode) {
  constexpr const char* kNames[] = {"none", "mean", "max", "sum"};
  return kNames[static_cast<int>(mode)];
}

bool Flags::reads_jsonl() const {
  if (input_format != InputFormat::kAuto) return input_format == InputFormat::kJsonl;
  return std::any_of(inputs.begin(), inputs.end(), [](const std::string& input) {
    return input.ends_with(".jsonl") || input.ends_with(".ndjson");
  });
}

std::optional<int> ParseFlags(int argc, const char* const* argv, bool print, Flags& flags) {
  CLI::App app(
      "Summarises or questions long documents: ring prefill over MPI ranks, exact SnapKV, batched decode.",
      "snapkv-prefill");
  app.footer(
      "Examples:\n  mpirun -np 4 snapkv-prefill --model smollm2 --input report.txt --capacity 1024\n"
      "  mpirun -np 4 snapkv-prefill --model smollm2 --input docs.jsonl --output out.jsonl --resume\n"
      "Exit codes: 0 done, 1 some documents failed, 2 usage, 3 input or model unreadable, or no document, 6 output not "
      "writable, 7 the job\n"
      "failed, 70 a rank was lost or late, 124 --time-limit, 130 SIGINT, 143 SIGTERM (open documents are "
      "finished first;\n"
      "after 70, 124, 130 and 143 start again with --resume).");
  AddInputFlags(app, flags);
  AddGenerationFlags(app, flags);
  AddCompressionFlags(app, flags);
  AddBatchFlags(app, flags);
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
    flags.params.stops = app.get_option("--stop")->results();
    flags.inputs = app.get_option("--input")->results();
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
