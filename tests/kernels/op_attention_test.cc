// SPDX-License-Identifier: Apache-2.0
// Contract tests of attention: every device, state and shape against double; parts in any order; and the laws
// that make a result independent of ranks and threads.
#include <algorithm>
#include <bit>
#include <numeric>

#include "tests/kernels/attention_problem.h"

namespace snapkv::kernels {
namespace {

class OpAttention : public OpTest {
 protected:
  static constexpr double kUsualError = 32 * kU32;
  // One problem on this device with both kinds of state.
  void ExpectNearExact(const AttentionShape& shape) {
    const AttentionProblem problem(shape, dtype(), rng_);
    const ExactAttention exact(problem);
    for (const DType state : {kF64, kF32}) {
      const HostState result = problem.Run(stream(), state, kF32);
      ASSERT_TRUE(exact.Check(result)) << DTypeName(state);
      // Beside the proven bound, what normal data gives: rounding errors mostly cancel.
      ASSERT_LE(exact.LargestError(result), kUsualError) << DTypeName(state) << ", " << shape.ToString();
    }
    ASSERT_TRUE(exact.Check(problem.Run(stream(), kF64, dtype())));
  }
};
INSTANTIATE_TEST_SUITE_P(Ops, OpAttention, DevicesAndDTypes(), OpParamName);

TEST_P(OpAttention, IsNearExactForEveryNumberOfTokens) {
  for (const int64_t queries : kTokens) {
    for (const int64_t keys : kTokens) {
      for (const bool causal : {false, true}) {
        // Causal: the last queries are the last keys' positions, so that early queries may see nothing.
        ExpectNearExact({.queries = queries, .keys = keys, .causal = causal, .q_position = keys - queries});
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_P(OpAttention, IsNearExactForEveryHeadDimAndGroup) {
  size_t turn = 0;
  constexpr std::pair<int64_t, int64_t> kSizes[] = {{33, 65}, {7, 129}, {65, 33}};
  for (const int64_t head_dim : kHeadDims) {
    for (const int64_t group : kGroups) {
      const auto [queries, keys] = kSizes[turn++ % 3];
      ExpectNearExact({.kv_heads = group < 7 ? 2 : 1,
                       .group = group,
                       .queries = queries,
                       .keys = keys,
                       .head_dim = head_dim,
                       .causal = turn % 2 == 0,
                       .q_position = 100,
                       .k_position = 90});
      if (HasFatalFailure()) return;
    }
  }
}

TEST_P(OpAttention, CausalOffsetsCutWhereTheyShould) {
  // Keys at 64..128 and queries that stand before, in and after them.
  for (const int64_t q_position : {0, 31, 32, 63, 64, 65, 100, 127, 128, 129, 1000000}) {
    ExpectNearExact({.kv_heads = 2,
                     .group = 3,
                     .queries = 33,
                     .keys = 65,
                     .head_dim = 16,
                     .causal = true,
                     .q_position = q_position,
                     .k_position = 64});
    if (HasFatalFailure()) return;
  }
}

TEST_P(OpAttention, PartsMayComeInAnyOrder) {
  const AttentionShape shape = {.kv_heads = 2,
                                .group = 3,
                                .queries = 37,
                                .keys = 300,
                                .head_dim = 24,
                                .causal = true,
                                .q_position = 270};
  const AttentionProblem problem(shape, dtype(), rng_);
  const ExactAttention exact(problem);
  KeyParts parts = {{0, 64}, {64, 65}, {65, 65}, {65, 130}, {130, 257}, {257, 299}, {299, 300}};
  for (int order = 0; order < 10; ++order) {
    for (const DType state : {kF64, kF32}) {
      ASSERT_TRUE(exact.Check(problem.Run(stream(), state, kF32, parts), parts.size()))
          << "order " << order << ", state " << DTypeName(state);
    }
    order == 0 ? std::reverse(parts.begin(), parts.end()) : std::shuffle(parts.begin(), parts.end(), rng_);
  }
}

TEST_P(OpAttention, QueriesThatSeeNothingAreEmptyAtFirstOrForEver) {
  const AttentionShape shape = {.kv_heads = 1,
                                .group = 2,
                                .queries = 40,
                                .keys = 70,
                                .head_dim = 8,
                                .causal = true,
                                .q_position = 15,
                                .k_position = 20};
  const AttentionProblem problem(shape, dtype(), rng_);
  const ExactAttention exact(problem);
  // Later keys first: most queries see nothing in the first part.
  const HostState state = problem.Run(stream(), kF64, dtype(), {{40, 70}, {10, 40}, {0, 10}});
  ASSERT_TRUE(exact.Check(state, 3));
  for (int64_t h = 0; h < 2; ++h) {
    for (int64_t i = 0; i < 40; ++i) {
      const bool sees = 15 + i >= 20;
      ASSERT_EQ(std::isinf(state.lse.Get(h * 40 + i)), !sees) << h << ", " << i;
      ASSERT_EQ(state.out.Get((h * 40 + i) * 8) == 0, !sees) << h << ", " << i;
    }
  }
}

TEST_P(OpAttention, NoQueriesOrNoKeysChangeNothing) {
  const AttentionShape shape = {.group = 2, .queries = 3, .keys = 5};
  const AttentionProblem problem(shape, dtype(), rng_);
  HostState state(kF64, shape, kF32);
  ASSERT_OK(InitAttentionState(stream(), state.view()));
  ASSERT_OK(Attention(stream(), problem.Params(state, 2, 5)));
  const HostTensor m = state.m.Copy(), l = state.l.Copy(), o = state.o.Copy();
  ASSERT_OK(Attention(stream(), problem.Params(state, 2, 2)));
  AttentionParams none = problem.Params(state, 0, 5);
  none.q = none.q.Slice(1, 0, 0);
  none.state = {state.m.view().Slice(1, 0, 0), state.l.view().Slice(1, 0, 0), state.o.view().Slice(1, 0, 0)};
  ASSERT_OK(Attention(stream(), none));
  EXPECT_TRUE(SameBits(state.m, m));
  EXPECT_TRUE(SameBits(state.l, l));
  EXPECT_TRUE(SameBits(state.o, o));
}

TEST_P(OpAttention, ExtremeScoresKeepTheirRatios) {
  // Whole numbers: q.k is exact in f32, beyond +-2.5e5, and near ties differ by 1.
  const AttentionShape shape = {.kv_heads = 1, .group = 3, .queries = 33, .keys = 130, .head_dim = 8};
  AttentionProblem problem(shape, dtype(), rng_);
  problem.scale = 0.5f;
  problem.q.Fill([&](int64_t i) { return i % 8 == 0 ? 1 : 512.0 * static_cast<double>(rng_() % 7) - 1536; });
  problem.k.Fill([&](int64_t i) {
    const double range = i % 8 == 0 ? 2 : 16;  // the first coordinate makes near ties
    return range * (static_cast<double>(rng_() % 17) - 8);
  });
  const ExactAttention exact(problem);
  for (const DType state : {kF64, kF32}) {
    const HostState whole = problem.Run(stream(), state, kF32);
    const HostState parts = problem.Run(stream(), state, kF32, {{64, 130}, {0, 1}, {1, 64}});
    double largest = 0;
    for (const HostState* result : {&whole, &parts}) {
      // Exact scores, so only the exponentials and sums err.
      EXPECT_TRUE(Near(result->out, exact.out().Values(), 200 * kU32 * 5));
      EXPECT_TRUE(Near(result->lse, exact.lse().Values(), 100 * kU32, kU32));
      for (const double x : result->lse.Values()) largest = std::max(largest, std::fabs(x));
    }
    EXPECT_GT(largest, 2.5e5);
  }
}

TEST_P(OpAttention, EqualScoresAverageTheValues) {
  const AttentionShape shape = {.kv_heads = 2, .group = 2, .queries = 17, .keys = 129, .head_dim = 16};
  AttentionProblem problem(shape, dtype(), rng_);
  problem.q.Fill([](int64_t) { return 0; });
  problem.v.Fill([](int64_t i) { return static_cast<double>(i / 16 % 129); });
  const HostState state = problem.Run(stream(), kF64, kF32);
  EXPECT_TRUE(Near(state.out, std::vector<double>(2 * 2 * 17 * 16, 64.0), 64 * 4 * kU32));
  EXPECT_TRUE(Near(state.lse, std::vector<double>(2 * 2 * 17, std::log(129.0)), 8 * kU32));
}

TEST_P(OpAttention, ErrorsDoNotGrowWithTheNumberOfParts) {
  const AttentionShape shape = {.kv_heads = 1, .group = 3, .queries = 64, .keys = 512, .head_dim = 64};
  const AttentionProblem problem(shape, dtype(), rng_);
  const ExactAttention exact(problem);
  for (const DType state : {kF64, kF32}) {
    std::vector<double> largest, mean;
    for (const int64_t n : {1, 2, 4, 8}) {
      KeyParts parts;
      for (int64_t i = 0; i < n; ++i) parts.push_back({512 * i / n, 512 * (i + 1) / n});
      const HostState result = problem.Run(stream(), state, kF32, parts);
      ASSERT_TRUE(exact.Check(result, parts.size()));
      largest.push_back(exact.LargestError(result));
      mean.push_back(exact.MeanError(result));
    }
    std::printf(
        "state %s, parts 1 2 4 8: largest relative error %.2e %.2e %.2e %.2e, mean %.2e %.2e %.2e %.2e\n",
        DTypeName(state), largest[0], largest[1], largest[2], largest[3], mean[0], mean[1], mean[2], mean[3]);
    EXPECT_LE(largest[3], 2 * largest[0]) << DTypeName(state);
    EXPECT_LE(mean[3], 2 * mean[0]) << DTypeName(state);
    // The proven bound is for the worst case; rounding errors mostly cancel.
    EXPECT_LE(largest[3], kUsualError) << DTypeName(state);
  }
}

TEST_P(OpAttention, FinishWritesIntoAProjection) {
  // out as [head, token, head_dim] inside rows of [token, heads * head_dim].
  const AttentionShape shape = {.kv_heads = 1, .group = 3, .queries = 21, .keys = 40, .head_dim = 8};
  const AttentionProblem problem(shape, dtype(), rng_);
  HostState state = problem.Run(stream(), kF64, dtype());
  HostTensor rows(dtype(), {21, 3, 8}, 0);
  HostTensor moved(dtype(), {3, 21, 8}), expected(dtype(), {3, 21, 8});
  const TensorView out = rows.view().Transposed(0, 1);
  ASSERT_OK(FinishAttention(stream(), state.view(), out, state.lse));
  ref::Cast(out, moved);
  ref::Cast(state.out, expected);
  EXPECT_TRUE(SameBits(moved, expected));
}

// A broken model must not look sound: a NaN key reaches every query that sees it, and no other.
TEST_P(OpAttention, NanReachesWhatSeesIt) {
  const AttentionShape shape = {
      .kv_heads = 2, .group = 3, .queries = 70, .keys = 70, .head_dim = 8, .causal = true};
  AttentionProblem problem(shape, dtype(), rng_);
  constexpr int64_t kBadKey = 40;
  problem.k.Set(kBadKey * 8 + 3, std::numeric_limits<double>::quiet_NaN());  // of KV head 0
  const HostState result = problem.Run(stream(), kF64, kF32);
  for (int64_t h = 0; h < 6; ++h) {
    for (int64_t i = 0; i < 70; ++i) {
      const bool sees = h < 3 && i >= kBadKey;
      ASSERT_EQ(std::isnan(result.lse.Get(h * 70 + i)), sees) << "head " << h << " query " << i;
      for (int64_t d = 0; d < 8; ++d)
        ASSERT_EQ(std::isnan(result.out.Get((h * 70 + i) * 8 + d)), sees) << "head " << h << " query " << i;
    }
  }
}

class OpAttentionLaws : public ::testing::TestWithParam<DType> {
 protected:
  std::mt19937_64 rng_{99};
};
INSTANTIATE_TEST_SUITE_P(Ops, OpAttentionLaws, ::testing::Values(kF32, kBF16),
                         [](const auto& info) { return std::string(DTypeName(info.param)); });

TEST_P(OpAttentionLaws, ResultsDoNotDependOnThreads) {
  const AttentionShape shape = {.kv_heads = 3,
                                .group = 3,
                                .queries = 129,
                                .keys = 200,
                                .head_dim = 40,
                                .causal = true,
                                .q_position = 90};
  const AttentionProblem problem(shape, GetParam(), rng_);
  for (const DType state : {kF64, kF32}) {
    const HostState one = problem.Run({Device::kCpu, 1}, state, GetParam());
    for (const int threads : {2, 3}) {
      const HostState more = problem.Run({Device::kCpu, threads}, state, GetParam());
      EXPECT_TRUE(SameBits(more.out, one.out)) << threads << " threads, state " << DTypeName(state);
      EXPECT_TRUE(SameBits(more.lse, one.lse)) << threads << " threads, state " << DTypeName(state);
    }
  }
}

TEST_P(OpAttentionLaws, AQueryDependsOnNoOther) {
  // Ranks cut the queries at other places: any run of queries gives the same bits as all of them.
  const AttentionShape shape = {
      .kv_heads = 2, .group = 3, .queries = 129, .keys = 129, .head_dim = 24, .causal = true};
  const AttentionProblem problem(shape, GetParam(), rng_);
  const HostState whole = problem.Run(kCpuStream, kF64, kF32);
  for (const auto& [begin, end] : KeyParts{{0, 1}, {0, 64}, {1, 34}, {64, 129}, {65, 128}, {128, 129}}) {
    AttentionShape part_shape = shape;
    part_shape.queries = end - begin;
    HostState part(kF64, part_shape, kF32);
    AttentionParams params = problem.Params(part, 0, shape.keys);
    params.q = params.q.Slice(1, begin, end);
    params.q_position = begin;
    ASSERT_OK(InitAttentionState(kCpuStream, part.view()));
    ASSERT_OK(Attention(kCpuStream, params));
    ASSERT_OK(FinishAttention(kCpuStream, part.view(), part.out, part.lse));
    HostTensor out(kF32, {shape.heads(), end - begin, shape.head_dim}),
        lse(kF32, {shape.heads(), end - begin});
    ref::Cast(whole.out.view().Slice(1, begin, end), out);
    ref::Cast(whole.lse.view().Slice(1, begin, end), lse);
    HostTensor part_out = out.Copy(), part_lse = lse.Copy();
    ref::Cast(part.out, part_out);
    ref::Cast(part.lse, part_lse);
    ASSERT_TRUE(SameBits(part_out, out)) << begin << " to " << end;
    ASSERT_TRUE(SameBits(part_lse, lse)) << begin << " to " << end;
  }
}

TEST_P(OpAttentionLaws, KeysThatAreAllSeenNeedNoMask) {
  // A block behind all queries gives the same bits with and without `causal`.
  AttentionShape shape = {
      .kv_heads = 2, .group = 3, .queries = 33, .keys = 65, .head_dim = 24, .causal = true, .q_position = 65};
  AttentionProblem problem(shape, GetParam(), rng_);
  const HostState causal = problem.Run(kCpuStream, kF64, kF32);
  problem.shape.causal = false;
  const HostState free = problem.Run(kCpuStream, kF64, kF32);
  EXPECT_TRUE(SameBits(causal.out, free.out));
  EXPECT_TRUE(SameBits(causal.lse, free.lse));
}

// Places of floats on the number line, so that neighbours differ by 1.
int64_t Ordinal(float x) {
  const int32_t bits = std::bit_cast<int32_t>(x);
  return bits < 0 ? -int64_t{bits & 0x7fffffff} : bits;
}

TEST_P(OpAttentionLaws, WithAnF64StatePartsDoNotShow) {
  // Zigzag ranks visit key blocks in other orders and groupings. Only the rounding of f64 may differ: at most
  // one output in 100,000 changes, and by one ulp.
  const AttentionShape shape = {.kv_heads = 3,
                                .group = 3,
                                .queries = 65,
                                .keys = 512,
                                .head_dim = 64,
                                .causal = true,
                                .q_position = 450};
  const AttentionProblem problem(shape, GetParam(), rng_);
  const HostState whole = problem.Run(kCpuStream, kF64, kF32);
  int64_t compared = 0, changed = 0, largest = 0;
  const auto compare = [&](const HostTensor& a, const HostTensor& b) {
    for (int64_t i = 0; i < a.view().elements(); ++i) {
      const int64_t ulps =
          std::abs(Ordinal(static_cast<float>(a.Get(i))) - Ordinal(static_cast<float>(b.Get(i))));
      ++compared;
      changed += ulps != 0;
      largest = std::max(largest, ulps);
    }
  };
  for (const int64_t n : {2, 3, 4, 6, 8}) {
    KeyParts parts;
    for (int64_t i = 0; i < n; ++i) {
      parts.push_back({8 * i / n * kKeyBlock, 8 * (i + 1) / n * kKeyBlock});
    }
    for (int order = 0; order < 3; ++order) {
      const HostState state = problem.Run(kCpuStream, kF64, kF32, parts);
      compare(state.out, whole.out);
      compare(state.lse, whole.lse);
      std::shuffle(parts.begin(), parts.end(), rng_);
    }
  }
  std::printf("%lld of %lld results depend on the parts, by %lld ulp at most\n",
              static_cast<long long>(changed), static_cast<long long>(compared),
              static_cast<long long>(largest));
  EXPECT_LE(changed, compared / 100000);
  EXPECT_LE(largest, 1);
}

}  // namespace
}  // namespace snapkv::kernels
