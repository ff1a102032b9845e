// SPDX-License-Identifier: Apache-2.0
// Flags by CLI11: groups, defaults, checks.
#include "launch/flags.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "launch/exit_codes.h"
#include "launch/flag_types.h"
#include "launch/output/output_files.h"
#include "launch/param_flags.h"

#ifndef SNAPKV_VERSION
#error "SNAPKV_VERSION comes from CMake"
#endif

namespace snapkv::launch {
namespace {

using kernels::GroupMode;
using kernels::PoolMode;
using runtime::CachePolicy;

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
  AddInputFormatFlag(app, group, f.input_format);
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
  AddEncodingFlag(app, group, f.encoding);
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
  AddInputLimitFlags(app, group, f.max_document_bytes, f.max_line_bytes);
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
  AddSamplingFlags(app, group, p, /*show_defaults=*/true);
  app.add_flag("--ignore-eos", f.ignore_eos, "generate --max-tokens tokens whatever they are")->group(group);
  AddStopFlags(app, group, p);
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
  AddProgressFlag(app, group, f.progress);
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

void AddWorkerFlags(CLI::App& app, Flags& f) {
  const std::string group = "Server";
  AddServerFlags(app, f.server);
  app.get_option("--server")
      ->envname("")  // else a variable meant for the client would turn every run into a worker
      ->description("job server HOST:PORT: take documents from it until told to end, instead of --input");
  app.add_option("--model-name", f.model_name,
                 "name that jobs know the model by (default: its file's name without .gguf)")
      ->check(NotEmpty)
      ->group(group);
  app.add_option("--lease-ahead", f.lease_ahead,
                 "documents that are read ahead of the --max-batch that decode")
      ->check(CLI::Range(int64_t{0}, int64_t{64}))
      ->capture_default_str()
      ->group(group);
  app.add_option("--hold-results", f.hold_results,
                 "while so many results wait for the server, no document is begun")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 20))
      ->capture_default_str()
      ->group(group);
  app.add_option("--connect-timeout", f.connect_timeout_s,
                 "seconds the server may be away at the start, then exit code 4; 0: for ever")
      ->check(RealRange(0, 1e9))
      ->capture_default_str()
      ->group(group);
}

// What has no meaning beside --server, and the other way round.
absl::Status CheckWorkerFlags(const CLI::App& app, const Flags& f) {
  if (!f.worker()) {
    for (const char* flag : {"--token-file", "--tls", "--tls-ca", "--tls-cert", "--tls-key", "--model-name",
                             "--lease-ahead", "--hold-results", "--connect-timeout"}) {
      if (app.count(flag) > 0) return InvalidArgument(flag, " has no meaning without --server");
    }
    return app.count("--server") > 0 ? InvalidArgument("--server: give HOST:PORT") : absl::OkStatus();
  }
  for (const char* flag :
       {"--input", "--input-format", "--encoding", "--raw", "--token-ids", "--strict", "--max-line-bytes",
        "--output", "--format", "--force", "--resume", "--retry-errors", "--ordered", "--return-token-ids",
        "--dump-selection", "--dump-logits", "--dry-run", "--print-tokens", "--list-models"}) {
    if (app.count(flag) > 0)
      return InvalidArgument(
          flag, " has no meaning with --server: documents come from the server, and results go there");
  }
  return absl::OkStatus();
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
  if (f.log_format == LogFormat::kJson) {
    if (f.progress == ProgressMode::kBar)
      return InvalidArgument("--progress bar is for people, --log-format json for programs: choose one");
    if (f.progress == ProgressMode::kAuto) f.progress = ProgressMode::kLines;
  }
  if (f.worker()) return runtime::ValidateCompression(f.compression);
  if (f.token_ids.empty() && f.inputs.empty())
    return InvalidArgument(
        "--input is required: a file or folder, or - for stdin (or --token-ids, or --server)");
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
      "  mpirun -np 4 snapkv-prefill --model smollm2 --server 127.0.0.1:7411\n"
      "Exit codes: 0 done, 1 some documents failed, 2 usage, 3 input or model unreadable, or no document, 4 "
      "server not\n"
      "reached, 5 refused by it, 6 output not writable, 7 the job failed, 70 a rank was lost or late,\n"
      "124 --time-limit, 130 SIGINT, 143 SIGTERM (open documents are "
      "finished first;\n"
      "after 70, 124, 130 and 143 start again with --resume).");
  AddInputFlags(app, flags);
  AddGenerationFlags(app, flags);
  AddCompressionFlags(app, flags);
  AddBatchFlags(app, flags);
  AddModelFlags(app, flags);
  AddOutputFlags(app, flags);
  AddWorkerFlags(app, flags);
  AddChoice(app, "Other", "--log-format", flags.log_format, "of what is said on stderr",
            {{"text", LogFormat::kText}, {"json", LogFormat::kJson}});
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
    status = CheckWorkerFlags(app, flags);
    if (status.ok()) status = CheckTogether(flags);
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
