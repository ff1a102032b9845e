// SPDX-License-Identifier: Apache-2.0
// Contract tests of WindowScores and PoolScores: near double, equal where the keys are equal, and the same
// bits however keys and positions are cut.
#include <algorithm>

#include "kernels/op/pool_scores.h"
#include "kernels/op/window_scores.h"
#include "kernels/ref/ref.h"
#include "tests/kernels/op_testing.h"

namespace snapkv::kernels {
namespace {

constexpr GroupMode kGroupModes[] = {GroupMode::kNone, GroupMode::kMean, GroupMode::kMax, GroupMode::kSum};

struct ScoreProblem {
  ScoreProblem(DType dtype, int64_t kv_heads, int64_t group, int64_t window, int64_t keys, int64_t head_dim,
               std::mt19937_64& rng)
      : q(HostTensor::Normal(dtype, {kv_heads * group, window, head_dim}, rng, 1, 2)),
        k(HostTensor::Normal(dtype, {kv_heads, keys, head_dim}, rng, 1, 1)),
        lse(kF32, {kv_heads * group, window}, 3),
        scale(static_cast<float>(1 / std::sqrt(static_cast<double>(head_dim)))) {
    SetLse(group);
  }
  // The log-sum-exp over the keys, as if the window saw nothing but them.
  void SetLse(int64_t group) {
    for (int64_t h = 0; h < q.view().dim(0); ++h) {
      for (int64_t i = 0; i < q.view().dim(1); ++i) {
        double top = 0, sum = 0;
        for (const bool second : {false, true}) {
          for (int64_t j = 0; j < k.view().dim(1); ++j) {
            double s = 0;
            for (int64_t c = 0; c < q.view().dim(2); ++c) {
              s += scale * ref::Load(q, h, i, c) * ref::Load(k, h / group, j, c);
            }
            second ? sum += std::exp(s - top) : top = j == 0 ? s : std::max(top, s);
          }
        }
        lse.Set(h * q.view().dim(1) + i, top + std::log(std::max(sum, 1e-300)));
      }
    }
  }
  int64_t Rows(GroupMode mode) const { return mode == GroupMode::kNone ? q.view().dim(0) : k.view().dim(0); }
  HostTensor Run(const Stream& stream, GroupMode mode, int64_t begin, int64_t end) const {
    HostTensor scores(kF32, {Rows(mode), end - begin}, 2);
    const absl::Status status =
        WindowScores(stream, q, lse, k.view().Slice(1, begin, end), scale, mode, scores);
    EXPECT_TRUE(status.ok()) << status;
    EXPECT_TRUE(scores.GapsIntact());
    return scores;
  }
  HostTensor Run(const Stream& stream, GroupMode mode) const { return Run(stream, mode, 0, k.view().dim(1)); }

