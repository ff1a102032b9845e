// SPDX-License-Identifier: Apache-2.0
// Damaged GGUF files, made by the thousand: each is refused with a message or opens as a file that can be
// read completely. Worth most under AddressSanitizer.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "runtime/model/gguf.h"
#include "tests/support/gguf_visit.h"
#include "tests/support/gguf_writer.h"

namespace snapkv::runtime {
namespace {

using snapkv::testing::GgufWriter;
using snapkv::testing::SampleGguf;
using snapkv::testing::VisitGguf;

// Opens the first `size` of `bytes` from a block of exactly that size, so that one byte too far is seen.
// Returns whether it opened; a refusal must name the file and say something.
bool Survives(const std::vector<uint8_t>& bytes, size_t size) {
  const std::unique_ptr<uint8_t[]> exact(new uint8_t[size]);
  std::memcpy(exact.get(), bytes.data(), size);
  const auto file = GgufFile::OpenMemory({exact.get(), size}, "damaged.gguf");
  if (file.ok()) {
    VisitGguf(*file);
    return true;
  }
  const std::string message(file.status().message());
  EXPECT_EQ(message.rfind("damaged.gguf: ", 0), 0u) << message;
  EXPECT_GT(message.size(), 30u) << message;
  return false;
}

// Few and small values and tensors, so that every byte can be tried with every value.
GgufWriter SmallGguf() {
  GgufWriter writer;
  writer.SetAlignment(16).Add("u", uint16_t{7}).Add("s", "ab").Add("b", true);
  writer.Add("i", std::vector<int16_t>{1, 2}).Add("l", std::vector<std::string>{"x", "", "yz"});
  writer.AddTensor<float>("f", {2, 2}, {1, 2, 3, 4});
  writer.AddTensor("q", DType::kQ4_0, {1, 32}, std::string(18, '\x11'));
  writer.AddTensor("h", DType::kF16, {1, 2, 2}, std::string(8, '\x22'));
  return writer;
}

TEST(GgufDamage, EveryTruncationIsRefused) {
  for (const GgufWriter& writer : {SmallGguf(), SampleGguf(2), SampleGguf(3)}) {
    const std::vector<uint8_t> bytes = writer.Bytes();
    ASSERT_TRUE(Survives(bytes, bytes.size()));
    // Every length that cuts the header, then steps through the data: no byte follows the last tensor.
    for (size_t size = 0; size < bytes.size(); size += size < writer.header_bytes() + 64 ? 1 : 97) {
      ASSERT_FALSE(Survives(bytes, size)) << size << " of " << bytes.size() << " bytes open";
    }
    ASSERT_FALSE(Survives(bytes, bytes.size() - 1));
  }
}

TEST(GgufDamage, EveryValueOfEveryHeaderByte) {
  const GgufWriter writer = SmallGguf();
  const std::vector<uint8_t> good = writer.Bytes();
  int opened = 0, refused = 0;
  for (size_t at = 0; at < writer.header_bytes(); ++at) {
    std::vector<uint8_t> bytes = good;
    for (int flip = 1; flip < 256; ++flip) {
      bytes[at] = static_cast<uint8_t>(good[at] ^ flip);
      ++(Survives(bytes, bytes.size()) ? opened : refused);
    }
  }
  std::printf("%d damaged files: %d refused, %d opened (another name, value or shape)\n", opened + refused,
              refused, opened);
  EXPECT_GT(refused, 0);
  EXPECT_GT(opened, 0);
}

TEST(GgufDamage, ExtremeNumbersAtEveryOffset) {
  const GgufWriter writer = SampleGguf();
  const std::vector<uint8_t> good = writer.Bytes();
  const std::vector<uint64_t> extremes = {0,
                                          1,
                                          0x7fffffff,
                                          0x80000000,
                                          0xffffffff,
                                          0x7fffffffffffffff,
                                          0x8000000000000000,
                                          0xffffffffffffffff,
                                          0xffffffffffffffe0,
                                          good.size(),
                                          good.size() - 32};
  for (size_t at = 0; at + 8 <= writer.header_bytes(); ++at) {
    for (const uint64_t value : extremes) {
      for (const size_t width : {4u, 8u}) {
        std::vector<uint8_t> bytes = good;
        std::memcpy(bytes.data() + at, &value, width);
        Survives(bytes, bytes.size());
      }
    }
  }
}

TEST(GgufDamage, RandomMutations) {
  const GgufWriter writer = SmallGguf();
  const std::vector<uint8_t> good = writer.Bytes();
  constexpr uint32_t kSeed = 20240607;
  std::mt19937 random(kSeed);
  std::printf("seed %u\n", kSeed);
  for (int round = 0; round < 20000; ++round) {
    std::vector<uint8_t> bytes = good;
    for (uint32_t i = 0; i < 1 + random() % 4; ++i) {
      bytes[random() % writer.header_bytes()] =
          static_cast<uint8_t>(random() % 4 == 0 ? random() : random() % 16);
    }
    if (random() % 4 == 0) bytes.erase(bytes.begin() + static_cast<long>(random() % bytes.size()));
    Survives(bytes, bytes.size());
  }
}

// The same through the file system: what the mapping gives must end where the file does, also on a page's
// edge.
TEST(GgufDamage, FolderOfDamagedFiles) {
  std::string folder = ::testing::TempDir() + "/gguf_damage_XXXXXX";
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  const std::vector<uint8_t> good = SampleGguf().Bytes();
  const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  ASSERT_GT(good.size(), page);
  std::vector<std::vector<uint8_t>> files;
  for (const size_t size : {size_t{0}, size_t{1}, size_t{4}, size_t{23}, size_t{24}, size_t{100}, page - 1,
                            page, page + 1, good.size() / page * page, good.size() - 1}) {
    files.emplace_back(good.begin(), good.begin() + static_cast<long>(size));
  }
  files.emplace_back(good.size(), uint8_t{0});
  files.emplace_back(page, uint8_t{0xff});
  files.push_back(good);
  std::memset(files.back().data() + 8, 0xff, 16);  // both counts
  files.push_back(good);
  files.back().erase(files.back().begin() + 40);
  for (size_t i = 0; i < files.size(); ++i) {
    const std::string path = folder + "/" + std::to_string(i) + ".gguf";
    std::ofstream out(path, std::ios::binary);
    out.write(reinterpret_cast<const char*>(files[i].data()), static_cast<std::streamsize>(files[i].size()));
    out.close();
    ASSERT_TRUE(out.good()) << path;
  }
  size_t refused = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const absl::Status status = GgufFile::Open(entry.path()).status();
    EXPECT_FALSE(status.ok()) << entry.path();
    EXPECT_EQ(std::string(status.message()).rfind(entry.path().string() + ": ", 0), 0u) << status;
    ++refused;
  }
  EXPECT_EQ(refused, files.size());
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace snapkv::runtime
