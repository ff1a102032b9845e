// SPDX-License-Identifier: Apache-2.0
// Contract tests of DecodeAttention, MergeState and Sample.
#include <algorithm>
#include <numeric>

#include "kernels/op/attention.h"
#include "kernels/op/decode_attention.h"
#include "kernels/op/merge_state.h"
#include "kernels/op/sample.h"
#include "kernels/ref/ref.h"
#include "tests/kernels/op_testing.h"

namespace snapkv::kernels {
namespace {

// The caches of a batch: rows[document * cache_heads + head] rows each.
struct Caches {
  Caches(DType dtype, const std::vector<int64_t>& rows, int64_t head_dim, std::mt19937_64& rng) {
    for (const int64_t n : rows) {
      k.push_back(HostTensor::Normal(dtype, {n, head_dim}, rng));
      v.push_back(HostTensor::Normal(dtype, {n, head_dim}, rng));
    }
  }
  std::vector<CacheRows> Rows() const {
    std::vector<CacheRows> rows;
    for (size_t i = 0; i < k.size(); ++i) {
      rows.push_back({k[i].view().data, v[i].view().data, k[i].view().dim(0)});
    }
    return rows;
  }
  std::vector<HostTensor> k, v;
};

class OpDecode : public OpTest {
 protected:
  // |error| <= (2 d + (2 kKeyBlock + 16) u) * sum_j w_j |v_j| + roundoff(out) |out|, d = (head_dim + 4) u S
  // with S = max_j scale sum |q_c k_jc|, as in ExactAttention; the carry between blocks of keys is f64.
  void ExpectNearExact(const HostTensor& q, const Caches& caches, int64_t cache_heads, float scale,
                       const HostTensor& out) {
    const std::vector<int64_t> shape = {q.view().dim(0), q.view().dim(1), q.view().dim(2)};
    HostTensor exact(kF64, shape), magnitude(kF64, shape);
    ref::DecodeAttention(q, caches.Rows(), cache_heads, scale, exact);
    std::vector<HostTensor> abs_v;
    std::vector<CacheRows> rows = caches.Rows();
    for (size_t i = 0; i < rows.size(); ++i) {
      abs_v.push_back(caches.v[i].Copy());
      abs_v[i].Fill([&](int64_t j) { return std::fabs(caches.v[i].Get(j)); });
      rows[i].v = abs_v[i].view().data;
    }
    ref::DecodeAttention(q, rows, cache_heads, scale, magnitude);
    const int64_t group = shape[1] / cache_heads;
    std::vector<double> score_error;
    for (int64_t b = 0; b < shape[0]; ++b) {
      for (int64_t h = 0; h < shape[1]; ++h) {
        const HostTensor& k = caches.k[static_cast<size_t>(b * cache_heads + h / group)];
        double largest = 0;
        for (int64_t j = 0; j < k.view().dim(0); ++j) {
          double sum = 0;
          for (int64_t c = 0; c < shape[2]; ++c) {
            sum += std::fabs(ref::Load(q, b, h, c) * ref::Load(k, j, c));
          }
          largest = std::max(largest, sum * scale);
        }
        score_error.push_back(static_cast<double>(shape[2] + 4) * kU32 * largest);
      }
    }
    ASSERT_TRUE(WithinBound(out, exact.Values(), [&](int64_t i) {
      return (2 * score_error[static_cast<size_t>(i / shape[2])] + (2 * kKeyBlock + 16) * kU32) *
                 magnitude.Get(i) +
             Roundoff(dtype()) * std::fabs(exact.Get(i));
    }));
  }
};
INSTANTIATE_TEST_SUITE_P(Ops, OpDecode, DevicesAndDTypes(), OpParamName);

TEST_P(OpDecode, IsNearExactForRaggedCaches) {
  for (const int64_t head_dim : kHeadDims) {
    for (const int64_t group : kGroups) {
      for (const int64_t batch : {1, 3}) {
        constexpr int64_t kCacheHeads = 2;
        SCOPED_TRACE(Case(head_dim, group, batch));
        std::vector<int64_t> rows;
        for (int64_t i = 0; i < batch * kCacheHeads; ++i)
          rows.push_back(kTokens[rng_() % std::size(kTokens)]);
        const Caches caches(dtype(), rows, head_dim, rng_);
        const HostTensor q = Normal(dtype(), {batch, kCacheHeads * group, head_dim}, 1, 2);
        HostTensor out(dtype(), {batch, kCacheHeads * group, head_dim}, 3);
        const float scale = 1.0f / std::sqrt(static_cast<float>(head_dim));
        ASSERT_OK(DecodeAttention(stream(), q, caches.Rows(), kCacheHeads, scale, out));
        ExpectNearExact(q, caches, kCacheHeads, scale, out);
        if (HasFatalFailure()) return;
        ASSERT_TRUE(out.GapsIntact());
      }
    }
  }
}

TEST_P(OpDecode, IsNearExactForEveryNumberOfRows) {
  for (const int64_t rows : kTokens) {
    SCOPED_TRACE(rows);
    const Caches caches(dtype(), {rows}, 24, rng_);
    const HostTensor q = Normal(dtype(), {1, 3, 24});
    HostTensor out(dtype(), {1, 3, 24});
    ASSERT_OK(DecodeAttention(stream(), q, caches.Rows(), 1, 0.25f, out));
    ExpectNearExact(q, caches, 1, 0.25f, out);
    if (HasFatalFailure()) return;
    if (rows == 0) {
      EXPECT_TRUE(Equal(out, std::vector<double>(3 * 24, 0.0)));
    }
  }
  ASSERT_OK(DecodeAttention(stream(), HostTensor(dtype(), {0, 3, 24}), {}, 1, 1.0f,
                            HostTensor(dtype(), {0, 3, 24})));
}

TEST_P(OpDecode, ExtremeScoresKeepTheirRatios) {
  Caches caches(dtype(), {130}, 8, rng_);
  HostTensor q(dtype(), {1, 2, 8});
  q.Fill([&](int64_t i) { return i % 8 == 0 ? 1 : 512.0 * static_cast<double>(rng_() % 7) - 1536; });
  caches.k[0].Fill([&](int64_t i) { return (i % 8 == 0 ? 2 : 16) * (static_cast<double>(rng_() % 17) - 8); });
  HostTensor out(dtype(), {1, 2, 8}), exact(kF64, {1, 2, 8});
  ASSERT_OK(DecodeAttention(stream(), q, caches.Rows(), 1, 0.5f, out));
  ref::DecodeAttention(q, caches.Rows(), 1, 0.5f, exact);
  EXPECT_TRUE(Near(out, exact.Values(), 200 * kU32 * 5, Roundoff(dtype())));
}

TEST_P(OpDecode, EqualsTheLastQueryOfAttention) {
  const HostTensor q = Normal(dtype(), {3, 1, 64}), k = Normal(dtype(), {1, 129, 64}),
                   v = Normal(dtype(), {1, 129, 64});
  HostTensor m(kF32, {3, 1}), l(kF64, {3, 1}), o(kF64, {3, 1, 64}), out(kF32, {3, 1, 64}), lse(kF32, {3, 1});
  const AttentionState state = {m, l, o};
  ASSERT_OK(InitAttentionState(stream(), state));
  ASSERT_OK(Attention(stream(), {.q = q, .k = k, .v = v, .state = state, .scale = 0.125f}));
  ASSERT_OK(FinishAttention(stream(), state, out, lse));
  HostTensor decoded(dtype(), {1, 3, 64});
  const CacheRows rows[] = {{k.view().data, v.view().data, 129}};
  ASSERT_OK(DecodeAttention(stream(), q.view().Transposed(0, 1), rows, 1, 0.125f, decoded));
  EXPECT_TRUE(Near(decoded, out.Values(), 32 * kU32, Roundoff(dtype())));
}

TEST_P(OpDecode, TheOrderOfTheRowsDoesNotMatter) {
  // Compressed caches hold rows of scattered positions: only the set counts.
  const Caches caches(dtype(), {129}, 64, rng_);
  std::vector<int64_t> order(129);
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), rng_);
  Caches shuffled(dtype(), {129}, 64, rng_);
  for (int64_t j = 0; j < 129; ++j) {
    for (int64_t c = 0; c < 64; ++c) {
      shuffled.k[0].Set(j * 64 + c, caches.k[0].Get(order[static_cast<size_t>(j)] * 64 + c));
      shuffled.v[0].Set(j * 64 + c, caches.v[0].Get(order[static_cast<size_t>(j)] * 64 + c));
    }
  }
  const HostTensor q = Normal(dtype(), {1, 3, 64});
  HostTensor out(dtype(), {1, 3, 64});
  ASSERT_OK(DecodeAttention(stream(), q, shuffled.Rows(), 1, 0.125f, out));
  ExpectNearExact(q, caches, 1, 0.125f, out);
}

