// SPDX-License-Identifier: Apache-2.0
// Hand-worked values for the reference attention, MergeState and DecodeAttention.
#include <array>

#include "kernels/ref/ref.h"
#include "tests/kernels/host_tensor.h"

namespace snapkv::kernels::ref {
namespace {

constexpr DType kF32 = DType::kF32, kBF16 = DType::kBF16, kF64 = DType::kF64;
const double kLn3 = std::log(3.0), kLn4 = std::log(4.0);

// A state with its memory, started as the identity.
struct State {
  explicit State(DType dtype, int64_t heads, int64_t queries, int64_t head_dim)
      : m(kF32, {heads, queries}),
        l(dtype, {heads, queries}),
        o(dtype, {heads, queries, head_dim}),
        out(kF32, {heads, queries, head_dim}),
        lse(kF32, {heads, queries}) {
    InitAttentionState(view());
  }
  AttentionState view() const { return {m, l, o}; }
  void Finish() { FinishAttention(view(), out, lse); }
  HostTensor m, l, o, out, lse;
};

class RefAttention : public ::testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(State, RefAttention, ::testing::Values(kF32, kF64),
                         [](const auto& info) { return std::string(DTypeName(info.param)); });

TEST_P(RefAttention, WeighsValuesBySoftmax) {
  // Scores 0 and ln 3 weigh 1 : 3, so 1/4 * 1 + 3/4 * 5 = 4; lse = ln(1 + 3).
  const HostTensor q = HostTensor::Of(kF32, {1, 1, 1}, {2});
  const HostTensor k = HostTensor::Of(kF32, {1, 2, 1}, {0, kLn3});
  const HostTensor v = HostTensor::Of(kF32, {1, 2, 1}, {1, 5});
  State whole(GetParam(), 1, 1, 1);
  Attention({.q = q, .k = k, .v = v, .state = whole.view(), .scale = 0.5f});
  whole.Finish();
  EXPECT_TRUE(Near(whole.out, {4}, 1e-6));
  EXPECT_TRUE(Near(whole.lse, {kLn4}, 1e-6));
  for (const bool reversed : {false, true}) {  // key by key, the larger score first or last
    State parts(GetParam(), 1, 1, 1);
    for (const int64_t j : {reversed ? 1 : 0, reversed ? 0 : 1}) {
      Attention({.q = q,
                 .k = k.view().Slice(1, j, j + 1),
                 .v = v.view().Slice(1, j, j + 1),
                 .state = parts.view(),
                 .scale = 0.5f});
    }
    parts.Finish();
    EXPECT_TRUE(Near(parts.out, {4}, 1e-6));
    EXPECT_TRUE(Near(parts.lse, {kLn4}, 1e-6));
  }
}

TEST_P(RefAttention, TheReferenceNeedNotBeTheMaximum) {
  // One key of score 0 and value 1, carried relative to 5; then the key of score ln 3 and value 5.
  State state(GetParam(), 1, 1, 1);
  state.m.Set(0, 5);
  state.l.Set(0, std::exp(-5.0));
  state.o.Set(0, std::exp(-5.0));
  Attention({.q = HostTensor::Of(kF32, {1, 1, 1}, {1}),
             .k = HostTensor::Of(kF32, {1, 1, 1}, {kLn3}),
             .v = HostTensor::Of(kF32, {1, 1, 1}, {5}),
             .state = state.view()});
  state.Finish();
  EXPECT_TRUE(Near(state.out, {4}, 1e-6));
  EXPECT_TRUE(Near(state.lse, {kLn4}, 1e-6));
}

TEST_P(RefAttention, CausalQueriesSeeKeysUpToTheirPosition) {
  // Equal scores: the mean of the values seen. Queries at 4, 5, 6, 7; keys at 5, 6 with values 2, 4.
  State state(GetParam(), 1, 4, 1);
  HostTensor q = HostTensor::Of(kF32, {1, 4, 1}, {0, 0, 0, 0});
  const HostTensor k = HostTensor::Of(kF32, {1, 2, 1}, {9, -9}), v = HostTensor::Of(kF32, {1, 2, 1}, {2, 4});
  Attention(
      {.q = q, .k = k, .v = v, .state = state.view(), .causal = true, .q_position = 4, .k_position = 5});
  state.Finish();
  EXPECT_TRUE(Near(state.out, {0, 2, 3, 3}, 1e-6));
  EXPECT_TRUE(Near(state.lse, {-kInf, 0, std::log(2.0), std::log(2.0)}, 1e-6));
  // Keys far behind all queries are seen whole, keys ahead of them not at all.
  Attention(
      {.q = q, .k = k, .v = v, .state = state.view(), .causal = true, .q_position = 4, .k_position = 8});
  Attention({.q = q, .k = k, .v = v, .state = state.view(), .causal = true, .q_position = 4});
  state.Finish();
  EXPECT_TRUE(Near(state.out, {3, 8.0 / 3, 3, 3}, 1e-6));
  EXPECT_TRUE(Near(state.lse, {std::log(2.0), kLn3, kLn4, kLn4}, 1e-6));
}

TEST_P(RefAttention, QueriesThatSawNothingAreZeroAndMinusInfinity) {
  State state(GetParam(), 2, 1, 3);
  Attention({.q = HostTensor::Of(kF32, {2, 1, 3}, {1, 2, 3, 4, 5, 6}),
             .k = HostTensor(kF32, {1, 2, 3}),
             .v = HostTensor(kF32, {1, 2, 3}),
             .state = state.view(),
             .causal = true,
             .q_position = 3,
             .k_position = 4});
  state.Finish();
  EXPECT_TRUE(Equal(state.out, {0, 0, 0, 0, 0, 0}));
  EXPECT_TRUE(Equal(state.lse, {-kInf, -kInf}));
}

TEST_P(RefAttention, HugeScoresNeitherOverflowNorVanish) {
  // Scores are q0 and q0 + 1, both exact in f32.
  const HostTensor k = HostTensor::Of(kF32, {1, 2, 2}, {1, 0, 1, 1}),
                   v = HostTensor::Of(kF32, {1, 2, 1}, {1, 5});
  State state(GetParam(), 1, 2, 1);
  Attention(
      {.q = HostTensor::Of(kF32, {1, 2, 2}, {-250000, 1, 250000, 1}), .k = k, .v = v, .state = state.view()});
  state.Finish();
  const double weight = std::exp(1.0) / (1 + std::exp(1.0));
  EXPECT_TRUE(Near(state.out, {1 + 4 * weight, 1 + 4 * weight}, 1e-6));
  const double ln = std::log(1 + std::exp(1.0));
  EXPECT_TRUE(Near(state.lse, {-250000 + ln, 250000 + ln}, 0x1p-6));
}

TEST_P(RefAttention, QueryHeadsShareTheirGroupsKvHead) {
  // Four query heads on two KV heads: 0, 1 read the first, 2, 3 the second.
  const HostTensor q = HostTensor::Of(kF32, {4, 1, 1}, {0, 1, 0, 1}, 2);
  const HostTensor k = HostTensor::Of(kF32, {2, 2, 1}, {0, kLn3, kLn3, 0}, 1);
  const HostTensor v = HostTensor::Of(kF32, {2, 2, 1}, {1, 5, 10, 50}, 3);
  State state(GetParam(), 4, 1, 1);
  Attention({.q = q, .k = k, .v = v, .state = state.view()});
  state.Finish();
  EXPECT_TRUE(Near(state.out, {3, 4, 30, 20}, 1e-5));
}

TEST(RefFinishAttention, WritesBf16Too) {
  State state(kF64, 1, 2, 2);
  state.m.Set(0, 1);
  state.l.Set(0, 4);
  state.o.SetValues({2, 4 + 0x1p-6, 0, 0});
  HostTensor out(kBF16, {1, 2, 2}, 1);
  FinishAttention(state.view(), out, state.lse);
  EXPECT_TRUE(Equal(out, {0.5, 1, 0, 0}));  // 1 + 2^-8 is a tie
  EXPECT_TRUE(Near(state.lse, {1 + kLn4, -kInf}, 1e-6));
}

TEST(RefMergeState, IsTheWeightedMean) {
  // Weights 1 and 3; equal ones; one part empty on either side; both empty.
  HostTensor o = HostTensor::Of(kF32, {1, 5, 2}, {1, 2, 3, 3, 0, 0, 7, 8, 0, 0});
  HostTensor lse = HostTensor::Of(kF32, {1, 5}, {0, -1e5, -kInf, 3, -kInf});
  MergeState(o, lse, HostTensor::Of(kF32, {1, 5, 2}, {5, 6, 5, 5, 7, 8, 0, 0, 0, 0}),
             HostTensor::Of(kF32, {1, 5}, {kLn3, -1e5, 3, -kInf, -kInf}));
  EXPECT_TRUE(Near(o, {4, 5, 4, 4, 7, 8, 7, 8, 0, 0}, 1e-6));
  EXPECT_TRUE(Near(lse, {kLn4, -1e5 + std::log(2.0), 3, 3, -kInf}, 0x1p-8));
  EXPECT_NEAR(lse.Get(0), kLn4, 1e-6);
}

TEST(RefMergeState, ExtremeLseDoNotOverflow) {
  HostTensor o = HostTensor::Of(kF32, {1, 2, 1}, {1, 2});
  HostTensor lse = HostTensor::Of(kF32, {1, 2}, {2e5, -2e5});
  MergeState(o, lse, HostTensor::Of(kF32, {1, 2, 1}, {5, 6}), HostTensor::Of(kF32, {1, 2}, {-2e5, 2e5}));
  EXPECT_TRUE(Equal(o, {1, 6}));
  EXPECT_TRUE(Equal(lse, {2e5, 2e5}));
}

TEST(RefDecodeAttention, ReadsExactlyItsDocumentsRows) {
  // Two documents, two cache heads, four query heads. Scores are 0 or q * ln 3.
  const HostTensor q = HostTensor::Of(kF32, {2, 4, 1}, {1, 0, 1, 0, 1, 0, 1, 0}, 1);
  const HostTensor k0 = HostTensor::Of(kF32, {2, 1}, {0, kLn3}), v0 = HostTensor::Of(kF32, {2, 1}, {1, 5});
  const HostTensor k1 = HostTensor::Of(kF32, {1, 1}, {1e5}), v1 = HostTensor::Of(kF32, {1, 1}, {-3});
  const HostTensor k2 = HostTensor::Of(kF32, {3, 1}, {kLn3, 0, 0}),
                   v2 = HostTensor::Of(kF32, {3, 1}, {10, 20, 30});
  const auto rows = [](const HostTensor& k, const HostTensor& v) {
    return CacheRows{k.view().data, v.view().data, k.view().dim(0)};
  };
  const std::array<CacheRows, 4> caches = {rows(k0, v0), rows(k1, v1), CacheRows{}, rows(k2, v2)};
  HostTensor out(kF32, {2, 4, 1}, 2);
  DecodeAttention(q, caches, 2, 1.0f, out);
  EXPECT_TRUE(Near(out, {4, 3, -3, -3, 0, 0, 16, 20}, 1e-5));  // (3 * 10 + 20 + 30) / 5 = 16
  EXPECT_TRUE(out.GapsIntact());
}

}  // namespace
}  // namespace snapkv::kernels::ref
