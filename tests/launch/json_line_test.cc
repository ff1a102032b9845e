// SPDX-License-Identifier: Apache-2.0
// JSON of one line: values with their columns, and every way in which a line can be malformed.
#include "launch/input/json_line.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace snapkv::launch {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

// "KEY@KEYCOLUMN=VALUE@COLUMN", with what is inside in braces.
std::string Print(const JsonValue& value) {
  std::string inside;
  for (const JsonValue& v : value.in) {
    inside += (inside.empty() ? "" : " ") +
              (value.is_object() ? v.key + "@" + std::to_string(v.key_column) + "=" : "") + Print(v);
  }
  const std::string shown = value.is_object()  ? "{" + inside + "}"
                            : value.is_array() ? "[" + inside + "]"
                                               : Shown(value);
  return shown + "@" + std::to_string(value.column);
}

std::string Parse(const std::string& line) {
  JsonValue value;
  const DocumentError error = ParseJsonLine(line, "metadata", value);
  return error.ok() ? Print(value) : std::string(error.status.message());
}

TEST(JsonLine, ValuesAndColumns) {
  EXPECT_EQ(Parse("{}"), "{}@1");
  EXPECT_EQ(Parse(R"({"a":1})"), "{a@2=1@6}@1");
  EXPECT_EQ(Parse(R"(  { "a" : [1 , -2,3.50,"x",true, false ,null,{}, [ ] ] ,"b":{"c":"d"} } )"),
            "{a@5=[1@12 -2@16 3.50@19 the string 'x'@24 true@28 false@34 null@41 {}@46 []@50]@11 "
            "b@57={c@62=the string 'd'@66}@61}@3");
  EXPECT_EQ(Parse(R"({"k\"\u00e9":12,"z":"\ud83d\ude00"})"),
            "{k\"\xC3\xA9@2=12@14 z@17=the string '\xF0\x9F\x98\x80'@21}@1");
  EXPECT_EQ(Parse("\xEF\xBB\xBF{\"a\":1}"), "{a@5=1@9}@4");
}

TEST(JsonLine, Numbers) {
  EXPECT_EQ(
      Parse(R"({"a":18446744073709551615,"b":-9223372036854775808,"c":18446744073709551616,"d":1e3,"e":-0})"),
      "{a@2=18446744073709551615@6 b@27=-9223372036854775808@31 c@52=18446744073709551616@56 d@77=1e3@81 "
      "e@85=0@89}@1");
  JsonValue value;
  ASSERT_TRUE(ParseJsonLine(R"({"a":7,"b":-7,"c":0.5})", "", value).ok());
  EXPECT_EQ(value.Find("a")->kind, JsonValue::Kind::kUnsigned);
  EXPECT_EQ(value.Find("a")->natural, 7u);
  EXPECT_EQ(value.Find("b")->kind, JsonValue::Kind::kInteger);
  EXPECT_EQ(value.Find("b")->integer, -7);
  EXPECT_EQ(value.Find("c")->kind, JsonValue::Kind::kReal);
  EXPECT_EQ(value.Find("c")->real, 0.5);
  EXPECT_EQ(value.Find("d"), nullptr);
}

TEST(JsonLine, IgnoredMemberIsNotKept) {
  EXPECT_EQ(Parse(R"({"metadata":{"a":[{"b":1}],"a":2},"x":1})"), "{x@35=1@39}@1");
  EXPECT_EQ(Parse(R"({"x":1,"metadata":[[],[[]]],"y":{"metadata":2}})"),
            "{x@2=1@6 y@29={metadata@34=2@45}@33}@1");
  EXPECT_EQ(Parse(R"({"metadata":null})"), "{}@1");
  EXPECT_EQ(Parse(R"({"metadata":"text","y":2})"), "{y@20=2@24}@1");
  std::string wide = R"({"metadata":[0)";
  for (int64_t i = 0; i < 2 * kMaxJsonValues; ++i) wide += ",0";
  EXPECT_EQ(Parse(wide + "]}"), "{}@1");
}

