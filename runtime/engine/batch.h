// SPDX-License-Identifier: Apache-2.0
// RunBatch: many documents through all ranks. Prompts are prefilled one after the other; on the decode rank
// those that are prefilled decode together, one step between any two layers of the next prefill.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "runtime/engine/decode_batch.h"
#include "runtime/engine/prefill.h"

namespace snapkv::runtime {

struct Prompt {
  int64_t ticket = 0;           // the driver's name for it
  std::vector<int32_t> tokens;  // 1 or more
  CompressionOptions compression;
  GenerateOptions generation;
  bool keep_selections = false;
};

// Bytes that a document's decode cache takes on the decode rank, room for generated tokens included.
int64_t DecodeCacheBytes(const ModelConfig& config, DType dtype, const CompressionOptions& compression,
                         int64_t prompt_tokens, int64_t max_tokens);

// What a prefilled or decoded document took.
struct DocumentTimes {
  double prefill_s = 0;  // without the decode steps in between
  double decode_s = 0;   // of the decoding steps it took part in, without the prefills in between
  // Of all decoding steps of the batch up to now.
  double batch_decode_s = 0;
};

// Decode rank: where prompts come from and results go. No call may block for long; only Next may wait, and
// never longer than a few hundred milliseconds.
class BatchDriver {
 public:
  enum class Supply {
    kPrompt,  // `prompt` is filled
    kWait,    // none at present
    kEnd,     // none will come any more
  };
  virtual ~BatchDriver() = default;
  // `idle`: nothing else is to be done, so it may wait.
  virtual Supply Next(bool idle, Prompt& prompt) = 0;
  virtual void OnPrefillStarted(int64_t ticket) = 0;
  // After each layer of a prefill, after it, and now and then while decoding; no layers: nothing is
  // prefilled.
  virtual void OnProgress(int64_t layers_done, int64_t layers, int64_t open_documents,
                          int64_t tokens_generated) = 0;
  virtual void OnPrefilled(int64_t ticket, const PrefillResult& result, double seconds) = 0;
  // The end of every ticket, after or instead of OnPrefilled. CANCELLED: see Cancelled.
  virtual void OnFinished(int64_t ticket, absl::StatusOr<Generation> generation,
                          const DocumentTimes& times) = 0;
  // Nobody wants the results any more (they cannot be written): open documents are dropped, without
  // OnFinished, and no further prompt is asked for. Asked after each decoding step.
  virtual bool Abandoned() = 0;
  // Nobody wants this document any more: it is dropped, its cache is freed, and OnFinished follows with
  // CANCELLED. Asked for every open document after each decoding step and each layer of a prefill, for the
  // prompt that waits for room, and for the one that is being prefilled (in every layer with
  // BatchOptions::abortable or on one rank, else at its end).
  virtual bool Cancelled(int64_t ticket) = 0;
  // A signal that some rank has received, the decode rank included; called again and again.
  virtual void OnSignal(int signal) = 0;
};

struct BatchOptions {
  int64_t max_batch = 8;
  // Decoding steps run between the layers of a prefill while at least this many documents are open. A step
  // costs little more for many documents than for one, and the other ranks wait for it.
  int64_t decode_in_prefill_from = 4;
  // The caches of all open documents stay below it; a document that alone is larger waits until it is alone.
  int64_t cache_bytes = INT64_MAX;
  // At least four times in this time the decode rank shows the others that it is alive (--comm-timeout).
  absl::Duration comm_timeout = absl::Seconds(60);
  // Alike on all ranks: a cancelled prompt's prefill is ended between two layers (PrefillOptions::abortable).
  bool abortable = false;
  // This rank's pending signal number, 0 for none; may be empty.
  std::function<int()> signal{};
};

// Every rank calls it, `tokenizer` and `driver` are null except on the decode rank. Returns when the driver
// has ended and every document is finished. Errors are those that end the job: of communication, or of one
// rank alone.
absl::Status RunBatch(const RankContext& context, const Tokenizer* tokenizer, BatchDriver* driver,
                      const BatchOptions& options);

}  // namespace snapkv::runtime