TEST_P(OpDecode, ADocumentDependsOnNoOtherNorOnThreads) {
  const std::vector<int64_t> rows = {65, 0,  129, 7,   64,
                                     1,  33, 31,  200, 2};  // five documents of two cache heads
  const Caches caches(dtype(), rows, 40, rng_);
  const HostTensor q = Normal(dtype(), {5, 6, 40}, 1, 1);
  HostTensor together(dtype(), {5, 6, 40});
  ASSERT_OK(DecodeAttention(stream(), q, caches.Rows(), 2, 0.2f, together));
  for (const int threads : {1, 2, 3}) {
    HostTensor alone(dtype(), {5, 6, 40});
    const Stream threaded = {stream().device, threads};
    const std::vector<CacheRows> all = caches.Rows();
    for (int64_t b = 4; b >= 0; --b) {
      ASSERT_OK(DecodeAttention(threaded, q.view().Slice(0, b, b + 1),
                                absl::MakeConstSpan(all).subspan(static_cast<size_t>(2 * b), 2), 2, 0.2f,
                                alone.view().Slice(0, b, b + 1)));
    }
    ASSERT_TRUE(SameBits(alone, together)) << threads;
    HostTensor again(dtype(), {5, 6, 40});
    ASSERT_OK(DecodeAttention(threaded, q, all, 2, 0.2f, again));
    ASSERT_TRUE(SameBits(again, together)) << threads;
  }
}

