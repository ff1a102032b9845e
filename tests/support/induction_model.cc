// SPDX-License-Identifier: Apache-2.0
// The weights of the induction head.
#include "tests/support/induction_model.h"

#include <algorithm>
#include <cmath>
#include <random>

#include "kernels/base/log.h"

namespace snapkv::testing {
namespace {

using S = InductionShape;

// A row-major matrix of zeros to write into.
struct Matrix {
  Matrix(int64_t rows, int64_t columns) : columns(columns), values(static_cast<size_t>(rows * columns)) {}
  float& At(int64_t row, int64_t column) { return values[static_cast<size_t>(row * columns + column)]; }
  void Set(int64_t row, int64_t column, double value) { At(row, column) = static_cast<float>(value); }

  int64_t columns;
  std::vector<float> values;
};

// Where the file of architecture llama has the row that is `row` for half-rotation RoPE: there, pair i is
// rows i and i + head_dim / 2; in the file, 2 i and 2 i + 1.
int64_t FileRow(int64_t row) {
  constexpr int64_t kHalf = S::kHeadDim / 2;
  return row < kHalf ? 2 * row : 2 * (row - kHalf) + 1;
}

bool IsKey(int32_t token) { return token == kInductionKey; }
// 0 .. 3, or -1.
int64_t ValueIndex(int32_t token) {
  const auto it = std::find(kInductionValues.begin(), kInductionValues.end(), token);
  return it == kInductionValues.end() ? -1 : it - kInductionValues.begin();
}

// A unit vector from a seed; `sign` -1: no element is positive.
std::vector<double> Direction(uint64_t seed, int64_t size, int sign) {
  std::mt19937_64 rng(seed);
  std::vector<double> v(static_cast<size_t>(size));
  double squares = 0;
  for (double& x : v) {
    x = static_cast<double>(rng() >> 11) * 0x1p-52 - 1;
    if (sign < 0) x = -std::fabs(x);
    squares += x * x;
  }
  for (double& x : v) x /= std::sqrt(squares);
  return v;
}

// What a token writes into the answer, of length 1: values and key a column each, filler the others.
std::vector<double> Spelling(int32_t token) {
  std::vector<double> spelling(S::kHeadDim);
  constexpr int64_t kOwn = static_cast<int64_t>(kInductionValues.size()) + 1;
  if (const int64_t value = ValueIndex(token); value >= 0) {
    spelling[static_cast<size_t>(value)] = 1;
  } else if (IsKey(token)) {
    spelling[kOwn - 1] = 1;
  } else {
    const auto v = Direction(static_cast<uint64_t>(token), S::kHeadDim - kOwn, 1);
    std::copy(v.begin(), v.end(), spelling.begin() + kOwn);
  }
  return spelling;
}

// What RMSNorm multiplies a row with that has `parts` parts of length 1.
double NormFactor(int parts) { return std::sqrt(static_cast<double>(S::kHidden) / parts); }

class Writer {
 public:
  explicit Writer(GgufWriter& gguf) : gguf_(gguf) {}

  void Add(const std::string& name, const Matrix& m) {
    gguf_.AddTensor(name, {static_cast<int64_t>(m.values.size()) / m.columns, m.columns}, m.values);
  }
  void AddOnes(const std::string& name, int64_t size) {
    gguf_.AddTensor(name, {size}, std::vector<float>(static_cast<size_t>(size), 1.0f));
  }
  void AddLayer(int layer, const Matrix& q, const Matrix& k, const Matrix& v, const Matrix& output) {
    const std::string prefix = "blk." + std::to_string(layer) + ".";
    AddOnes(prefix + "attn_norm.weight", S::kHidden);
    Add(prefix + "attn_q.weight", q);
    Add(prefix + "attn_k.weight", k);
    Add(prefix + "attn_v.weight", v);
    Add(prefix + "attn_output.weight", output);
    AddOnes(prefix + "ffn_norm.weight", S::kHidden);
    Add(prefix + "ffn_gate.weight", Matrix(kFfn, S::kHidden));
    Add(prefix + "ffn_up.weight", Matrix(kFfn, S::kHidden));
    Add(prefix + "ffn_down.weight", Matrix(S::kHidden, kFfn));
  }
  static constexpr int64_t kFfn = 16;

