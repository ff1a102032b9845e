// SPDX-License-Identifier: Apache-2.0
// Streaming text: characters split over tokens, and stop strings split in every way.
#include "runtime/text/stream_decoder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "runtime/text/utf8.h"
#include "tests/runtime/tiny_vocabulary.h"

namespace snapkv::runtime {
namespace {

using ::testing::HasSubstr;

const Tokenizer& Tiny() {
  static const Tokenizer* tokenizer = new Tokenizer(Tokenizer::Create(TinyVocabulary()).value());
  return *tokenizer;
}

std::string Append(StreamDecoder* decoder, int32_t id) {
  const absl::StatusOr<std::string> text = decoder->Append(id);
  EXPECT_TRUE(text.ok()) << text.status();
  return text.value_or("");
}

TEST(StreamDecoder, HoldsBackAnIncompleteCharacter) {
  StreamDecoder decoder(&Tiny());
  EXPECT_EQ(Append(&decoder, kHello), "hello");
  for (const int32_t byte : {0xF0, 0x9F, 0x98}) EXPECT_EQ(Append(&decoder, byte), "") << byte;
  EXPECT_EQ(Append(&decoder, 0x80), "\xF0\x9F\x98\x80");
  EXPECT_EQ(decoder.Flush(), "");
}

TEST(StreamDecoder, ReplacesWhatCannotBecomeACharacter) {
  StreamDecoder decoder(&Tiny());
  EXPECT_EQ(Append(&decoder, 0xE2), "");
  EXPECT_EQ(Append(&decoder, 'x'), "\xEF\xBF\xBDx");
  EXPECT_EQ(Append(&decoder, 0xFF), "\xEF\xBF\xBD");
  EXPECT_EQ(Append(&decoder, 0xE2), "");
  EXPECT_EQ(Append(&decoder, 0x82), "");
  EXPECT_EQ(decoder.Flush(), "\xEF\xBF\xBD");
  EXPECT_EQ(decoder.Flush(), "");
  EXPECT_EQ(Append(&decoder, 0xAC), "\xEF\xBF\xBD") << "nothing is left of what was flushed";
}

TEST(StreamDecoder, SkipsControlTokens) {
  StreamDecoder decoder(&Tiny());
  EXPECT_EQ(Append(&decoder, kEnd), "");
  EXPECT_EQ(Append(&decoder, kTool), "<tool>");
  EXPECT_EQ(Append(&decoder, 0xC3), "");
  EXPECT_EQ(Append(&decoder, kEnd), "");
  EXPECT_EQ(Append(&decoder, 0xA9), "\xC3\xA9") << "a control token does not break a character";
  EXPECT_THAT(decoder.Append(270).status().ToString(), HasSubstr("token id 270"));
}

TEST(StreamDecoder, AgreesWithDecodingAtOnce) {
  std::mt19937 random(20240611);
  const std::vector<std::string> parts = {"a",    "\xC3\xA9", "\xE2\x82\xAC", "\xF0\x9F\x98\x80",
                                          "\xFF", "\xF0\x9F", "\x80"};
  for (int round = 0; round < 2000; ++round) {
    std::string bytes;
    for (int i = 0; i < 8; ++i) bytes += parts[random() % parts.size()];
    StreamDecoder decoder(&Tiny());
    std::string text;
    for (const char c : bytes) text += Append(&decoder, static_cast<uint8_t>(c));
    text += decoder.Flush();
    ASSERT_EQ(text, ReplaceInvalidUtf8(bytes)) << "round " << round;
  }
}

StopMatcher Matcher(const std::vector<std::string>& stops) {
  absl::StatusOr<StopMatcher> matcher = StopMatcher::Create(stops);
  EXPECT_TRUE(matcher.ok()) << matcher.status();
  return *std::move(matcher);
}

TEST(StopMatcher, WithoutStopsEverythingPasses) {
  StopMatcher matcher = Matcher({});
  EXPECT_EQ(matcher.Append("abc"), "abc");
  EXPECT_EQ(matcher.Flush(), "");
  EXPECT_FALSE(matcher.matched());
}

TEST(StopMatcher, AcrossParts) {
  StopMatcher matcher = Matcher({"STOP", "\n\n"});
  EXPECT_EQ(matcher.Append("one S"), "one ");
  EXPECT_EQ(matcher.Append("TO"), "");
  EXPECT_EQ(matcher.Append("X\n"), "STOX");
  EXPECT_EQ(matcher.Append("y S"), "\ny ");
  EXPECT_EQ(matcher.Append(""), "");
  EXPECT_EQ(matcher.Append("TOP more"), "");
  EXPECT_TRUE(matcher.matched());
  EXPECT_EQ(matcher.match(), "STOP");
  EXPECT_EQ(matcher.Append("text"), "");
  EXPECT_EQ(matcher.Flush(), "");
}

TEST(StopMatcher, FlushGivesBackWhatWasHeld) {
  StopMatcher matcher = Matcher({"STOP"});
  EXPECT_EQ(matcher.Append("a STO"), "a ");
  EXPECT_EQ(matcher.Flush(), "STO");
  EXPECT_FALSE(matcher.matched());
}

TEST(StopMatcher, OverlappingBeginnings) {
  StopMatcher matcher = Matcher({"aab"});
  EXPECT_EQ(matcher.Append("aaa"), "a");
  EXPECT_EQ(matcher.Append("b"), "");
  EXPECT_TRUE(matcher.matched());
}

TEST(StopMatcher, TheOneThatEndsFirstThenTheLongest) {
  StopMatcher first = Matcher({"abcdef", "cd"});
  EXPECT_EQ(first.Append("xabcdef"), "xab");
  EXPECT_EQ(first.match(), "cd");
  StopMatcher longest = Matcher({"cd", "abcd"});
  EXPECT_EQ(longest.Append("xabcd"), "x");
  EXPECT_EQ(longest.match(), "abcd");
}

TEST(StopMatcher, BadStops) {
  EXPECT_THAT(StopMatcher::Create({"a", ""}).status().ToString(), HasSubstr("empty"));
  EXPECT_THAT(StopMatcher::Create({"a\xFF"}).status().ToString(), HasSubstr("offset 1"));
}

// What a plain search finds: the shortest beginning of the text that ends with a stop string.
std::string CutNaively(const std::string& text, const std::vector<std::string>& stops) {
  for (size_t end = 0; end <= text.size(); ++end) {
    size_t cut = std::string::npos;
    for (const std::string& stop : stops) {
      if (text.substr(0, end).ends_with(stop)) cut = std::min(cut, end - stop.size());
    }
    if (cut != std::string::npos) return text.substr(0, cut);
  }
  return text;
}

TEST(StopMatcher, AgreesWithAPlainSearchHoweverTheTextIsCut) {
  std::mt19937 random(7);
  const auto word = [&random](size_t max) {
    std::string text;
    for (size_t n = 1 + random() % max; n > 0; --n) text += "ab"[random() % 2];
    return text;
  };
  for (int round = 0; round < 20000; ++round) {
    std::vector<std::string> stops;
    for (size_t n = 1 + random() % 3; n > 0; --n) stops.push_back(word(5));
    const std::string text = word(14);
    StopMatcher matcher = Matcher(stops);
    std::string out;
    const std::string want = CutNaively(text, stops);
    for (size_t pos = 0; pos < text.size();) {
      const size_t n = 1 + random() % 4;
      out += matcher.Append(text.substr(pos, n));
      ASSERT_TRUE(want.starts_with(out))
          << "round " << round << ": '" << out << "' is not in '" << want << "'";
      pos += n;
    }
    out += matcher.Flush();
    ASSERT_EQ(out, want) << "round " << round << ": text " << text << ", stop " << stops[0];
  }
}

}  // namespace
}  // namespace snapkv::runtime
