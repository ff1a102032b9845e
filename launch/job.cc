// SPDX-License-Identifier: Apache-2.0
// From flags to a running batch.
#include "launch/job.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "kernels/base/log.h"
#include "kernels/op/device_info.h"
#include "launch/input/token_ids.h"
#include "launch/keep_alive.h"
#include "launch/memory.h"
#include "launch/model_store.h"
#include "launch/output/output_files.h"
#include "launch/print_prompts.h"
#include "launch/report.h"
#include "launch/signals.h"
#include "launch/stats_report.h"
#include "launch/threads.h"
#include "launch/worker/prepare.h"
#include "launch/worker/worker_run.h"
#include "runtime/model/tokenizer_from_gguf.h"

namespace snapkv::launch {
namespace {

namespace fs = std::filesystem;

// Documents that wait, read and tokenized, for the engine.
constexpr size_t kReadAhead = 4;
// The ranks of a job whose launcher was killed end a moment after it.
constexpr absl::Duration kLockWait = absl::Seconds(5);

std::string HostName() {
  char name[256] = {};
  return gethostname(name, sizeof(name) - 1) == 0 ? name : "unknown";
}

// `next`, but more than one document is an error before the first is handed out.
DocumentQueue::Next ExactlyOne(DocumentQueue::Next next, const char* flag) {
  auto handed_out = std::make_shared<bool>(false);
  return [=]() -> absl::StatusOr<std::optional<PreparedDocument>> {
    if (std::exchange(*handed_out, true)) return std::nullopt;
    ASSIGN_OR_RETURN(auto first, next());
    ASSIGN_OR_RETURN(const auto second, next());
    if (second.has_value())
      return FailedPrecondition(flag, " takes exactly one document, the input has more");
    return first;
  };
}

}  // namespace

absl::StatusOr<int> PrefillJob::Run() {
  ASSIGN_OR_RETURN(const Decision opened, OpenModel());
  if (opened.exit_code.has_value()) return *opened.exit_code;
  RETURN_IF_ERROR(ChooseDevice());
  ASSIGN_OR_RETURN(const Decision prepared, Prepare());
  if (prepared.exit_code.has_value()) return *prepared.exit_code;
  LogStart();
  return RunDocuments();
}

absl::StatusOr<PrefillJob::Decision> PrefillJob::OpenModel() {
  const absl::Status mine = [&]() -> absl::Status {
    ASSIGN_OR_RETURN(model_path_, ResolveModel(flags_.model));
    ASSIGN_OR_RETURN(file_, runtime::GgufFile::Open(model_path_));
    ASSIGN_OR_RETURN(config_, runtime::ReadModelConfig(*file_));
    ASSIGN_OR_RETURN(fingerprint_, ModelFingerprint(model_path_));
    return absl::OkStatus();
  }();
  absl::Status all = world_.host().Agree(mine);
  if (all.ok()) {
    std::string first = fingerprint_;
    RETURN_IF_ERROR(world_.host().BroadcastString(first, 0));
    const std::string advice = ": this is not the model of rank 0; give all ranks the same file";
    all = world_.host().Agree(first == fingerprint_ ? absl::OkStatus()
                                                    : FailedPrecondition(model_path_, advice));
  }
  if (all.ok()) return Decision();
  if (absl::IsDeadlineExceeded(all)) return all;
  if (leader()) LOG(Error) << all.message();
  return Decision{kExitInputUnreadable};
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

absl::StatusOr<PrefillJob::Decision> PrefillJob::Prepare() {
  int exit_code = -1;
  RETURN_IF_ERROR(
      KeepingAlive(leader() ? [&] { exit_code = PrepareOnLeader().value_or(-1); } : std::function<void()>()));
  RETURN_IF_ERROR(world_.host().Broadcast(exit_code, 0));
  return exit_code >= 0 ? Decision{exit_code} : Decision();
}

std::optional<int> PrefillJob::PrepareOnLeader() {
  if (!flags_.worker()) {
    if (const auto exit_code = OpenSource()) return exit_code;
  }
  if (const auto exit_code = CheckOutputFiles()) return exit_code;
  if (const auto exit_code = LoadTokenizer()) return exit_code;
  if (flags_.context > config_.context) {
    return Report(
        InvalidArgument("--context ", flags_.context, " is more than the model's ", config_.context),
        kExitUsage);
  }
  if (flags_.worker()) return PrepareWorker();
  params_sha256_ = ParamsSha256(MakeRunParams());
  std::shared_ptr<OutputLog> log;
  const bool prints = flags_.dry_run || flags_.print_tokens;
  if (!prints) {
    if (const auto exit_code = OpenOutput(log)) return exit_code;
  }
  DocumentQueue::Next next;
  if (const auto exit_code = MakeReader(log, next)) return exit_code;
  if (prints) {
    return PrintPrompts(next, {.flags = flags_,
                               .model_path = model_path_,
                               .config = config_,
                               .tokenizer = *tokenizer_,
                               .ranks = world_.size(),
                               .one = one_text()});
  }

  writer_ = std::make_unique<ResultWriter>(log, flags_.ordered);
  auto run = std::make_unique<BatchRun>(MakeRunOptions(log.get()),
                                        std::make_unique<DocumentQueue>(next, kReadAhead), *writer_);
  const bool primed = run->Prime();
  run_ = std::move(run);
  if (primed) return std::nullopt;
  const int exit_code = run_->Finish();  // nothing to compute: the weights need not be loaded
  run_->LogClosing({});
  return exit_code;
}

std::optional<int> PrefillJob::PrepareWorker() {
  auto channel = Connect(flags_.server);
  if (!channel.ok())
    return Report(channel.status(),
                  absl::IsInvalidArgument(channel.status()) ? kExitUsage : kExitUnreachable);
  WorkerRunOptions options;
  options.flags = &flags_;
  options.progress.mode = flags_.progress;
  SessionOptions& session = options.session;
  session.channel = *std::move(channel);
  session.server = flags_.server.server;
  const std::string name =
      flags_.model_name.empty() ? fs::path(model_path_).stem().string() : flags_.model_name;
  session.worker.set_model("models/" + name);
  session.worker.set_display_name(absl::StrCat(HostName(), ":", getpid()));
  session.worker.set_model_fingerprint(fingerprint_);
  session.worker.set_max_context(context());
  session.worker.set_max_batch(static_cast<int32_t>(flags_.max_batch));
  session.worker.set_ranks(world_.size());
  session.worker.set_dtype(DTypeName(dtype_));
  session.worker.set_version(SNAPKV_VERSION);
  session.lease_ahead = flags_.lease_ahead;
  session.most_results = flags_.hold_results;
  session.connect_timeout = absl::Seconds(flags_.connect_timeout_s);
  session.max_document_bytes = flags_.max_document_bytes;
  const auto preparer = std::make_shared<const LeasePreparer>(
      tokenizer_, PrepareOptions{&flags_, &config_, dtype_, context(), MakeRunParams()});
  session.prepare = [preparer](const v1::Lease& lease, std::string bytes) {
    return preparer->Prepare(lease, std::move(bytes));
  };
  run_ = std::make_unique<WorkerRun>(std::move(options));
  return std::nullopt;
}

std::optional<int> PrefillJob::OpenSource() {
  if (!flags_.token_ids.empty()) return std::nullopt;
  SourceOptions options;
  options.inputs = flags_.inputs;
  options.defaults = flags_.params;
  options.encoding = flags_.encoding;
  options.format = flags_.input_format;
  options.max_document_bytes = flags_.max_document_bytes;
  options.max_line_bytes = flags_.max_line_bytes;
  options.stop = [] { return PendingSignal() != 0; };
  auto source = DocumentSource::Open(options);
  if (!source.ok()) return Report(source.status(), kExitInputUnreadable);
  source_ = *std::move(source);
  return std::nullopt;
}

std::optional<int> PrefillJob::CheckOutputFiles() const {
  FileSet inputs({flags_.token_ids, model_path_});
  if (source_) {
    for (const std::string& file : source_->files()) inputs.Add(file);
  }
  // OutputLog decides what may happen to an existing --output.
  const absl::Status status =
      CheckOutputs({{.flag = "--output", .path = flags_.to_stdout() ? "" : flags_.output},
                    {.flag = "--stats", .path = flags_.stats},
                    {.flag = "--dump-selection", .path = flags_.dump_selection, .device_ok = false},
                    {.flag = "--dump-logits", .path = flags_.dump_logits, .device_ok = false}},
                   inputs);
  if (!status.ok())
    return Report(status, absl::IsInvalidArgument(status) ? kExitUsage : kExitOutputNotWritable);
  if (!source_) return std::nullopt;
  for (const auto& [flag, path] :
       {std::pair("--output", flags_.to_stdout() ? "" : flags_.output), std::pair("--stats", flags_.stats)}) {
    const std::string input = path.empty() ? "" : source_->WouldFind(path);
    if (input.empty()) continue;
    return Report(InvalidArgument(flag, " ", path, " would be an input of the next run, by --input ", input,
                                  ": choose a place outside of it, or another ending"),
                  kExitUsage);
  }
  return std::nullopt;
}

std::optional<int> PrefillJob::LoadTokenizer() {
  auto data = runtime::TokenizerDataFromGguf(*file_);
  if (!data.ok()) return Report(data.status(), kExitInputUnreadable);
  auto tokenizer = runtime::Tokenizer::Create(*std::move(data));
  if (!tokenizer.ok()) return Report(Annotate(tokenizer.status(), model_path_), kExitInputUnreadable);
  tokenizer_ = std::make_shared<runtime::Tokenizer>(*std::move(tokenizer));
  if (tokenizer_->vocab_size() <= config_.vocab) return std::nullopt;
  return Report(
      InvalidArgument(model_path_, ": the tokenizer has ", tokenizer_->vocab_size(),
                      " tokens, but token_embd.weight only ", config_.vocab, " rows: the file is damaged"),
      kExitInputUnreadable);
}

std::optional<int> PrefillJob::OpenOutput(std::shared_ptr<OutputLog>& log) const {
  if (flags_.to_stdout()) return std::nullopt;
  OutputLogOptions options;
  options.path = flags_.output;
  options.resume = flags_.resume;
  options.retry_errors = flags_.retry_errors;
  options.force = flags_.force;
  options.params_sha256 = params_sha256_;
  if (flags_.resume) options.lock_wait = kLockWait;
  options.stop = [] { return PendingSignal() != 0; };
  auto opened = OutputLog::Open(options);
  if (absl::IsCancelled(opened.status())) return 128 + PendingSignal();
  if (!opened.ok()) {
    const bool usage = absl::IsInvalidArgument(opened.status());
    return Report(Annotate(opened.status(), "--output"), usage ? kExitUsage : kExitOutputNotWritable);
  }
  log = *std::move(opened);
  return std::nullopt;
}

std::optional<int> PrefillJob::MakeReader(const std::shared_ptr<const OutputLog>& log,
                                          DocumentQueue::Next& next) const {
  PromptOptions options;
  options.raw = flags_.raw;
  options.context = context();
  options.overflow = flags_.overflow;
  const auto builder = std::make_shared<const PromptBuilder>(tokenizer_, options);
  if (!flags_.token_ids.empty()) {
    const int64_t vocab = std::min<int64_t>(config_.vocab, tokenizer_->vocab_size());
    auto ids = ReadTokenIds(flags_.token_ids, vocab);
    if (!ids.ok()) return Report(ids.status(), kExitInputUnreadable);
    auto only = std::make_shared<std::optional<PreparedDocument>>(std::in_place);
    (*only)->document.id = flags_.token_ids;
    (*only)->document.params = flags_.params;
    (*only)->error = builder->CheckContext(static_cast<int64_t>(ids->size()), flags_.params.max_tokens);
    (*only)->tokens = *std::move(ids);
    next = [only, log]() -> absl::StatusOr<std::optional<PreparedDocument>> {
      if (only->has_value() && log && log->Has((*only)->document.id)) return std::nullopt;
      return std::exchange(*only, std::nullopt);
    };
    return std::nullopt;
  }
  next = [builder, log, source = source_]() -> absl::StatusOr<std::optional<PreparedDocument>> {
    for (;;) {
      ASSIGN_OR_RETURN(std::optional<InputItem> item, source->Next());
      if (!item.has_value()) return std::nullopt;
      if (log && log->Has(item->document.id)) continue;
      if (item->error.ok()) return builder->Build(std::move(item->document));
      PreparedDocument prepared;
      prepared.document = std::move(item->document);
      prepared.error = std::move(item->error);
      return prepared;
    }
  };
  for (const auto& [flag, set] : {std::pair("--dump-selection", !flags_.dump_selection.empty()),
                                  std::pair("--dump-logits", !flags_.dump_logits.empty()),
                                  std::pair("--print-tokens", flags_.print_tokens)}) {
    if (set) next = ExactlyOne(std::move(next), flag);
  }
  return std::nullopt;
}

BatchRunOptions PrefillJob::MakeRunOptions(const OutputLog* log) const {
  BatchRunOptions options;
  options.flags = &flags_;
  options.config = &config_;
  options.dtype = dtype_;
  options.record.params_sha256 = params_sha256_;
  options.record.model = fs::path(model_path_).stem().string();
  options.record.created_unix_s = absl::ToUnixSeconds(absl::Now());
  options.record.token_ids = flags_.return_token_ids;
  options.one_text = one_text();
  options.count_documents = [source = source_] { return source ? source->CountItems() : ItemCount{1, true}; };
  options.progress.mode = flags_.progress;
  if (log != nullptr) {
    options.skipped = log->kept_ok() + log->kept_errors();
    options.failed_before = log->kept_errors();
    options.resumable = log->is_file() && flags_.output_format() == OutputFormat::kJsonl;
  }
  return options;
}

absl::Status PrefillJob::KeepingAlive(const std::function<void()>& work) const {
  return RunKeepingAlive(world_.host(), absl::Seconds(flags_.comm_timeout_s), work,
                         [this](const absl::Status& lost) { comm::AbortJob(world_, lost); });
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

void PrefillJob::LogStart() const {
  if (!leader()) return;
  LOG(Info) << run_->Describe() << " on " << world_.size() << (world_.size() == 1 ? " rank x " : " ranks x ")
            << stream_.threads << (stream_.threads == 1 ? " thread, " : " threads, ") << DTypeName(dtype_)
            << ", " << kernels::CpuKernelIsa()
            << (slow_bf16_
                    ? "; this CPU does not multiply bf16 fast: values are rounded to bf16, products are f32"
                    : "");
}

absl::StatusOr<int> PrefillJob::RunDocuments() {
  Allocator allocator;
  runtime::RankStats stats;
  std::unique_ptr<runtime::Model> model;
  ASSIGN_OR_RETURN(const Decision loaded, LoadModel(allocator, stats, model));
  if (loaded.exit_code.has_value()) return *loaded.exit_code;
  const runtime::RankContext context{*model, world_.host(), world_.device(), stream_, allocator, stats};
  runtime::BatchOptions options;
  options.max_batch = flags_.max_batch;
  options.decode_in_prefill_from = (flags_.max_batch + 1) / 2;
  options.cache_bytes = flags_.cache_bytes > 0 ? flags_.cache_bytes : AvailableMemory() / 2;
  options.comm_timeout = absl::Seconds(flags_.comm_timeout_s);
  options.signal = PendingSignal;
  options.abortable = flags_.worker();
  RETURN_IF_ERROR(runtime::RunBatch(context, tokenizer_.get(), run_.get(), options));
  int exit_code = kExitOk;
  RETURN_IF_ERROR(KeepingAlive(leader() ? [&] { exit_code = run_->Finish(); } : std::function<void()>()));
  RETURN_IF_ERROR(ReportMemory());
  RETURN_IF_ERROR(WriteStats(context, exit_code));
  RETURN_IF_ERROR(world_.host().Broadcast(exit_code, 0));
  return exit_code;
}

absl::Status PrefillJob::ReportMemory() {
  ASSIGN_OR_RETURN(const std::vector<int64_t> peaks, world_.host().AllGather(PeakResidentBytes()));
  if (leader()) run_->LogClosing(peaks);
  return absl::OkStatus();
}

absl::Status PrefillJob::WriteStats(const runtime::RankContext& context, int& exit_code) {
  if (flags_.stats.empty()) return absl::OkStatus();
  nlohmann::ordered_json run;
  if (leader()) {
    const BatchTotals& totals = run_->totals();
    run = {{"ranks", world_.size()},
           {"documents", totals.done},
           {"failed", totals.failed},
           {"prompt_tokens", totals.prompt_tokens},
           {"generated_tokens", totals.generated_tokens},
           {"prefill_seconds", totals.prefill_seconds},
           {"decode_seconds", totals.decode_seconds},
           {"model", model_path_}};
  }
  ASSIGN_OR_RETURN(const std::string report, CollectStats(world_, RankReport(context, world_), run));
  return KeepingAlive(leader() ? [&] {
    const absl::Status written = WriteFile(flags_.stats, report);
    if (!written.ok()) exit_code = Report(Annotate(written, "--stats"), kExitOutputNotWritable);
  }
                               : std::function<void()>());
}

RunParams PrefillJob::MakeRunParams() const {
  std::error_code error;
  const auto bytes = fs::file_size(model_path_, error);
  const runtime::CompressionOptions& c = flags_.compression;
  RunParams params;
  params.model_name = fs::path(model_path_).filename().string();
  params.model_bytes = error ? 0 : static_cast<int64_t>(bytes);
  params.model_fingerprint = fingerprint_;
  params.dtype = DTypeName(dtype_);
  params.defaults = flags_.params;
  params.policy = PolicyName(c.policy);
  params.capacity = c.capacity;
  params.window = c.window;
  params.kernel = c.kernel;
  params.pool = PoolName(c.pool);
  params.group = GroupName(c.group);
  params.raw = flags_.raw;
  params.encoding = flags_.encoding;
  params.context = context();
  params.overflow = flags_.overflow == Overflow::kMiddle ? "middle" : "error";
  params.ignore_eos = flags_.ignore_eos;
  return params;
}

}  // namespace snapkv::launch
