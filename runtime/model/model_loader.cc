// SPDX-License-Identifier: Apache-2.0
// Model::Load: GGUF tensors to packed weights, each checked for presence and shape.
#include <cmath>
#include <set>
#include <string>
#include <utility>

#include "kernels/op/dequantize.h"
#include "runtime/model/model.h"
#include "runtime/model/rope_table.h"

namespace snapkv::runtime {

// Loads one model; remembers which tensors were used, so that a leftover one is an error and not a silent
// difference.
class ModelLoader {
 public:
  ModelLoader(const GgufFile& file, const Stream& stream, Allocator& allocator, const LoadOptions& options)
      : file_(file), stream_(stream), allocator_(allocator), options_(options) {}

  absl::StatusOr<std::unique_ptr<Model>> Load() {
    auto model = std::unique_ptr<Model>(new Model());
    ASSIGN_OR_RETURN(model->config_, ReadModelConfig(file_));
    config_ = model->config_;
    model->dtype_ = options_.dtype;
    ASSIGN_OR_RETURN(const GgufTensor embedding, file_.tensor("token_embd.weight"));
    used_.insert("token_embd.weight");
    model->embedding_ = embedding.view;
    for (int64_t i = 0; i < config_.layers; ++i) {
      ASSIGN_OR_RETURN(LayerWeights layer, LoadLayer("blk." + std::to_string(i) + "."));
      model->layers_.push_back(std::move(layer));
    }
    ASSIGN_OR_RETURN(model->final_norm_, LoadVector("output_norm.weight", config_.hidden));
    RETURN_IF_ERROR(LoadHead(*model));
    ASSIGN_OR_RETURN(const std::vector<float> factors, LoadRopeFactors());
    model->rope_frequencies_ = RopeFrequencies(config_, factors);
    for (const GgufTensor& tensor : file_.tensors()) {
      if (!used_.contains(tensor.name)) {
        return Unimplemented(file_.path(), ": tensor ", tensor.name, " is not part of architecture ",
                             config_.architecture,
                             " as supported here; ignoring it would give wrong results");
      }
    }
    return model;
  }

 private:
  // One part of a stacked matrix: a tensor [outputs, inputs], its rows re-ordered when `rope_heads` > 0.
  struct Part {
    std::string name;
    int64_t outputs;
    int64_t rope_heads;
  };

  absl::StatusOr<LayerWeights> LoadLayer(const std::string& prefix) {
    const int64_t hidden = config_.hidden, q = config_.q_width(), kv = config_.kv_width();
    const int64_t q_heads = config_.interleaved_rope ? config_.heads : 0;
    const int64_t k_heads = config_.interleaved_rope ? config_.kv_heads : 0;
    LayerWeights layer;
    ASSIGN_OR_RETURN(layer.attention_norm, LoadVector(prefix + "attn_norm.weight", hidden));
    ASSIGN_OR_RETURN(layer.qkv, LoadLinear({{prefix + "attn_q", q, q_heads},
                                            {prefix + "attn_k", kv, k_heads},
                                            {prefix + "attn_v", kv, 0}},
                                           hidden));
    ASSIGN_OR_RETURN(layer.output, LoadLinear({{prefix + "attn_output", hidden, 0}}, q));
    ASSIGN_OR_RETURN(layer.ffn_norm, LoadVector(prefix + "ffn_norm.weight", hidden));
    ASSIGN_OR_RETURN(
        layer.gate_up,
        LoadLinear({{prefix + "ffn_gate", config_.ffn, 0}, {prefix + "ffn_up", config_.ffn, 0}}, hidden));
    ASSIGN_OR_RETURN(layer.down, LoadLinear({{prefix + "ffn_down", hidden, 0}}, config_.ffn));
    return layer;
  }

  // A tied head is the embedding.
  absl::Status LoadHead(Model& model) {
    const bool tied = !file_.has_tensor("output.weight");
    if (!options_.head) {
      used_.insert("output.weight");
      used_.insert("output.bias");
      return absl::OkStatus();
    }
    ASSIGN_OR_RETURN(model.head_,
                     LoadLinear({{tied ? "token_embd" : "output", config_.vocab, 0}}, config_.hidden));
    model.has_head_ = true;
    return absl::OkStatus();
  }

  absl::StatusOr<TensorView> Find(const std::string& name, int64_t rows, int64_t columns) {
    ASSIGN_OR_RETURN(const GgufTensor tensor, file_.tensor(name));
    used_.insert(name);
    const TensorView& v = tensor.view;
    const bool fits = rows == 0 ? v.rank == 1 && v.dim(0) == columns
                                : v.rank == 2 && v.dim(0) == rows && v.dim(1) == columns;
    if (!fits) {
      return InvalidArgument(file_.path(), ": tensor ", name, " is ", v.ToString(), ", expected [",
                             rows == 0 ? "" : absl::StrCat(rows, ", "), columns, "]");
    }
    return v;
  }

