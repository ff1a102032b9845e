// SPDX-License-Identifier: Apache-2.0
// ModelConfig: the shape of a decoder-only transformer, read from a GGUF file's metadata.
#pragma once

#include <cstdint>
#include <string>

#include "runtime/model/gguf.h"

namespace snapkv::runtime {

struct ModelConfig {
  std::string architecture;  // "llama" | "qwen2"
  std::string name;          // general.name, else the file's name
  int64_t layers = 0;
  int64_t hidden = 0;
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;
  int64_t ffn = 0;
  int64_t vocab = 0;
  int64_t context = 0;  // longest prompt plus generated tokens, a sliding window included
  float rms_epsilon = 0;
  double rope_base = 0;
  double rope_factor = 1;         // linear scaling: frequencies are divided by it
  bool interleaved_rope = false;  // Q and K rows are stored for interleaved pairs and are un-permuted at load

  int64_t q_width() const { return heads * head_dim; }
  int64_t kv_width() const { return kv_heads * head_dim; }
};

// Reads and checks the configuration. INVALID_ARGUMENT or UNIMPLEMENTED names the file, the key and its
// value: an unknown architecture, a missing key, a size out of range, and what changes the computation and is
// not implemented (mixture of experts, partial rotary, YaRN and other RoPE scaling).
absl::StatusOr<ModelConfig> ReadModelConfig(const GgufFile& file);

}  // namespace snapkv::runtime
