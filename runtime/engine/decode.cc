// SPDX-License-Identifier: Apache-2.0
// One decode step.
#include "runtime/engine/decode.h"

#include <cmath>
#include <vector>

#include "kernels/op/decode_attention.h"
#include "runtime/model/rope_table.h"

namespace snapkv::runtime {

absl::StatusOr<Decoder> Decoder::Create(const Model& model, const Stream& stream, Allocator& allocator,
                                        int64_t max_batch) {
  const ModelConfig& c = model.config();
  Decoder decoder(model, stream, allocator);
  const auto make = [&](DType dtype, int64_t width) {
    return Buffer::Of(allocator, MemoryKind::kActivation, Device::kCpu, dtype, max_batch, width);
  };
  ASSIGN_OR_RETURN(decoder.hidden_, make(DType::kF32, c.hidden));
  ASSIGN_OR_RETURN(decoder.q_, make(model.dtype(), c.q_width()));
  ASSIGN_OR_RETURN(decoder.k_, make(model.dtype(), c.kv_width()));
  ASSIGN_OR_RETURN(decoder.v_, make(model.dtype(), c.kv_width()));
  ASSIGN_OR_RETURN(decoder.attention_, make(model.dtype(), c.q_width()));
  ASSIGN_OR_RETURN(decoder.scratch_, Model::Scratch::Create(model, allocator));
  return decoder;
}

absl::Status Decoder::Step(absl::Span<const int32_t> tokens, absl::Span<DecodeCache* const> caches,
                           const TensorView& logits, RankStats& stats) {
  const PhaseTimer timer(stats, Phase::kDecode);
  const ModelConfig& c = model_->config();
  const int64_t batch = static_cast<int64_t>(tokens.size());
  if (batch != static_cast<int64_t>(caches.size()) || batch > kTokenBlock) {
    return InvalidArgument("decode: ", batch, " tokens for ", caches.size(), " caches");
  }
  const TensorView hidden = hidden_.View(DType::kF32, batch, c.hidden);
  RETURN_IF_ERROR(model_->Embed(stream_, tokens, hidden));
  std::vector<int32_t> positions;
  for (const DecodeCache* cache : caches) positions.push_back(static_cast<int32_t>(cache->next_position));
  ASSIGN_OR_RETURN(const RopeTable rope,
                   RopeTable::Create(*allocator_, 1, model_->rope_frequencies(), positions));
  for (int64_t layer = 0; layer < c.layers; ++layer) {
    RETURN_IF_ERROR(RunLayer(layer, caches, hidden, rope.cos(), rope.sin()));
  }
  for (DecodeCache* cache : caches) ++cache->next_position;
  stats.AddTokens(Phase::kDecode, batch);
  return model_->Logits(stream_, hidden, logits, scratch_, times_);
}

absl::Status Decoder::RunLayer(int64_t layer, absl::Span<DecodeCache* const> caches, const TensorView& hidden,
                               const TensorView& cos, const TensorView& sin) {
  const ModelConfig& c = model_->config();
  const DType dtype = model_->dtype();
  const int64_t batch = hidden.dim(0);
  const TensorView q = q_.View(dtype, batch, c.heads, c.head_dim),
                   k = k_.View(dtype, batch, c.kv_heads, c.head_dim),
                   v = v_.View(dtype, batch, c.kv_heads, c.head_dim);
  RETURN_IF_ERROR(model_->ProjectQkv(stream_, layer, hidden, cos, sin, q.Transposed(0, 1), k.Transposed(0, 1),
                                     v.Transposed(0, 1), scratch_, times_));
  // Documents may have one cache head per KV head or per query head; those alike go to the kernel together.
  const TensorView out = attention_.View(dtype, batch, c.heads, c.head_dim);
  const float scale = 1.0f / std::sqrt(static_cast<float>(c.head_dim));
  for (int64_t begin = 0; begin < batch;) {
    const int64_t cache_heads = caches[static_cast<size_t>(begin)]->cache_heads();
    std::vector<kernels::CacheRows> rows;
    int64_t end = begin;
    for (; end < batch && caches[static_cast<size_t>(end)]->cache_heads() == cache_heads; ++end) {
      DecodeCache& cache = *caches[static_cast<size_t>(end)];
      RETURN_IF_ERROR(cache.Append(layer, k[end], v[end]));
      for (int64_t h = 0; h < cache_heads; ++h) rows.push_back(cache.head_rows(layer, h));
    }
    RETURN_IF_ERROR(kernels::DecodeAttention(stream_, q.Slice(0, begin, end), rows, cache_heads, scale,
                                             out.Slice(0, begin, end)));
    begin = end;
  }
  return model_->FinishLayer(stream_, layer, attention_.View(dtype, batch, c.q_width()), hidden, scratch_,
                             times_);
}

}  // namespace snapkv::runtime
