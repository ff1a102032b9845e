// SPDX-License-Identifier: Apache-2.0
// Documents that decode together.
#include "runtime/engine/decode_batch.h"

#include <algorithm>
#include <utility>

#include "kernels/base/log.h"
#include "kernels/op/sample.h"
#include "runtime/text/stream_decoder.h"

namespace snapkv::runtime {

// One document from its first to its last token.
class DecodeBatch::OpenDocument {
 public:
  OpenDocument(int64_t ticket, std::unique_ptr<DecodeCache> cache, GenerateOptions options,
               const Tokenizer& tokenizer, StopMatcher stops)
      : ticket_(ticket),
        cache_(std::move(cache)),
        options_(std::move(options)),
        tokenizer_(tokenizer),
        decoder_(&tokenizer),
        stops_(std::move(stops)) {}

  int64_t ticket() const { return ticket_; }
  DecodeCache& cache() { return *cache_; }
  int32_t last_token() const { return result_.token_ids.back(); }

  // Draws one token and emits its text; true when it is the last.
  absl::StatusOr<bool> Draw(const Stream& stream, const TensorView& logits) {
    kernels::SampleParams params = options_.sampling;
    params.step = static_cast<int64_t>(result_.token_ids.size());
    ASSIGN_OR_RETURN(const int32_t token, kernels::Sample(stream, logits, result_.token_ids, params));
    result_.token_ids.push_back(token);
    if (options_.on_token) options_.on_token(static_cast<int64_t>(result_.token_ids.size()));
    if (EndsText(token)) {
      result_.finish_reason = "stop";
      return true;
    }
    ASSIGN_OR_RETURN(const std::string text, decoder_.Append(token));
    Emit(stops_.Append(text));
    if (stops_.matched()) {
      result_.finish_reason = "stop";
      return true;
    }
    if (static_cast<int64_t>(result_.token_ids.size()) < options_.max_tokens) return false;
    result_.finish_reason = "length";
    return true;
  }

  // After the last token: what was held back, and the whole.
  Generation Finish() {
    if (!stops_.matched()) {
      Emit(stops_.Append(decoder_.Flush()));
      if (!stops_.matched()) Emit(stops_.Flush());
    }
    return std::move(result_);
  }

 private:
  bool EndsText(int32_t token) const {
    const auto& ids = options_.stop_token_ids;
    if (std::find(ids.begin(), ids.end(), token) != ids.end()) return true;
    return tokenizer_.EndsGeneration(token) && !options_.ignore_eos;
  }

  void Emit(const std::string& text) {
    if (text.empty()) return;
    result_.text += text;
    if (options_.on_text) options_.on_text(text);
  }

  const int64_t ticket_;
  const std::unique_ptr<DecodeCache> cache_;
  const GenerateOptions options_;
  const Tokenizer& tokenizer_;
  StreamDecoder decoder_;
  StopMatcher stops_;
  Generation result_;
};

DecodeBatch::DecodeBatch(const RankContext& context, const Tokenizer& tokenizer, int64_t max_batch,
                         Decoder decoder)
    : context_(&context),
      tokenizer_(&tokenizer),
      max_batch_(max_batch),
      // Embeddings are often padded beyond the tokenizer's vocabulary; such an id would have no text.
      drawable_(std::min<int64_t>(context.model.config().vocab, tokenizer.vocab_size())),
      decoder_(std::move(decoder)) {}
DecodeBatch::DecodeBatch(DecodeBatch&&) noexcept = default;
DecodeBatch::~DecodeBatch() = default;

absl::StatusOr<DecodeBatch> DecodeBatch::Create(const RankContext& context, const Tokenizer& tokenizer,
                                                int64_t max_batch) {
  ASSIGN_OR_RETURN(Decoder decoder,
                   Decoder::Create(context.model, context.stream, context.allocator, max_batch));
  DecodeBatch batch(context, tokenizer, max_batch, std::move(decoder));
  ASSIGN_OR_RETURN(batch.logits_, Buffer::Of(context.allocator, MemoryKind::kActivation, Device::kCpu,
                                             DType::kF32, max_batch, context.model.config().vocab));
  return batch;
}

int64_t DecodeBatch::cache_bytes() const {
  int64_t bytes = 0;
  for (const auto& document : open_) bytes += document->cache().allocated_bytes();
  return bytes;
}

void DecodeBatch::Add(int64_t ticket, absl::Span<const float> logits, std::unique_ptr<DecodeCache> cache,
                      GenerateOptions options) {
  CHECK(!full()) << "document " << ticket << " joins a batch of " << max_batch_;
  auto stops = StopMatcher::Create(options.stops);
  if (!stops.ok()) {
    finished_.push_back({ticket, stops.status()});
    return;
  }
  auto document = std::make_unique<OpenDocument>(ticket, std::move(cache), std::move(options), *tokenizer_,
                                                 *std::move(stops));
  const TensorView view =
      TensorView::Of(const_cast<float*>(logits.data()), DType::kF32, Device::kCpu, logits.size());
  if (Draw(*document, view)) open_.push_back(std::move(document));
}

bool DecodeBatch::Draw(OpenDocument& document, const TensorView& logits) {
  const absl::StatusOr<bool> last = document.Draw(context_->stream, logits.Slice(0, 0, drawable_));
  if (last.ok()) ++tokens_;
  if (last.ok() && !*last) return true;
  finished_.push_back({document.ticket(), last.ok() ? absl::StatusOr<Generation>(document.Finish())
                                                    : absl::StatusOr<Generation>(last.status())});
  return false;
}

void DecodeBatch::Step() {
  if (open_.empty()) return;
  std::vector<int32_t> tokens;
  std::vector<DecodeCache*> caches;
  for (const auto& document : open_) {
    tokens.push_back(document->last_token());
    caches.push_back(&document->cache());
  }
  const TensorView logits = logits_.View(DType::kF32, size(), context_->model.config().vocab);
  if (const absl::Status status = decoder_.Step(tokens, caches, logits, context_->stats); !status.ok()) {
    for (const auto& document : open_) finished_.push_back({document->ticket(), status});
    open_.clear();
    return;
  }
  std::vector<std::unique_ptr<OpenDocument>> still_open;
  for (size_t i = 0; i < open_.size(); ++i) {
    if (Draw(*open_[i], logits[static_cast<int64_t>(i)])) still_open.push_back(std::move(open_[i]));
  }
  open_ = std::move(still_open);
}

void DecodeBatch::Drop(int64_t ticket) {
  std::erase_if(open_, [&](const auto& document) { return document->ticket() == ticket; });
}

void DecodeBatch::Clear() { open_.clear(); }

std::vector<DecodeBatch::Finished> DecodeBatch::TakeFinished() { return std::exchange(finished_, {}); }

}  // namespace snapkv::runtime
