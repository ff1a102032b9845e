// SPDX-License-Identifier: Apache-2.0
// The loop that all ranks run: the decode rank decides, the others follow.
#include "runtime/engine/batch.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "absl/time/clock.h"
#include "kernels/base/log.h"

namespace snapkv::runtime {
namespace {

enum class Order : int32_t { kAlive, kPrefill, kEnd };

// What the decode rank tells the others, followed by the tokens of a prompt.
struct Command {
  Order order = Order::kAlive;
  bool keep_selections = false;
  CompressionOptions compression;
  int64_t headroom = 0;
};

// Every rank, at the same places: any rank's signal becomes known to all, then the command.
absl::StatusOr<int> Exchange(const RankContext& context, const BatchOptions& options, Command& command) {
  int64_t signal = options.signal ? options.signal() : 0;
  RETURN_IF_ERROR(context.host.AllReduceMax(absl::MakeSpan(&signal, 1)));
  RETURN_IF_ERROR(context.host.Broadcast(command, kDecodeRank));
  return static_cast<int>(signal);
}

absl::Status Follow(const RankContext& context, const BatchOptions& options) {
  for (;;) {
    Command command;
    RETURN_IF_ERROR(Exchange(context, options, command).status());
    if (command.order == Order::kEnd) return absl::OkStatus();
    if (command.order == Order::kAlive) continue;
    std::vector<int32_t> tokens;
    RETURN_IF_ERROR(context.host.BroadcastVector(tokens, kDecodeRank));
    PrefillOptions prefill;
    prefill.compression = command.compression;
    prefill.headroom = command.headroom;
    prefill.keep_selections = command.keep_selections;
    prefill.abortable = options.abortable;
    RETURN_IF_ERROR(Prefill(context, tokens, prefill).status());
  }
}

// The decode rank's side.
class Leader {
 public:
  Leader(const RankContext& context, BatchDriver& driver, const BatchOptions& options, DecodeBatch batch)
      : context_(context),
        driver_(driver),
        options_(options),
        batch_(std::move(batch)),
        interval_(std::min(absl::Seconds(1), options.comm_timeout / 4)),
        last_sign_(absl::Now()) {}

  absl::Status Run() {
    for (;;) {
      if (driver_.Abandoned()) {
        batch_.Clear();
        open_.clear();
        waiting_.reset();
        ended_ = true;
      }
      if (waiting_ && driver_.Cancelled(waiting_->ticket)) {
        ReportCancelled(waiting_->ticket, {});
        waiting_.reset();
      }
      if (!waiting_ && !ended_ && !batch_.full()) TakePrompt();
      if (waiting_ && Fits(*waiting_)) {
        RETURN_IF_ERROR(PrefillPrompt(*std::exchange(waiting_, std::nullopt)));
        continue;
      }
      if (batch_.size() == 0 && !waiting_ && ended_) return Send({Order::kEnd, false, {}, 0}).status();
      Decode();
      if (absl::Now() - last_sign_ >= interval_) {
        ASSIGN_OR_RETURN(const int signal, Send({Order::kAlive, false, {}, 0}));
        if (signal != 0) driver_.OnSignal(signal);
        driver_.OnProgress(0, 0, batch_.size(), batch_.tokens());
      }
    }
  }

 private:
  struct Open {
    DocumentTimes times;
    absl::Duration stepped_before;
  };

  DocumentTimes TimesOf(const Open& open) const {
    DocumentTimes times = open.times;
    times.decode_s = absl::ToDoubleSeconds(stepping_ - open.stepped_before);
    times.batch_decode_s = absl::ToDoubleSeconds(stepping_);
    return times;
  }

  absl::StatusOr<int> Send(Command command) {
    last_sign_ = absl::Now();
    return Exchange(context_, options_, command);
  }

  void TakePrompt() {
    Prompt prompt;
    const BatchDriver::Supply supply = driver_.Next(batch_.size() == 0, prompt);
    if (supply == BatchDriver::Supply::kPrompt) waiting_ = std::move(prompt);
    ended_ = supply == BatchDriver::Supply::kEnd;
  }

  bool Fits(const Prompt& prompt) const {
    if (batch_.size() == 0) return true;
    const int64_t bytes =
        DecodeCacheBytes(context_.model.config(), context_.model.dtype(), prompt.compression,
                         static_cast<int64_t>(prompt.tokens.size()), prompt.generation.max_tokens);
    return bytes <= options_.cache_bytes - batch_.cache_bytes();
  }

