// SPDX-License-Identifier: Apache-2.0
// 16 MiB of what hurts tokenizers, with the vocabulary of a real model: tokenizer_hostile_test smollm2|qwen2.
// Quadratic work would take days; the entry's time-out tells.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "runtime/model/gguf.h"
#include "runtime/model/tokenizer_from_gguf.h"
#include "runtime/text/nfc.h"
#include "tests/support/golden.h"

namespace snapkv::testing {
namespace {

#ifdef __SANITIZE_ADDRESS__
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

constexpr size_t kFullBytes = size_t{16} << 20;
constexpr size_t kBytes = kSanitized ? size_t{1} << 20 : kFullBytes;
constexpr size_t kMaxMemoryKib = size_t{1} << 20;  // of the whole process

std::string model;  // smollm2 | qwen2

struct Hostile {
  const char* name;
  const char* unit;
  // Ids of 16 MiB. What one heap of all candidates gave, the implementation before the queue of buckets.
  size_t smollm2_ids;
  size_t qwen2_ids;
};

constexpr Hostile kTexts[] = {
    {"letter", "a", 4194304, 2097152},
    {"letters", "ab", 8388608, 8388608},
    {"word", "thethe", 5592406, 5592406},
    {"spaces", " ", 262144, 131072},
    {"newlines", "\n", 4194304, 524288},
    {"tabs", "\t", 2097152, 1048576},
    {"crlf", "\r\n", 4194304, 2097152},
    {"digits", "7", 16777216, 16777216},
    {"bangs", "!", 4194304, 2097152},
    {"suffixes", "'s", 8388608, 8388608},
    {"marks", "\xCC\x81", 16777216, 8388608},
    {"marks out of order", "\xCC\x95\xCC\x80\xCC\xA3", 16777218, 13981015},
    {"letter and mark", "a\xCC\x81", 16777218, 5592406},
    {"emoji joined", "\xF0\x9F\x91\xA9\xE2\x80\x8D", 11983730, 7190238},
    {"special token", "<|im_end|>", 1677722, 1677722},
    {"begin of a special token", "<|im_en", 11983730, 9586984},
};

std::string ModelFile() {
  if (model == "smollm2") {
    const auto path = ModelPath();
    return path.ok() ? *path : "";
  }
  const char* given = std::getenv("SNAPKV_QWEN_GGUF");
  if (given != nullptr && *given != '\0') return given;
  const char* home = std::getenv("HOME");
  return std::string(home == nullptr ? "" : home) + "/.cache/snapkv/models/qwen2.5-coder-0.5b-instruct.gguf";
}

size_t PeakMemoryKib() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmHWM:")) return std::stoul(line.substr(6));
  }
  return 0;
}

TEST(HostileText, TokenizesInProportionToItsSize) {
  const std::string path = ModelFile();
  if (!std::filesystem::exists(path)) {
    GTEST_SKIP() << "no vocabulary of " << model << (path.empty() ? "" : ": there is no " + path);
  }
  const auto file = runtime::GgufFile::Open(path);
  ASSERT_TRUE(file.ok()) << file.status();
  const auto tokenizer = runtime::TokenizerFromGguf(*file);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  for (const Hostile& hostile : kTexts) {
    SCOPED_TRACE(hostile.name);
    std::string text;
    while (text.size() < kBytes) text += hostile.unit;
    const auto ids = tokenizer->Encode(text, /*parse_special=*/true);
    ASSERT_TRUE(ids.ok()) << ids.status();
    if (kBytes == kFullBytes) {
      EXPECT_EQ(ids->size(), model == "smollm2" ? hostile.smollm2_ids : hostile.qwen2_ids);
    }
    if (model == "qwen2") text = runtime::NormalizeNfc(text).value();
    EXPECT_TRUE(tokenizer->Decode(*ids).value() == text) << "the ids spell another text";
  }
  const size_t peak = PeakMemoryKib();
  std::printf("peak memory %zu MiB for %zu MiB of text\n", peak >> 10, kBytes >> 20);
  ASSERT_GT(peak, 0u);
  EXPECT_LT(peak, kSanitized ? 4 * kMaxMemoryKib : kMaxMemoryKib);
}

}  // namespace
}  // namespace snapkv::testing

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  if (argc != 2) {
    std::fprintf(stderr, "usage: tokenizer_hostile_test smollm2|qwen2\n");
    return 2;
  }
  snapkv::testing::model = argv[1];
  return RUN_ALL_TESTS();
}
