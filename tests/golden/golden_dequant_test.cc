// SPDX-License-Identifier: Apache-2.0
// Golden dequant.safetensors: every TYPE.raw dequantises to TYPE.f32, bit for bit.
#include <gtest/gtest.h>
#include <strings.h>

#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include "kernels/ref/dequantize.h"
#include "runtime/model/safetensors.h"
#include "tests/support/golden.h"
#include "tests/support/tensors.h"

namespace snapkv {
namespace {

std::optional<DType> TypeNamed(const std::string& name) {
  for (int t = 0; t <= static_cast<int>(DType::kQ6_K); ++t) {
    const auto type = static_cast<DType>(t);
    if (strcasecmp(DTypeName(type), name.c_str()) == 0) return type;
  }
  return std::nullopt;
}

void Compare(const runtime::SafetensorsFile& file, const std::string& name, DType type) {
  const auto raw = file.tensor(name + ".raw"), want = file.tensor(name + ".f32");
  ASSERT_TRUE(raw.ok()) << raw.status();
  ASSERT_TRUE(want.ok()) << want.status();
  ASSERT_EQ(raw->dtype, DType::kU8) << name;
  ASSERT_EQ(raw->bytes() % BlockBytes(type), 0) << name;
  const int64_t elements = raw->bytes() / BlockBytes(type) * BlockElements(type);
  ASSERT_GT(elements, 0) << name;
  ASSERT_EQ(want->elements(), elements) << name;
  const testing::TestTensor got(DType::kF32, {want->dim(0), want->dim(1)});
  kernels::ref::Dequantize(type, raw->data, elements, got.as<float>());
  testing::ExpectEqualBits(got, *want, name);
}

TEST(GoldenDequant, EveryTypeBitForBit) {
  const auto path = testing::GoldenFile("dequant.safetensors");
  ASSERT_TRUE(path.ok()) << path.status();
  const auto file = runtime::SafetensorsFile::Open(*path);
  ASSERT_TRUE(file.ok()) << file.status();
  int compared = 0;
  for (const std::string& key : file->names()) {
    if (!key.ends_with(".raw")) continue;
    const std::string name = key.substr(0, key.size() - 4);
    const std::optional<DType> type = TypeNamed(name);
    ASSERT_TRUE(type && kernels::ref::CanDequantize(*type)) << *path << ": no DType for " << name;
    Compare(*file, name, *type);
    ++compared;
  }
  std::printf("golden: %d types of %s compared\n", compared, path->c_str());
  ASSERT_GT(compared, 0) << *path << ": holds no case";
}

}  // namespace
}  // namespace snapkv
