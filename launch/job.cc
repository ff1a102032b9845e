// SPDX-License-Identifier: Apache-2.0
// One document from flags to record.
#include "launch/job.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>

#include "kernels/base/log.h"
#include "kernels/op/device_info.h"
#include "launch/exit_codes.h"
#include "launch/keep_alive.h"
#include "launch/model_store.h"
#include "launch/output/output_files.h"
#include "launch/stats_report.h"
#include "launch/threads.h"
#include "runtime/model/safetensors.h"
#include "runtime/model/tokenizer_from_gguf.h"
#include "runtime/plan/plan.h"

namespace snapkv::launch {
namespace {

namespace fs = std::filesystem;

int Report(const absl::Status& status, int exit_code) {
  LOG(Error) << status.message();
  return exit_code;
}

std::string PolicyName(runtime::CachePolicy policy) {
  return policy == runtime::CachePolicy::kFull ? "full" : "snapkv";
}

}  // namespace

absl::StatusOr<int> PrefillJob::Run() {
  ASSIGN_OR_RETURN(const Decision opened, OpenModel());
  if (opened.exit_code.has_value()) return *opened.exit_code;
  RETURN_IF_ERROR(ChooseDevice());
  ASSIGN_OR_RETURN(const Decision shared, SharePrompt());
  if (shared.exit_code.has_value()) return *shared.exit_code;
  LogStart();
  return Summarise();
}

absl::StatusOr<PrefillJob::Decision> PrefillJob::OpenModel() {
  std::string fingerprint;
  const absl::Status mine = [&]() -> absl::Status {
    ASSIGN_OR_RETURN(model_path_, ResolveModel(flags_.model));
    ASSIGN_OR_RETURN(file_, runtime::GgufFile::Open(model_path_));
    ASSIGN_OR_RETURN(config_, runtime::ReadModelConfig(*file_));
    ASSIGN_OR_RETURN(fingerprint, world_.size() > 1 ? ModelFingerprint(model_path_) : std::string());
    return absl::OkStatus();
  }();
  absl::Status all = world_.host().Agree(mine);
  if (all.ok()) {
    std::string first = fingerprint;
    RETURN_IF_ERROR(world_.host().BroadcastString(first, 0));
    const std::string advice = ": this is not the model of rank 0; give all ranks the same file";
    all = world_.host().Agree(first == fingerprint ? absl::OkStatus()
                                                   : FailedPrecondition(model_path_, advice));
  }
  if (all.ok()) return Decision();
  if (absl::IsDeadlineExceeded(all)) return all;
  if (leader()) LOG(Error) << all.message();
  return Decision{kExitInputUnreadable};
}

std::optional<int> PrefillJob::PrepareOnLeader() {
  if (const auto exit_code = CheckOutputFiles()) return exit_code;
  auto data = runtime::TokenizerDataFromGguf(*file_);
  if (!data.ok()) return Report(data.status(), kExitInputUnreadable);
  auto tokenizer = runtime::Tokenizer::Create(*std::move(data));
  if (!tokenizer.ok()) return Report(Annotate(tokenizer.status(), model_path_), kExitInputUnreadable);
  tokenizer_ = *std::move(tokenizer);
  if (tokenizer_->vocab_size() > config_.vocab) {
    return Report(
        InvalidArgument(model_path_, ": the tokenizer has ", tokenizer_->vocab_size(),
                        " tokens, but token_embd.weight only ", config_.vocab, " rows: the file is damaged"),
        kExitInputUnreadable);
  }
  if (const auto exit_code = ReadPrompt()) return exit_code;
  if (flags_.dry_run || flags_.print_tokens) return PrintPrompt();
  return std::nullopt;
}

std::optional<int> PrefillJob::CheckOutputFiles() const {
  const absl::Status status = CheckOutputs(
      {{.flag = "--output", .path = flags_.output == "-" ? "" : flags_.output, .overwrite = flags_.force},
       {.flag = "--stats", .path = flags_.stats},
       {.flag = "--dump-selection", .path = flags_.dump_selection, .device_ok = false},
       {.flag = "--dump-logits", .path = flags_.dump_logits, .device_ok = false}},
      {flags_.input, flags_.token_ids, model_path_});
  if (status.ok()) return std::nullopt;
  return Report(status, absl::IsInvalidArgument(status) ? kExitUsage : kExitOutputNotWritable);
}

std::optional<int> PrefillJob::ReadPrompt() {
  const auto bytes = ReadInput(DocumentId());
  if (!bytes.ok()) return Report(bytes.status(), kExitInputUnreadable);
  if (!flags_.token_ids.empty()) {
    const int64_t vocab = std::min<int64_t>(config_.vocab, tokenizer_->vocab_size());
    auto ids = ParseTokenIds(*bytes, flags_.token_ids, vocab);
    if (!ids.ok()) return Report(ids.status(), kExitInputUnreadable);
    tokens_ = *std::move(ids);
  } else {
    std::string text;
    if (const DocumentError error = DecodeDocument(*bytes, flags_, text); !error.ok()) return Reject(error);
    auto ids = BuildPrompt(*tokenizer_, text, flags_);
    if (!ids.ok()) return Reject({ids.status(), "PARAMETER_INVALID"});
    tokens_ = *std::move(ids);
    if (tokens_.empty())
      return Reject({InvalidArgument(flags_.input, ": no token is left of the document"), "DOCUMENT_EMPTY"});
  }
  if (flags_.context > config_.context) {
    return Report(
        InvalidArgument("--context ", flags_.context, " is more than the model's ", config_.context),
        kExitUsage);
  }
  const int64_t context = flags_.context > 0 ? flags_.context : config_.context;
  const DocumentError error = CheckContext(static_cast<int64_t>(tokens_.size()), flags_.max_tokens, context);
  return error.ok() ? std::nullopt
                    : std::optional(Reject({Annotate(error.status, DocumentId()), error.reason}));
}

std::optional<int> PrefillJob::PrintPrompt() const {
  std::string out;
  if (flags_.print_tokens) {
    for (const int32_t id : tokens_) {
      const nlohmann::json piece = tokenizer_->TokenBytes(id);
      out += std::to_string(id) + "\t" +
             piece.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
    }
    return Emit(out);
  }
  const auto plan = runtime::Plan::Create(static_cast<int64_t>(tokens_.size()), world_.size(),
                                          flags_.compression.window, 64);
  if (!plan.ok()) return Report(plan.status(), kExitJobFailed);
  out = "model " + model_path_ + ": " + config_.architecture + ", " + std::to_string(config_.layers) +
        " layers, context " + std::to_string(config_.context) + "\nprompt " + std::to_string(tokens_.size()) +
        " tokens, up to " + std::to_string(flags_.max_tokens) + " generated\n";
  for (int r = 0; r < plan->ranks(); ++r) {
    out += "rank " + std::to_string(r) + ": " + std::to_string(plan->RankTokens(r)) + " tokens\n";
  }
  const bool compresses = runtime::Compresses(flags_.compression, plan->tokens());
  out += "rows kept per layer and KV head: " +
         std::to_string(compresses ? flags_.compression.capacity : plan->tokens()) + " of " +
         std::to_string(plan->tokens()) + "\n";
  return Emit(out);
}

absl::Status PrefillJob::KeepingAlive(const std::function<void()>& work) const {
  return RunKeepingAlive(world_.host(), absl::Seconds(flags_.comm_timeout_s), work);
}

absl::StatusOr<PrefillJob::Decision> PrefillJob::SharePrompt() {
  int exit_code = -1;
  RETURN_IF_ERROR(
      KeepingAlive(leader() ? [&] { exit_code = PrepareOnLeader().value_or(-1); } : std::function<void()>()));
  RETURN_IF_ERROR(world_.host().Broadcast(exit_code, 0));
  if (exit_code >= 0) return Decision{exit_code};
  RETURN_IF_ERROR(world_.host().BroadcastVector(tokens_, 0));
  return Decision();
}

absl::Status PrefillJob::ChooseDevice() {
  ASSIGN_OR_RETURN(const int threads, DefaultThreads(world_.host()));
  stream_ = {Device::kCpu, flags_.threads > 0 ? flags_.threads : threads};
  // All ranks must compute in one type: f32 if any of them has no fast bf16.
  int64_t lacks_bf16 = kernels::HasFastBf16() ? 0 : 1;
  RETURN_IF_ERROR(world_.host().AllReduceMax(absl::MakeSpan(&lacks_bf16, 1)));
  const bool bf16 =
      flags_.dtype == DTypeChoice::kBf16 || (flags_.dtype == DTypeChoice::kAuto && lacks_bf16 == 0);
  dtype_ = bf16 ? DType::kBF16 : DType::kF32;
  slow_bf16_ = bf16 && lacks_bf16 != 0;
  return absl::OkStatus();
}

void PrefillJob::LogStart() const {
  if (!leader()) return;
  LOG(Info) << tokens_.size() << " prompt tokens on " << world_.size()
            << (world_.size() == 1 ? " rank x " : " ranks x ") << stream_.threads
            << (stream_.threads == 1 ? " thread, " : " threads, ") << DTypeName(dtype_) << ", "
            << kernels::CpuKernelIsa()
            << (slow_bf16_
                    ? "; this CPU does not multiply bf16 fast: values are rounded to bf16, products are f32"
                    : "");
}

absl::StatusOr<PrefillJob::Decision> PrefillJob::LoadModel(Allocator& allocator, runtime::RankStats& stats,
                                                           std::unique_ptr<runtime::Model>& model) {
  absl::Status mine;
  RETURN_IF_ERROR(KeepingAlive([&] {
    const runtime::PhaseTimer timer(stats, runtime::Phase::kLoad);
    auto loaded = runtime::Model::Load(*file_, stream_, allocator, {.dtype = dtype_, .head = leader()});
    mine = loaded.status();
    if (loaded.ok()) model = *std::move(loaded);
  }));
  const absl::Status all = world_.host().Agree(mine);
  if (absl::IsDeadlineExceeded(all)) return all;
  if (all.ok()) return Decision();
  const int exit_code = absl::IsResourceExhausted(all) ? kExitJobFailed : kExitInputUnreadable;
  return Decision{leader() ? Report(all, exit_code) : exit_code};
}

runtime::GenerateOptions PrefillJob::MakeGenerateOptions() const {
  runtime::GenerateOptions options;
  options.max_tokens = flags_.max_tokens;
  options.sampling = {.temperature = static_cast<float>(flags_.temperature),
                      .repeat_penalty = static_cast<float>(flags_.repeat_penalty),
                      .seed = flags_.seed};
  options.ignore_eos = flags_.ignore_eos;
  options.stops = flags_.stops;
  options.comm_timeout = absl::Seconds(flags_.comm_timeout_s);
  if (flags_.output_format() == OutputFormat::kText && (flags_.output.empty() || flags_.output == "-")) {
    options.on_text = [](const std::string& text) {
      std::fwrite(text.data(), 1, text.size(), stdout);
      std::fflush(stdout);
    };
  }
  return options;
}

absl::StatusOr<int> PrefillJob::Summarise() {
  Allocator allocator;
  runtime::RankStats stats;
  std::unique_ptr<runtime::Model> model;
  ASSIGN_OR_RETURN(const Decision loaded, LoadModel(allocator, stats, model));
  if (loaded.exit_code.has_value()) return *loaded.exit_code;
  const runtime::RankContext context{*model, world_.host(), world_.device(), stream_, allocator, stats};
  DocumentTimes times;
  absl::Time start = absl::Now();
  const runtime::PrefillOptions prefill_options{.compression = flags_.compression,
                                                .headroom = flags_.max_tokens,
                                                .keep_selections = !flags_.dump_selection.empty()};
  ASSIGN_OR_RETURN(runtime::PrefillResult prefill, runtime::Prefill(context, tokens_, prefill_options));
  times.prefill_s = absl::ToDoubleSeconds(absl::Now() - start);

  start = absl::Now();
  const auto generation =
      runtime::Generate(context, tokenizer_ ? &*tokenizer_ : nullptr, prefill, MakeGenerateOptions());
  times.decode_s = absl::ToDoubleSeconds(absl::Now() - start);
  if (absl::IsDeadlineExceeded(generation.status())) return generation.status();

  std::string report;
  if (!flags_.stats.empty()) {
    const nlohmann::ordered_json run = {{"ranks", world_.size()},
                                        {"prompt_tokens", tokens_.size()},
                                        {"prefill_seconds", times.prefill_s},
                                        {"decode_seconds", times.decode_s},
                                        {"model", model_path_}};
    ASSIGN_OR_RETURN(report, CollectStats(world_, RankReport(context, world_), run));
  }
  int exit_code = kExitOk;
  const auto write = [&] {
    exit_code = WriteResults(prefill, generation, times);
    if (flags_.stats.empty()) return;
    const absl::Status written = WriteFile(flags_.stats, report);
    if (!written.ok()) exit_code = Report(Annotate(written, "--stats"), kExitOutputNotWritable);
  };
  RETURN_IF_ERROR(KeepingAlive(leader() ? write : std::function<void()>()));
  RETURN_IF_ERROR(world_.host().Broadcast(exit_code, 0));
  return exit_code;
}

std::string PrefillJob::Params() const {
  std::error_code error;
  const auto bytes = fs::file_size(model_path_, error);
  const auto& c = flags_.compression;
  RunParams params{.model_name = fs::path(model_path_).filename().string(),
                   .model_bytes = error ? 0 : static_cast<int64_t>(bytes),
                   .dtype = DTypeName(dtype_),
                   .policy = PolicyName(c.policy),
                   .capacity = c.capacity,
                   .window = c.window,
                   .kernel = c.kernel,
                   .pool = std::to_string(static_cast<int>(c.pool)),
                   .group = std::to_string(static_cast<int>(c.group)),
                   .raw = flags_.raw,
                   .encoding = flags_.encoding,
                   .context = flags_.context,
                   .overflow = "error",
                   .ignore_eos = flags_.ignore_eos};
  params.defaults.prompt = flags_.prompt;
  params.defaults.system = flags_.system;
  params.defaults.max_tokens = flags_.max_tokens;
  params.defaults.temperature = flags_.temperature;
  params.defaults.repeat_penalty = flags_.repeat_penalty;
  params.defaults.seed = flags_.seed;
  params.defaults.stops = flags_.stops;
  return ParamsSha256(params);
}

int PrefillJob::WriteResults(const runtime::PrefillResult& prefill,
                             const absl::StatusOr<runtime::Generation>& generation,
                             const DocumentTimes& times) {
  if (!generation.ok()) return Reject({Annotate(generation.status(), DocumentId()), "INTERNAL"});
  if (const absl::Status status = WriteDumps(prefill); !status.ok())
    return Report(status, kExitOutputNotWritable);
  if (flags_.output_format() == OutputFormat::kJsonl) {
    const DocumentResult result{.id = DocumentId(),
                                .text = generation->text,
                                .token_ids = generation->token_ids,
                                .finish_reason = generation->finish_reason,
                                .prompt_tokens = static_cast<int64_t>(tokens_.size()),
                                .policy = PolicyName(flags_.compression.policy),
                                .rows_full = prefill.rows_full,
                                .rows_kept = prefill.rows_kept,
                                .bytes_full = prefill.bytes_full,
                                .bytes_kept = prefill.bytes_kept,
                                .prefill_s = times.prefill_s,
                                .decode_s = times.decode_s};
    return Emit(RecordLine(result, {.params_sha256 = Params(), .token_ids = flags_.return_token_ids}));
  }
  if (generation->finish_reason == "length") {
    LOG(Info) << "the text stops at --max-tokens " << flags_.max_tokens;
  }
  // On stdout the text itself has been streamed.
  const bool streamed = flags_.output.empty() || flags_.output == "-";
  return Emit(streamed ? "\n" : generation->text + "\n");
}

absl::Status PrefillJob::WriteDumps(const runtime::PrefillResult& prefill) const {
  if (!flags_.dump_logits.empty()) {
    runtime::SafetensorsWriter writer;
    RETURN_IF_ERROR(writer.Add("logits", TensorView::Of(const_cast<float*>(prefill.logits.data()),
                                                        DType::kF32, Device::kCpu, prefill.logits.size())));
    RETURN_IF_ERROR(Annotate(writer.Write(flags_.dump_logits), "--dump-logits"));
  }
  if (flags_.dump_selection.empty()) return absl::OkStatus();
  std::vector<std::vector<int32_t>> flat;  // one contiguous array per layer
  for (const runtime::Selection& selection : prefill.selections) {
    flat.emplace_back();
    for (const auto& head : selection.positions)
      flat.back().insert(flat.back().end(), head.begin(), head.end());
  }
  runtime::SafetensorsWriter writer;
  for (size_t l = 0; l < flat.size(); ++l) {
    const size_t heads = prefill.selections[l].positions.size();
    RETURN_IF_ERROR(
        writer.Add(absl::StrCat("layer.", l, ".positions"),
                   TensorView::Of(flat[l].data(), DType::kI32, Device::kCpu, heads, flat[l].size() / heads)));
  }
  return Annotate(writer.Write(flags_.dump_selection), "--dump-selection");
}

int PrefillJob::Reject(const DocumentError& error) const {
  LOG(Error) << error.status.message();
  if (flags_.output_format() == OutputFormat::kJsonl && !flags_.print_tokens && !flags_.dry_run) {
    const int written = Emit(RecordLine({.id = DocumentId(), .error = error}, {.params_sha256 = Params()}));
    if (written != kExitOk) return written;
  }
  return kExitDocumentsFailed;
}

int PrefillJob::Emit(const std::string& text) const {
  if (!flags_.output.empty() && flags_.output != "-" && !flags_.print_tokens && !flags_.dry_run) {
    const absl::Status status = WriteFile(flags_.output, text);
    return status.ok() ? kExitOk : Report(Annotate(status, "--output"), kExitOutputNotWritable);
  }
  const absl::Status status = WriteStdout(text);
  return status.ok() ? kExitOk : Report(status, kExitOutputNotWritable);
}

}  // namespace snapkv::launch
