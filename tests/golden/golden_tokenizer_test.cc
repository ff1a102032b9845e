// SPDX-License-Identifier: Apache-2.0
// Golden tokenizer_*.jsonl: every text encodes to exactly its ids, and its ids decode to exactly their text.
#include <gtest/gtest.h>

#include <cstdio>
#include <string>
#include <vector>

#include "runtime/text/byte_level.h"
#include "runtime/text/tokenizer.h"
#include "runtime/text/utf8.h"
#include "tests/golden/golden_text.h"
#include "tests/support/golden.h"

namespace snapkv {
namespace {

void Compare(const runtime::Tokenizer& tokenizer, const nlohmann::json& record, const std::string& where) {
  const std::string text = record.at("text");
  const auto want = record.at("ids").get<std::vector<int32_t>>();
  const bool parse_special = record.at("parse_special");
  const auto got = tokenizer.Encode(text, parse_special);
  ASSERT_TRUE(got.ok()) << where << ": " << got.status();
  EXPECT_EQ(testing::FirstDifference(*got, want), "") << where << ", text " << record.at("text");

  if (record.contains("same_without_special")) {
    const auto plain = tokenizer.Encode(text, false);
    ASSERT_TRUE(plain.ok()) << where << ": " << plain.status();
    EXPECT_EQ(*plain == want, record.at("same_without_special").get<bool>())
        << where << ": without special tokens, text " << record.at("text");
  }

  const auto bytes = tokenizer.Decode(want);
  ASSERT_TRUE(bytes.ok()) << where << ": " << bytes.status();
  EXPECT_EQ(*bytes == text, record.at("roundtrip").get<bool>())
      << where << ": round trip of " << record.at("text");
  if (record.contains("decoded")) {
    EXPECT_EQ(runtime::ReplaceInvalidUtf8(*bytes), record.at("decoded").get<std::string>()) << where;
  }
}

void CompareFile(const runtime::Tokenizer& tokenizer, const std::string& name) {
  const auto path = testing::GoldenFile(name);
  ASSERT_TRUE(path.ok()) << path.status();
  const auto records = testing::LoadJsonLines(*path);
  ASSERT_TRUE(records.ok()) << records.status();
  for (size_t i = 0; i < records->size(); ++i) {
    Compare(tokenizer, (*records)[i], absl::StrCat(name, " line ", i + 1));
  }
  std::printf("golden: %zu texts of %s compared\n", records->size(), path->c_str());
  ASSERT_GT(records->size(), 0u) << *path << " holds no case";
}

TEST(GoldenTokenizer, SmolLm2) {
  const auto tokenizer = testing::SmolLm2Tokenizer();
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  CompareFile(*tokenizer, "tokenizer_smollm2.jsonl");
}

// A text with a byte that has no token loses it silently, as with the original tokenizer.
TEST(GoldenTokenizer, SmolLm2LacksTwentyOneBytes) {
  const auto tokenizer = testing::SmolLm2Tokenizer();
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  std::vector<int> missing;
  for (int byte = 0; byte < 256; ++byte) {
    const std::string text(1, static_cast<char>(byte));
    if (tokenizer->FindToken(runtime::BytesToSymbols(text))) continue;
    missing.push_back(byte);
    if (byte >= 0x80) continue;
    const auto ids = tokenizer->Encode("!" + text + "!", true);
    ASSERT_TRUE(ids.ok()) << ids.status();
    EXPECT_EQ(testing::FirstDifference(*ids, *tokenizer->Encode("!!", true)), "") << "byte " << byte;
  }
  EXPECT_EQ(missing, (std::vector<int>{0x04, 0x06, 0x13, 0x14, 0x16, 0x1d, 0xc0, 0xc1, 0xf1, 0xf2, 0xf5,
                                       0xf6, 0xf7, 0xf8, 0xf9, 0xfa, 0xfb, 0xfc, 0xfd, 0xfe, 0xff}));
}

void CompareQwen2(const std::string& name) {
  const auto tokenizer = testing::Qwen2Tokenizer();
  if (absl::IsUnavailable(tokenizer.status())) GTEST_SKIP() << tokenizer.status();
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  CompareFile(*tokenizer, name);
}

TEST(GoldenTokenizer, Qwen2) { CompareQwen2("tokenizer_qwen2.jsonl"); }

// Texts on which llama.cpp gives other ids; `ids` are the original tokenizer's.
TEST(GoldenTokenizer, Qwen2WhereOthersDisagree) { CompareQwen2("tokenizer_qwen2_disagreements.jsonl"); }

}  // namespace
}  // namespace snapkv
