// SPDX-License-Identifier: Apache-2.0
// GGUF metadata to ModelConfig, every value checked before use.
#include "runtime/model/config.h"

#include <algorithm>
#include <cmath>

#include "kernels/base/status.h"

namespace snapkv::runtime {
namespace {

// Bounds far above any model, so that products of sizes cannot overflow.
constexpr uint64_t kMostLayers = 4096, kMostHeads = 4096, kMostWidth = 1 << 20, kMostContext = INT32_MAX;

class Reader {
 public:
  Reader(const GgufFile& file, std::string architecture)
      : file_(file), architecture_(std::move(architecture)) {}

  std::string Key(const std::string& name) const { return architecture_ + "." + name; }

  absl::StatusOr<int64_t> Size(const std::string& name, uint64_t most) const {
    ASSIGN_OR_RETURN(const uint64_t value, file_.Get<uint64_t>(Key(name)));
    return Check(name, value, most);
  }
  absl::StatusOr<int64_t> SizeOr(const std::string& name, int64_t fallback, uint64_t most) const {
    if (!file_.has(Key(name))) return fallback;
    return Size(name, most);
  }

 private:
  absl::StatusOr<int64_t> Check(const std::string& name, uint64_t value, uint64_t most) const {
    if (value < 1 || value > most) {
      return InvalidArgument(file_.path(), ": ", Key(name), " is ", value, ", expected 1 to ", most);
    }
    return static_cast<int64_t>(value);
  }

