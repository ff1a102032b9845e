// SPDX-License-Identifier: Apache-2.0
// Hand-worked values for the reference Add, AddBias, Cast, SiluMul, RmsNorm, Rope, Gemm, Embed, Dequantize.
#include "kernels/ref/ref.h"
#include "tests/kernels/host_tensor.h"

namespace snapkv::kernels::ref {
namespace {

constexpr DType kF32 = DType::kF32, kBF16 = DType::kBF16, kF64 = DType::kF64, kF16 = DType::kF16;

TEST(RefAdd, SumsInPlaceAndRoundsToNearestEven) {
  HostTensor x = HostTensor::Of(kF32, {2, 2}, {1, 2, 1, 1 + 0x1p-23}, 3);
  Add(x, HostTensor::Of(kF32, {2, 2}, {0.5, -4, 0x1p-24, 0x1p-24}));
  EXPECT_TRUE(Equal(x, {1.5, -2, 1, 1 + 0x1p-22}));  // both last sums are ties between two floats
  EXPECT_TRUE(x.GapsIntact());
  Add(x, HostTensor::Of(kBF16, {2, 2}, {1, 1, -1, 0}, 1));
  EXPECT_TRUE(Equal(x, {2.5, -1, 0, 1 + 0x1p-22}));
}

TEST(RefAddBias, AddsOneRowToEveryRow) {
  HostTensor x = HostTensor::Of(kF32, {2, 3}, {1, 2, 3, 4, 5, 6}, 2);
  AddBias(x, HostTensor::Of(kF32, {3}, {10, 20, -3}));
  EXPECT_TRUE(Equal(x, {11, 22, 0, 14, 25, 3}));
  EXPECT_TRUE(x.GapsIntact());
}

TEST(RefAddBias, Bf16TiesGoToEvenAfterTheSumIsF32) {
  // bf16 has 8 bits: beside 1 its step is 2^-7. 1 + 2^-8 lies between 1 (even) and 1 + 2^-7; 1 + 3 * 2^-8
  // between 1 + 2^-7 and 1 + 2^-6 (even). The last sum is above its middle, but not in f32.
  HostTensor x = HostTensor::Of(kBF16, {1, 3}, {1, 1, 1});
  AddBias(x, HostTensor::Of(kF32, {3}, {0x1p-8, 3 * 0x1p-8, 0x1p-8 + 0x1p-30}));
  EXPECT_TRUE(Equal(x, {1, 1 + 0x1p-6, 1}));
}

TEST(RefCast, RoundsOnceToNearestEven) {
  HostTensor out(kBF16, {6});
  Cast(HostTensor::Of(kF64, {6},
                      {1 + 0x1p-8, 1 + 0x1p-8 + 0x1p-40, 1 + 3 * 0x1p-8 - 0x1p-40, 1e300, -1e300,
                       -(1 + 0x1p-8 + 0x1p-40)}),
       out);
  EXPECT_TRUE(Equal(out, {1, 1 + 0x1p-7, 1 + 0x1p-7, kInf, -kInf, -(1 + 0x1p-7)}));
  HostTensor f32(kF32, {3});
  Cast(HostTensor::Of(kF64, {3}, {1 + 0x1p-24, 1e300, 0.1}), f32);
  EXPECT_TRUE(Equal(f32, {1, kInf, 0.1f}));
}

TEST(RefCast, ReadsEveryTypeAndKeepsSpecialValues) {
  HostTensor half(kF16, {6});
  const uint16_t bits[] = {0x0001, 0x3c00, 0xc000, 0x7c00, 0x7e00, 0x8000};
  for (int i = 0; i < 6; ++i) half.view().at<F16>(i)->bits = bits[i];
  HostTensor out(kF64, {6});
  Cast(half, out);
  EXPECT_TRUE(Equal(out, {0x1p-24, 1, -2, kInf, kNan, -0.0}));
  EXPECT_TRUE(std::signbit(out.Get(5)));
  HostTensor bf16(kBF16, {6});
  Cast(half, bf16);
  EXPECT_TRUE(Equal(bf16, {0x1p-24, 1, -2, kInf, kNan, -0.0}));
}

TEST(RefCast, FollowsStrides) {
  const HostTensor in = HostTensor::Of(kF32, {2, 3}, {1, 2, 3, 4, 5, 6}, 1);
  HostTensor out(kF32, {3, 2}, 2);
  Cast(in.view().Transposed(0, 1), out);
  EXPECT_TRUE(Equal(out, {1, 4, 2, 5, 3, 6}));
  EXPECT_TRUE(out.GapsIntact());
}

TEST(RefSiluMul, GatesComeFirst) {
  HostTensor out(kF32, {2, 3}, 1);
  SiluMul(HostTensor::Of(kF32, {2, 6}, {0, 1, -1, 7, 2, 3, 100, -200, 2, 1, 1, 0.5}), out);
  // silu(1) = 1 / (1 + e^-1) = 0.7310586, silu(-1) = silu(1) - 1, silu(2) = 2 / (1 + e^-2) = 1.7615942.
  EXPECT_TRUE(Near(out, {0, 1.4621171572600098, -0.8068242641099853, 100, 0, 0.8807970779778823}, 1e-7));
  EXPECT_TRUE(out.GapsIntact());
}

TEST(RefRmsNorm, DividesByTheRootOfTheMeanSquare) {
  // mean(9, 16) = 12.5; 3 / sqrt(12.5) = 0.8485281, 4 / sqrt(12.5) = 1.1313708.
  HostTensor x = HostTensor::Of(kF32, {3, 2}, {3, 4, 0, 0, 1, 1}, 5);
  const HostTensor weight = HostTensor::Of(kF32, {2}, {1, 2});
  HostTensor out(kBF16, {3, 2});
  RmsNorm(x, weight, 0.0f, HostTensor(kF32, {3, 2}));
  RmsNorm(x, weight, 3.0f, out);
  // (12.5 + 3), (0 + 3), (1 + 3): 3 / 3.937 = 0.76200, 8 / 3.937 = 2.03200; 0; 1 / 2, 2 / 2.
  EXPECT_TRUE(Near(out, {0.76200, 2.03200, 0, 0, 0.5, 1}, 0, 0x1p-8));
  RmsNorm(x, weight, 0x1p-20f, x);
  EXPECT_TRUE(Near(x, {0.84852814, 2.26274170, 0, 0, 1, 2}, 1e-6));
  EXPECT_TRUE(x.GapsIntact());
}

TEST(RefRope, RotatesPairsHalfAHeadApart) {
  // Two heads, two tokens, head_dim 4: pairs (0, 2) and (1, 3).
  HostTensor x = HostTensor::Of(kF32, {2, 2, 4}, {8, 1, 4, 2, 1, 0, 0, 1, 2, 1, 0, -1, 1, 2, 3, 4}, 1);
  const HostTensor cos = HostTensor::Of(kF32, {2, 2}, {0.5, 0, 1, -1});
  const HostTensor sin = HostTensor::Of(kF32, {2, 2}, {0.25, 1, 0, 0});
  HostTensor out(kF32, {2, 2, 4});
  Rope(x, cos, sin, out);
  const std::vector<double> expected = {3, -2, 4, 1, 1, 0, 0, -1, 1, 1, 0.5, 1, 1, -2, 3, -4};
  EXPECT_TRUE(Equal(out, expected));
  Rope(x, cos, sin, x);  // in place
  EXPECT_TRUE(Equal(x, expected));
  EXPECT_TRUE(x.GapsIntact());
}

TEST(RefRope, EachProductIsRoundedBeforeTheSum) {
  // (1 + 2^-12)^2 = 1 + 2^-11 + 2^-24 rounds to 1 + 2^-11; a fused multiply-add would leave 2^-24.
  HostTensor x = HostTensor::Of(kF32, {1, 1, 2}, {1 + 0x1p-12, 1 + 0x1p-11});
  Rope(x, HostTensor::Of(kF32, {1, 1}, {1 + 0x1p-12}), HostTensor::Of(kF32, {1, 1}, {1}), x);
  EXPECT_EQ(x.Get(0), 0.0);
}

TEST(RefRope, Bf16RoundsTheResult) {
  HostTensor x = HostTensor::Of(kBF16, {1, 1, 2}, {1, 1});
  Rope(x, HostTensor::Of(kF32, {1, 1}, {1}), HostTensor::Of(kF32, {1, 1}, {0x1p-8}), x);
  EXPECT_TRUE(Equal(x, {1 - 0x1p-8, 1}));  // 1 - 2^-8 is a bf16 number, 1 + 2^-8 is a tie
}

TEST(RefGemm, MultipliesByTheTransposedWeights) {
  const HostTensor a = HostTensor::Of(kF32, {2, 3}, {1, 2, 3, 1e8, 1, -1e8}, 2);
  HostTensor out(kF32, {2, 2}, 1);
  Gemm(a, HostTensor::Of(kF32, {2, 3}, {1, 0, -1, 1, 1, 1}), out);
  EXPECT_TRUE(Equal(out, {-2, 6, 2e8, 1}));  // the last sum loses its 1 in f32
  EXPECT_TRUE(out.GapsIntact());
  HostTensor bf16(kBF16, {1, 1});
  Gemm(HostTensor::Of(kBF16, {1, 2}, {1, 1}), HostTensor::Of(kBF16, {1, 2}, {1, 0x1p-8}), bf16);
  EXPECT_TRUE(Equal(bf16, {1}));
}

TEST(RefEmbed, CopiesRowsInTheOrderOfTheIds) {
  const HostTensor table = HostTensor::Of(kBF16, {3, 2}, {1, 2, 3, 4, 5, 6});
  HostTensor out(kF32, {4, 2}, 3);
  const int32_t ids[] = {2, 0, 2, 1};
  Embed(table, ids, out);
  EXPECT_TRUE(Equal(out, {5, 6, 1, 2, 5, 6, 3, 4}));
  EXPECT_TRUE(out.GapsIntact());
}

TEST(RefEmbed, FindsTheBlocksOfAQuantisedRow) {
  // q8_0: an f16 scale and 32 signed bytes. Rows of 64 elements are two blocks.
  std::vector<unsigned char> raw(4 * 34, 0);
  for (size_t block = 0; block < 4; ++block) {
    raw[block * 34 + 1] = 0x3c;  // scale 1
    for (size_t i = 0; i < 32; ++i) raw[block * 34 + 2 + i] = static_cast<unsigned char>(block * 32 + i - 64);
  }
  const TensorView table = TensorView::Of(raw.data(), DType::kQ8_0, Device::kRef, 2, 64);
  std::vector<double> expected(128);
  for (size_t i = 0; i < 128; ++i) expected[i] = static_cast<double>((i + 64) % 128) - 64;
  HostTensor out(kF32, {2, 64});
  Embed(table, std::vector<int32_t>{1, 0}, out);
  EXPECT_TRUE(Equal(out, expected));
  HostTensor all(kF32, {2, 64});
  Dequantize(table, all);
  std::rotate(expected.begin(), expected.begin() + 64, expected.end());
  EXPECT_TRUE(Equal(all, expected));
}

}  // namespace
}  // namespace snapkv::kernels::ref