  HostTensor q, k, lse;
  float scale;
};

class OpScores : public OpTest {
 protected:
  // A probability exp(s - lse) is wrong by the factor exp(d) + 4u with d = (head_dim + 3) u S + u (|s| +
  // |lse|), S = max scale sum |q_c k_c| >= |s| (one u of it is the reference's own rounding of s to f32);
  // sums over the window and the group add (window + group) u.
  void ExpectNearExact(const ScoreProblem& p, GroupMode mode) {
    const int64_t heads = p.q.view().dim(0), window = p.q.view().dim(1), head_dim = p.q.view().dim(2);
    const int64_t keys = p.k.view().dim(1), group = heads / p.k.view().dim(0);
    double largest = 0, lse = 0;
    for (const double x : p.lse.Values()) lse = std::max(lse, std::fabs(x));
    for (int64_t h = 0; h < heads; ++h) {
      for (int64_t i = 0; i < window; ++i) {
        for (int64_t j = 0; j < keys; ++j) {
          double sum = 0;
          for (int64_t c = 0; c < head_dim; ++c) {
            sum += std::fabs(ref::Load(p.q, h, i, c) * ref::Load(p.k, h / group, j, c));
          }
          largest = std::max(largest, sum * p.scale);
        }
      }
    }
    const double d = (static_cast<double>(head_dim + 4) * largest + lse) * kU32;
    HostTensor exact(kF64, {p.Rows(mode), keys});
    if (exact.view().elements() > 0) ref::WindowScores(p.q, p.lse, p.k, p.scale, mode, exact);
    ASSERT_TRUE(Near(p.Run(stream(), mode), exact.Values(), 1e-44,
                     std::expm1(d) + static_cast<double>(window + group + 6) * kU32))
        << static_cast<int>(mode);
  }
};
INSTANTIATE_TEST_SUITE_P(Ops, OpScores, DevicesAndDTypes(), OpParamName);

TEST_P(OpScores, AreNearExactForEveryNumberOfKeys) {
  for (const int64_t keys : kTokens) {
    for (const int64_t window : {1, 2, 7, 8, 9, 32}) {
      SCOPED_TRACE(Case(keys, window));
      const ScoreProblem problem(dtype(), 1, 2, window, keys, 8, rng_);
      ExpectNearExact(problem, GroupMode::kMean);
      if (HasFatalFailure()) return;
    }
  }
}

TEST_P(OpScores, AreNearExactForEveryHeadDimAndGroup) {
  for (const int64_t head_dim : kHeadDims) {
    for (const int64_t group : kGroups) {
      SCOPED_TRACE(Case(head_dim, group));
      const ScoreProblem problem(dtype(), 2, group, 5, 33, head_dim, rng_);
      for (const GroupMode mode : kGroupModes) {
        ExpectNearExact(problem, mode);
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_P(OpScores, AWindowOfNothingScoresZero) {
  HostTensor scores(kF32, {2, 9}, 1);
  ASSERT_OK(WindowScores(stream(), HostTensor(dtype(), {4, 0, 8}), HostTensor(kF32, {4, 0}),
                         Normal(dtype(), {2, 9, 8}), 1.0f, GroupMode::kMean, scores));
  EXPECT_TRUE(Equal(scores, std::vector<double>(18, 0.0)));
  EXPECT_TRUE(scores.GapsIntact());
}

TEST_P(OpScores, ExtremeLogitsStayProbabilities) {
  // Exact whole scores beyond +-2.5e5; the reference is the largest of each query, so that p <= 1 and one
  // is 1.
  ScoreProblem problem(dtype(), 1, 3, 4, 130, 8, rng_);
  problem.scale = 0.5f;
  problem.q.Fill([&](int64_t i) { return i % 8 == 0 ? 1 : 512.0 * static_cast<double>(rng_() % 7) - 1536; });
  problem.k.Fill([&](int64_t i) { return (i % 8 == 0 ? 2 : 16) * (static_cast<double>(rng_() % 17) - 8); });
  problem.SetLse(3);
  double largest = 0;
  for (const double x : problem.lse.Values()) largest = std::max(largest, std::fabs(x));
  EXPECT_GT(largest, 2.5e5);
  HostTensor exact(kF64, {3, 130});
  ref::WindowScores(problem.q, problem.lse, problem.k, problem.scale, GroupMode::kNone, exact);
  EXPECT_TRUE(Near(problem.Run(stream(), GroupMode::kNone), exact.Values(), 1e-44, 16 * kU32));
}

TEST_P(OpScores, EqualKeysScoreTheSameWhereverTheyAre) {
  ScoreProblem problem(dtype(), 2, 3, 9, 129, 80, rng_);
  // Every third key is the same, so that copies lie in vector bodies, tails and different tiles.
  for (int64_t h = 0; h < 2; ++h) {
    for (int64_t j = 0; j < 129; j += 3) {
      for (int64_t c = 0; c < 80; ++c) problem.k.Set((h * 129 + j) * 80 + c, problem.k.Get(h * 129 * 80 + c));
    }
  }
  for (const GroupMode mode : kGroupModes) {
    const HostTensor scores = problem.Run(stream(), mode);
    for (int64_t row = 0; row < problem.Rows(mode); ++row) {
      for (int64_t j = 0; j < 129; j += 3) {
        ASSERT_EQ(scores.Get(row * 129 + j), scores.Get(row * 129)) << row << ", " << j;
      }
    }
  }
}

TEST_P(OpScores, DoNotDependOnThreadsNorOnHowTheKeysAreCut) {
  const ScoreProblem problem(dtype(), 3, 3, 9, 1100, 40, rng_);
  for (const GroupMode mode : {GroupMode::kNone, GroupMode::kMean}) {
    const HostTensor whole = problem.Run({stream().device, 1}, mode);
    for (const int threads : {2, 3}) {
      ASSERT_TRUE(SameBits(problem.Run({stream().device, threads}, mode), whole)) << threads;
    }
    for (int64_t begin = 0, size = 1; begin < 1100; begin += size, size = size * 2 + 1) {
      const int64_t end = std::min<int64_t>(begin + size, 1100);
      const HostTensor part = problem.Run(stream(), mode, begin, end);
      for (int64_t row = 0; row < problem.Rows(mode); ++row) {
        for (int64_t j = begin; j < end; ++j) {
          ASSERT_EQ(part.Get(row * (end - begin) + j - begin), whole.Get(row * 1100 + j)) << row << ", " << j;
        }
      }
    }
  }
}

class OpPool : public OpTest {
 protected:
  static constexpr int kKernels[] = {1, 3, 5, 7, 13, 63, 201};
};
INSTANTIATE_TEST_SUITE_P(Ops, OpPool,
                         ::testing::Combine(::testing::Values(Device::kRef, Device::kCpu),
                                            ::testing::Values(kF32)),
                         OpParamName);

TEST_P(OpPool, EqualsTheReferenceBitForBit) {
  for (const int64_t n : kTokens) {
    for (const int kernel : kKernels) {
      for (const PoolMode mode : {PoolMode::kNone, PoolMode::kMax, PoolMode::kAvg}) {
        for (const bool halos : {false, true}) {
          const int64_t left = halos ? kernel / 2 : 0, right = halos ? (kernel / 2 + 1) / 2 : 0;
          SCOPED_TRACE(Case(n, kernel, static_cast<int>(mode), left, right));
          HostTensor in = Normal(kF32, {3, left + n + right}, 1, 2);
          in.Fill([&](int64_t i) { return std::fabs(in.Get(i)); });
          HostTensor out(kF32, {3, n}, 1), expected(kF32, {3, n});
          ASSERT_OK(PoolScores(stream(), in, left, kernel, mode, out));
          ref::PoolScores(in, left, kernel, mode, expected);
          ASSERT_TRUE(SameBits(out, expected));
          ASSERT_TRUE(out.GapsIntact());
        }
      }
    }
  }
}

TEST_P(OpPool, CutPiecesWithHalosEqualTheWhole) {
  constexpr int64_t kSize = 150;
  HostTensor in = Normal(kF32, {2, kSize});
  in.Fill([&](int64_t i) { return i % 7 == 0 ? 1.0 : std::fabs(in.Get(i)); });
  for (const int kernel : kKernels) {
    for (const PoolMode mode : {PoolMode::kMax, PoolMode::kAvg}) {
      SCOPED_TRACE(Case(kernel, static_cast<int>(mode)));
      HostTensor whole(kF32, {2, kSize});
      ASSERT_OK(PoolScores(stream(), in, 0, kernel, mode, whole));
      // Pieces shorter than the reach, empty ones, and long ones.
      const std::vector<int64_t> cuts = {0, 1, 3, 3, 10, 64, 65, 100, kSize};
      for (size_t piece = 0; piece + 1 < cuts.size(); ++piece) {
        const int64_t begin = cuts[piece], end = cuts[piece + 1], reach = kernel / 2;
        const int64_t from = std::max<int64_t>(0, begin - reach), to = std::min(kSize, end + reach);
        HostTensor out(kF32, {2, end - begin}), expected(kF32, {2, end - begin});
        ASSERT_OK(PoolScores(stream(), in.view().Slice(1, from, to), begin - from, kernel, mode, out));
        ref::Cast(whole.view().Slice(1, begin, end), expected);
        ASSERT_TRUE(SameBits(out, expected)) << begin << " to " << end;
      }
    }
  }
}

TEST_P(OpPool, ASpikeReachesHalfTheKernelAndConstantsStayConstant) {
  HostTensor in(kF32, {1, 128}), out(kF32, {1, 128});
  for (const int64_t spike : {0, 63, 64, 127}) {
    in.Fill([&](int64_t i) { return i == spike ? 7 : 0; });
    ASSERT_OK(PoolScores(stream(), in, 0, 7, PoolMode::kMax, out));
    for (int64_t i = 0; i < 128; ++i) ASSERT_EQ(out.Get(i), std::abs(i - spike) <= 3 ? 7 : 0) << i;
    ASSERT_OK(PoolScores(stream(), in, 0, 7, PoolMode::kAvg, out));
    for (int64_t i = 0; i < 128; ++i) ASSERT_EQ(out.Get(i), std::abs(i - spike) <= 3 ? 1 : 0) << i;
  }
  in.Fill([](int64_t) { return 0.1; });
  for (const PoolMode mode : {PoolMode::kMax, PoolMode::kAvg}) {
    ASSERT_OK(PoolScores(stream(), in, 0, 5, mode, out));
    for (int64_t i = 2; i < 126; ++i) ASSERT_EQ(out.Get(i), out.Get(2)) << i;
    if (mode == PoolMode::kAvg) {
      ASSERT_LT(out.Get(1), out.Get(2));  // zeros outside
    }
  }
}

TEST_P(OpPool, ResultsDoNotDependOnThreads) {
  HostTensor in = Normal(kF32, {5, 333}), first(kF32, {5, 331});
  for (const int threads : {1, 2, 3}) {
    HostTensor out(kF32, {5, 331});
    ASSERT_OK(PoolScores({stream().device, threads}, in, 1, 7, PoolMode::kAvg, out));
    if (threads == 1) first = out.Copy();
    EXPECT_TRUE(SameBits(out, first)) << threads;
  }
}

}  // namespace
}  // namespace snapkv::kernels
