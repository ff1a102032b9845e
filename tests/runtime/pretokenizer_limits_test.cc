// SPDX-License-Identifier: Apache-2.0
// PCRE2's limits: an error with the byte, never a crash; and today's patterns do not come near them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "runtime/text/pretokenizer.h"

namespace snapkv::runtime {
namespace {

using ::testing::HasSubstr;

constexpr const char* kNames[] = {"smollm", "gpt-2", "llama-bpe", "qwen2"};

std::string Repeated(const std::string& unit, size_t size) {
  std::string text;
  while (text.size() < size) text += unit;
  return text;
}

absl::StatusOr<std::vector<std::string>> Pieces(const PreTokenizer& splitter, const std::string& text) {
  std::vector<std::string> pieces;
  const absl::Status status = splitter.Split(text, [&](std::string_view piece) {
    pieces.emplace_back(piece);
    return absl::OkStatus();
  });
  if (!status.ok()) return status;
  return pieces;
}

absl::StatusOr<std::vector<std::string>> Pieces(const std::string& name, const PreTokenizerLimits& limits,
                                                const std::string& text, const std::string& pattern = "") {
  const auto splitter = PreTokenizer::CreateForTest(name, limits, pattern);
  EXPECT_TRUE(splitter.ok()) << splitter.status();
  return Pieces(*splitter, text);
}

void ExpectExhausted(const absl::StatusOr<std::vector<std::string>>& result, const std::string& message) {
  EXPECT_EQ(result.status().code(), absl::StatusCode::kResourceExhausted) << result.status();
  EXPECT_THAT(std::string(result.status().message()), HasSubstr(message));
}

// A run of white space before a word costs steps: alternatives that want a line break give it back.
TEST(PreTokenizerLimits, MatchLimitIsAnError) {
  const std::string text = "one" + Repeated(" ", 1000) + "word";
  for (const char* name : kNames) {
    for (const bool interpret : {false, true}) {
      SCOPED_TRACE(std::string(name) + (interpret ? " interpreted" : " compiled"));
      EXPECT_TRUE(Pieces(name, {.interpret = interpret}, text).ok());
      ExpectExhausted(Pieces(name, {.match = 1, .interpret = interpret}, text), "match limit exceeded");
    }
  }
}

TEST(PreTokenizerLimits, TheErrorNamesThePatternAndTheByte) {
  const auto result = Pieces("qwen2", {.match = 20}, "one" + Repeated(" ", 1000) + "word");
  EXPECT_EQ(result.status().message(),
            "pre-tokenizing ('qwen2') stopped at byte 3 of 1007: match limit exceeded");
}

// A group that repeats takes memory for each round, which no pattern of ours has.
constexpr char kGreedy[] = "(?:(a)|(b))*";

TEST(PreTokenizerLimits, HeapLimitIsAnError) {
  const std::string text = Repeated("ab", 100000);
  const PreTokenizerLimits little = {.heap_kib = 64, .interpret = true};
  ExpectExhausted(Pieces("gpt-2", little, text, kGreedy), "stopped at byte 0 of 100000: heap limit exceeded");
  const auto enough = Pieces("gpt-2", {.interpret = true}, text, kGreedy);
  ASSERT_TRUE(enough.ok()) << enough.status();
  EXPECT_EQ(*enough, std::vector<std::string>{text});
}

TEST(PreTokenizerLimits, WhereTheJitStackEndsTheInterpreterTakesOver) {
  const std::string text = Repeated("ab", 1000000);
  const auto pieces = Pieces("gpt-2", {}, text, kGreedy);
  ASSERT_TRUE(pieces.ok()) << pieces.status();
  EXPECT_EQ(*pieces, std::vector<std::string>{text});
  // That it was the interpreter shows in the limit that it meets.
  ExpectExhausted(Pieces("gpt-2", {.heap_kib = 64}, text, kGreedy), "heap limit exceeded");
}

// With the smallest stack, and an interpreter that could not take over, all patterns cut all runs as ever.
TEST(PreTokenizerLimits, LongRunsNeedNoStackAndNoHeap) {
  for (const char* name : kNames) {
    const auto unlimited = PreTokenizer::Create(name);
    const auto compiled = PreTokenizer::CreateForTest(name, {.heap_kib = 1, .jit_stack_bytes = 1});
    const auto interpreted = PreTokenizer::CreateForTest(name, {.heap_kib = 64, .interpret = true});
    ASSERT_TRUE(unlimited.ok() && compiled.ok() && interpreted.ok());
    for (const std::string unit :
         {"a", " ", "\n", " \n", "\r\n", "\t", "'", "'s", "!", "7", "a\xCC\x81", "\xCC\x81",
          "\xF0\x9F\x91\xA9\xE2\x80\x8D", "<|im_en", "\xC2\xA0", "x y"}) {
      for (const std::string end : {"", "z", "7", "\n", "!"}) {
        SCOPED_TRACE(std::string(name) + " '" + unit + "' '" + end + "'");
        const std::string text = Repeated(unit, 200000) + end;
        const auto want = Pieces(*unlimited, text);
        ASSERT_TRUE(want.ok()) << want.status();
        const auto a = Pieces(*compiled, text), b = Pieces(*interpreted, text);
        ASSERT_TRUE(a.ok()) << a.status();
        ASSERT_TRUE(b.ok()) << b.status();
        ASSERT_TRUE(*a == *want);
        ASSERT_TRUE(*b == *want);
      }
    }
  }
}

}  // namespace
}  // namespace snapkv::runtime