  absl::StatusOr<Buffer> LoadVector(const std::string& name, int64_t size) {
    ASSIGN_OR_RETURN(const TensorView view, Find(name, 0, size));
    ASSIGN_OR_RETURN(Buffer buffer,
                     Buffer::Of(allocator_, MemoryKind::kWeights, Device::kCpu, DType::kF32, size));
    RETURN_IF_ERROR(kernels::Dequantize(stream_, view, buffer.View(DType::kF32, size)));
    return buffer;
  }

  // Row order for half-rotation RoPE: within a head, stored row 2 j is j and row 2 j + 1 is j + head_dim / 2.
  void Unpermute(float* rows, int64_t heads, int64_t columns) const {
    const int64_t dim = config_.head_dim;
    std::vector<float> head(static_cast<size_t>(dim * columns));
    for (int64_t h = 0; h < heads; ++h) {
      float* to = rows + h * dim * columns;
      std::copy_n(to, dim * columns, head.begin());
      for (int64_t j = 0; j < dim / 2; ++j) {
        std::copy_n(head.begin() + 2 * j * columns, columns, to + j * columns);
        std::copy_n(head.begin() + (2 * j + 1) * columns, columns, to + (j + dim / 2) * columns);
      }
    }
  }

  absl::StatusOr<Linear> LoadLinear(const std::vector<Part>& parts, int64_t inputs) {
    int64_t outputs = 0;
    bool biased = false;
    for (const Part& part : parts) {
      outputs += part.outputs;
      biased |= file_.has_tensor(part.name + ".bias");
    }
    ASSIGN_OR_RETURN(Buffer stacked, Buffer::Of(allocator_, MemoryKind::kWorkspace, Device::kCpu, DType::kF32,
                                                outputs, inputs));
    const TensorView rows = stacked.View(DType::kF32, outputs, inputs);
    Linear linear;
    if (biased) {
      ASSIGN_OR_RETURN(linear.bias,
                       Buffer::Of(allocator_, MemoryKind::kWeights, Device::kCpu, DType::kF32, outputs));
    }
    int64_t at = 0;
    for (const Part& part : parts) {
      ASSIGN_OR_RETURN(const TensorView view, Find(part.name + ".weight", part.outputs, inputs));
      const TensorView to = rows.Slice(0, at, at + part.outputs);
      RETURN_IF_ERROR(kernels::Dequantize(stream_, view, to));
      if (part.rope_heads > 0) Unpermute(to.as<float>(), part.rope_heads, inputs);
      if (biased)
        RETURN_IF_ERROR(
            LoadBias(part, linear.bias.View(DType::kF32, outputs).Slice(0, at, at + part.outputs)));
      at += part.outputs;
    }
    ASSIGN_OR_RETURN(linear.weight, kernels::PackMatrix(stream_, allocator_, rows, options_.dtype));
    return linear;
  }

  absl::Status LoadBias(const Part& part, const TensorView& to) {
    if (!file_.has_tensor(part.name + ".bias")) {
      std::fill_n(to.as<float>(), part.outputs, 0.0f);
      return absl::OkStatus();
    }
    ASSIGN_OR_RETURN(const TensorView view, Find(part.name + ".bias", 0, part.outputs));
    RETURN_IF_ERROR(kernels::Dequantize(stream_, view, to));
    if (part.rope_heads > 0) Unpermute(to.as<float>(), part.rope_heads, 1);
    return absl::OkStatus();
  }

  // Llama 3.1's per-frequency divisors; empty when the file has none.
  absl::StatusOr<std::vector<float>> LoadRopeFactors() {
    std::vector<float> factors;
    if (!file_.has_tensor("rope_freqs.weight")) return factors;
    ASSIGN_OR_RETURN(const TensorView view, Find("rope_freqs.weight", 0, config_.head_dim / 2));
    factors.resize(static_cast<size_t>(view.elements()));
    RETURN_IF_ERROR(kernels::Dequantize(
        stream_, view, TensorView::Of(factors.data(), DType::kF32, Device::kCpu, view.elements())));
    for (size_t i = 0; i < factors.size(); ++i) {
      if (!(factors[i] > 0) || !std::isfinite(factors[i])) {
        return InvalidArgument(file_.path(), ": rope_freqs.weight[", i, "] is ", factors[i],
                               ", expected a positive number");
      }
    }
    return factors;
  }

  const GgufFile& file_;
  const Stream stream_;
  Allocator& allocator_;
  const LoadOptions options_;
  ModelConfig config_;
  std::set<std::string> used_;
};

absl::StatusOr<std::unique_ptr<Model>> Model::Load(const GgufFile& file, const Stream& stream,
                                                   Allocator& allocator, const LoadOptions& options) {
  return ModelLoader(file, stream, allocator, options).Load();
}

}  // namespace snapkv::runtime
