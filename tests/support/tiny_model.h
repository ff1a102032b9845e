// SPDX-License-Identifier: Apache-2.0
// TinyModel: a random transformer of any shape, written as a GGUF file and loaded like a real one.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "runtime/model/model.h"
#include "tests/support/gguf_writer.h"

namespace snapkv::testing {

struct TinyModelOptions {
  std::string architecture = "llama";  // "llama" | "qwen2"; qwen2 has biases on queries, keys and values
  int64_t layers = 2;
  int64_t heads = 6;
  int64_t kv_heads = 2;
  int64_t head_dim = 8;  // even
  int64_t hidden = 24;
  int64_t ffn = 40;
  int64_t vocab = 97;
  int64_t context = 8192;
  bool tied = true;  // the head is the embedding
  // Spread of q.k / sqrt(head_dim) over the keys: 0 gives uniform attention, 3 a peaked one.
  double logit_spread = 2;
  uint64_t seed = 1;
};

// The file, all tensors f32. The same options give the same bytes.
GgufWriter TinyGguf(const TinyModelOptions& options);

// The loaded model; its file is removed at once and lives on as a mapping.
class TinyModel {
 public:
  static absl::StatusOr<std::unique_ptr<TinyModel>> Create(const TinyModelOptions& options,
                                                           DType dtype = DType::kF32,
                                                           Device device = Device::kCpu);
  const runtime::Model& model() const { return *model_; }

 private:
  explicit TinyModel(runtime::GgufFile file) : file_(std::move(file)) {}

  runtime::GgufFile file_;
  Allocator allocator_;
  std::unique_ptr<runtime::Model> model_;
};

// `count` token ids below `vocab`, from a seed.
std::vector<int32_t> RandomTokens(int64_t count, int64_t vocab, uint64_t seed);

}  // namespace snapkv::testing
