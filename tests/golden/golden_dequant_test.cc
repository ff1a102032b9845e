// SPDX-License-Identifier: Apache-2.0
// Golden dequant.safetensors: every TYPE.raw dequantises to TYPE.f32, bit for bit.
#include <gtest/gtest.h>
#include <strings.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "kernels/ref/dequantize.h"

namespace snapkv {
namespace {

std::string GoldenFolder() {
  if (const char* folder = std::getenv("SNAPKV_GOLDEN")) return folder;
  const std::string source = SNAPKV_SOURCE_DIR;
  const std::string shared = source + "/../shared/golden";
  return std::filesystem::is_directory(shared) ? shared : source + "/tests/golden";
}

std::optional<DType> TypeNamed(const std::string& name) {
  for (int t = 0; t <= static_cast<int>(DType::kQ6_K); ++t) {
    const auto type = static_cast<DType>(t);
    if (strcasecmp(DTypeName(type), name.c_str()) == 0) return type;
  }
  return std::nullopt;
}

// The file's JSON header and the bytes behind it.
struct Safetensors {
  nlohmann::json header;
  std::string data;

  std::string Bytes(const std::string& name) const {
    const auto& offsets = header.at(name).at("data_offsets");
    const auto begin = offsets.at(0).get<size_t>();
    return data.substr(begin, offsets.at(1).get<size_t>() - begin);
  }
};

Safetensors ReadFile(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::string bytes{std::istreambuf_iterator<char>(in), {}};
  Safetensors file;
  uint64_t length = 0;
  if (bytes.size() < sizeof length) return file;
  std::memcpy(&length, bytes.data(), sizeof length);
  if (length > bytes.size() - sizeof length) return file;
  file.header = nlohmann::json::parse(bytes.substr(sizeof length, length));
  file.data = bytes.substr(sizeof length + length);
  return file;
}

void Compare(const Safetensors& file, const std::string& name, DType type) {
  const std::string raw = file.Bytes(name + ".raw"), want = file.Bytes(name + ".f32");
  const auto blocks = static_cast<int64_t>(raw.size()) / BlockBytes(type);
  const int64_t elements = blocks * BlockElements(type);
  ASSERT_GT(elements, 0) << name;
  ASSERT_EQ(raw.size() % static_cast<size_t>(BlockBytes(type)), 0u) << name;
  ASSERT_EQ(want.size(), static_cast<size_t>(elements) * sizeof(float)) << name;
  std::vector<float> got(static_cast<size_t>(elements));
  kernels::ref::Dequantize(type, raw.data(), elements, got.data());
  for (size_t i = 0; i < got.size(); ++i) {
    uint32_t got_bits = 0, want_bits = 0;
    std::memcpy(&got_bits, &got[i], sizeof got_bits);
    std::memcpy(&want_bits, want.data() + i * sizeof(float), sizeof want_bits);
    ASSERT_EQ(got_bits, want_bits) << name << " block " << i / static_cast<size_t>(BlockElements(type))
                                   << " element " << i % static_cast<size_t>(BlockElements(type)) << ": "
                                   << got[i];
  }
}

TEST(GoldenDequant, EveryTypeBitForBit) {
  const std::string path = GoldenFolder() + "/dequant.safetensors";
  const Safetensors file = ReadFile(path);
  ASSERT_TRUE(file.header.is_object()) << path << ": cannot be read";
  int compared = 0;
  for (const auto& [key, entry] : file.header.items()) {
    if (!key.ends_with(".raw")) continue;
    const std::string name = key.substr(0, key.size() - 4);
    const std::optional<DType> type = TypeNamed(name);
    ASSERT_TRUE(type && kernels::ref::CanDequantize(*type)) << path << ": no DType for " << name;
    Compare(file, name, *type);
    ++compared;
  }
  std::printf("golden: %d types of %s compared\n", compared, path.c_str());
  ASSERT_GT(compared, 0) << path << ": holds no case";
}

}  // namespace
}  // namespace snapkv
