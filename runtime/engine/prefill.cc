// SPDX-License-Identifier: Apache-2.0
// The layer loop of prefill.
#include "runtime/engine/prefill.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "runtime/engine/gather.h"
#include "runtime/engine/scoring.h"
#include "runtime/engine/select.h"
#include "runtime/model/rope_table.h"

namespace snapkv::runtime {
namespace {

// Everything one prompt needs on one rank. Buffers are allocated once and reused by every layer.
class PromptPrefill {
 public:
  PromptPrefill(const RankContext& context, absl::Span<const int32_t> tokens, const PrefillOptions& options,
                const Plan& plan)
      : context_(context),
        tokens_(tokens),
        options_(options),
        plan_(plan),
        positions_(plan_.Positions(context.rank())),
        local_(static_cast<int64_t>(positions_.size())),
        gather_(plan_) {}

  absl::Status Allocate() {
    const ModelConfig& c = context_.model.config();
    const DType dtype = context_.model.dtype();
    Allocator& allocator = context_.allocator;
    ASSIGN_OR_RETURN(rope_, RopeTable::Create(allocator, context_.stream.threads,
                                              context_.model.rope_frequencies(), positions_));
    ASSIGN_OR_RETURN(scratch_, Model::Scratch::Create(context_.model, allocator));
    ASSIGN_OR_RETURN(
        hidden_, Buffer::Of(allocator, MemoryKind::kActivation, Device::kCpu, DType::kF32, local_, c.hidden));
    ASSIGN_OR_RETURN(
        q_, Buffer::Of(allocator, MemoryKind::kActivation, Device::kCpu, dtype, c.heads, local_, c.head_dim));
    ASSIGN_OR_RETURN(attention_, Buffer::Of(allocator, MemoryKind::kActivation, Device::kCpu, dtype,
                                            kTokenBlock, c.q_width()));
    ASSIGN_OR_RETURN(lse_, Buffer::Of(allocator, MemoryKind::kActivation, Device::kCpu, DType::kF32, c.heads,
                                      kTokenBlock));
    ASSIGN_OR_RETURN(shard_, KvShard::Create(allocator, dtype, c.kv_heads, local_, c.head_dim));
    ASSIGN_OR_RETURN(ring_, RingAttention::Create(context_, plan_));
    if (Compresses(options_.compression, plan_.tokens())) {
      ASSIGN_OR_RETURN(scores_, ShardScores::Create(context_, plan_, options_.compression));
    }
    return context_.rank() == kDecodeRank ? AllocateCache() : absl::OkStatus();
  }

  absl::StatusOr<PrefillResult> Run() {
    const ModelConfig& c = context_.model.config();
    const TensorView hidden = hidden_.View(DType::kF32, local_, c.hidden);
    PrefillResult result;
    result.cache = std::move(cache_);
    RETURN_IF_ERROR(Embed(hidden));
    RETURN_IF_ERROR(Observe(-1, hidden));
    for (int64_t layer = 0; layer < c.layers; ++layer) {
      RETURN_IF_ERROR(RunLayer(layer, hidden, result));
      RETURN_IF_ERROR(Observe(layer, hidden));
      if (context_.rank() == kDecodeRank && options_.after_layer) options_.after_layer();
      RETURN_IF_ERROR(FinishAbort());
      if (abort_ != 0) {
        RETURN_IF_ERROR(gather_.Finish(context_));
        PrefillResult aborted;
        aborted.refused = absl::CancelledError("the prefill was aborted");
        return aborted;
      }
    }
    RETURN_IF_ERROR(gather_.Finish(context_));
    if (context_.rank() == kDecodeRank) {
      RETURN_IF_ERROR(LastLogits(hidden, result));
      result.cache->next_position = plan_.tokens();
    }
    context_.stats.Add(times_);
    CountBytes(result);
    return result;
  }

