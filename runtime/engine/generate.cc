// SPDX-License-Identifier: Apache-2.0
// The token loop, and the heartbeat that keeps waiting ranks from timing out.
#include "runtime/engine/generate.h"

#include <algorithm>

#include "absl/time/clock.h"
#include "kernels/base/log.h"
#include "kernels/op/sample.h"
#include "runtime/engine/decode.h"
#include "runtime/text/stream_decoder.h"

namespace snapkv::runtime {
namespace {

// A collective that all ranks enter: the decode rank now and then while it works, the others all the time.
class Heartbeat {
 public:
  Heartbeat(comm::HostComm& host, absl::Duration timeout)
      : host_(host), interval_(std::min(absl::Seconds(1), timeout / 4)), last_(absl::Now()) {}

  // Decode rank, after every token.
  absl::Status Beat() {
    if (host_.size() == 1 || absl::Now() - last_ < interval_) return absl::OkStatus();
    RETURN_IF_ERROR(Exchange(0).status());
    last_ = absl::Now();
    return absl::OkStatus();
  }
  absl::Status End() { return host_.size() == 1 ? absl::OkStatus() : Exchange(1).status(); }
  // Other ranks: until End.
  absl::Status Wait() {
    for (;;) {
      ASSIGN_OR_RETURN(const bool done, Exchange(0));
      if (done) return absl::OkStatus();
    }
  }

 private:
  absl::StatusOr<bool> Exchange(int64_t done) {
    RETURN_IF_ERROR(host_.AllReduceMax(absl::MakeSpan(&done, 1)));
    return done != 0;
  }

  comm::HostComm& host_;
  absl::Duration interval_;
  absl::Time last_;
};

class TokenLoop {
 public:
  TokenLoop(const RankContext& context, const Tokenizer& tokenizer, PrefillResult& prefill,
            const GenerateOptions& options, StopMatcher stops)
      : context_(context),
        tokenizer_(tokenizer),
        prefill_(prefill),
        options_(options),
        decoder_(&tokenizer),
        stops_(std::move(stops)) {}

  // Transport errors come back in `transport`: after them nothing may be sent any more.
  absl::StatusOr<Generation> Run(Heartbeat& heartbeat, absl::Status& transport) {
    const absl::Time start = absl::Now();
    ASSIGN_OR_RETURN(Decoder decoder,
                     Decoder::Create(context_.model, context_.stream, context_.allocator, 1));
    std::vector<float> logits = prefill_.logits;
    // Embeddings are often padded beyond the tokenizer's vocabulary; such an id would have no text.
    const int64_t drawable = std::min<int64_t>(context_.model.config().vocab, tokenizer_.vocab_size());
    const TensorView view =
        TensorView::Of(logits.data(), DType::kF32, Device::kCpu, 1, context_.model.config().vocab);
    for (int64_t step = 0;; ++step) {
      ASSIGN_OR_RETURN(const bool done, Draw(view[0].Slice(0, 0, drawable), step));
      if (done) break;
      transport = heartbeat.Beat();
      RETURN_IF_ERROR(transport);
      DecodeCache* const cache = prefill_.cache.get();
      RETURN_IF_ERROR(decoder.Step({result_.token_ids.back()}, {cache}, view, context_.stats));
    }
    if (!stops_.matched()) {
      Emit(stops_.Append(decoder_.Flush()));
      if (!stops_.matched()) Emit(stops_.Flush());
    }
    result_.seconds = absl::ToDoubleSeconds(absl::Now() - start);
    return std::move(result_);
  }

 private:
  // Draws one token and emits its text; true when it is the last.
  absl::StatusOr<bool> Draw(const TensorView& logits, int64_t step) {
    kernels::SampleParams params = options_.sampling;
    params.step = step;
    ASSIGN_OR_RETURN(const int32_t token,
                     kernels::Sample(context_.stream, logits, result_.token_ids, params));
    result_.token_ids.push_back(token);
    if (tokenizer_.EndsGeneration(token) && !options_.ignore_eos) {
      result_.finish_reason = "stop";
      return true;
    }
    ASSIGN_OR_RETURN(const std::string text, decoder_.Append(token));
    Emit(stops_.Append(text));
    if (stops_.matched()) {
      result_.finish_reason = "stop";
      return true;
    }
    if (step + 1 < options_.max_tokens) return false;
    result_.finish_reason = "length";
    return true;
  }

  void Emit(const std::string& text) {
    if (text.empty()) return;
    result_.text += text;
    if (options_.on_text) options_.on_text(text);
  }

  const RankContext& context_;
  const Tokenizer& tokenizer_;
  PrefillResult& prefill_;
  const GenerateOptions& options_;
  StreamDecoder decoder_;
  StopMatcher stops_;
  Generation result_;
};

}  // namespace

absl::StatusOr<Generation> Generate(const RankContext& context, const Tokenizer* tokenizer,
                                    PrefillResult& prefill, const GenerateOptions& options) {
  Heartbeat heartbeat(context.host, options.comm_timeout);
  if (context.rank() != kDecodeRank) {
    RETURN_IF_ERROR(heartbeat.Wait());
    RETURN_IF_ERROR(context.host.Agree(absl::OkStatus()));
    return Generation();
  }
  CHECK(tokenizer != nullptr) << "the decode rank has the tokenizer";
  absl::Status transport;
  absl::StatusOr<Generation> generation = [&]() -> absl::StatusOr<Generation> {
    ASSIGN_OR_RETURN(StopMatcher stops, StopMatcher::Create(options.stops));
    return TokenLoop(context, *tokenizer, prefill, options, std::move(stops)).Run(heartbeat, transport);
  }();
  RETURN_IF_ERROR(transport);
  RETURN_IF_ERROR(heartbeat.End());
  RETURN_IF_ERROR(context.host.Agree(generation.status()));
  return generation;
}

}  // namespace snapkv::runtime
