// SPDX-License-Identifier: Apache-2.0
// Decoder: one token for each document of a batch, on the decode rank alone.
#pragma once

#include "absl/types/span.h"
#include "runtime/cache/decode_cache.h"
#include "runtime/engine/stats.h"
#include "runtime/model/model.h"

namespace snapkv::runtime {

// Buffers for up to `max_batch` documents. In f32 a document's logits do not depend on its companions in the
// batch.
class Decoder {
 public:
  // `model` must have its head and, like `allocator`, outlive the decoder. 1 <= max_batch <= kTokenBlock.
  static absl::StatusOr<Decoder> Create(const Model& model, const Stream& stream, Allocator& allocator,
                                        int64_t max_batch);

  // For each document b: runs tokens[b] at position caches[b]->next_position against caches[b] and itself,
  // appends its rows, moves next_position on. logits: f32 [batch, vocab].
  absl::Status Step(absl::Span<const int32_t> tokens, absl::Span<DecodeCache* const> caches,
                    const TensorView& logits, RankStats& stats);

 private:
  Decoder(const Model& model, const Stream& stream, Allocator& allocator)
      : model_(&model), stream_(stream), allocator_(&allocator) {}
  absl::Status RunLayer(int64_t layer, absl::Span<DecodeCache* const> caches, const TensorView& hidden,
                        const TensorView& cos, const TensorView& sin);

  const Model* model_;
  Stream stream_;
  Allocator* allocator_;
  Buffer hidden_, q_, k_, v_, attention_;
  Model::Scratch scratch_;
  ModelTimes times_;
};

}  // namespace snapkv::runtime
