// SPDX-License-Identifier: Apache-2.0
// Contract tests of Add, AddBias, Cast, SiluMul, RmsNorm, Rope, Dequantize, Embed, GatherRows: every device
// against the reference in double, every element, gaps untouched, threads without influence.
#include "kernels/op/dequantize.h"
#include "kernels/op/elementwise.h"
#include "kernels/op/embed.h"
#include "kernels/op/gather_rows.h"
#include "kernels/op/rms_norm.h"
#include "kernels/op/rope.h"
#include "kernels/ref/ref.h"
#include "tests/kernels/op_testing.h"

namespace snapkv::kernels {
namespace {

constexpr int64_t kColumns[] = {0, 1, 2, 7, 8, 15, 16, 17, 33, 64, 65, 257};

class OpElementwise : public OpTest {};
INSTANTIATE_TEST_SUITE_P(Ops, OpElementwise, DevicesAndDTypes(), OpParamName);

TEST_P(OpElementwise, AddEqualsOneRoundedSum) {
  for (const int64_t rows : {0, 1, 3, 17, 33}) {
    for (const int64_t columns : kColumns) {
      SCOPED_TRACE(Case(rows, columns));
      HostTensor x = Normal(kF32, {rows, columns}, 1, 3), expected = x.Copy();
      const HostTensor y = Normal(dtype(), {rows, columns}, 1, 1);
      ASSERT_OK(Add(stream(), x, y));
      ref::Add(expected, y);
      ASSERT_TRUE(SameBits(x, expected));
      ASSERT_TRUE(x.GapsIntact());
    }
  }
}

TEST_P(OpElementwise, AddBiasEqualsOneRoundedSum) {
  for (const int64_t rows : {0, 1, 3, 17, 33}) {
    for (const int64_t columns : kColumns) {
      SCOPED_TRACE(Case(rows, columns));
      HostTensor x = Normal(dtype(), {rows, columns}, 1, 3), expected = x.Copy();
      const HostTensor bias = Normal(kF32, {columns});
      ASSERT_OK(AddBias(stream(), x, bias));
      ref::AddBias(expected, bias);
      ASSERT_TRUE(SameBits(x, expected));
      ASSERT_TRUE(x.GapsIntact());
    }
  }
}

// Values that rounding treats in every way: ties, specials, overflow, subnormals.
std::vector<double> CastValues(DType from) {
  std::vector<double> values = {0, -0.0, 1, -1, kInf, -kInf, kNan, 65504, 0x1p-24, 0x1p-14};
  if (from == DType::kF16) return values;
  for (const double x : {1 + 0x1p-7, 1 + 0x1p-6, 0x1p-130, 0x1.fep127}) values.push_back(x);
  if (from == kBF16) return values;
  for (const double x :
       {1 + 0x1p-8, 1 + 3 * 0x1p-8, 1 + 0x1p-8 + 0x1p-23, 3.3e38, 0x1.fffffep127, 0x1p-149}) {
    values.push_back(x);
    values.push_back(-x);
  }
  if (from == kF32) return values;
  for (const double x : {1 + 0x1p-8 + 0x1p-40, 1 + 0x1p-24, 1 + 3 * 0x1p-24, 1e300, 1e-300})
    values.push_back(x);
  return values;
}

TEST_P(OpElementwise, CastRoundsEveryPairOfTypes) {
  for (const DType from : {kF32, kF64, DType::kF16, kBF16}) {
    const std::vector<double> values = CastValues(from);
    HostTensor in(from, {3, 5, 19}, 2);
    for (int64_t i = 0; i < in.view().elements(); ++i) {
      const double x = values[static_cast<size_t>(i) % values.size()];
      if (from == DType::kF16) {
        *in.view().at<F16>(i / 95, i / 19 % 5, i % 19) = {static_cast<uint16_t>(i * 977)};
      } else {
        in.Set(i, x);
      }
    }
    for (const DType to : {kF32, kF64, kBF16}) {
      SCOPED_TRACE(std::string(DTypeName(from)) + " to " + DTypeName(to));
      HostTensor out(to, {3, 5, 19}, 1), expected(to, {3, 5, 19});
      ASSERT_OK(Cast(stream(), in, out));
      ref::Cast(in, expected);
      ASSERT_TRUE(Equal(out, expected.Values()));
      for (int64_t i = 0; i < in.view().elements(); ++i) {
        ASSERT_EQ(std::signbit(out.Get(i)), std::signbit(expected.Get(i))) << out.Where(i);
      }
      ASSERT_TRUE(out.GapsIntact());
    }
  }
}

TEST_P(OpElementwise, CastFollowsStridesOfEveryRank) {
  for (const int64_t n : kColumns) {
    SCOPED_TRACE(n);
    const HostTensor in = Normal(kF32, {2, 3, 2, n}, 1, 1);
    HostTensor out(dtype(), {2, 3, 2, n}, 2), expected(dtype(), {2, 3, 2, n});
    ASSERT_OK(Cast(stream(), in, out));
    ref::Cast(in, expected);
    ASSERT_TRUE(SameBits(out, expected));
    ASSERT_TRUE(out.GapsIntact());
    HostTensor turned(dtype(), {3, n, 2, 2}, 3), turned_expected(dtype(), {3, n, 2, 2});
    const TensorView view = in.view().Transposed(0, 1).Transposed(1, 3);  // [3, n, 2, 2]
    ASSERT_OK(Cast(stream(), view, turned));
    ref::Cast(view, turned_expected);
    ASSERT_TRUE(SameBits(turned, turned_expected));
    ASSERT_TRUE(turned.GapsIntact());
    const HostTensor row = Normal(kF32, {n});
    HostTensor row_out(dtype(), {n}), row_expected(dtype(), {n});
    ASSERT_OK(Cast(stream(), row, row_out));
    ref::Cast(row, row_expected);
    ASSERT_TRUE(SameBits(row_out, row_expected));
  }
}

TEST_P(OpElementwise, SiluMulIsNearTheExactProduct) {
  for (const int64_t rows : {0, 1, 3, 9, 17}) {
    for (const int64_t columns : kColumns) {
      SCOPED_TRACE(Case(rows, columns));
      HostTensor gate_up = Normal(dtype(), {rows, 2 * columns}, 5, 1);
      for (int64_t i = 0; i < gate_up.view().elements(); i += 13) gate_up.Set(i, i % 2 == 0 ? -300 : 300);
      HostTensor out(dtype(), {rows, columns}, 2), expected(kF64, {rows, columns});
      ASSERT_OK(SiluMul(stream(), gate_up, out));
      ref::SiluMul(gate_up, expected);
      // exp 4u, then 1 + e, the quotient and the product u each. exp(-g) may be cut at e^88: then |g up|
      // e^-88 remains of a smaller number.
      ASSERT_TRUE(Near(out, expected.Values(), 1e-33, 8 * kU32 + Roundoff(dtype())));
      ASSERT_TRUE(out.GapsIntact());
    }
  }
}

TEST_P(OpElementwise, SiluMulMayOverwriteItsGates) {
  HostTensor gate_up = Normal(dtype(), {5, 2 * 37}, 2);
  HostTensor apart(dtype(), {5, 37}), together(dtype(), {5, 37});
  ASSERT_OK(SiluMul(stream(), gate_up, apart));
  const TensorView gates = gate_up.view().Slice(1, 0, 37);
  ASSERT_OK(SiluMul(stream(), gate_up, gates));
  ref::Cast(gates, together);
  EXPECT_TRUE(SameBits(together, apart));
}

TEST_P(OpElementwise, RmsNormIsNearTheExactQuotient) {
  for (const int64_t rows : {0, 1, 3, 9, 17}) {
    for (const int64_t columns : kColumns) {
      for (const double sigma : {1e-6, 1.0, 1e6}) {
        SCOPED_TRACE(Case(rows, columns, sigma));
        const HostTensor x = Normal(kF32, {rows, columns}, sigma, 2), weight = Normal(kF32, {columns});
        HostTensor out(dtype(), {rows, columns}, 1), expected(kF64, {rows, columns});
        ASSERT_OK(RmsNorm(stream(), x, weight, 1e-5f, out));
        ref::RmsNorm(x, weight, 1e-5f, expected);
        // The rounded factor and two products.
        ASSERT_TRUE(Near(out, expected.Values(), 1e-36, 4 * kU32 + Roundoff(dtype())));
        ASSERT_TRUE(out.GapsIntact());
      }
    }
  }
}

TEST_P(OpElementwise, RmsNormInPlaceAndRowByRowAreTheSame) {
  const HostTensor x = Normal(kF32, {33, 65}), weight = Normal(kF32, {65});
  HostTensor whole(dtype(), {33, 65}), rows(dtype(), {33, 65});
  ASSERT_OK(RmsNorm(stream(), x, weight, 1e-5f, whole));
  for (int64_t i = 0; i < 33; ++i) {
    ASSERT_OK(RmsNorm(stream(), x.view().Slice(0, i, i + 1), weight, 1e-5f, rows.view().Slice(0, i, i + 1)));
  }
  EXPECT_TRUE(SameBits(rows, whole));
  if (dtype() != kF32) return;  // in place the result is f32 too
  ASSERT_OK(RmsNorm(stream(), x, weight, 1e-5f, x));
  EXPECT_TRUE(SameBits(x, whole));
}

TEST_P(OpElementwise, RopeEqualsTheReferenceBitForBit) {
  for (const int64_t tokens : {0, 1, 7, 16, 17, 33}) {
    for (const int64_t head_dim : {0, 2, 8, 14, 64, 80, 96, 128, 256}) {
      SCOPED_TRACE(Case(tokens, head_dim));
      HostTensor in = Normal(dtype(), {3, tokens, head_dim}, 1, 4);
      HostTensor cos = Normal(kF32, {tokens, head_dim / 2}, 1, 1), sin = Normal(kF32, {tokens, head_dim / 2});
      HostTensor out(dtype(), {3, tokens, head_dim}, 6), expected(dtype(), {3, tokens, head_dim});
      ASSERT_OK(Rope(stream(), in, cos, sin, out));
      ref::Rope(in, cos, sin, expected);
      ASSERT_TRUE(SameBits(out, expected));
      ASSERT_TRUE(out.GapsIntact());
      ASSERT_OK(Rope(stream(), in, cos, sin, in));  // in place
      ASSERT_TRUE(SameBits(in, expected));
      ASSERT_TRUE(in.GapsIntact());
    }
  }
}

TEST_P(OpElementwise, RopeRotatesInsideAProjection) {
  // The query heads inside rows of [token, q | k | v], seen as [head, token, head_dim].
  constexpr int64_t kHeads = 4, kTokenCount = 21, kDim = 16, kRow = 6 * kDim;
  HostTensor qkv = Normal(dtype(), {kTokenCount, kRow});
  const HostTensor cos = Normal(kF32, {kTokenCount, kDim / 2}), sin = Normal(kF32, {kTokenCount, kDim / 2});
  TensorView q = TensorView::Of(qkv.view().data, dtype(), Device::kCpu, kTokenCount, kHeads, kDim);
  q.strides[0] = kRow;
  q = q.Transposed(0, 1);
  HostTensor expected_q(dtype(), {kHeads, kTokenCount, kDim}), rotated(dtype(), {kHeads, kTokenCount, kDim});
  ref::Rope(q, cos, sin, expected_q);
  HostTensor rest(dtype(), {kTokenCount, 2 * kDim}), rest_after(dtype(), {kTokenCount, 2 * kDim});
  ref::Cast(qkv.view().Slice(1, kHeads * kDim, kRow), rest);
  ASSERT_OK(Rope(stream(), q, cos, sin, q));
  ref::Cast(q, rotated);
  ref::Cast(qkv.view().Slice(1, kHeads * kDim, kRow), rest_after);
  EXPECT_TRUE(SameBits(rotated, expected_q));
  EXPECT_TRUE(SameBits(rest_after, rest));
}

TEST_P(OpElementwise, GatherRowsCopiesBits) {
  for (const int64_t head_dim : {1, 8, 64, 80}) {
    for (const size_t lists : {size_t{2}, size_t{6}}) {
      SCOPED_TRACE(Case(head_dim, lists));
      const HostTensor in = Normal(dtype(), {2, 40, head_dim}, 1, 3);
      std::vector<std::vector<int32_t>> rows(lists);
      int64_t total = 0;
      for (size_t h = 0; h < lists; ++h) {
        for (size_t i = 0; i < h % 3 * 17; ++i) rows[h].push_back(static_cast<int32_t>(rng_() % 40));
        total += static_cast<int64_t>(rows[h].size());
      }
      HostTensor out(dtype(), {total, head_dim}), expected(dtype(), {total, head_dim});
      ASSERT_OK(GatherRows(stream(), in, rows, out));
      ref::GatherRows(in, rows, expected);
      ASSERT_TRUE(SameBits(out, expected));
      ASSERT_TRUE(out.GapsIntact());
    }
  }
  const std::vector<std::vector<int32_t>> nothing(4);
  const HostTensor in = Normal(dtype(), {2, 0, 8});
  ASSERT_OK(GatherRows(stream(), in, nothing, HostTensor(dtype(), {0, 8})));
}

// Stored types with random bits: any bits are a valid block.
class OpDequantize : public ::testing::TestWithParam<std::tuple<Device, DType>> {};
INSTANTIATE_TEST_SUITE_P(
    Ops, OpDequantize,
    ::testing::Combine(::testing::Values(Device::kRef, Device::kCpu),
                       ::testing::Values(DType::kF32, DType::kF16, DType::kBF16, DType::kQ4_0, DType::kQ4_1,
                                         DType::kQ5_0, DType::kQ5_1, DType::kQ8_0, DType::kQ2_K, DType::kQ3_K,
                                         DType::kQ4_K, DType::kQ5_K, DType::kQ6_K)),
    OpParamName);

TEST_P(OpDequantize, EqualsTheReferenceBitForBit) {
  const auto [device, dtype] = GetParam();
  const Stream stream = {device, 3};
  std::mt19937_64 rng(7);
  const int64_t block = BlockElements(dtype);
  // The last count of rows spans several tasks of the CPU kernel.
  for (const int64_t rows : {int64_t{0}, int64_t{1}, int64_t{3}, int64_t{4200}}) {
    const int64_t columns = rows > 3 ? block : 2 * block;
    std::vector<unsigned char> raw(static_cast<size_t>(rows * columns / block * BlockBytes(dtype)));
    for (unsigned char& byte : raw) byte = static_cast<unsigned char>(rng());
    const TensorView in = TensorView::Of(raw.data(), dtype, device, rows, columns);
    HostTensor out(kF32, {rows, columns}), expected(kF32, {rows, columns});
    ASSERT_OK(Dequantize(stream, in, out));
    ref::Dequantize(in, expected);
    ASSERT_TRUE(SameBits(out, expected)) << rows;
    ASSERT_TRUE(out.GapsIntact());
    if (rows == 0) continue;
    for (const size_t count : {size_t{0}, size_t{1}, size_t{40}}) {
      std::vector<int32_t> ids(count);
      for (int32_t& id : ids) id = static_cast<int32_t>(rng() % static_cast<uint64_t>(rows));
      HostTensor picked(kF32, {static_cast<int64_t>(count), columns}, 5);
      HostTensor rows_of_all(kF32, {static_cast<int64_t>(count), columns});
      ASSERT_OK(Embed(stream, in, ids, picked));
      for (size_t i = 0; i < count; ++i) {
        std::memcpy(rows_of_all.view().at<float>(static_cast<int64_t>(i)), expected.view().at<float>(ids[i]),
                    static_cast<size_t>(columns) * sizeof(float));
      }
      ASSERT_TRUE(SameBits(picked, rows_of_all)) << rows << " rows, " << count << " ids";
      ASSERT_TRUE(picked.GapsIntact());
    }
  }
}

TEST(OpElementwiseThreads, ResultsDoNotDependOnThreads) {
  for (const DType dtype : {kF32, kBF16}) {
    std::vector<HostTensor> first;
    for (const int threads : {1, 2, 3}) {
      const Stream stream = {Device::kCpu, threads};
      std::mt19937_64 rng(11);
      const auto normal = [&](DType t, std::vector<int64_t> shape) {
        return HostTensor::Normal(t, shape, rng);
      };
      std::vector<HostTensor> results;
      HostTensor x = normal(kF32, {131, 67});
      ASSERT_OK(Add(stream, x, normal(dtype, {131, 67})));
      results.push_back(std::move(x));
      HostTensor biased = normal(dtype, {131, 67});
      ASSERT_OK(AddBias(stream, biased, normal(kF32, {67})));
      results.push_back(std::move(biased));
      HostTensor cast(dtype, {131, 67}), silu(dtype, {131, 67}), norm(dtype, {131, 67}),
          rope(dtype, {3, 131, 34});
      ASSERT_OK(Cast(stream, normal(kF32, {131, 67}), cast));
      ASSERT_OK(SiluMul(stream, normal(dtype, {131, 134}), silu));
      ASSERT_OK(RmsNorm(stream, normal(kF32, {131, 67}), normal(kF32, {67}), 1e-5f, norm));
      ASSERT_OK(
          Rope(stream, normal(dtype, {3, 131, 34}), normal(kF32, {131, 17}), normal(kF32, {131, 17}), rope));
      results.push_back(std::move(cast));
      results.push_back(std::move(silu));
      results.push_back(std::move(norm));
      results.push_back(std::move(rope));
      if (threads == 1) first = std::move(results);
      for (size_t i = 0; threads > 1 && i < first.size(); ++i) {
        EXPECT_TRUE(SameBits(results[i], first[i])) << "result " << i << ", threads " << threads;
      }
    }
  }
}

}  // namespace
}  // namespace snapkv::kernels
