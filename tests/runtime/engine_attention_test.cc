// SPDX-License-Identifier: Apache-2.0
// The error of ring attention against double precision does not grow with the number of ranks.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>

#include "tests/support/engine_harness.h"
#include "tests/support/engine_observers.h"
#include "tests/support/tensors.h"
#include "tests/support/tiny_model.h"

namespace snapkv::testing {
namespace {

constexpr int64_t kTokens = 1024;

struct Error {
  double most = 0, rms = 0;
};
Error Difference(const std::vector<float>& got, const std::vector<double>& want) {
  Error error;
  for (size_t i = 0; i < want.size(); ++i) {
    const double d = std::abs(double{got[i]} - want[i]);
    error.most = std::max(error.most, std::isnan(d) ? INFINITY : d);
    error.rms += d * d;
  }
  error.rms = std::sqrt(error.rms / static_cast<double>(want.size()));
  return error;
}

// `limit`: bound of the one-rank error, so that a bad N = 1 does not excuse a bad N = 8.
void Compare(DType dtype, double limit) {
  const auto tiny =
      TinyModel::Create({.layers = 1, .heads = 4, .kv_heads = 2, .head_dim = 64, .hidden = 16}, dtype);
  ASSERT_TRUE(tiny.ok()) << tiny.status();
  AttentionProblem problem = RandomProblem(4, 2, 64, kTokens, 3, 41);
  for (auto* values : {&problem.q, &problem.k, &problem.v}) {  // what the engine is given, exactly
    const TestTensor rounded = Converted(ViewOf(*values, {static_cast<int64_t>(values->size())}), dtype);
    for (size_t i = 0; i < values->size(); ++i)
      (*values)[i] = static_cast<float>(ElementAt(rounded, static_cast<int64_t>(i)));
  }
  const DenseAttention want = Attend(problem);
  Error one, one_lse;
  std::vector<float> first;
  for (const int ranks : {1, 2, 3, 4, 8}) {
    CaptureObserver seen((*tiny)->model().config(), kTokens);
    const absl::Status status = ReplayAttention((*tiny)->model(), problem, 32, {.ranks = ranks}, seen);
    ASSERT_TRUE(status.ok()) << status;
    const Error out = Difference(seen.layer(0).out, want.out), lse = Difference(seen.layer(0).lse, want.lse);
    if (ranks == 1) {
      one = out;
      one_lse = lse;
      first = seen.layer(0).out;
    }
    int64_t bits = 0;
    for (size_t i = 0; i < first.size(); ++i)
      bits += std::memcmp(&first[i], &seen.layer(0).out[i], sizeof(float)) != 0;
    std::printf("  %s N %d: output error max %.3g rms %.3g, lse max %.3g; %ld of %zu differ from N 1\n",
                DTypeName(dtype), ranks, out.most, out.rms, lse.most, static_cast<long>(bits), first.size());
    EXPECT_LE(out.most, 2 * one.most) << "N " << ranks;
    EXPECT_LE(out.rms, 2 * one.rms) << "N " << ranks;
    EXPECT_LE(lse.most, 2 * one_lse.most) << "N " << ranks;
  }
  EXPECT_GT(one.most, 0);
  EXPECT_LE(one.most, limit);
  EXPECT_LE(one_lse.most, 1e-5);
}

// Logits up to 15 are wrong by some 1e-6 in f32, and values reach 4.
TEST(EngineAttention, F32ErrorDoesNotGrowWithRanks) { Compare(DType::kF32, 1e-5); }
// The output is rounded to bf16: half an ulp of values below 4 is 2^-7.
TEST(EngineAttention, Bf16ErrorDoesNotGrowWithRanks) { Compare(DType::kBF16, 1.1 / 128); }

}  // namespace
}  // namespace snapkv::testing
