// SPDX-License-Identifier: Apache-2.0
// From the queue to the engine to the records.
#include "launch/batch_run.h"

#include <signal.h>

#include <cstdio>
#include <utility>

#include "absl/time/clock.h"
#include "launch/report.h"
#include "launch/signals.h"
#include "runtime/model/safetensors.h"

namespace snapkv::launch {
namespace {

constexpr absl::Duration kIdleWait = absl::Milliseconds(100);
// Errors that one call of Next may turn into records before the engine gets its turn again.
constexpr int kErrorsPerCall = 64;
// Messages of failed and of shortened documents on stderr; all of them are in the records.
constexpr int64_t kMostErrorsShown = 20;
constexpr size_t kMostRows = 20;  // of the closing table

std::vector<ClosingRow> Values(const std::map<int64_t, ClosingRow>& rows) {
  std::vector<ClosingRow> values;
  for (const auto& [sequence, row] : rows) values.push_back(row);
  return values;
}

}  // namespace

BatchRun::BatchRun(const BatchRunOptions& options, std::unique_ptr<DocumentQueue> queue, ResultWriter& writer)
    : options_(options),
      flags_(*options.flags),
      queue_(std::move(queue)),
      writer_(writer),
      progress_(options.progress),
      start_(absl::Now()) {
  totals_.skipped = options_.skipped;
}

std::string BatchRun::Describe() const {
  if (!options_.one_text || !next_.has_value()) return "a batch";
  return absl::StrCat(next_->tokens.size(), " prompt tokens");
}

void BatchRun::LogClosing(const std::vector<int64_t>& peak_bytes) const {
  if (flags_.progress == ProgressMode::kNone) return;
  const int64_t documents = totals_.done + totals_.failed;
  if (documents == 0) {
    if (end_ == End::kNone && totals_.skipped > 0)
      LOG(Info) << NothingToDoLine(totals_.skipped, options_.failed_before);
    return;
  }
  if (options_.one_text) return;
  BatchTotals totals = totals_;
  totals.seconds = absl::ToDoubleSeconds(absl::Now() - start_);
  LOG(Info) << ClosingLine(totals);
  if (flags_.log_format == LogFormat::kJson) return;
  // No log lines: they would have a prefix each.
  std::string table;
  if (static_cast<size_t>(documents) <= kMostRows) {
    std::vector<RankPeak> ranks;
    for (size_t r = 0; r < peak_bytes.size(); ++r) ranks.push_back({static_cast<int>(r), peak_bytes[r]});
    table = ClosingTable(Values(rows_), ranks);
  } else {
    table = FailedList(Values(failed_), totals_.failed);
  }
  std::fwrite(table.data(), 1, table.size(), stderr);
}

bool BatchRun::Prime() {
  while (!next_.has_value() && !queue_ended_ && end_ == End::kNone) {
    CheckStops();
    if (const int signal = PendingSignal(); signal != 0) OnSignal(signal);
    if (end_ == End::kNone) TakeDocument(kIdleWait);
  }
  return next_.has_value() && end_ == End::kNone;
}

void BatchRun::StopFor(End reason) {
  if (end_ == End::kNone) end_ = reason;
}

void BatchRun::OnSignal(int signal) {
  if (signal_ != 0) return;
  signal_ = signal;
  StopFor(End::kSignal);
  LOG(Warning) << (signal == SIGINT ? "interrupted" : "asked to end") << ": " << open_.size()
               << (open_.size() == 1 ? " open document is" : " open documents are")
               << " finished first; a second signal ends at once" << ResumeAdvice();
}

std::string BatchRun::ResumeAdvice() const {
  return options_.resumable ? "; for the rest start again with --resume" : "";
}

void BatchRun::CheckStops() {
  if (!writer_.status().ok()) StopFor(End::kOutput);
  if (flags_.time_limit_s > 0 && absl::Now() - start_ >= absl::Seconds(flags_.time_limit_s)) {
    if (end_ == End::kNone) LOG(Warning) << "--time-limit: no further document is started" << ResumeAdvice();
    StopFor(End::kTimeLimit);
  }
}

bool BatchRun::TakeDocument(absl::Duration wait) {
  for (int errors = 0; errors < kErrorsPerCall && end_ == End::kNone; ++errors) {
    PreparedDocument prepared;
    const DocumentQueue::State state = queue_->Take(errors == 0 ? wait : absl::ZeroDuration(), prepared);
    if (state == DocumentQueue::State::kEnd) {
      queue_ended_ = true;
      // A signal ends the input early, which must not look like its end.
      if (const int signal = PendingSignal(); signal != 0) OnSignal(signal);
      failure_ = queue_->status();
      if (!failure_.ok()) StopFor(End::kInput);
    }
    if (state != DocumentQueue::State::kDocument) return false;
    if (prepared.error.ok()) prepared.error = CheckCache(prepared);
    if (prepared.error.ok()) {
      next_ = std::move(prepared);
      return true;
    }
    Reject(next_sequence_++, prepared.document, prepared.error);
    if (flags_.strict) StopFor(End::kStrict);
  }
  return false;
}

DocumentError BatchRun::CheckCache(const PreparedDocument& prepared) const {
  const int64_t bytes = runtime::DecodeCacheBytes(*options_.config, options_.dtype, flags_.compression,
                                                  static_cast<int64_t>(prepared.tokens.size()),
                                                  prepared.document.params.max_tokens);
  return CheckCacheBytes(bytes, flags_.cache_bytes, prepared.document.line);
}

runtime::BatchDriver::Supply BatchRun::Next(bool idle, runtime::Prompt& prompt) {
  CheckStops();
  if (end_ != End::kNone) return Supply::kEnd;
  if (writer_.congested()) {
    if (idle) absl::SleepFor(kIdleWait);
    return Supply::kWait;
  }
  if (!next_.has_value() && !TakeDocument(idle ? kIdleWait : absl::ZeroDuration())) {
    return queue_ended_ || end_ != End::kNone ? Supply::kEnd : Supply::kWait;
  }
  prompt = MakePrompt(*std::exchange(next_, std::nullopt), next_sequence_++);
  return Supply::kPrompt;
}

runtime::Prompt BatchRun::MakePrompt(PreparedDocument prepared, int64_t sequence) {
  runtime::Prompt prompt;
  prompt.ticket = sequence;
  prompt.compression = flags_.compression;
  prompt.generation = MakeGenerateOptions(prepared.document.params, prepared.document.id, flags_.ignore_eos);
  if (streams()) prompt.generation.on_text = [this](const std::string& text) { writer_.Stream(text); };
  prompt.keep_selections = !flags_.dump_selection.empty();
  OpenDocument& open = open_[sequence];
  open.result.prompt_tokens = static_cast<int64_t>(prepared.tokens.size());
  open.result.truncated = prepared.truncated;
  if (prepared.truncated.has_value()) LogTruncated(prepared.document.id, *prepared.truncated);
  prompt.tokens = std::move(prepared.tokens);
  open.read = prepared.read;
  open.document = std::move(prepared.document);
  return prompt;
}

void BatchRun::LogTruncated(const std::string& id, const Truncation& cut) {
  if (++cuts_shown_ > kMostErrorsShown) return;
  LOG(Warning) << id << ": " << cut.tokens_removed << " of " << cut.tokens_full << " prompt tokens ("
               << cut.bytes_removed << " bytes in the middle) are left out to fit the context";
  if (cuts_shown_ == kMostErrorsShown) LOG(Warning) << "further shortened documents are not named here";
}

void BatchRun::OnPrefillStarted(int64_t ticket) {
  OpenDocument& open = open_.at(ticket);
  open.result.queue_s = absl::ToDoubleSeconds(absl::Now() - open.read);
  prefilling_ = ticket;
}

void BatchRun::OnProgress(int64_t layers_done, int64_t layers, int64_t open_documents,
                          int64_t tokens_generated) {
  ProgressState state;
  const ItemCount count = options_.count_documents();
  state.total = count.items;
  state.total_exact = count.exact;
  state.done = totals_.done;
  state.failed = totals_.failed;
  state.skipped = totals_.skipped;
  state.active = open_documents + (layers > 0 ? 1 : 0);
  state.prompt_tokens = totals_.prompt_tokens;
  state.generated_tokens = tokens_generated;
  if (layers > 0) {
    state.open_tokens = open_.at(prefilling_).result.prompt_tokens;
    state.open_layers = layers_done;
    state.layers = layers;
  }
  progress_.Update(state);
}

void BatchRun::OnPrefilled(int64_t ticket, const runtime::PrefillResult& result, double seconds) {
  DocumentResult& r = open_.at(ticket).result;
  SetPrefill(result, seconds, r);
  totals_.prompt_tokens += r.prompt_tokens;
  totals_.prefill_seconds += seconds;
  if (const absl::Status written = WriteDumps(result); !written.ok()) {
    failure_ = written;
    StopFor(End::kOutput);
  }
}

void BatchRun::OnFinished(int64_t ticket, absl::StatusOr<runtime::Generation> generation,
                          const runtime::DocumentTimes& times) {
  auto node = open_.extract(ticket);
  const Document& document = node.mapped().document;
  DocumentResult& r = node.mapped().result;
  if (!generation.ok()) {
    Reject(ticket, document, EngineError(generation.status(), document.line));
    if (flags_.strict) StopFor(End::kStrict);
    return;
  }
  r.id = document.id;
  r.form = document.form;
  SetGeneration(*std::move(generation), times, flags_.compression.policy, r);
  ++totals_.done;
  totals_.generated_tokens += static_cast<int64_t>(r.token_ids.size());
  totals_.decode_seconds = times.batch_decode_s;
  if (flags_.output_format() == OutputFormat::kText && r.finish_reason == "length" && options_.one_text)
    LOG(Info) << "the text stops at --max-tokens " << document.params.max_tokens;
  writer_.Put(ticket, Render(r));
  if (rows_.size() < kMostRows) rows_[ticket] = ToClosingRow(r);
}

std::string BatchRun::Render(const DocumentResult& result) const {
  if (flags_.output_format() == OutputFormat::kJsonl) return RecordLine(result, options_.record);
  if (!options_.one_text) return TextRecord(result, /*with_header=*/true);
  if (!result.error.ok()) return "";  // stderr has it
  return streams() ? "\n" : TextRecord(result, /*with_header=*/false);
}

void BatchRun::Reject(int64_t sequence, const Document& document, const DocumentError& error) {
  ++totals_.failed;
  if (++errors_shown_ <= kMostErrorsShown) {
    LOG(Error) << ErrorLine(document, error);
    if (errors_shown_ == kMostErrorsShown) LOG(Error) << "further errors are not shown here";
  }
  DocumentResult result;
  result.id = document.id;
  result.form = document.form;
  result.error = error;
  if (rows_.size() < kMostRows) rows_[sequence] = ToClosingRow(result);
  if (failed_.size() < kMostRows) failed_[sequence] = ToClosingRow(result);
  writer_.Put(sequence, Render(result));
}

absl::Status BatchRun::WriteDumps(const runtime::PrefillResult& prefill) const {
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

int BatchRun::Finish() {
  const bool nothing = totals_.done == 0 && totals_.failed == 0 &&
                       (end_ != End::kNone || options_.count_documents().items == 0);
  const absl::Status written = writer_.Finish(/*discard_if_empty=*/nothing);
  progress_.Finish();
  if (!written.ok() || end_ == End::kOutput)
    return Report(written.ok() ? failure_ : written, kExitOutputNotWritable);
  switch (end_) {
    case End::kInput:
      return Report(failure_, InputExitCode(failure_));
    case End::kStrict:
      LOG(Error) << "--strict: the batch ends at the first document that failed";
      return kExitJobFailed;
    case End::kSignal:
      return 128 + signal_;
    case End::kTimeLimit:
      return kExitTimeLimit;
    default:
      if (const ItemCount count = options_.count_documents(); count.exact && count.items == 0)
        return Report(NotFound(kEmptyInput), kExitInputUnreadable);
      return totals_.failed + options_.failed_before > 0 ? kExitDocumentsFailed : kExitOk;
  }
}

}  // namespace snapkv::launch
