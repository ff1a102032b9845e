// SPDX-License-Identifier: Apache-2.0
// What the contract tests of the ops share: streams, parameters, and the unit roundoffs their bounds use.
#pragma once

#include <string>
#include <tuple>
#include <vector>

#include "kernels/base/status.h"
#include "tests/kernels/host_tensor.h"

namespace snapkv::kernels {

inline constexpr DType kF32 = DType::kF32, kBF16 = DType::kBF16, kF64 = DType::kF64;
inline constexpr Stream kRefStream = {Device::kRef, 1};
inline constexpr Stream kCpuStream = {Device::kCpu, 2};

// Unit roundoffs: |fl(x) - x| <= u |x|. f32 has 24 bits of significand, bf16 has 8.
inline constexpr double kU32 = 0x1p-24, kU16 = 0x1p-8;
// The relative error of the stored result.
constexpr double Roundoff(DType t) { return t == kBF16 ? kU16 : t == kF32 ? kU32 : 0.0; }

// Token counts that are empty, single, odd, and one below and above a vector, a tile and a key block.
inline constexpr int64_t kTokens[] = {0, 1, 2, 7, 16, 31, 32, 33, 63, 64, 65, 127, 129};
inline constexpr int64_t kHeadDims[] = {8, 64, 80, 96, 128, 256};
inline constexpr int64_t kGroups[] = {1, 3, 7, 8};

// A test of one device and compute type.
using OpParam = std::tuple<Device, DType>;
class OpTest : public ::testing::TestWithParam<OpParam> {
 protected:
  static constexpr uint64_t kSeed = 20240501;
  Stream stream() const { return std::get<0>(GetParam()) == Device::kRef ? kRefStream : kCpuStream; }
  DType dtype() const { return std::get<1>(GetParam()); }
  HostTensor Normal(DType dtype, std::vector<int64_t> shape, double sigma = 1.0, int64_t gap = 0) {
    return HostTensor::Normal(dtype, std::move(shape), rng_, sigma, gap);
  }
  std::mt19937_64 rng_{kSeed};
  ::testing::ScopedTrace trace_{__FILE__, __LINE__, "seed " + std::to_string(kSeed)};
};

inline std::string OpParamName(const ::testing::TestParamInfo<OpParam>& info) {
  return std::string(DeviceName(std::get<0>(info.param))) + "_" + DTypeName(std::get<1>(info.param));
}
inline auto DevicesAndDTypes() {
  return ::testing::Combine(::testing::Values(Device::kRef, Device::kCpu), ::testing::Values(kF32, kBF16));
}

// `values` as a row, for messages: "3, 64, 5".
template <class... T>
std::string Case(const T&... values) {
  std::string text;
  ((text += (text.empty() ? "" : ", ") + std::to_string(values)), ...);
  return text;
}

#define ASSERT_OK(expression)                            \
  do {                                                   \
    const absl::Status snapkv_ok = (expression);         \
    ASSERT_TRUE(snapkv_ok.ok()) << snapkv_ok.ToString(); \
  } while (false)

}  // namespace snapkv::kernels