  const GgufFile& file_;
  std::string architecture_;
};

// What would change the result without being implemented is refused by name.
absl::Status RefuseUnsupported(const GgufFile& file, const Reader& reader, const ModelConfig& config) {
  for (const char* name :
       {"expert_count", "expert_used_count", "logit_scale", "residual_scale", "embedding_scale",
        "attention.scale", "attn_logit_softcapping", "final_logit_softcapping"}) {
    if (!file.has(reader.Key(name))) continue;
    const absl::StatusOr<double> number = file.Get<double>(reader.Key(name));
    const absl::StatusOr<uint64_t> count = file.Get<uint64_t>(reader.Key(name));
    if ((number.ok() && *number == 0) || (count.ok() && *count == 0)) continue;
    return Unimplemented(file.path(), ": ", reader.Key(name), " is set, which is not supported; use a dense ",
                         config.architecture, " model");
  }
  ASSIGN_OR_RETURN(const int64_t rotary, reader.SizeOr("rope.dimension_count", config.head_dim, kMostWidth));
  if (rotary != config.head_dim) {
    return Unimplemented(file.path(), ": ", reader.Key("rope.dimension_count"), " is ", rotary,
                         ", but only rotation of the whole head (", config.head_dim, ") is supported");
  }
  ASSIGN_OR_RETURN(const int64_t value_dim,
                   reader.SizeOr("attention.value_length", config.head_dim, kMostWidth));
  if (value_dim != config.head_dim) {
    return Unimplemented(file.path(), ": ", reader.Key("attention.value_length"), " is ", value_dim,
                         ", but keys and values of one length (", config.head_dim, ") are supported");
  }
  return absl::OkStatus();
}

absl::Status ReadRope(const GgufFile& file, const Reader& reader, ModelConfig& config) {
  ASSIGN_OR_RETURN(const float base, file.GetOr<float>(reader.Key("rope.freq_base"), 10000.0f));
  if (!(base > 0) || !std::isfinite(base)) {
    return InvalidArgument(file.path(), ": ", reader.Key("rope.freq_base"), " is ", base,
                           ", expected a positive number");
  }
  config.rope_base = base;
  ASSIGN_OR_RETURN(const std::string scaling,
                   file.GetOr<std::string>(reader.Key("rope.scaling.type"), "none"));
  if (scaling != "none" && scaling != "linear") {
    return Unimplemented(file.path(), ": ", reader.Key("rope.scaling.type"), " is '", scaling,
                         "', supported are 'none' and 'linear'");
  }
  ASSIGN_OR_RETURN(float factor, file.GetOr<float>(reader.Key("rope.scaling.factor"), 1.0f));
  // The oldest files state linear scaling by this key alone.
  ASSIGN_OR_RETURN(const float old_factor, file.GetOr<float>(reader.Key("rope.scale_linear"), 1.0f));
  if (scaling == "none" && !file.has(reader.Key("rope.scaling.type")) && factor == 1.0f) factor = old_factor;
  if (!(factor > 0) || !std::isfinite(factor)) {
    return InvalidArgument(file.path(), ": the RoPE scaling factor is ", factor,
                           ", expected a positive number");
  }
  const bool typed_none = file.has(reader.Key("rope.scaling.type")) && scaling == "none";
  config.rope_factor = typed_none ? 1.0 : factor;
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ModelConfig> ReadModelConfig(const GgufFile& file) {
  ModelConfig config;
  ASSIGN_OR_RETURN(config.architecture, file.Get<std::string>("general.architecture"));
  if (config.architecture != "llama" && config.architecture != "qwen2") {
    return Unimplemented(file.path(), ": general.architecture is '", config.architecture,
                         "', supported are 'llama' and 'qwen2'");
  }
  const Reader reader(file, config.architecture);
  ASSIGN_OR_RETURN(config.name, file.GetOr<std::string>("general.name", ""));
  ASSIGN_OR_RETURN(config.layers, reader.Size("block_count", kMostLayers));
  ASSIGN_OR_RETURN(config.hidden, reader.Size("embedding_length", kMostWidth));
  ASSIGN_OR_RETURN(config.heads, reader.Size("attention.head_count", kMostHeads));
  ASSIGN_OR_RETURN(config.kv_heads, reader.SizeOr("attention.head_count_kv", config.heads, kMostHeads));
  ASSIGN_OR_RETURN(config.ffn, reader.Size("feed_forward_length", kMostWidth));
  ASSIGN_OR_RETURN(config.context, reader.Size("context_length", kMostContext));
  if (config.heads % config.kv_heads != 0) {
    return InvalidArgument(file.path(), ": ", config.heads, " query heads are not a multiple of ",
                           config.kv_heads, " KV heads");
  }
  if (!file.has(reader.Key("attention.key_length")) && config.hidden % config.heads != 0) {
    return InvalidArgument(file.path(), ": ", reader.Key("embedding_length"), " ", config.hidden,
                           " is not a multiple of ", config.heads, " heads");
  }
  ASSIGN_OR_RETURN(config.head_dim,
                   reader.SizeOr("attention.key_length", config.hidden / config.heads, kMostWidth));
  if (config.head_dim % 2 != 0) {
    return InvalidArgument(file.path(), ": the head dimension is ", config.head_dim,
                           ", RoPE needs an even one");
  }
  ASSIGN_OR_RETURN(config.rms_epsilon, file.Get<float>(reader.Key("attention.layer_norm_rms_epsilon")));
  if (!(config.rms_epsilon >= 0) || !std::isfinite(config.rms_epsilon)) {
    return InvalidArgument(file.path(), ": ", reader.Key("attention.layer_norm_rms_epsilon"), " is ",
                           config.rms_epsilon, ", expected a small positive number");
  }
  // Within the window, sliding attention is full attention.
  ASSIGN_OR_RETURN(const int64_t sliding,
                   reader.SizeOr("attention.sliding_window", config.context, kMostContext));
  config.context = std::min(config.context, sliding);
  RETURN_IF_ERROR(ReadRope(file, reader, config));
  RETURN_IF_ERROR(RefuseUnsupported(file, reader, config));
  config.interleaved_rope = config.architecture == "llama";
  ASSIGN_OR_RETURN(const GgufTensor embedding, file.tensor("token_embd.weight"));
  if (embedding.view.rank != 2 || embedding.view.dim(1) != config.hidden) {
    return InvalidArgument(file.path(), ": token_embd.weight is ", embedding.view.ToString(),
                           ", expected [vocab, ", config.hidden, "]");
  }
  config.vocab = embedding.view.dim(0);
  return config;
}

}  // namespace snapkv::runtime