 private:
  // All layers at once: a prompt for whose rows there is no memory is refused before it costs anything.
  absl::Status AllocateCache() {
    const ModelConfig& c = context_.model.config();
    cache_ = std::make_unique<DecodeCache>(context_.allocator, context_.model.dtype(), c.layers,
                                           CacheHeads(c, options_.compression, plan_.tokens()), c.head_dim);
    const int64_t rows = RowsKept(options_.compression, plan_.tokens());
    for (int64_t layer = 0; layer < c.layers; ++layer)
      RETURN_IF_ERROR(cache_->Allocate(layer, rows, rows + options_.headroom));
    return absl::OkStatus();
  }

  absl::Status Embed(const TensorView& hidden) {
    const PhaseTimer timer(context_.stats, Phase::kEmbed);
    std::vector<int32_t> ids;
    for (const int32_t p : positions_) ids.push_back(tokens_[static_cast<size_t>(p)]);
    context_.stats.AddTokens(Phase::kEmbed, local_);
    return context_.model.Embed(context_.stream, ids, hidden);
  }

  absl::Status RunLayer(int64_t layer, const TensorView& hidden, PrefillResult& result) {
    const ModelConfig& c = context_.model.config();
    const TensorView q = q_.View(context_.model.dtype(), c.heads, local_, c.head_dim);
    RETURN_IF_ERROR(context_.model.ProjectQkv(context_.stream, layer, hidden, rope_.cos(), rope_.sin(), q,
                                              shard_.k(), shard_.v(), *scratch_, times_));
    RETURN_IF_ERROR(ring_->Run(context_, q, shard_));
    if (options_.observer != nullptr) {
      RETURN_IF_ERROR(options_.observer->OnAttention(context_, plan_, layer, q, shard_, *ring_));
    }
    RETURN_IF_ERROR(StartAbort());
    ASSIGN_OR_RETURN(ShardSelection selection, Select(q));
    RETURN_IF_ERROR(gather_.Finish(context_));  // of the previous layer
    RETURN_IF_ERROR(gather_.Start(context_, layer, shard_, selection, result.cache.get()));
    result.rows_kept = static_cast<int64_t>(selection.global.positions[0].size());
    if (options_.keep_selections) result.selections.push_back(std::move(selection.global));
    context_.stats.AddTokens(Phase::kGemm, local_);
    return FinishLayer(layer, hidden);
  }

  // The decode rank's wish sets out behind the ring, where it does not delay a hop.
  absl::Status StartAbort() {
    if (!options_.abortable) return absl::OkStatus();
    const TensorView flag = TensorView::Of(&abort_, DType::kI32, Device::kCpu, 1);
    std::vector<comm::Message> sends, receives;
    if (context_.rank() != kDecodeRank) {
      receives.push_back({flag, kDecodeRank});
    } else {
      abort_ = options_.abort && options_.abort() ? 1 : 0;
      for (int r = 0; r < context_.ranks(); ++r) {
        if (r != kDecodeRank) sends.push_back({flag, r});
      }
    }
    ASSIGN_OR_RETURN(abort_exchange_, context_.device.StartExchange(context_.stream, sends, receives));
    return absl::OkStatus();
  }

  absl::Status FinishAbort() {
    if (!options_.abortable) return absl::OkStatus();
    return context_.device.FinishExchange(context_.stream, abort_exchange_);
  }

  absl::StatusOr<ShardSelection> Select(const TensorView& q) {
    if (!scores_.has_value()) return SelectAll(plan_, context_.rank(), context_.model.config().kv_heads);
    RETURN_IF_ERROR(scores_->Run(context_, *ring_, q, shard_));
    return SelectGlobal(context_, plan_, options_.compression, *scores_);
  }

