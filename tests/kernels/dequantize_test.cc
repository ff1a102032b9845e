// SPDX-License-Identifier: Apache-2.0
// Hand-worked values for every type ref::Dequantize reads: which bits make which element.
#include "kernels/ref/dequantize.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <string>
#include <vector>

namespace snapkv::kernels::ref {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
using Block = std::vector<uint8_t>;

// A block whose bytes are zero but for fills of equal bytes {first, last, value}.
struct Fill {
  int first, last, value;
};
using Fills = std::vector<Fill>;
Block MakeBlock(DType type, const Fills& fills) {
  Block block(static_cast<size_t>(BlockBytes(type)));
  for (const Fill& fill : fills) {
    for (int i = fill.first; i <= fill.last; ++i)
      block[static_cast<size_t>(i)] = static_cast<uint8_t>(fill.value);
  }
  return block;
}

// f16 values, to be put at byte `at`.
Fills One(int at) { return {{at + 1, at + 1, 0x3c}}; }
Fills Half(int at) { return {{at + 1, at + 1, 0x38}}; }

Fills operator+(Fills a, const Fills& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

std::vector<float> DequantizeAll(DType type, const Block& bytes) {
  std::vector<float> out(bytes.size() / static_cast<size_t>(BlockBytes(type)) *
                         static_cast<size_t>(BlockElements(type)));
  Dequantize(type, bytes.data(), static_cast<int64_t>(out.size()), out.data());
  return out;
}

// Every element is `base` but for those listed.
void ExpectElements(DType type, const Block& block, float base, const std::map<int, float>& others) {
  const std::vector<float> out = DequantizeAll(type, block);
  for (int i = 0; i < BlockElements(type); ++i) {
    const auto other = others.find(i);
    const float want = other == others.end() ? base : other->second;
    ASSERT_EQ(out[static_cast<size_t>(i)], want) << DTypeName(type) << " element " << i;
  }
}

// [first, last] -> value
std::map<int, float> Range(int first, int last, float value) {
  std::map<int, float> range;
  for (int i = first; i <= last; ++i) range[i] = value;
  return range;
}

TEST(Dequantize, Q4_0) {
  // 0.5 * (q - 8); byte 2 holds elements 0 and 16, byte 17 elements 15 and 31.
  const Block block = MakeBlock(DType::kQ4_0, Half(0) + Fills{{2, 2, 0xf3}, {17, 17, 0x9c}});
  ExpectElements(DType::kQ4_0, block, -4.0f, {{0, -2.5f}, {16, 3.5f}, {15, 2.0f}, {31, 0.5f}});
}

TEST(Dequantize, Q4_1) {
  // q + 0.5
  const Block block = MakeBlock(DType::kQ4_1, One(0) + Half(2) + Fills{{4, 4, 0xf3}, {19, 19, 0x9c}});
  ExpectElements(DType::kQ4_1, block, 0.5f, {{0, 3.5f}, {16, 15.5f}, {15, 12.5f}, {31, 9.5f}});
}

TEST(Dequantize, Q5_0) {
  // 0.5 * (q - 16); byte 2 bit 0 is the fifth bit of element 0, byte 5 bit 7 that of element 31.
  const Block block = MakeBlock(
      DType::kQ5_0, Half(0) + Fills{{2, 2, 0x01}, {4, 4, 0x02}, {5, 5, 0x80}, {6, 6, 0xf3}, {21, 21, 0x9c}});
  ExpectElements(DType::kQ5_0, block, -8.0f, {{0, 1.5f}, {16, -0.5f}, {17, 0.0f}, {15, -2.0f}, {31, 4.5f}});
}

TEST(Dequantize, Q5_1) {
  // q + 0.5
  const Block block = MakeBlock(
      DType::kQ5_1, One(0) + Half(2) + Fills{{4, 4, 0x01}, {7, 7, 0x80}, {8, 8, 0xf3}, {23, 23, 0x9c}});
  ExpectElements(DType::kQ5_1, block, 0.5f, {{0, 19.5f}, {16, 15.5f}, {15, 12.5f}, {31, 25.5f}});
}

TEST(Dequantize, Q8_0) {
  const Block block = MakeBlock(DType::kQ8_0, Half(0) + Fills{{2, 2, 127}, {3, 3, 0x80}, {33, 33, 0xff}});
  ExpectElements(DType::kQ8_0, block, 0.0f, {{0, 63.5f}, {1, -64.0f}, {31, -0.5f}});
}

TEST(Dequantize, Q2_K) {
  // scale 1, minimum 0.5 * 2: q - 1. Byte 16 holds elements 0, 32, 64, 96, byte 79 elements 159, 191, 223,
  // 255. Sub-block 5 (elements 80-95) has scale 3 and minimum 0; element 80 is bits 4-5 of byte 32.
  const Block block = MakeBlock(
      DType::kQ2_K, One(80) + Half(82) +
                        Fills{{0, 15, 0x21}, {5, 5, 0x03}, {16, 16, 0xe4}, {79, 79, 0x1b}, {32, 32, 0x10}});
  std::map<int, float> others = Range(80, 95, 0.0f);
  others[80] = 3.0f;
  others.insert({{32, 0.0f}, {64, 1.0f}, {96, 2.0f}, {159, 2.0f}, {191, 1.0f}, {223, 0.0f}});
  ExpectElements(DType::kQ2_K, block, -1.0f, others);
}

TEST(Dequantize, Q3_K) {
  // Scales 33 - 32 = 1: q - 4 where the third bit is clear, q where it is set. Scale 9 (elements 144-159) is
  // low nibble 15 (high half of byte 97) and top bits 0 (bits 4-5 of byte 105): 15 - 32 = -17.
  const Block block = MakeBlock(DType::kQ3_K, One(108) + Fills{{96, 103, 0x11},
                                                               {104, 107, 0xaa},
                                                               {97, 97, 0xf1},
                                                               {105, 105, 0x8a},
                                                               {3, 3, 0x81},
                                                               {32, 32, 0xe4},
                                                               {65, 65, 0x03}});
  std::map<int, float> others = Range(144, 159, 68.0f);
  others.insert({{3, 0.0f}, {227, 0.0f}, {32, -3.0f}, {64, -2.0f}, {96, -1.0f}, {129, -1.0f}});
  ExpectElements(DType::kQ3_K, block, -4.0f, others);
}

// The scales of Q4_K and Q5_K: all 1 with minimum 0.5 * 2, but scale 6 = 1 + 3 * 16 = 49 (top bits of byte 6)
// and minimum 7 = 0.5 * (2 + 16) = 9 (top bits of byte 11).
Fills AffineScales() {
  return One(0) + Half(2) + Fills{{4, 7, 0x01}, {8, 11, 0x02}, {12, 15, 0x21}, {6, 6, 0xc1}, {11, 11, 0x42}};
}

TEST(Dequantize, Q4_K) {
  const Block block = MakeBlock(DType::kQ4_K, AffineScales() + Fills{{16, 16, 0x5a}, {143, 143, 0x3c}});
  std::map<int, float> others = Range(224, 255, -9.0f);
  others[255] = 3.0f - 9.0f;
  others.insert({{0, 9.0f}, {32, 4.0f}, {223, 12.0f * 49.0f - 1.0f}});
  ExpectElements(DType::kQ4_K, block, -1.0f, others);
}

TEST(Dequantize, Q5_K) {
  const Block block =
      MakeBlock(DType::kQ5_K,
                AffineScales() +
                    Fills{{16, 16, 0x01}, {17, 17, 0x10}, {47, 47, 0x80}, {48, 48, 0x5a}, {175, 175, 0x3c}});
  std::map<int, float> others = Range(224, 255, -9.0f);
  others[255] = 19.0f - 9.0f;
  others.insert({{0, 25.0f}, {32, 4.0f}, {129, 15.0f}, {223, 12.0f * 49.0f - 1.0f}});
  ExpectElements(DType::kQ5_K, block, -1.0f, others);
}

TEST(Dequantize, Q6_K) {
  // q - 32; the last sub-block has scale -2.
  const Block block = MakeBlock(DType::kQ6_K, One(208) + Fills{{192, 207, 0x01},
                                                               {207, 207, 0xfe},
                                                               {0, 0, 0x5a},
                                                               {32, 32, 0x3c},
                                                               {95, 95, 0x0f},
                                                               {128, 128, 0xe4},
                                                               {191, 191, 0x01}});
  std::map<int, float> others = Range(240, 255, 64.0f);
  others.insert({{0, -22.0f}, {32, -4.0f}, {64, 5.0f}, {96, 19.0f}, {159, -1.0f}});
  ExpectElements(DType::kQ6_K, block, -32.0f, others);
}

TEST(Dequantize, HalfTypesAndF32) {
  const std::vector<uint16_t> f16 = {0x3c00, 0x0001, 0x0400, 0x7bff, 0x7c00, 0xfc00, 0x8000, 0xc500};
  const std::vector<float> want16 = {1.0f, 0x1p-24f, 0x1p-14f, 65504.0f, kInf, -kInf, -0.0f, -5.0f};
  const std::vector<uint16_t> bf16 = {0x3f80, 0x0001, 0x7f7f, 0x7f80, 0xff80, 0x8000};
  const std::vector<float> want_bf16 = {1.0f, 0x1p-133f, 0x1.fep127f, kInf, -kInf, -0.0f};
  std::vector<float> out(f16.size());
  Dequantize(DType::kF16, f16.data(), static_cast<int64_t>(f16.size()), out.data());
  for (size_t i = 0; i < f16.size(); ++i) {
    ASSERT_EQ(std::bit_cast<uint32_t>(out[i]), std::bit_cast<uint32_t>(want16[i])) << "f16 element " << i;
  }
  Dequantize(DType::kBF16, bf16.data(), static_cast<int64_t>(bf16.size()), out.data());
  for (size_t i = 0; i < bf16.size(); ++i) {
    ASSERT_EQ(std::bit_cast<uint32_t>(out[i]), std::bit_cast<uint32_t>(want_bf16[i])) << "bf16 element " << i;
  }
  const std::vector<uint32_t> f32 = {0x3f800000, 0x7f800001, 0xffc12345, 0x80000000, 1};  // NaN payloads too
  Dequantize(DType::kF32, f32.data(), static_cast<int64_t>(f32.size()), out.data());
  EXPECT_EQ(std::memcmp(out.data(), f32.data(), f32.size() * 4), 0);
}

TEST(Dequantize, NanIsKept) {
  const uint16_t f16 = 0x7e01, bf16 = 0xffc1;
  float out = 0;
  Dequantize(DType::kF16, &f16, 1, &out);
  EXPECT_EQ(std::bit_cast<uint32_t>(out), 0x7fc02000u);
  Dequantize(DType::kBF16, &bf16, 1, &out);
  EXPECT_EQ(std::bit_cast<uint32_t>(out), 0xffc10000u);
}

TEST(Dequantize, InfiniteScaleFollowsArithmetic) {
  Block block = MakeBlock(DType::kQ8_0, {{1, 1, 0x7c}, {2, 2, 1}, {3, 3, 0xff}});
  const std::vector<float> out = DequantizeAll(DType::kQ8_0, block);
  EXPECT_EQ(out[0], kInf);
  EXPECT_EQ(out[1], -kInf);
  for (size_t i = 2; i < 32; ++i) EXPECT_TRUE(std::isnan(out[i])) << i;  // inf * 0
}

TEST(Dequantize, BlocksAreIndependentOfNeighboursAndAlignment) {
  for (int t = 0; t <= static_cast<int>(DType::kQ6_K); ++t) {
    const auto type = static_cast<DType>(t);
    if (!CanDequantize(type)) continue;
    const auto size = static_cast<size_t>(BlockBytes(type));
    Block both(2 * size);
    for (size_t i = 0; i < both.size(); ++i) both[i] = static_cast<uint8_t>(i * 37 + 11);
    const std::vector<float> joint = DequantizeAll(type, both);
    std::vector<float> parts =
        DequantizeAll(type, Block(both.begin(), both.begin() + static_cast<long>(size)));
    const std::vector<float> second =
        DequantizeAll(type, Block(both.begin() + static_cast<long>(size), both.end()));
    parts.insert(parts.end(), second.begin(), second.end());
    EXPECT_EQ(std::memcmp(joint.data(), parts.data(), joint.size() * 4), 0) << DTypeName(type);
    Block shifted(1, 0);
    shifted.insert(shifted.end(), both.begin(), both.end());
    std::vector<float> out(joint.size());
    Dequantize(type, shifted.data() + 1, static_cast<int64_t>(out.size()), out.data());
    EXPECT_EQ(std::memcmp(joint.data(), out.data(), joint.size() * 4), 0) << DTypeName(type) << " unaligned";
  }
}

TEST(Dequantize, EmptyTouchesNothing) {
  for (int t = 0; t <= static_cast<int>(DType::kQ6_K); ++t) {
    if (CanDequantize(static_cast<DType>(t))) Dequantize(static_cast<DType>(t), nullptr, 0, nullptr);
  }
}

TEST(Dequantize, TypesItReads) {
  std::string names;
  for (int t = 0; t <= static_cast<int>(DType::kQ6_K); ++t) {
    if (CanDequantize(static_cast<DType>(t))) names += std::string(DTypeName(static_cast<DType>(t))) + " ";
  }
  EXPECT_EQ(names, "f32 f16 bf16 q4_0 q4_1 q5_0 q5_1 q8_0 q2_K q3_K q4_K q5_K q6_K ");
}

}  // namespace
}  // namespace snapkv::kernels::ref
