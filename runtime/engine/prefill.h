// SPDX-License-Identifier: Apache-2.0
// Prefill: one prompt over all ranks, layer by layer; what is left of it on the decode rank.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "absl/types/span.h"
#include "runtime/cache/decode_cache.h"
#include "runtime/cache/kv_shard.h"
#include "runtime/cache/selection.h"
#include "runtime/engine/context.h"
#include "runtime/engine/ring_attention.h"
#include "runtime/plan/plan.h"

namespace snapkv::runtime {

// Sees what passes through prefill, for tests; called on every rank. Views are valid during the call only. An
// error ends the prefill on this rank.
class PrefillObserver {
 public:
  virtual ~PrefillObserver() = default;
  // hidden: f32 [local tokens, hidden], after the embedding (layer -1) and after each layer.
  virtual absl::Status OnHidden(const RankContext& context, const Plan& plan, int64_t layer,
                                const TensorView& hidden) = 0;
  // After the ring of a layer. q: [heads, local tokens, head_dim]. May communicate, alike on all ranks.
  virtual absl::Status OnAttention(const RankContext& context, const Plan& plan, int64_t layer,
                                   const TensorView& q, const KvShard& shard, const RingAttention& ring) = 0;
};

struct PrefillOptions {
  CompressionOptions compression;
  int64_t headroom = 0;  // rows to make room for behind the kept ones: the tokens that will be decoded
  bool keep_selections = false;  // fill PrefillResult::selections
  // Called on the decode rank after each layer, while the others compute on or wait; it must take less than
  // the transport's time-out and not communicate. May be empty.
  std::function<void()> after_layer{};
  // Alike on all ranks: the decode rank may end the prefill. In every layer it sends the others a flag, which
  // travels while the layer's MLP is computed and is looked at behind it: nobody waits for it.
  bool abortable = false;
  // Decode rank, if abortable: asked in every layer behind its attention; true ends the prefill on all ranks
  // behind that layer. May be empty.
  std::function<bool()> abort{};
  PrefillObserver* observer = nullptr;
};

struct PrefillResult {
  // Why this prompt is not prefilled (memory; CANCELLED when it was aborted), known to all ranks; then
  // nothing else is set.
  absl::Status refused;
  std::vector<float> logits;           // decode rank: of the last prompt token, from full attention
  std::unique_ptr<DecodeCache> cache;  // decode rank
  std::vector<Selection> selections;   // every rank, per layer, if asked for
  int64_t rows_full = 0;               // rows per head before selection: T
  int64_t rows_kept = 0;               // and after: min(T, C), or T for policy full
  int64_t bytes_full = 0;              // K and V of all layers before selection, per KV head
  int64_t bytes_kept = 0;              // and after
};

// Every rank calls it with the same tokens (1 or more). Peak KV memory of a rank is one layer's shard, two
// receive buffers and the compressed rows. What one rank alone may lack (memory) is agreed on before anything
// travels and refuses the prompt; an error ends the job.
absl::StatusOr<PrefillResult> Prefill(const RankContext& context, absl::Span<const int32_t> tokens,
                                      const PrefillOptions& options);

}  // namespace snapkv::runtime