  absl::Status FinishLayer(int64_t layer, const TensorView& hidden) {
    const ModelConfig& c = context_.model.config();
    for (int64_t at = 0; at < local_; at += kTokenBlock) {
      const int64_t end = std::min(at + kTokenBlock, local_), n = end - at;
      const TensorView attention = attention_.View(context_.model.dtype(), n, c.heads, c.head_dim);
      RETURN_IF_ERROR(
          ring_->Finish(context_, {at, end}, attention.Transposed(0, 1), lse_.View(DType::kF32, c.heads, n)));
      RETURN_IF_ERROR(context_.model.FinishLayer(context_.stream, layer,
                                                 attention_.View(context_.model.dtype(), n, c.q_width()),
                                                 hidden.Slice(0, at, end), *scratch_, times_));
      RETURN_IF_ERROR(context_.device.Poll());
    }
    return absl::OkStatus();
  }

  // The decode rank's last local row is the prompt's last token.
  absl::Status LastLogits(const TensorView& hidden, PrefillResult& result) {
    const int64_t vocab = context_.model.config().vocab;
    result.logits.resize(static_cast<size_t>(vocab));
    return context_.model.Logits(context_.stream, hidden.Slice(0, local_ - 1, local_),
                                 TensorView::Of(result.logits.data(), DType::kF32, Device::kCpu, 1, vocab),
                                 *scratch_, times_);
  }

  absl::Status Observe(int64_t layer, const TensorView& hidden) const {
    if (options_.observer == nullptr) return absl::OkStatus();
    return options_.observer->OnHidden(context_, plan_, layer, hidden);
  }

  void CountBytes(PrefillResult& result) const {
    const ModelConfig& c = context_.model.config();
    const int64_t row_bytes = 2 * c.layers * c.head_dim * BlockBytes(context_.model.dtype());
    result.rows_full = plan_.tokens();
    result.bytes_full = plan_.tokens() * c.kv_heads * row_bytes;
    result.bytes_kept = result.rows_kept * CacheHeads(c, options_.compression, plan_.tokens()) * row_bytes;
  }

  const RankContext& context_;
  const absl::Span<const int32_t> tokens_;
  const PrefillOptions& options_;
  const Plan& plan_;
  const std::vector<int32_t> positions_;  // of the local rows
  const int64_t local_;                   // local tokens
  RopeTable rope_;
  std::optional<Model::Scratch> scratch_;
  Buffer hidden_, q_, attention_, lse_;
  KvShard shard_;
  std::optional<RingAttention> ring_;
  std::optional<ShardScores> scores_;  // only when the prompt is compressed
  LayerGather gather_;
  std::unique_ptr<DecodeCache> cache_;  // decode rank, until Run
  int32_t abort_ = 0;                   // not 0: all ranks stop behind this layer
  comm::ExchangeId abort_exchange_ = 0;
  ModelTimes times_;
};

}  // namespace

absl::StatusOr<PrefillResult> Prefill(const RankContext& context, absl::Span<const int32_t> tokens,
                                      const PrefillOptions& options) {
  RETURN_IF_ERROR(ValidateCompression(options.compression));
  if (tokens.empty()) return InvalidArgument("the prompt has no tokens");
  // Here and not at its owner's embedding: then every rank returns, and none waits for another.
  const int64_t vocab = context.model.config().vocab;
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] < 0 || tokens[i] >= vocab) {
      return InvalidArgument("token ", i, " of the prompt is ", tokens[i],
                             ", but the model's vocabulary has ", vocab, " tokens");
    }
  }
  ASSIGN_OR_RETURN(const Plan plan, Plan::Create(static_cast<int64_t>(tokens.size()), context.ranks(),
                                                 options.compression.window, kernels::kKeyBlock));
  PromptPrefill prefill(context, tokens, options, plan);
  PrefillResult refused;
  refused.refused = context.host.Agree(prefill.Allocate());
  if (absl::IsDeadlineExceeded(refused.refused)) return refused.refused;
  if (!refused.refused.ok()) return refused;
  return prefill.Run();
}

}  // namespace snapkv::runtime
