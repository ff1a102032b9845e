// SPDX-License-Identifier: Apache-2.0
// From the session to the engine and back.
#include "launch/worker/worker_run.h"

#include <signal.h>

#include <utility>

#include "absl/time/clock.h"
#include "launch/report.h"
#include "launch/worker/outcome.h"

namespace snapkv::launch {
namespace {

constexpr absl::Duration kIdleWait = absl::Milliseconds(100);

}  // namespace

WorkerRun::WorkerRun(WorkerRunOptions options)
    : options_(std::move(options)),
      flags_(*options_.flags),
      progress_(options_.progress),
      start_(absl::Now()) {}

void WorkerRun::StopFor(End reason) {
  if (end_ != End::kNone) return;
  end_ = reason;
  if (session_ != nullptr) session_->StopTaking();
}

void WorkerRun::OnSignal(int signal) {
  if (signal_ != 0) return;
  signal_ = signal;
  StopFor(End::kSignal);
  LOG(Warning) << (signal == SIGINT ? "interrupted" : "asked to end") << ": " << open_.size()
               << (open_.size() == 1 ? " open document is" : " open documents are")
               << " finished first, the others are handed back; a second signal ends at once";
}

void WorkerRun::CheckStops() {
  if (session_ != nullptr && !session_->fatal().ok()) StopFor(End::kFatal);
  if (flags_.time_limit_s > 0 && absl::Now() - start_ >= absl::Seconds(flags_.time_limit_s)) {
    if (end_ == End::kNone) LOG(Warning) << "--time-limit: no further document is started";
    StopFor(End::kTimeLimit);
  }
}

runtime::BatchDriver::Supply WorkerRun::Next(bool idle, runtime::Prompt& prompt) {
  if (session_ == nullptr && end_ == End::kNone) session_ = std::make_unique<WorkerSession>(options_.session);
  CheckStops();
  if (end_ != End::kNone) return Supply::kEnd;
  if (session_->congested()) {
    if (idle) absl::SleepFor(kIdleWait);
    return Supply::kWait;
  }
  std::optional<PreparedLease> lease = session_->Take(idle ? kIdleWait : absl::ZeroDuration());
  if (!lease.has_value()) return Supply::kWait;
  prompt = MakePrompt(*std::move(lease));
  return Supply::kPrompt;
}

runtime::Prompt WorkerRun::MakePrompt(PreparedLease lease) {
  runtime::Prompt prompt;
  const int64_t ticket = lease.ticket;
  prompt.ticket = ticket;
  prompt.compression = lease.compression;
  const Document& document = lease.document.document;
  prompt.generation = MakeGenerateOptions(document.params, document.id, flags_.ignore_eos);
  prompt.tokens = std::move(lease.document.tokens);
  OpenDocument& open = open_[ticket];
  open.result.id = document.id;
  open.result.prompt_tokens = static_cast<int64_t>(prompt.tokens.size());
  open.result.truncated = lease.document.truncated;
  open.result.queue_s = lease.queue_s;
  open.progress.set_prompt_tokens(open.result.prompt_tokens);
  prompt.generation.on_token = [this, ticket](int64_t tokens) { session_->SetTokens(ticket, tokens); };
  if (lease.lease.interactive())
    prompt.generation.on_text = [this, ticket](const std::string& text) { session_->Emit(ticket, text); };
  open.lease = std::move(lease);
  return prompt;
}

void WorkerRun::OnPrefillStarted(int64_t ticket) {
  OpenDocument& open = open_.at(ticket);
  prefilling_ = ticket;
  open.progress.set_phase(v1::Progress::PHASE_PREFILL);
  session_->SetProgress(ticket, open.progress);
}

void WorkerRun::OnProgress(int64_t layers_done, int64_t layers, int64_t open_documents,
                           int64_t tokens_generated) {
  ProgressState state;
  state.done = totals_.done;
  state.failed = totals_.failed;
  state.active = open_documents + (layers > 0 ? 1 : 0);
  state.prompt_tokens = totals_.prompt_tokens;
  state.generated_tokens = tokens_generated;
  if (layers > 0) {
    OpenDocument& open = open_.at(prefilling_);
    state.open_tokens = open.result.prompt_tokens;
    state.open_layers = layers_done;
    state.layers = layers;
    open.progress.set_prefill_fraction(static_cast<double>(layers_done) / static_cast<double>(layers));
    session_->SetProgress(prefilling_, open.progress);
  }
  // A worker that has nothing to do for a week need not say so twice a minute.
  const bool idle = state.active == 0;
  if (!idle || !idle_shown_) progress_.Update(state);
  idle_shown_ = idle;
}

void WorkerRun::OnPrefilled(int64_t ticket, const runtime::PrefillResult& result, double seconds) {
  OpenDocument& open = open_.at(ticket);
  SetPrefill(result, seconds, open.result);
  open.progress.set_phase(v1::Progress::PHASE_DECODE);
  open.progress.set_prefill_fraction(1);
  session_->SetProgress(ticket, open.progress);
  totals_.prompt_tokens += open.result.prompt_tokens;
  totals_.prefill_seconds += seconds;
}

void WorkerRun::OnFinished(int64_t ticket, absl::StatusOr<runtime::Generation> generation,
                           const runtime::DocumentTimes& times) {
  auto node = open_.extract(ticket);
  OpenDocument& open = node.mapped();
  if (absl::IsCancelled(generation.status())) {
    session_->Drop(ticket);
    return;
  }
  if (!generation.ok()) {
    ++totals_.failed;
    session_->Fail(ticket, ToStatus(EngineError(generation.status(), 0)), /*retry=*/false,
                   ToResult(open.result, open.lease.params_sha256));
    return;
  }
  SetGeneration(*std::move(generation), times, open.lease.compression.policy, open.result);
  ++totals_.done;
  totals_.generated_tokens += static_cast<int64_t>(open.result.token_ids.size());
  totals_.decode_seconds = times.batch_decode_s;
  session_->Complete(ticket, ToResult(open.result, open.lease.params_sha256));
}

bool WorkerRun::Abandoned() { return session_ != nullptr && !session_->fatal().ok(); }

bool WorkerRun::Cancelled(int64_t ticket) {
  return session_->FateOf(ticket) != LeaseBook::Fate::kHeld || Abandoned();
}

int WorkerRun::Finish() {
  progress_.Finish();
  CheckStops();
  int64_t left = 0;
  if (session_ != nullptr) {
    left = session_->Finish();
    fatal_ = session_->fatal();
    session_.reset();
  }
  if (!fatal_.ok()) {
    const bool outside =
        absl::IsUnauthenticated(fatal_) || absl::IsPermissionDenied(fatal_) || absl::IsUnavailable(fatal_);
    return Report(fatal_, outside ? kExitUnreachable : kExitServerRefused);
  }
  if (left > 0) {
    LOG(Warning) << left << (left == 1 ? " result" : " results")
                 << " could not be handed in; the server gives these documents to another worker";
  }
  return end_ == End::kSignal ? 128 + signal_ : end_ == End::kTimeLimit ? kExitTimeLimit : kExitOk;
}

void WorkerRun::LogClosing(const std::vector<int64_t>&) const {
  if (flags_.progress == ProgressMode::kNone) return;
  BatchTotals totals = totals_;
  totals.seconds = absl::ToDoubleSeconds(absl::Now() - start_);
  LOG(Info) << ClosingLine(totals);
}

}  // namespace snapkv::launch
