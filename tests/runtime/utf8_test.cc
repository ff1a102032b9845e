// SPDX-License-Identifier: Apache-2.0
// UTF-8: every boundary of table 3-7 of the Unicode standard, and every code point there and back.
#include "runtime/text/utf8.h"

#include <gtest/gtest.h>

#include <string>

#include "runtime/text/byte_level.h"

namespace snapkv::runtime {
namespace {

TEST(Utf8, EveryCodePointThereAndBack) {
  for (char32_t c = 0; c <= 0x10FFFF; ++c) {
    std::string text;
    AppendUtf8(c, &text);
    const Utf8Step step = ReadUtf8(text, 0);
    const bool surrogate = c >= 0xD800 && c <= 0xDFFF;
    ASSERT_EQ(step.kind, Utf8Step::Kind::kOk) << static_cast<uint32_t>(c);
    ASSERT_EQ(step.code_point, surrogate ? kReplacementCharacter : c) << static_cast<uint32_t>(c);
    ASSERT_EQ(static_cast<size_t>(step.length), text.size()) << static_cast<uint32_t>(c);
    ASSERT_EQ(ValidateUtf8(text), std::nullopt) << static_cast<uint32_t>(c);
    for (size_t cut = 1; cut < text.size(); ++cut) {
      const Utf8Step part = ReadUtf8(text.substr(0, cut), 0);
      ASSERT_EQ(part.kind, Utf8Step::Kind::kTruncated) << static_cast<uint32_t>(c) << " cut at " << cut;
      ASSERT_EQ(static_cast<size_t>(part.length), cut) << static_cast<uint32_t>(c);
    }
  }
}

TEST(Utf8, IllFormedSequences) {
  struct Case {
    std::string text;
    size_t bad;  // offset of the first bad byte
    std::string replaced;
  };
  const std::string r = "\xEF\xBF\xBD";
  const Case cases[] = {
      {"\x80", 0, r},
      {"a\xBFz", 1, "a" + r + "z"},
      {"\xC0\x80", 0, r + r},                  // overlong
      {"\xC1\xBF", 0, r + r},                  // overlong
      {"\xE0\x9F\xBF", 0, r + r + r},          // overlong
      {"\xED\xA0\x80", 0, r + r + r},          // surrogate
      {"\xF0\x8F\xBF\xBF", 0, r + r + r + r},  // overlong
      {"\xF4\x90\x80\x80", 0, r + r + r + r},  // above 10FFFF
      {"\xF5\x80\x80\x80", 0, r + r + r + r},  // no lead byte
      {"\xFF", 0, r},
      {"x\xE2\x82", 1, "x" + r},      // truncated: one replacement
      {"\xF0\x9F\x98z", 0, r + "z"},  // a maximal subpart is one replacement
      {"ok\xC3(", 2, "ok" + r + "("},
      {"12345678\xF0\x9F", 8, "12345678" + r},
      {"1234567\xFF"
       "9",
       7, "1234567" + r + "9"},
  };
  for (const Case& c : cases) {
    const auto bad = ValidateUtf8(c.text);
    ASSERT_TRUE(bad.has_value()) << c.replaced;
    EXPECT_EQ(*bad, c.bad) << c.replaced;
    EXPECT_EQ(ReplaceInvalidUtf8(c.text), c.replaced);
  }
}

TEST(Utf8, AppendRefusesWhatIsNoScalarValue) {
  for (const char32_t c : {char32_t{0xD800}, char32_t{0xDFFF}, char32_t{0x110000}}) {
    std::string text;
    AppendUtf8(c, &text);
    EXPECT_EQ(text, "\xEF\xBF\xBD");
  }
}

TEST(Utf8, Empty) {
  EXPECT_EQ(ValidateUtf8(""), std::nullopt);
  EXPECT_EQ(Latin1ToUtf8(""), "");
  EXPECT_EQ(ReplaceInvalidUtf8(""), "");
}

TEST(Utf8, Latin1) {
  std::string latin1, expected;
  for (int byte = 0; byte < 256; ++byte) {
    latin1.push_back(static_cast<char>(byte));
    AppendUtf8(static_cast<char32_t>(byte), &expected);
  }
  EXPECT_EQ(Latin1ToUtf8(latin1), expected);
  EXPECT_EQ(Latin1ToUtf8("caf\xE9"), "caf\xC3\xA9");
}

TEST(ByteLevel, EveryByteThereAndBack) {
  for (int byte = 0; byte < 256; ++byte) {
    const std::string bytes(1, static_cast<char>(byte));
    EXPECT_EQ(SymbolsToBytes(BytesToSymbols(bytes)), bytes) << byte;
  }
  EXPECT_EQ(BytesToSymbols(" a\n"),
            "\xC4\xA0"
            "a\xC4\x8A");                               // U+0120, U+010A
  EXPECT_EQ(BytesToSymbols("\xAD"), "\xC5\x83");        // the last one, U+0143
  EXPECT_EQ(SymbolsToBytes(" "), std::nullopt);         // a space is no symbol
  EXPECT_EQ(SymbolsToBytes("\xC5\x84"), std::nullopt);  // U+0144: one beyond
  EXPECT_EQ(SymbolsToBytes("\xC4"), std::nullopt);      // not UTF-8
}

}  // namespace
}  // namespace snapkv::runtime
