// SPDX-License-Identifier: Apache-2.0
// DecodeBatch: continuous batching on the decode rank. Documents join after their prefill and leave when they
// are done; in between every step gives each of them one token.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "runtime/engine/context.h"
#include "runtime/engine/decode.h"
#include "runtime/text/tokenizer.h"

namespace snapkv::runtime {

struct GenerateOptions {
  int64_t max_tokens = 256;             // at least 1
  kernels::SampleParams sampling;       // `step` is set here
  bool ignore_eos = false;              // the model's end tokens do not end the text
  std::vector<int32_t> stop_token_ids;  // end it as well, ignore_eos or not
  std::vector<std::string> stops;       // the text ends before the first of these
  // Receives text as it becomes final; may be empty.
  std::function<void(const std::string&)> on_text{};
  // Receives the number of tokens drawn so far, after each; may be empty.
  std::function<void(int64_t)> on_token{};
};

struct Generation {
  std::vector<int32_t> token_ids;  // with the one that ended it
  std::string text;                // without control tokens
  std::string finish_reason;       // "stop" (end token or stop string) or "length"
};

// Decode rank only, one thread. In f32 the tokens of a document do not depend on its companions.
class DecodeBatch {
 public:
  struct Finished {
    int64_t ticket;
    absl::StatusOr<Generation> generation;
  };

  // Everything in `context` and `tokenizer` must outlive the batch. 1 <= max_batch <= kTokenBlock.
  static absl::StatusOr<DecodeBatch> Create(const RankContext& context, const Tokenizer& tokenizer,
                                            int64_t max_batch);
  DecodeBatch(DecodeBatch&&) noexcept;
  ~DecodeBatch();

  int64_t size() const { return static_cast<int64_t>(open_.size()); }
  bool full() const { return size() >= max_batch_; }
  // Bytes that the caches of the open documents occupy, headroom included.
  int64_t cache_bytes() const;
  // Tokens drawn so far, of all documents.
  int64_t tokens() const { return tokens_; }

  // Takes a document in and draws its first token from `logits`, those of the last prompt token. The cache
  // has room for max_tokens - 1 rows. The repetition penalty looks at generated tokens only, since a summary
  // repeats words of its document. Not when full().
  void Add(int64_t ticket, absl::Span<const float> logits, std::unique_ptr<DecodeCache> cache,
           GenerateOptions options);
  // One token for every open document; no effect without any.
  void Step();
  // Drops an open document, with its cache; no effect when it is not open.
  void Drop(int64_t ticket);
  // Drops the open documents.
  void Clear();
  // Those that have ended since the last call. An error of one document leaves the others alone.
  std::vector<Finished> TakeFinished();

 private:
  class OpenDocument;
  DecodeBatch(const RankContext& context, const Tokenizer& tokenizer, int64_t max_batch, Decoder decoder);
  // Draws one token for open_[i] from its logits. False when that has ended the document.
  bool Draw(OpenDocument& document, const TensorView& logits);

  const RankContext* context_;
  const Tokenizer* tokenizer_;
  int64_t max_batch_;
  int64_t drawable_;  // token ids below it have a text
  int64_t tokens_ = 0;
  Decoder decoder_;
  Buffer logits_;  // f32 [max_batch, vocab]
  std::vector<std::unique_ptr<OpenDocument>> open_;
  std::vector<Finished> finished_;
};

}  // namespace snapkv::runtime
