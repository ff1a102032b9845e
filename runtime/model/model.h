// SPDX-License-Identifier: Apache-2.0
// Model: weights packed for a device, and the parts of one transformer layer around its attention.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "kernels/op/gemm.h"
#include "runtime/model/config.h"

namespace snapkv::runtime {

// Tokens that pass through the linear layers at once: bounds the activations whatever the prompt.
inline constexpr int64_t kTokenBlock = 256;

// A linear layer: out = in W^T (+ bias).
struct Linear {
  kernels::PackedMatrix weight;
  Buffer bias;  // f32 [outputs], empty for none
};

struct LayerWeights {
  Buffer attention_norm;  // f32 [hidden]
  Linear qkv;             // [q_width + 2 * kv_width, hidden]: queries, keys, values; half-rotation RoPE order
  Linear output;          // [hidden, q_width]
  Buffer ffn_norm;        // f32 [hidden]
  Linear gate_up;         // [2 * ffn, hidden]: gates, ups
  Linear down;            // [hidden, ffn]
};

// Seconds spent in the linear layers and what surrounds them.
struct ModelTimes {
  double gemm = 0;
  double other = 0;
};

struct LoadOptions {
  DType dtype = DType::kF32;  // f32 | bf16: weights and activations
  bool head = true;           // whether this rank computes logits
};

// Const after loading: any number of threads (virtual ranks) may run it at once, each with its own Scratch.
class Model {
 public:
  // Packs every tensor of `file`, which must outlive the model (the embedding is read from it). Errors name
  // the file and the tensor: one that is missing, has the wrong shape, or is not part of the architecture.
  static absl::StatusOr<std::unique_ptr<Model>> Load(const GgufFile& file, const Stream& stream,
                                                     Allocator& allocator, const LoadOptions& options);

  const ModelConfig& config() const { return config_; }
  DType dtype() const { return dtype_; }
  absl::Span<const float> rope_frequencies() const { return rope_frequencies_; }
  // Kernel of each kind of linear layer, for --stats.
  std::map<std::string, std::string> KernelNames() const;

  // Buffers for one token block; one per thread that runs the model.
  class Scratch {
   public:
    static absl::StatusOr<Scratch> Create(const Model& model, Allocator& allocator);

   private:
    friend class Model;
    Buffer norm_, wide_, narrow_;  // [kTokenBlock, ...] of the compute type
    Buffer biased_;                // f32 [kTokenBlock, ...], bf16 models only
  };

  // out: f32 [ids.size(), hidden]. INVALID_ARGUMENT for an id outside the vocabulary.
  absl::Status Embed(const Stream& stream, absl::Span<const int32_t> ids, const TensorView& out) const;

  // RMSNorm, projections and RoPE of n tokens. hidden: f32 [n, hidden]; cos, sin: f32 [n, head_dim / 2];
  // q: [heads, n, head_dim], k, v: [kv_heads, n, head_dim] of dtype(), any strides but a contiguous last
  // dimension.
  absl::Status ProjectQkv(const Stream& stream, int64_t layer, const TensorView& hidden,
                          const TensorView& cos, const TensorView& sin, const TensorView& q,
                          const TensorView& k, const TensorView& v, Scratch& scratch,
                          ModelTimes& times) const;

  // Output projection, residual, RMSNorm, MLP, residual. attention: dtype() [n, heads * head_dim], n <=
  // kTokenBlock; hidden: f32 [n, hidden], updated.
  absl::Status FinishLayer(const Stream& stream, int64_t layer, const TensorView& attention,
                           const TensorView& hidden, Scratch& scratch, ModelTimes& times) const;

  // Final norm and head. hidden: f32 [n, hidden], n <= kTokenBlock; logits: f32 [n, vocab].
  // FAILED_PRECONDITION when the model was loaded without its head.
  absl::Status Logits(const Stream& stream, const TensorView& hidden, const TensorView& logits,
                      Scratch& scratch, ModelTimes& times) const;

 private:
  friend class ModelLoader;
  Model() = default;

  ModelConfig config_;
  DType dtype_ = DType::kF32;
  TensorView embedding_;  // [vocab, hidden] in the file
  std::vector<LayerWeights> layers_;
  Buffer final_norm_;  // f32 [hidden]
  Linear head_;        // [vocab, hidden]
  bool has_head_ = false;
  std::vector<float> rope_frequencies_;
};

}  // namespace snapkv::runtime