 private:
  GgufWriter& gguf_;
};

constexpr double kScale = 0.25;  // 1 / sqrt(head_dim)

// Layer 0: q(i) . k(j) is kPositionGap / kScale times the sum over p of cos(f_p (i - 1 - j)). The key is the
// same everywhere but for RoPE, the query the same turned back by one position.
void AddLookBack(Writer& writer) {
  Matrix q(S::kHeadDim, S::kHidden), k(S::kHeadDim, S::kHidden), v(S::kHeadDim, S::kHidden),
      output(S::kHidden, S::kHeadDim);
  const double norm = NormFactor(3);  // one, code, spelling
  const double amplitude = std::sqrt(S::kPositionGap / kScale) / norm;
  for (int64_t p = 0; p < S::kPositionPairs; ++p) {
    const double frequency = std::pow(S::kRopeBase, -2.0 * static_cast<double>(p) / S::kHeadDim);
    k.Set(FileRow(p), S::kOne, amplitude);
    q.Set(FileRow(p), S::kOne, amplitude * std::cos(frequency));
    q.Set(FileRow(p + S::kHeadDim / 2), S::kOne, -amplitude * std::sin(frequency));
  }
  for (int64_t c = 0; c < S::kCodeDim; ++c) {
    v.Set(c, S::kCode + c, 1 / norm);
    output.Set(S::kBefore + c, c, 1);
  }
  writer.AddLayer(0, q, k, v, output);
}

// Layer 1: q(i) . k(j) is kMatchGap / kScale times the product of the codes of token i and token j - 1.
void AddMatch(Writer& writer) {
  Matrix q(S::kHeadDim, S::kHidden), k(S::kHeadDim, S::kHidden), v(S::kHeadDim, S::kHidden),
      output(S::kHidden, S::kHeadDim);
  const double norm = NormFactor(4);  // one, code, spelling, the code before
  const double amplitude = std::sqrt(S::kMatchGap / kScale) / norm;
  for (int64_t c = 0; c < S::kCodeDim; ++c) {
    const int64_t row = FileRow(S::kPositionPairs + c / 2 + c % 2 * (S::kHeadDim / 2));
    q.Set(row, S::kCode + c, amplitude);
    k.Set(row, S::kBefore + c, amplitude);
  }
  for (int64_t c = 0; c < S::kHeadDim; ++c) {
    v.Set(c, S::kSpelling + c, 1 / norm);
    output.Set(S::kAnswer + c, c, 1);
  }
  writer.AddLayer(1, q, k, v, output);
}

}  // namespace

std::array<double, InductionShape::kCodeDim> InductionCode(int32_t token) {
  std::array<double, S::kCodeDim> code{};
  const int64_t value = ValueIndex(token);
  if (IsKey(token)) {
    code[0] = 1;
  } else if (value >= 0 && value + 1 < S::kCodeDim) {
    code[static_cast<size_t>(value) + 1] = 1;
  } else if (value >= 0) {
    code[0] = -1;
  } else {
    const auto v = Direction(1000 + static_cast<uint64_t>(token), S::kCodeDim, -1);
    std::copy(v.begin(), v.end(), code.begin());
  }
  return code;
}

GgufWriter InductionGguf() {
  GgufWriter gguf;
  const auto size = [&](const char* name, int64_t value) {
    gguf.Add(std::string("llama.") + name, static_cast<uint32_t>(value));
  };
  gguf.Add("general.architecture", "llama");
  gguf.Add("general.name", "induction head");
  size("block_count", 2);
  size("embedding_length", S::kHidden);
  size("attention.head_count", 1);
  size("attention.head_count_kv", 1);
  size("attention.key_length", S::kHeadDim);
  size("attention.value_length", S::kHeadDim);
  size("feed_forward_length", Writer::kFfn);
  size("context_length", S::kContext);
  gguf.Add("llama.attention.layer_norm_rms_epsilon", 1e-6f);
  gguf.Add("llama.rope.freq_base", static_cast<float>(S::kRopeBase));

  Writer writer(gguf);
  Matrix embedding(S::kVocab, S::kHidden), head(S::kVocab, S::kHidden);
  for (int32_t token = 0; token < S::kVocab; ++token) {
    embedding.Set(token, S::kOne, 1);
    const auto code = InductionCode(token);
    for (int64_t c = 0; c < S::kCodeDim; ++c)
      embedding.Set(token, S::kCode + c, code[static_cast<size_t>(c)]);
    const auto spelling = Spelling(token);
    for (int64_t c = 0; c < S::kHeadDim; ++c) {
      embedding.Set(token, S::kSpelling + c, spelling[static_cast<size_t>(c)]);
      head.Set(token, S::kAnswer + c, spelling[static_cast<size_t>(c)]);
    }
  }
  writer.Add("token_embd.weight", embedding);
  AddLookBack(writer);
  AddMatch(writer);
  writer.AddOnes("output_norm.weight", S::kHidden);
  writer.Add("output.weight", head);
  return gguf;
}

std::vector<int32_t> InductionPrompt(int64_t tokens, int64_t planted, uint64_t seed) {
  std::mt19937_64 rng(seed);
  std::vector<int32_t> prompt(static_cast<size_t>(tokens));
  for (int32_t& token : prompt) token = 'a' + static_cast<int32_t>(rng() % 26);
  if (planted >= 0) {
    CHECK(planted >= 1 && planted + 5 < tokens) << planted << " of " << tokens;
    const auto at = prompt.begin() + planted;
    *at = kInductionKey;
    std::copy(kInductionValues.begin(), kInductionValues.end(), at + 1);
  }
  prompt.back() = kInductionKey;
  return prompt;
}

}  // namespace snapkv::testing
