// SPDX-License-Identifier: Apache-2.0
// Tokenizer: merges, pre-tokenizers, special tokens and damaged vocabularies, on a hand-made vocabulary.
#include "runtime/text/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "runtime/text/nfc.h"
#include "runtime/text/pretokenizer.h"
#include "tests/runtime/tiny_vocabulary.h"

namespace snapkv::runtime {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Tokenizer Tiny(const std::string& pre = "gpt-2") {
  absl::StatusOr<Tokenizer> tokenizer = Tokenizer::Create(TinyVocabulary(pre));
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
  return *std::move(tokenizer);
}

std::vector<int32_t> Ids(const Tokenizer& tokenizer, const std::string& text, bool parse_special = true) {
  absl::StatusOr<std::vector<int32_t>> ids = tokenizer.Encode(text, parse_special);
  EXPECT_TRUE(ids.ok()) << ids.status() << " for " << text;
  return ids.ok() ? *ids : std::vector<int32_t>();
}

std::vector<std::string> Pieces(const std::string& pre, const std::string& text) {
  std::vector<std::string> pieces;
  const absl::StatusOr<PreTokenizer> splitter = PreTokenizer::Create(pre);
  EXPECT_TRUE(splitter.ok()) << splitter.status();
  const absl::Status status = splitter->Split(text, [&](std::string_view piece) {
    pieces.emplace_back(piece);
    return absl::OkStatus();
  });
  EXPECT_TRUE(status.ok()) << status;
  return pieces;
}

TEST(Bpe, LowestRankFirstThenLeftmost) {
  const Tokenizer tokenizer = Tiny();
  EXPECT_THAT(Ids(tokenizer, "hello"), ElementsAre(kHello));
  EXPECT_THAT(Ids(tokenizer, "hell"), ElementsAre(kHell));
  EXPECT_THAT(Ids(tokenizer, "lll"), ElementsAre(kLl, 'l'));
  EXPECT_THAT(Ids(tokenizer, "aaa"), ElementsAre(kAa, 'a'));
  EXPECT_THAT(Ids(tokenizer, "aaaaa"), ElementsAre(kAaaa, 'a'));
  // (a, a) ranks before (a, b): the pair on the left takes the middle letter.
  EXPECT_THAT(Ids(tokenizer, "aab"), ElementsAre(kAa, 'b'));
  EXPECT_THAT(Ids(tokenizer, "hello wo"), ElementsAre(kHello, kSpaceW, 'o'));
  EXPECT_THAT(Ids(tokenizer, ""), ElementsAre());
}

TEST(Bpe, ADuplicateMergeKeepsItsFirstRank) {
  TokenizerData data = TinyVocabulary();
  data.merges.push_back("a a");
  const absl::StatusOr<Tokenizer> tokenizer = Tokenizer::Create(std::move(data));
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_THAT(Ids(*tokenizer, "aab"), ElementsAre(kAa, 'b'));
}

TEST(Bpe, ABytesWithoutATokenIsDroppedBeforeMerging) {
  TokenizerData data = TinyVocabulary();
  data.tokens[4] = "unreachable";  // the byte 04 has no token now
  const absl::StatusOr<Tokenizer> tokenizer = Tokenizer::Create(std::move(data));
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_THAT(Ids(*tokenizer, "\x04"), ElementsAre());
  EXPECT_THAT(Ids(*tokenizer, "!\x04!"), ElementsAre('!', '!'));
}

// 16 MiB of one letter in one piece: seconds when merging is O(n log n), days when it is quadratic.
TEST(Bpe, AHugePieceOfOneLetter) {
  const Tokenizer tokenizer = Tiny();
  const size_t size = size_t{16} << 20;
  const auto start = std::chrono::steady_clock::now();
  const std::vector<int32_t> ids = Ids(tokenizer, std::string(size, 'a'));
  const auto seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  ASSERT_EQ(ids.size(), size / 4);
  for (size_t i = 0; i < ids.size(); ++i) ASSERT_EQ(ids[i], kAaaa) << "at " << i;
  EXPECT_LT(seconds, 120);
}

// Runs that make a backtracking pattern give characters back one by one.
TEST(PreTokenizers, LongRunsAreLinear) {
  const size_t size = size_t{4} << 20;
  for (const char* pre : {"smollm", "gpt-2", "llama-bpe", "qwen2"}) {
    for (const std::string& unit : {std::string(" "), std::string("\n"), std::string(" \n"), std::string("'"),
                                    std::string("!"), std::string("7"), std::string("\xCC\x95\xCC\x80")}) {
      std::string text;
      while (text.size() < size) text += unit;
      size_t bytes = 0;
      const absl::StatusOr<PreTokenizer> splitter = PreTokenizer::Create(pre);
      ASSERT_TRUE(splitter.ok()) << splitter.status();
      const absl::Status status = splitter->Split(text, [&](std::string_view piece) {
        bytes += piece.size();
        return absl::OkStatus();
      });
      ASSERT_TRUE(status.ok()) << pre << " '" << unit << "': " << status;
      // NFC orders the marks, which keeps their number.
      ASSERT_EQ(bytes, text.size()) << pre << " '" << unit << "'";
    }
  }
}

TEST(PreTokenizers, Gpt2) {
  EXPECT_THAT(Pieces("gpt-2", "It's 2024,  ok?\n"),
              ElementsAre("It", "'s", " 2024", ",", " ", " ok", "?", "\n"));
  EXPECT_EQ(Pieces("gpt2", "a 1  b"), Pieces("gpt-2", "a 1  b"));
}

TEST(PreTokenizers, SmolLmIsolatesDigits) {
  EXPECT_THAT(Pieces("smollm", "a 12  3b"), ElementsAre("a", " ", "1", "2", "  ", "3", "b"));
  EXPECT_THAT(Pieces("smollm", "\xC2\xB2x"), ElementsAre("\xC2\xB2", "x"));  // superscript two is \p{N}
}

TEST(PreTokenizers, Llama3TakesUpToThreeDigits) {
  EXPECT_THAT(Pieces("llama-bpe", "x 12345"), ElementsAre("x", " ", "123", "45"));
  EXPECT_THAT(Pieces("llama3", "DON'T!\n\n x"), ElementsAre("DON", "'T", "!\n\n", " x"));
}

TEST(PreTokenizers, Qwen2TakesOneDigitAndNormalises) {
  EXPECT_THAT(Pieces("qwen2", "x 12\n \ny"), ElementsAre("x", " ", "1", "2", "\n \n", "y"));
  EXPECT_THAT(Pieces("qwen2", "cafe\xCC\x81"), ElementsAre("caf\xC3\xA9"));
}

// U+180E was white space in old versions of Unicode and is in PCRE2's \s; the tokenizers do not count it.
TEST(PreTokenizers, WhiteSpaceIsTheUnicodeProperty) {
  EXPECT_THAT(Pieces("gpt-2", "a\xE1\xA0\x8E b"), ElementsAre("a", "\xE1\xA0\x8E", " b"));
  EXPECT_THAT(Pieces("gpt-2", "a\xC2\x85\xE3\x80\x80"), ElementsAre("a", "\xC2\x85\xE3\x80\x80"));
}

TEST(PreTokenizers, UnknownNamesListTheKnownOnes) {
  for (const char* pre : {"deepseek-llm", "", "default"}) {
    const auto splitter = PreTokenizer::Create(pre);
    ASSERT_FALSE(splitter.ok()) << pre;
    EXPECT_THAT(splitter.status().ToString(),
                HasSubstr("smollm, gpt-2, gpt2, llama-bpe, llama3, llama-v3, qwen2"));
    const std::string named = *pre == '\0' ? "missing" : std::string("'") + pre + "'";
    EXPECT_THAT(splitter.status().ToString(), HasSubstr(named));
  }
}

TEST(PreTokenizers, BosByDefault) {
  EXPECT_TRUE(AddsBosByDefault("llama-bpe"));
  EXPECT_FALSE(AddsBosByDefault("qwen2"));
  EXPECT_FALSE(AddsBosByDefault("unknown"));
}

// Llama 3 takes a piece that is a token as a whole even when merges would not reach it.
TEST(PreTokenizers, WholePieceFirst) {
  for (const bool whole : {false, true}) {
    TokenizerData data = TinyVocabulary(whole ? "llama-bpe" : "gpt-2");
    data.tokens.push_back("xyz");
    data.types.push_back(static_cast<int32_t>(TokenType::kNormal));
    const auto id = static_cast<int32_t>(data.tokens.size() - 1);
    const absl::StatusOr<Tokenizer> tokenizer = Tokenizer::Create(std::move(data));
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
    if (whole) {
      EXPECT_THAT(Ids(*tokenizer, "xyz"), ElementsAre(id));
    } else {
      EXPECT_THAT(Ids(*tokenizer, "xyz"), ElementsAre('x', 'y', 'z'));
    }
  }
}

TEST(Nfc, ComposesAndOrders) {
  const auto nfc = [](const std::string& text) { return NormalizeNfc(text).value(); };
  EXPECT_EQ(nfc("e\xCC\x81"), "\xC3\xA9");
  EXPECT_EQ(nfc("\xE2\x84\xAB"), "\xC3\x85");                                // Angstrom sign
  EXPECT_EQ(nfc("\xE1\x84\x92\xE1\x85\xA1\xE1\x86\xAB"), "\xED\x95\x9C");    // Hangul
  EXPECT_EQ(nfc("\xE0\xA5\x98"), "\xE0\xA4\x95\xE0\xA4\xBC");                // excluded composition
  EXPECT_EQ(nfc("x\xCC\x95\xCC\x80\xCC\xA3"), "x\xCC\xA3\xCC\x80\xCC\x95");  // classes 232 230 220
  EXPECT_EQ(nfc("a\xCC\x80\xCC\x81"), "\xC3\xA0\xCC\x81");                   // equal classes keep order
  EXPECT_TRUE(IsCertainlyNfc("caf\xC3\xA9 \xCB\xBF"));
  EXPECT_FALSE(IsCertainlyNfc("\xCC\x80"));
  EXPECT_EQ(nfc(""), "");
}

TEST(Special, ControlTokensOnlyOnRequest) {
  const Tokenizer tokenizer = Tiny();
  EXPECT_THAT(Ids(tokenizer, "a<|im_end|>b"), ElementsAre('a', kEnd, 'b'));
  EXPECT_EQ(Ids(tokenizer, "a<|im_end|>b", false).size(), 12u);
  EXPECT_THAT(Ids(tokenizer, "<tool>", false), ElementsAre(kTool));
  EXPECT_THAT(Ids(tokenizer, "<tool>", true), ElementsAre(kTool));
}

TEST(Special, LeftmostThenLongest) {
  const Tokenizer tokenizer = Tiny();
  EXPECT_THAT(Ids(tokenizer, "<|im_end|>more"), ElementsAre(kEndMore));
  EXPECT_THAT(Ids(tokenizer, "<|im_end|>mor"), ElementsAre(kEnd, 'm', 'o', 'r'));
  EXPECT_THAT(Ids(tokenizer, "<<|im_start|><tool>"), ElementsAre('<', kStart, kTool));
  EXPECT_EQ(Ids(tokenizer, "[PAD]").size(), 5u) << "unused tokens are no special tokens";
}

TEST(Special, NormalisationDoesNotCrossThem) {
  const Tokenizer tokenizer = Tiny("qwen2");
  EXPECT_THAT(Ids(tokenizer, "e<tool>\xCC\x81"), ElementsAre('e', kTool, 0xCC, 0x81));
}

TEST(Decoding, Bytes) {
  const Tokenizer tokenizer = Tiny();
  EXPECT_EQ(tokenizer.Decode({kHello, kSpaceW, kEnd, kTool, kUnused, 0xC3}).value(),
            "hello w<|im_end|><tool>\xC3");
  EXPECT_EQ(tokenizer.Decode({}).value(), "");
  for (int byte = 0; byte < 256; ++byte) {
    EXPECT_EQ(tokenizer.TokenBytes(byte), std::string(1, static_cast<char>(byte))) << byte;
  }
  EXPECT_THAT(tokenizer.Decode({1, 270}).status().ToString(), HasSubstr("token id 270 at position 1"));
  EXPECT_THAT(tokenizer.Decode({-1}).status().ToString(), HasSubstr("token id -1 at position 0"));
}

TEST(Decoding, ByteTokensAndForeignSpellings) {
  TokenizerData data = TinyVocabulary();
  data.tokens.push_back("<0x0A>");
  data.types.push_back(static_cast<int32_t>(TokenType::kByte));
  data.tokens.push_back("a b");  // a space is no symbol: the spelling stands for itself
  data.types.push_back(static_cast<int32_t>(TokenType::kNormal));
  const absl::StatusOr<Tokenizer> tokenizer = Tokenizer::Create(std::move(data));
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_EQ(tokenizer->TokenBytes(270), "\n");
  EXPECT_EQ(tokenizer->TokenBytes(271), "a b");
}

TEST(Ends, EosEotAndNamedControlTokens) {
  TokenizerData data = TinyVocabulary();
  data.eos = 'x';
  data.eot = 'y';
  const absl::StatusOr<Tokenizer> tokenizer = Tokenizer::Create(std::move(data));
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_THAT(tokenizer->end_of_generation(), ElementsAre('x', 'y', kEnd));
  EXPECT_TRUE(tokenizer->EndsGeneration(kEnd));
  EXPECT_FALSE(tokenizer->EndsGeneration(kStart));
  EXPECT_EQ(tokenizer->bos_text(), "<|im_start|>");
  EXPECT_EQ(tokenizer->FindToken("<tool>"), kTool);
  EXPECT_EQ(tokenizer->FindToken("<nothing>"), std::nullopt);
}

TEST(BadText, NamesTheByteOffset) {
  const auto ids = Tiny().Encode("ab\xFFxy", true);
  ASSERT_FALSE(ids.ok());
  EXPECT_THAT(ids.status().ToString(), HasSubstr("bad byte 0xff at offset 2"));
}

struct Damage {
  const char* name;
  std::function<void(TokenizerData*)> apply;
  const char* message;
};

TEST(BadVocabulary, IsRefusedByName) {
  const Damage damages[] = {
      {"model", [](TokenizerData* d) { d->model = "llama"; }, "tokenizer.ggml.model 'llama'"},
      {"pre", [](TokenizerData* d) { d->pre = "gemma"; }, "tokenizer.ggml.pre 'gemma'"},
      {"empty", [](TokenizerData* d) { d->tokens.clear(); }, "tokenizer.ggml.tokens is empty"},
      {"types", [](TokenizerData* d) { d->types.pop_back(); }, "token_type has 269 entries"},
      {"type", [](TokenizerData* d) { d->types[7] = 9; }, "token_type[7] is 9"},
      {"type 0", [](TokenizerData* d) { d->types[7] = 0; }, "token_type[7] is 0"},
      {"byte", [](TokenizerData* d) { d->types[65] = 6; }, "tokens[65] is a byte token"},
      {"duplicate", [](TokenizerData* d) { d->tokens[66] = "A"; }, "tokens[66] 'A' is also token 65"},
      {"merge word", [](TokenizerData* d) { d->merges[3] = "hello"; }, "merges[3] 'hello' is not two tokens"},
      {"merge three", [](TokenizerData* d) { d->merges[3] = "h e l"; }, "merges[3] 'h e l' is not two"},
      {"merge space", [](TokenizerData* d) { d->merges[3] = " e"; }, "merges[3] ' e' is not two tokens"},
      {"merge end", [](TokenizerData* d) { d->merges[3] = "e "; }, "merges[3] 'e ' is not two tokens"},
      {"merge part", [](TokenizerData* d) { d->merges[3] = "hellx o"; }, "needs the token 'hellx'"},
      {"merge result", [](TokenizerData* d) { d->merges[3] = "z z"; }, "needs the token 'zz'"},
      {"bos", [](TokenizerData* d) { d->bos = 270; }, "bos_token_id is 270 but the vocabulary has 270"},
      {"eos", [](TokenizerData* d) { d->eos = -1; }, "eos_token_id is -1"},
      {"eot", [](TokenizerData* d) { d->eot = 1 << 30; }, "eot_token_id is 1073741824"},
      {"pad", [](TokenizerData* d) { d->pad = 999; }, "padding_token_id is 999"},
      {"unk", [](TokenizerData* d) { d->unk = 999; }, "unknown_token_id is 999"},
      {"add_bos", [](TokenizerData* d) { d->bos.reset(), d->add_bos = true; }, "add_bos_token is set"},
      {"add_eos", [](TokenizerData* d) { d->eos.reset(), d->add_eos = true; }, "add_eos_token is set"},
      {"long", [](TokenizerData* d) { d->tokens[kTool].assign(1025, 'x'); }, "has 1025 bytes"},
  };
  for (const Damage& damage : damages) {
    TokenizerData data = TinyVocabulary();
    damage.apply(&data);
    const absl::StatusOr<Tokenizer> tokenizer = Tokenizer::Create(std::move(data));
    ASSERT_FALSE(tokenizer.ok()) << damage.name;
    EXPECT_EQ(tokenizer.status().code(), absl::StatusCode::kInvalidArgument) << damage.name;
    EXPECT_THAT(tokenizer.status().ToString(), HasSubstr(damage.message)) << damage.name;
  }
}

TEST(Vocabulary, WithoutTypesAllTokensAreNormal) {
  TokenizerData data = TinyVocabulary();
  data.types.clear();
  const absl::StatusOr<Tokenizer> tokenizer = Tokenizer::Create(std::move(data));
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_EQ(Ids(*tokenizer, "<tool>").size(), 6u);
}

TEST(Vocabulary, HolesAreAllowed) {
  TokenizerData data = TinyVocabulary();
  data.tokens[200].clear();
  data.tokens[201].clear();
  const absl::StatusOr<Tokenizer> tokenizer = Tokenizer::Create(std::move(data));
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_EQ(tokenizer->TokenBytes(200), "");
}

}  // namespace
}  // namespace snapkv::runtime