struct Bad {
  std::string line;
  int64_t column;
  std::string message;  // a part of it
};

void ExpectBad(const Bad& bad) {
  SCOPED_TRACE(bad.line.substr(0, 100));
  JsonValue value;
  const DocumentError error = ParseJsonLine(bad.line, "metadata", value);
  EXPECT_EQ(error.reason, "LINE_INVALID");
  EXPECT_TRUE(absl::IsInvalidArgument(error.status)) << error.status;
  EXPECT_EQ(error.column, bad.column) << error.status;
  const std::string message(error.status.message());
  EXPECT_THAT(message, HasSubstr(bad.message));
  EXPECT_THAT(message, Not(HasSubstr("json.exception")));
  EXPECT_LT(message.size(), 200u);
}

TEST(JsonLine, Malformed) {
  const std::vector<Bad> cases = {
      {"{", 2, "line ends"},
      {R"({"a")", 5, "line ends"},
      {R"({"a":)", 6, "line ends"},
      {R"({"a":1)", 7, "line ends"},
      {R"({"a":"x)", 8, "line ends"},
      {R"({"a":1,)", 8, "line ends"},
      {R"({"a":tru)", 9, "line ends"},
      {R"({"a":1,})", 8, "unexpected '}'"},
      {R"({,})", 2, "unexpected ','"},
      {R"({"a" 1})", 6, "unexpected '1'"},
      {R"({"a" "bcd"})", 6, "unexpected string"},
      {R"({"a":1 "bcd":2})", 8, "unexpected string"},
      {R"({"a":1 234})", 8, "unexpected '234'"},
      {R"({"a":1 true})", 8, "unexpected 'true'"},
      {R"({1:2})", 2, "unexpected '1'"},
      {R"({'a':1})", 2, "unexpected '''"},
      {R"({"a":nope})", 7, "unexpected 'o'"},
      {R"({"a":NaN})", 6, "unexpected 'N'"},
      {R"({"a":01})", 7, "unexpected '1'"},
      {R"({"a":1.})", 8, "unexpected '}'"},
      {R"({"a":-x})", 7, "unexpected 'x'"},
      {R"({"a":1e999})", 6, "too large"},
      {R"({"a":[1 2]})", 9, "unexpected '2'"},
      {R"({"a":[1}})", 8, "unexpected '}'"},
      {R"({"a":"\x"})", 8, "unexpected 'x'"},
      {R"({"a":"\u12g4"})", 11, "unexpected 'g'"},
      {R"({"a":1} x)", 9, "unexpected 'x'"},
      {R"({"a":1}{"b":2})", 8, "unexpected '{'"},
      {"{\"a\":\xC3\xA9}", 6, "unexpected '\xC3\xA9'"},
      {"{\"a\":\"x\ty\"}", 8, "control character (byte 0x09)"},
      {"{\"a\":\x01}", 6, "control character (byte 0x01)"},
      {"hello", 1, "unexpected 'h'"},
      {"// {}", 1, "unexpected '/'"},
  };
  for (const Bad& bad : cases) ExpectBad(bad);
}

TEST(JsonLine, LoneSurrogates) {
  for (const char* text :
       {R"("\ud800")", R"("\udfff")", R"("\ud800\ud800")", R"("\ud83dx")", R"("\ud83d\n")", R"("\uDC00x")"}) {
    JsonValue value;
    const std::string line = absl::StrCat("{\"a\":", text, "}");
    const DocumentError error = ParseJsonLine(line, "", value);
    EXPECT_EQ(error.reason, "LINE_INVALID") << line;
    EXPECT_THAT(std::string(error.status.message()), HasSubstr("surrogate")) << line;
    EXPECT_GT(error.column, 6) << line;
    EXPECT_LE(error.column, static_cast<int64_t>(line.size())) << line;
  }
  EXPECT_THAT(Parse(R"({"\ud800":1})"), HasSubstr("surrogate"));
}

