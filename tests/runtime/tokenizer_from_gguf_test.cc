// SPDX-License-Identifier: Apache-2.0
// The tokenizer keys of a GGUF file: all of them, their defaults, and what a refusal says.
#include "runtime/model/tokenizer_from_gguf.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "kernels/base/status.h"
#include "tests/runtime/tiny_vocabulary.h"
#include "tests/support/gguf_writer.h"

namespace snapkv::runtime {
namespace {

using snapkv::testing::GgufWriter;
using ::testing::AllOf;
using ::testing::HasSubstr;

GgufWriter Vocabulary(const std::string& pre) {
  const TokenizerData tiny = TinyVocabulary(pre);
  GgufWriter writer;
  writer.Add("tokenizer.ggml.model", tiny.model).Add("tokenizer.ggml.pre", pre);
  writer.Add("tokenizer.ggml.tokens", tiny.tokens).Add("tokenizer.ggml.token_type", tiny.types);
  writer.Add("tokenizer.ggml.merges", tiny.merges);
  return writer;
}

absl::StatusOr<TokenizerData> Read(const GgufWriter& writer) {
  const std::vector<uint8_t> bytes = writer.Bytes();
  ASSIGN_OR_RETURN(const GgufFile file, GgufFile::OpenMemory(bytes, "x.gguf"));
  return TokenizerDataFromGguf(file);
}

absl::Status CreateError(const GgufWriter& writer) {
  const std::vector<uint8_t> bytes = writer.Bytes();
  ASSIGN_OR_RETURN(const GgufFile file, GgufFile::OpenMemory(bytes, "x.gguf"));
  return TokenizerFromGguf(file).status();
}

TEST(TokenizerFromGguf, ReadsEveryKey) {
  GgufWriter writer = Vocabulary("smollm");
  writer.Add("tokenizer.ggml.bos_token_id", uint32_t{1}).Add("tokenizer.ggml.eos_token_id", uint32_t{2});
  writer.Add("tokenizer.ggml.eot_token_id", uint32_t{3}).Add("tokenizer.ggml.padding_token_id", uint32_t{4});
  writer.Add("tokenizer.ggml.unknown_token_id", uint32_t{5}).Add("tokenizer.chat_template", "{{ x }}");
  writer.Add("tokenizer.ggml.add_bos_token", true).Add("tokenizer.ggml.add_eos_token", true);
  const absl::StatusOr<TokenizerData> data = Read(writer);
  ASSERT_TRUE(data.ok()) << data.status();
  const TokenizerData tiny = TinyVocabulary();
  EXPECT_EQ(data->model, "gpt2");
  EXPECT_EQ(data->pre, "smollm");
  EXPECT_EQ(data->tokens, tiny.tokens);
  EXPECT_EQ(data->types, tiny.types);
  EXPECT_EQ(data->merges, tiny.merges);
  EXPECT_EQ(data->bos, 1);
  EXPECT_EQ(data->eos, 2);
  EXPECT_EQ(data->eot, 3);
  EXPECT_EQ(data->pad, 4);
  EXPECT_EQ(data->unk, 5);
  EXPECT_TRUE(data->add_bos);
  EXPECT_TRUE(data->add_eos);
  EXPECT_EQ(data->chat_template, "{{ x }}");
  EXPECT_TRUE(CreateError(writer).ok()) << CreateError(writer);
}

TEST(TokenizerFromGguf, Defaults) {
  const absl::StatusOr<TokenizerData> data = Read(Vocabulary("qwen2"));
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_FALSE(data->bos || data->eos || data->eot || data->pad || data->unk);
  EXPECT_FALSE(data->add_bos || data->add_eos);
  EXPECT_EQ(data->chat_template, "");
}

// Llama 3 files without the key add BOS, if there is one; the key wins.
TEST(TokenizerFromGguf, Llama3AddsBosByDefault) {
  EXPECT_FALSE(Read(Vocabulary("llama-bpe")).value().add_bos);
  GgufWriter writer = Vocabulary("llama-bpe");
  writer.Add("tokenizer.ggml.bos_token_id", uint32_t{1});
  EXPECT_TRUE(Read(writer).value().add_bos);
  writer.Add("tokenizer.ggml.add_bos_token", false);
  EXPECT_FALSE(Read(writer).value().add_bos);
}

TEST(TokenizerFromGguf, ErrorsNameFileAndKey) {
  EXPECT_THAT(Read(GgufWriter()).status().ToString(),
              AllOf(HasSubstr("x.gguf"), HasSubstr("tokenizer.ggml.model")));
  GgufWriter no_tokens;
  no_tokens.Add("tokenizer.ggml.model", "gpt2");
  EXPECT_THAT(Read(no_tokens).status().ToString(), HasSubstr("tokenizer.ggml.tokens"));
  GgufWriter no_merges;
  no_merges.Add("tokenizer.ggml.model", "gpt2").Add("tokenizer.ggml.tokens", std::vector<std::string>{"a"});
  EXPECT_THAT(Read(no_merges).status().ToString(), HasSubstr("tokenizer.ggml.merges"));
  GgufWriter huge_id = Vocabulary("qwen2");
  huge_id.Add("tokenizer.ggml.eos_token_id", uint32_t{0xFFFFFFFF});
  EXPECT_THAT(Read(huge_id).status().ToString(), HasSubstr("tokenizer.ggml.eos_token_id"));
  EXPECT_THAT(CreateError(Vocabulary("gemma")).ToString(),
              AllOf(HasSubstr("'x.gguf': "), HasSubstr("'gemma'")));
  GgufWriter other;
  other.Add("tokenizer.ggml.model", "llama").Add("tokenizer.ggml.tokens", std::vector<std::string>{"a"});
  EXPECT_THAT(CreateError(other).ToString(),
              AllOf(HasSubstr("x.gguf"), HasSubstr("tokenizer.ggml.model 'llama'")));
}

}  // namespace
}  // namespace snapkv::runtime
