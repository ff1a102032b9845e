// SPDX-License-Identifier: Apache-2.0
// Golden chat_*.jsonl: every conversation renders to exactly its text, and that text encodes to exactly its
// ids.
#include <gtest/gtest.h>

#include <cstdio>
#include <string>
#include <vector>

#include "runtime/text/chat_template.h"
#include "runtime/text/tokenizer.h"
#include "tests/golden/golden_text.h"
#include "tests/support/golden.h"

namespace snapkv {
namespace {

void Compare(const runtime::Tokenizer& tokenizer, const runtime::ChatTemplate& chat,
             const nlohmann::json& record, const std::string& where) {
  std::vector<runtime::ChatMessage> messages;
  for (const auto& message : record.at("messages")) {
    ASSERT_EQ(message.size(), 2u) << where << ": a message has more than role and content";
    messages.push_back({message.at("role"), message.at("content")});
  }
  const auto rendered =
      chat.Render(messages, record.at("add_generation_prompt"), tokenizer.bos_text(), tokenizer.eos_text());
  ASSERT_TRUE(rendered.ok()) << where << ": " << rendered.status();
  EXPECT_EQ(*rendered, record.at("rendered").get<std::string>()) << where;
  const auto ids = tokenizer.Encode(*rendered, /*parse_special=*/true);
  ASSERT_TRUE(ids.ok()) << where << ": " << ids.status();
  EXPECT_EQ(testing::FirstDifference(*ids, record.at("ids").get<std::vector<int32_t>>()), "") << where;
}

void CompareFile(const runtime::Tokenizer& tokenizer, const std::string& name) {
  const auto chat = runtime::ChatTemplate::Parse(tokenizer.chat_template());
  ASSERT_TRUE(chat.ok()) << chat.status();
  const auto path = testing::GoldenFile(name);
  ASSERT_TRUE(path.ok()) << path.status();
  const auto records = testing::LoadJsonLines(*path);
  ASSERT_TRUE(records.ok()) << records.status();
  for (size_t i = 0; i < records->size(); ++i) {
    Compare(tokenizer, *chat, (*records)[i], absl::StrCat(name, " line ", i + 1));
  }
  std::printf("golden: %zu conversations of %s compared\n", records->size(), path->c_str());
  ASSERT_GT(records->size(), 0u) << *path << " holds no case";
}

TEST(GoldenChat, SmolLm2) {
  const auto tokenizer = testing::SmolLm2Tokenizer();
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  CompareFile(*tokenizer, "chat_smollm2.jsonl");
}

TEST(GoldenChat, Qwen2) {
  const auto tokenizer = testing::Qwen2Tokenizer();
  if (absl::IsUnavailable(tokenizer.status())) GTEST_SKIP() << tokenizer.status();
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  CompareFile(*tokenizer, "chat_qwen2.jsonl");
}

}  // namespace
}  // namespace snapkv