class OpMerge : public OpTest {};
INSTANTIATE_TEST_SUITE_P(Ops, OpMerge,
                         ::testing::Combine(::testing::Values(Device::kRef, Device::kCpu),
                                            ::testing::Values(kF32)),
                         OpParamName);

TEST_P(OpMerge, IsTheWeightedMeanForEveryShapeAndEmptyPart) {
  for (const int64_t queries : kTokens) {
    for (const double spread : {1.0, 1e5}) {
      SCOPED_TRACE(Case(queries, spread));
      HostTensor o = Normal(kF32, {3, queries, 40}, 1, 2), lse = Normal(kF32, {3, queries}, spread, 1);
      HostTensor other_o = Normal(kF32, {3, queries, 40}), other_lse = Normal(kF32, {3, queries}, spread);
      const auto clear = [](HostTensor& part_o, HostTensor& part_lse, int64_t row) {
        part_lse.Set(row, -kInf);
        for (int64_t c = 0; c < 40; ++c) part_o.Set(row * 40 + c, 0);
      };
      for (int64_t row = 0; row < 3 * queries; ++row) {
        if (row % 4 == 1) clear(o, lse, row);
        if (row % 8 >= 5) clear(other_o, other_lse, row);
      }
      std::vector<double> expected_o, expected_lse;
      for (int64_t i = 0; i < 3 * queries; ++i) {
        const double a = lse.Get(i), b = other_lse.Get(i), top = std::max(a, b);
        const double wa = a == -kInf ? 0 : std::exp(a - top), wb = b == -kInf ? 0 : std::exp(b - top);
        for (int64_t c = 0; c < 40; ++c) {
          expected_o.push_back(
              wa + wb == 0 ? 0 : (wa * o.Get(i * 40 + c) + wb * other_o.Get(i * 40 + c)) / (wa + wb));
        }
        expected_lse.push_back(top + (wa + wb == 0 ? 0 : std::log(wa + wb)));
      }
      ASSERT_OK(MergeState(stream(), o, lse, other_o, other_lse));
      ASSERT_TRUE(Near(o, expected_o, 16 * kU32, kU32));
      ASSERT_TRUE(Near(lse, expected_lse, 4 * kU32, kU32));
      ASSERT_TRUE(o.GapsIntact() && lse.GapsIntact());
    }
  }
}

TEST(OpSample, EveryDeviceDrawsTheSameToken) {
  std::mt19937_64 rng(3);
  const HostTensor logits = HostTensor::Normal(kF32, {1000}, rng, 3);
  const std::vector<int32_t> history = {5, 5, 900, 17};
  for (const float temperature : {0.0f, 0.7f, 1.5f}) {
    for (int64_t step = 0; step < 50; ++step) {
      const SampleParams params = {.temperature = temperature,
                                   .repeat_penalty = 1.3f,
                                   .top_k = step % 2 * 50,
                                   .top_p = step % 3 == 0 ? 1 : 0.8,
                                   .min_p = step % 5 == 0 ? 0 : 0.1,
                                   .seed = 12,
                                   .step = step};
      const absl::StatusOr<int32_t> a = Sample(kRefStream, logits, history, params),
                                    b = Sample({Device::kCpu, 3}, logits, history, params);
      ASSERT_OK(a.status());
      ASSERT_OK(b.status());
      ASSERT_EQ(*a, *b);
      ASSERT_EQ(*a, ref::Sample(logits, history, params));
    }
  }
}

}  // namespace
}  // namespace snapkv::kernels