  absl::Status PrefillPrompt(Prompt prompt) {
    PrefillOptions options;
    options.compression = prompt.compression;
    options.headroom = prompt.generation.max_tokens - 1;
    options.keep_selections = prompt.keep_selections;
    options.abortable = options_.abortable || context_.ranks() == 1;
    options.abort = [&] { return driver_.Cancelled(prompt.ticket); };
    ASSIGN_OR_RETURN(const int signal,
                     Send({Order::kPrefill, options.keep_selections, options.compression, options.headroom}));
    if (signal != 0) driver_.OnSignal(signal);
    RETURN_IF_ERROR(context_.host.BroadcastVector(prompt.tokens, kDecodeRank));
    driver_.OnPrefillStarted(prompt.ticket);
    const absl::Time start = absl::Now();
    const absl::Duration stepped = stepping_;
    int64_t layers_done = 0;
    options.after_layer = [&] {
      if (batch_.size() >= options_.decode_in_prefill_from) {
        Decode();
      } else {
        DropCancelled();
      }
      driver_.OnProgress(++layers_done, context_.model.config().layers, batch_.size(), batch_.tokens());
    };
    ASSIGN_OR_RETURN(PrefillResult result, Prefill(context_, prompt.tokens, options));
    last_sign_ = absl::Now();
    DocumentTimes times{.prefill_s = absl::ToDoubleSeconds(absl::Now() - start - (stepping_ - stepped))};
    if (absl::IsCancelled(result.refused) || driver_.Cancelled(prompt.ticket)) {
      ReportCancelled(prompt.ticket, times);
      return absl::OkStatus();
    }
    if (!result.refused.ok()) {
      driver_.OnFinished(prompt.ticket, result.refused, times);
      return absl::OkStatus();
    }
    driver_.OnPrefilled(prompt.ticket, result, times.prefill_s);
    open_[prompt.ticket] = {times, stepping_};
    batch_.Add(prompt.ticket, result.logits, std::move(result.cache), std::move(prompt.generation));
    Report();
    driver_.OnProgress(0, 0, batch_.size(), batch_.tokens());
    return absl::OkStatus();
  }

  void Decode() {
    if (batch_.size() > 0) {
      const absl::Time start = absl::Now();
      batch_.Step();
      stepping_ += absl::Now() - start;
    }
    Report();
    DropCancelled();
  }

  void DropCancelled() {
    for (auto it = open_.begin(); it != open_.end();) {
      const int64_t ticket = it->first;
      if (!driver_.Cancelled(ticket)) {
        ++it;
        continue;
      }
      const DocumentTimes times = TimesOf(it->second);
      it = open_.erase(it);
      batch_.Drop(ticket);
      ReportCancelled(ticket, times);
    }
  }

  void ReportCancelled(int64_t ticket, const DocumentTimes& times) {
    driver_.OnFinished(ticket, absl::CancelledError("the document was cancelled"), times);
  }

  void Report() {
    for (DecodeBatch::Finished& finished : batch_.TakeFinished()) {
      const auto it = open_.find(finished.ticket);
      const DocumentTimes times = TimesOf(it->second);
      open_.erase(it);
      driver_.OnFinished(finished.ticket, std::move(finished.generation), times);
    }
  }

  const RankContext& context_;
  BatchDriver& driver_;
  const BatchOptions& options_;
  DecodeBatch batch_;
  const absl::Duration interval_;
  absl::Duration stepping_;        // all decoding steps
  absl::Time last_sign_;           // that the other ranks have got
  std::optional<Prompt> waiting_;  // for room
  bool ended_ = false;             // no prompt will come any more
  std::map<int64_t, Open> open_;   // by ticket
};

}  // namespace

int64_t DecodeCacheBytes(const ModelConfig& config, DType dtype, const CompressionOptions& compression,
                         int64_t prompt_tokens, int64_t max_tokens) {
  const int64_t rows = RowsKept(compression, prompt_tokens) + max_tokens - 1;
  return rows * 2 * config.layers * CacheHeads(config, compression, prompt_tokens) * config.head_dim *
         BlockBytes(dtype);
}

absl::Status RunBatch(const RankContext& context, const Tokenizer* tokenizer, BatchDriver* driver,
                      const BatchOptions& options) {
  if (context.rank() != kDecodeRank) {
    RETURN_IF_ERROR(context.host.Agree(absl::OkStatus()));
    return Follow(context, options);
  }
  CHECK(tokenizer != nullptr && driver != nullptr) << "the decode rank has the tokenizer and the driver";
  auto batch = DecodeBatch::Create(context, *tokenizer, options.max_batch);
  RETURN_IF_ERROR(context.host.Agree(batch.status()));
  return Leader(context, *driver, options, *std::move(batch)).Run();
}

}  // namespace snapkv::runtime
