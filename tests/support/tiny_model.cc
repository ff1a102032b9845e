// SPDX-License-Identifier: Apache-2.0
// Random weights, scaled so that attention is neither uniform nor one-hot.
#include "tests/support/tiny_model.h"

#include <unistd.h>

#include <atomic>
#include <cmath>
#include <cstdio>

#include "gtest/gtest.h"
#include "tests/support/tensors.h"

namespace snapkv::testing {
namespace {

// Adds random tensors under one seed, each from a seed of its own.
class Tensors {
 public:
  Tensors(GgufWriter& writer, uint64_t seed) : writer_(writer), seed_(seed * 1000) {}

  // Rows of unit gain for an input of unit variance, times `gain`.
  void Matrix(const std::string& name, int64_t outputs, int64_t inputs, double gain) {
    Add(name, {outputs, inputs}, 0, gain / std::sqrt(static_cast<double>(inputs)));
  }
  void Vector(const std::string& name, int64_t size, double mean, double deviation) {
    Add(name, {size}, mean, deviation);
  }

 private:
  void Add(const std::string& name, const std::vector<int64_t>& shape, double mean, double deviation) {
    int64_t size = 1;
    for (const int64_t n : shape) size *= n;
    std::vector<float> values(static_cast<size_t>(size));
    FillNormal(ViewOf(values, {size}), ++seed_, deviation);
    for (float& x : values) x += static_cast<float>(mean);
    writer_.AddTensor(name, shape, values);
  }

  GgufWriter& writer_;
  uint64_t seed_;
};

}  // namespace

GgufWriter TinyGguf(const TinyModelOptions& o) {
  GgufWriter writer;
  const auto key = [&](const char* name) { return o.architecture + "." + name; };
  const auto size = [&](const char* name, int64_t value) {
    writer.Add(key(name), static_cast<uint32_t>(value));
  };
  writer.Add("general.architecture", o.architecture);
  writer.Add("general.name", "tiny");
  size("block_count", o.layers);
  size("embedding_length", o.hidden);
  size("attention.head_count", o.heads);
  size("attention.head_count_kv", o.kv_heads);
  size("attention.key_length", o.head_dim);
  size("attention.value_length", o.head_dim);
  size("feed_forward_length", o.ffn);
  size("context_length", o.context);
  writer.Add(key("attention.layer_norm_rms_epsilon"), 1e-5f);
  writer.Add(key("rope.freq_base"), 10000.0f);

  Tensors add(writer, o.seed);
  add.Matrix("token_embd.weight", o.vocab, o.hidden, std::sqrt(static_cast<double>(o.hidden)));
  const double gain = std::sqrt(o.logit_spread);  // of queries and of keys
  const int64_t q = o.heads * o.head_dim, kv = o.kv_heads * o.head_dim;
  for (int64_t i = 0; i < o.layers; ++i) {
    const std::string prefix = "blk." + std::to_string(i) + ".";
    add.Vector(prefix + "attn_norm.weight", o.hidden, 1, 0.1);
    add.Matrix(prefix + "attn_q.weight", q, o.hidden, gain);
    add.Matrix(prefix + "attn_k.weight", kv, o.hidden, gain);
    add.Matrix(prefix + "attn_v.weight", kv, o.hidden, 1);
    if (o.architecture == "qwen2") {
      add.Vector(prefix + "attn_q.bias", q, 0, 0.3);
      add.Vector(prefix + "attn_k.bias", kv, 0, 0.3);
      add.Vector(prefix + "attn_v.bias", kv, 0, 0.3);
    }
    add.Matrix(prefix + "attn_output.weight", o.hidden, q, 1);
    add.Vector(prefix + "ffn_norm.weight", o.hidden, 1, 0.1);
    add.Matrix(prefix + "ffn_gate.weight", o.ffn, o.hidden, 1);
    add.Matrix(prefix + "ffn_up.weight", o.ffn, o.hidden, 1);
    add.Matrix(prefix + "ffn_down.weight", o.hidden, o.ffn, 1);
  }
  add.Vector("output_norm.weight", o.hidden, 1, 0.1);
  if (!o.tied) add.Matrix("output.weight", o.vocab, o.hidden, std::sqrt(static_cast<double>(o.hidden)));
  return writer;
}

absl::StatusOr<std::unique_ptr<TinyModel>> TinyModel::Create(const TinyModelOptions& options, DType dtype,
                                                             Device device) {
  static std::atomic<int> files{0};
  const std::string path = ::testing::TempDir() + "tiny_model_" + std::to_string(::getpid()) + "_" +
                           std::to_string(files++) + ".gguf";
  if (!TinyGguf(options).Write(path)) return Internal("cannot write ", path);
  auto file = runtime::GgufFile::Open(path);
  std::remove(path.c_str());
  RETURN_IF_ERROR(file.status());
  auto tiny = std::unique_ptr<TinyModel>(new TinyModel(*std::move(file)));
  ASSIGN_OR_RETURN(tiny->model_,
                   runtime::Model::Load(tiny->file_, Stream{device, 1}, tiny->allocator_, {.dtype = dtype}));
  return tiny;
}

std::vector<int32_t> RandomTokens(int64_t count, int64_t vocab, uint64_t seed) {
  std::vector<int32_t> tokens(static_cast<size_t>(count));
  FillIntegers(ViewOf(tokens, {count}), seed, 0, vocab - 1);
  return tokens;
}

}  // namespace snapkv::testing