TEST(JsonLine, NotAnObject) {
  ExpectBad({"[1]", 1, "is an array, expected a JSON object"});
  ExpectBad({"  \"x\"", 3, "is the string 'x', expected a JSON object"});
  ExpectBad({"12", 1, "is 12"});
  ExpectBad({"null", 1, "is null"});
  ExpectBad({"true", 1, "is true"});
}

TEST(JsonLine, BytesThatAreNoText) {
  ExpectBad({std::string("{\"a\":1}\0", 8), 8, "NUL byte"});
  ExpectBad({std::string("{\"a\":\"\0\"}", 9), 7, "NUL byte"});
  ExpectBad({"{\"a\":\"caf\xE9\"}", 10, "not UTF-8"});
  ExpectBad({"{\"a\":\"\xC3", 7, "not UTF-8"});
  ExpectBad({"\xFF\xFE{\0", 1, "UTF-16"});
  ExpectBad({"\xFE\xFF", 1, "UTF-16"});
  // The first fault in the line is not the first that is looked for.
  ExpectBad({"{x\xE9", 3, "not UTF-8"});
}

TEST(JsonLine, Depth) {
  const auto nested = [](int levels) {
    std::string line = "{\"a\":";
    for (int i = 1; i < levels; ++i) line += "[";
    for (int i = 1; i < levels; ++i) line += "]";
    return line + "}";
  };
  EXPECT_THAT(Parse("{\"a\":" + std::string(1, '0') + "}"), StartsWith("{a"));
  EXPECT_THAT(Parse(nested(kMaxJsonDepth)), StartsWith("{a"));
  ExpectBad({nested(kMaxJsonDepth + 1), 5 + kMaxJsonDepth, "nested more than 64 levels"});
  ExpectBad({"{\"a\":" + std::string(1'000'000, '['), 5 + kMaxJsonDepth, "nested more than 64 levels"});
  std::string metadata = nested(kMaxJsonDepth + 1).replace(2, 1, "metadata");
  ExpectBad({metadata, 12 + kMaxJsonDepth, "nested more than 64 levels"});
  std::string objects;
  for (int i = 0; i < 100'000; ++i) objects += "{\"a\":";
  ExpectBad({objects, 1 + 5 * kMaxJsonDepth, "nested more than 64 levels"});
}

TEST(JsonLine, NumberOfValues) {
  const auto flat = [](int64_t elements) {
    std::string line = "{\"a\":[";
    for (int64_t i = 0; i < elements; ++i) line += i == 0 ? "1" : ",1";
    return line + "]}";
  };
  EXPECT_THAT(Parse(flat(kMaxJsonValues - 2)), StartsWith("{a@2=[1@7 1@9 "));
  ExpectBad({flat(kMaxJsonValues - 1), 7 + 2 * (kMaxJsonValues - 2), "more than 100000 values"});
}

TEST(JsonLine, DuplicateKeys) {
  ExpectBad({R"({"a":1,"b":2,"a":3})", 14, "key 'a' occurs twice"});
  ExpectBad({R"({"a":1,"\u0061":3})", 8, "key 'a' occurs twice"});
  ExpectBad({R"({"x":[{"b":1,"b":2}]})", 14, "key 'b' occurs twice"});
  EXPECT_THAT(Parse(R"({"a":{"b":1},"b":{"b":2},"c":[{"b":1},{"b":2}]})"), StartsWith("{a"));
}

TEST(JsonLine, ShownIsShortAndPrintable) {
  EXPECT_EQ(ShownText("ab'c"), "'ab'c'");
  EXPECT_EQ(ShownText(std::string("\n\x7F\xC2\x85\0", 5)), "'\\u000a\\u007f\\u0085\\u0000'");
  EXPECT_EQ(ShownText("a\xFFz"), "'a\xEF\xBF\xBDz'");
  EXPECT_EQ(ShownText(std::string(1000, 'x')), "'" + std::string(40, 'x') + "...'");
  EXPECT_EQ(ShownText(std::string(40, 'x')), "'" + std::string(40, 'x') + "'");
}

}  // namespace
}  // namespace snapkv::launch
