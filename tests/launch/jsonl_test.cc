// SPDX-License-Identifier: Apache-2.0
// JSONL records in both forms: every field, every range, every reason.
#include "launch/input/jsonl.h"

#include <sys/stat.h>

#include <cmath>
#include <filesystem>

#include <string>
#include <vector>

#include "tests/launch/input_support.h"

namespace snapkv::launch {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

LineContext Context() {
  LineContext context;
  context.defaults.prompt = "default prompt";
  context.defaults.system = "default system";
  context.defaults.max_tokens = 33;
  context.defaults.temperature = 0.25;
  context.defaults.stops = {"default stop"};
  context.source = "docs.jsonl";
  return context;
}

InputItem Parse(const std::string& line, const LineContext& context = Context()) {
  InputItem item = ParseRecord(line, 7, context);
  EXPECT_EQ(item.document.source, "docs.jsonl");
  EXPECT_EQ(item.document.line, 7);
  EXPECT_EQ(item.error.line, item.error.ok() ? 0 : 7);
  return item;
}

struct Bad {
  std::string line;
  std::string reason;
  int64_t column;
  std::vector<std::string> parts;  // of the message
  std::string id = {};
};

void ExpectBad(const Bad& bad, const LineContext& context = Context()) {
  SCOPED_TRACE(bad.line.substr(0, 200));
  const InputItem item = Parse(bad.line, context);
  ASSERT_FALSE(item.error.ok());
  EXPECT_EQ(item.error.reason, bad.reason) << item.error.status;
  EXPECT_EQ(item.error.column, bad.column) << item.error.status;
  EXPECT_EQ(item.document.id, bad.id);
  EXPECT_EQ(item.document.text, "");
  EXPECT_THAT(item.document.messages, IsEmpty());
  EXPECT_EQ(absl::IsNotFound(item.error.status), bad.reason == "DOCUMENT_NOT_FOUND");
  for (const std::string& part : bad.parts) {
    EXPECT_THAT(std::string(item.error.status.message()), HasSubstr(part));
  }
}

TEST(ShortRecord, OnlyTextTakesTheDefaults) {
  const InputItem item = Parse(R"({"text":"Hello \u00e9\n"})");
  ASSERT_TRUE(item.error.ok()) << item.error.status;
  const Document& d = item.document;
  EXPECT_EQ(d.id, "");
  EXPECT_EQ(d.form, RecordForm::kShort);
  EXPECT_EQ(d.text, "Hello \xC3\xA9\n");
  EXPECT_THAT(d.messages, IsEmpty());
  EXPECT_EQ(d.params.prompt, "default prompt");
  EXPECT_EQ(d.params.system, "default system");
  EXPECT_EQ(d.params.max_tokens, 33);
  EXPECT_EQ(d.params.temperature, 0.25);
  EXPECT_EQ(d.params.top_k, 0);
  EXPECT_EQ(d.params.top_p, 1);
  EXPECT_EQ(d.params.min_p, 0);
  EXPECT_EQ(d.params.repeat_penalty, 1);
  EXPECT_EQ(d.params.seed, 0u);
  EXPECT_THAT(d.params.stops, ElementsAre("default stop"));
  EXPECT_THAT(d.params.stop_token_ids, IsEmpty());
}

TEST(ShortRecord, EveryField) {
  const InputItem item = Parse(
      R"({"id":"\u00e9/1","text":"T","prompt":"P","system":"","max_tokens":2147483647,"temperature":0.5,"top_k":40,)"
      R"("top_p":0.9,"min_p":0.05,"repeat_penalty":1.1,"seed":18446744073709551615,"stop":["a","b"],)"
      R"("stop_token_ids":[0,2147483647],"metadata":{"any":[1,{"thing":null}]}})");
  ASSERT_TRUE(item.error.ok()) << item.error.status;
  const Document& d = item.document;
  EXPECT_EQ(d.id, "\xC3\xA9/1");
  EXPECT_EQ(d.text, "T");
  EXPECT_EQ(d.params.prompt, "P");
  EXPECT_EQ(d.params.system, "");
  EXPECT_EQ(d.params.max_tokens, 2147483647);
  EXPECT_EQ(d.params.temperature, 0.5);
  EXPECT_EQ(d.params.top_k, 40);
  EXPECT_EQ(d.params.top_p, 0.9);
  EXPECT_EQ(d.params.min_p, 0.05);
  EXPECT_EQ(d.params.repeat_penalty, 1.1);
  EXPECT_EQ(d.params.seed, UINT64_MAX);
  EXPECT_THAT(d.params.stops, ElementsAre("a", "b"));
  EXPECT_THAT(d.params.stop_token_ids, ElementsAre(0, 2147483647));
}

TEST(ShortRecord, RangesIncludeTheirEnds) {
  for (const char* field :
       {R"("max_tokens":1)", R"("temperature":0)", R"("temperature":100)", R"("temperature":-0.0)",
        R"("top_k":0)", R"("top_k":2147483647)", R"("top_p":1)", R"("top_p":1e-9)", R"("min_p":0)",
        R"("min_p":0.999)", R"("repeat_penalty":0.01)", R"("repeat_penalty":100)", R"("seed":0)",
        R"("seed":-0)", R"("stop":"x")", R"("stop":[])", R"("stop_token_ids":[])", R"("prompt":"")"}) {
    const InputItem item = Parse(absl::StrCat("{\"text\":\"T\",", field, "}"));
    EXPECT_TRUE(item.error.ok()) << field << ": " << item.error.status;
    EXPECT_FALSE(std::signbit(item.document.params.temperature)) << field;
  }
  EXPECT_THAT(Parse(R"({"text":"T","stop":[]})").document.params.stops, IsEmpty());
  EXPECT_THAT(Parse(R"({"text":"T","stop":"x"})").document.params.stops, ElementsAre("x"));
}

TEST(ShortRecord, ValuesOutOfRangeOrOfTheWrongType) {
  struct Case {
    std::string field;
    std::vector<std::string> values;
    std::string expected;
  };
  const std::vector<Case> cases = {
      {"max_tokens",
       {"0", "-1", "2147483648", "1.5", "1.0", "1e3", "\"5\"", "null", "true", "[]", "{}",
        "18446744073709551616"},
       "an integer from 1 to 2147483647"},
      {"top_k", {"-1", "2147483648", "0.5", "\"\""}, "an integer from 0 to 2147483647"},
      {"temperature", {"-0.001", "100.001", "\"1\"", "null", "false"}, "a number from 0 to 100"},
      {"top_p", {"0", "-1", "1.0001", "\"x\"", "0.0"}, "a number above 0 to 1"},
      {"min_p", {"1", "1.0", "-0.1", "2", "[0.1]"}, "a number from 0 to below 1"},
      {"repeat_penalty", {"0", "0.009", "100.1", "null"}, "a number from 0.01 to 100"},
      {"seed", {"-1", "1.5", "18446744073709551616", "\"1\""}, "an integer from 0 to 18446744073709551615"},
      {"prompt", {"1", "null", "[\"x\"]"}, "a string"},
      {"system", {"{}", "true"}, "a string"},
      {"text", {"1", "null", "[\"x\"]"}, "a string"},
      {"path", {"1", "null", "\"\"", "\"a\\u0000\""}, "the path of a text file"},
      {"stop", {"1", "null", "\"\"", "{}"}, "a string that is not empty, or an array"},
      {"stop_token_ids", {"1", "\"1\"", "null"}, "an array of token ids"},
      {"encoding", {"\"utf-16\"", "\"\"", "1", "null"}, "'utf-8' or 'latin1'"},
  };
  for (const Case& c : cases) {
    for (const std::string& value : c.values) {
      const std::string line = absl::StrCat("{\"id\":\"d\",\"", c.field, "\":", value, "}");
      ExpectBad({line,
                 "PARAMETER_INVALID",
                 static_cast<int64_t>(14 + c.field.size()),
                 {"field '" + c.field + "' is ", c.expected},
                 "d"});
    }
  }
}

TEST(ShortRecord, ElementsOfArrays) {
  ExpectBad({R"({"text":"T","stop":["a",""]})", "PARAMETER_INVALID", 25, {"stop[1]", "not empty"}});
  ExpectBad({R"({"text":"T","stop":["a",1]})", "PARAMETER_INVALID", 25, {"stop[1]", "is 1"}});
  ExpectBad({R"({"text":"T","stop":["\u0000"]})", "PARAMETER_INVALID", 21, {"stop[0]", "u0000"}});
  ExpectBad(
      {R"({"text":"T","stop_token_ids":[1,-1]})", "PARAMETER_INVALID", 33, {"stop_token_ids[1]", "is -1"}});
  ExpectBad({R"({"text":"T","stop_token_ids":[2147483648]})", "PARAMETER_INVALID", 31, {"2147483648"}});
  ExpectBad({R"({"text":"T","prompt":"a\u0000"})", "PARAMETER_INVALID", 22, {"prompt", "u0000"}});
}

TEST(ShortRecord, UnknownFieldsAreNamed) {
  ExpectBad({R"({"id":"d","text":"T","max_token":5})",
             "PARAMETER_INVALID",
             22,
             {"'max_token'", "known are id, text, path", "max_tokens", "metadata"},
             "d"});
  ExpectBad({R"({"text":"T","":5})", "PARAMETER_INVALID", 13, {"''"}});
  ExpectBad({R"({"text":"T","messages":[]})", "PARAMETER_INVALID", 13, {"'messages'"}});
  ExpectBad({"{\"" + std::string(10'000, 'k') + "\":5}", "PARAMETER_INVALID", 2, {"kkk...'"}});
}

TEST(ShortRecord, TheFirstFaultInTheLineCounts) {
  ExpectBad({R"({"x":1,"max_tokens":0})", "PARAMETER_INVALID", 2, {"'x'"}});
  ExpectBad({R"({"max_tokens":0,"x":1})", "PARAMETER_INVALID", 15, {"max_tokens"}});
}

TEST(ShortRecord, ExactlyOneOfTextAndPath) {
  ExpectBad({R"( {"id":"d"})", "PARAMETER_INVALID", 2, {"neither 'text' nor 'path'"}, "d"});
  ExpectBad({R"({"text":"T","path":"p"})", "PARAMETER_INVALID", 20, {"both 'text' and 'path'"}, "p"});
  ExpectBad({R"({"text":"T","encoding":"latin1"})", "PARAMETER_INVALID", 24, {"encoding", "path"}});
}

TEST(ShortRecord, Ids) {
  const std::string longest(512, 'i');
  EXPECT_EQ(Parse("{\"text\":\"T\",\"id\":\"" + longest + "\"}").document.id, longest);
  ExpectBad(
      {"{\"text\":\"T\",\"id\":\"" + longest + "i\"}", "DOCUMENT_ID_INVALID", 18, {"longer than 512 bytes"}});
  ExpectBad({R"({"id":"","text":"T"})", "DOCUMENT_ID_INVALID", 7, {"empty"}});
  ExpectBad({R"({"id":5,"text":"T"})", "DOCUMENT_ID_INVALID", 7, {"is 5", "a string"}});
  ExpectBad({R"({"id":null,"text":"T"})", "DOCUMENT_ID_INVALID", 7, {"is null"}});
  ExpectBad({R"({"id":["x"],"text":"T"})", "DOCUMENT_ID_INVALID", 7, {"an array"}});
  for (const char* control : {"\\n", "\\u0000", "\\u007f", "\\u0085", "\\u001b[31m"}) {
    ExpectBad({absl::StrCat(R"({"id":"a)", control, R"(","text":"T"})"),
               "DOCUMENT_ID_INVALID",
               7,
               {"control characters"}});
  }
  // It comes before other faults, also those before it in the line.
  ExpectBad({R"({"x":1,"id":5})", "DOCUMENT_ID_INVALID", 13, {"'id'"}});
}

TEST(ShortRecord, TextThatIsNoDocument) {
  for (const char* text : {"", " \\n\\t\\r", "\\ufeff", "\\u000b\\f"}) {
    ExpectBad(
        {absl::StrCat(R"({"id":"d","text":")", text, "\"}"), "DOCUMENT_EMPTY", 18, {"text", "empty"}, "d"});
  }
  ExpectBad({R"({"id":"d","text":"ab\u0000c"})", "DOCUMENT_NOT_UTF8", 18, {"NUL byte at offset 2"}, "d"});
  LineContext context = Context();
  context.read.max_bytes = 5;
  EXPECT_TRUE(Parse(R"({"text":"12345"})", context).error.ok());
  ExpectBad(
      {R"({"text":"123456"})", "DOCUMENT_TOO_LARGE", 9, {"6 bytes", "more than 5", "--max-document-bytes"}},
      context);
}

TEST(ShortRecord, TextIsUtf8WhateverTheEncodingOfFiles) {
  LineContext context = Context();
  context.read.encoding = "latin1";
  EXPECT_EQ(Parse("{\"text\":\"\xC3\xA9\"}", context).document.text, "\xC3\xA9");
}

TEST(ShortRecord, Path) {
  const InputFolder folder;
  folder.Write("sub/a.txt", "\xEF\xBB\xBFText of a.\n");
  const std::string absolute = folder.Write("l.txt", "caf\xE9");
  LineContext context = Context();
  context.folder = folder.path();
  const InputItem a = Parse(R"({"path":"./sub//a.txt","max_tokens":9})", context);
  ASSERT_TRUE(a.error.ok()) << a.error.status;
  EXPECT_EQ(a.document.text, "Text of a.\n");
  EXPECT_EQ(a.document.id, "./sub//a.txt");  // as it is written
  EXPECT_EQ(a.document.params.max_tokens, 9);
  EXPECT_EQ(Parse(R"({"path":"sub/a.txt","id":"x"})", context).document.id, "x");
  EXPECT_EQ(
      Summary(Parse(absl::StrCat(R"({"id":"l","encoding":"latin1","path":")", absolute, "\"}"), context)),
      "l: caf\xC3\xA9");
  ExpectBad(
      {R"({"path":"l.txt"})", "DOCUMENT_NOT_UTF8", 9, {folder.Path("l.txt"), "offset 3", "latin1"}, "l.txt"},
      context);
  context.read.encoding = "latin1";
  EXPECT_EQ(Parse(R"({"path":"l.txt"})", context).document.text, "caf\xC3\xA9");
  ExpectBad({R"({"path":"l.txt","encoding":"utf-8"})", "DOCUMENT_NOT_UTF8", 9, {"offset 3"}, "l.txt"},
            context);
}

TEST(ShortRecord, PathThatCannotBeRead) {
  const InputFolder folder;
  folder.Write("empty.txt", " \n");
  folder.Write("nul.txt", std::string("a\0", 2));
  folder.Write("long.txt", "123456");
  std::filesystem::create_directory(folder.Path("sub"));
  ASSERT_EQ(::mkfifo(folder.Path("pipe").c_str(), 0600), 0);
  LineContext context = Context();
  context.folder = folder.path();
  context.read.max_bytes = 5;
  const auto line = [](const std::string& path) { return "{\"path\":\"" + path + "\"}"; };
  ExpectBad(
      {line("none.txt"), "DOCUMENT_NOT_FOUND", 9, {folder.Path("none.txt"), "No such file"}, "none.txt"},
      context);
  ExpectBad({line("sub"), "DOCUMENT_NOT_FOUND", 9, {"is a directory"}, "sub"}, context);
  ExpectBad({line("pipe"), "DOCUMENT_NOT_FOUND", 9, {"not a regular file"}, "pipe"}, context);
  ExpectBad({line("/dev/zero"), "DOCUMENT_NOT_FOUND", 9, {"not a regular file"}, "/dev/zero"}, context);
  ExpectBad({line("empty.txt"), "DOCUMENT_EMPTY", 9, {"empty.txt"}, "empty.txt"}, context);
  ExpectBad({line("nul.txt"), "DOCUMENT_NOT_UTF8", 9, {"offset 1"}, "nul.txt"}, context);
  ExpectBad({line("long.txt"), "DOCUMENT_TOO_LARGE", 9, {"more than 5 bytes"}, "long.txt"}, context);
  // A path that cannot be an id leaves the choice to the caller.
  ExpectBad({line("a\\nb"), "DOCUMENT_NOT_FOUND", 9, {"No such file"}, ""}, context);
  ExpectBad({line(std::string(600, 'p')), "DOCUMENT_NOT_FOUND", 9, {"File name too long"}, ""}, context);
  // Messages stay short and printable.
  ExpectBad({line("\\u001b[31m"), "DOCUMENT_NOT_FOUND", 9, {"\\u001b[31m"}, ""}, context);
  const InputItem item = Parse(line(std::string(1'000'000, 'p')), context);
  EXPECT_EQ(item.error.reason, "DOCUMENT_NOT_FOUND");
  EXPECT_LT(item.error.status.message().size(), 500u);
}

TEST(ShortRecord, LinesThatAreNoRecord) {
  ExpectBad({R"({"id":"d","text":"T")", "LINE_INVALID", 21, {"not JSON"}});
  ExpectBad({R"(["d"])", "LINE_INVALID", 1, {"object"}});
  ExpectBad({"{\"id\":\"\xE9\"}", "LINE_INVALID", 8, {"not UTF-8"}});
  ExpectBad({R"({"id":"d","text":"\ud800"})", "LINE_INVALID", 25, {"surrogate"}});
  ExpectBad({R"({"id":"a","id":"b"})", "LINE_INVALID", 11, {"twice"}});
}

// An OpenAI line with this body.
std::string Batch(const std::string& body) {
  return R"({"custom_id":"c","method":"POST","url":"/v1/chat/completions","body":)" + body + "}";
}
constexpr int64_t kBodyColumn = 70;

TEST(OpenAiLine, EveryField) {
  const InputItem item = Parse(Batch(
      R"({"model":"any","messages":[{"role":"system","content":"S"},{"role":"user","content":[{"type":"text",)"
      R"("text":"U1"},{"text":"U2","type":"text"}]},{"content":"A","role":"assistant"}],"max_tokens":5,)"
      R"("temperature":1.5,"top_p":0.5,"stop":["w","x","y","z"],"seed":3,"n":1,"stream":false})"));
  ASSERT_TRUE(item.error.ok()) << item.error.status;
  const Document& d = item.document;
  EXPECT_EQ(d.form, RecordForm::kOpenAi);
  EXPECT_EQ(Summary(item), "c: system=S|user=U1\nU2|assistant=A");
  EXPECT_EQ(d.text, "");
  EXPECT_EQ(d.params.max_tokens, 5);
  EXPECT_EQ(d.params.temperature, 1.5);
  EXPECT_EQ(d.params.top_p, 0.5);
  EXPECT_THAT(d.params.stops, ElementsAre("w", "x", "y", "z"));
  EXPECT_EQ(d.params.seed, 3u);
}

TEST(OpenAiLine, DefaultsAndNulls) {
  for (const char* more :
       {"", R"(,"max_tokens":null,"max_completion_tokens":null,"temperature":null,"top_p":null,"stop":null,)"
            R"("seed":null,"n":null,"stream":null)"}) {
    const InputItem item =
        Parse(Batch(absl::StrCat(R"({"messages":[{"role":"user","content":"U"}])", more, "}")));
    ASSERT_TRUE(item.error.ok()) << item.error.status;
    EXPECT_EQ(item.document.params.max_tokens, 33);
    EXPECT_EQ(item.document.params.temperature, 0.25);
    EXPECT_THAT(item.document.params.stops, ElementsAre("default stop"));
  }
  const InputItem item =
      Parse(Batch(R"({"messages":[{"role":"user","content":"U"}],"max_completion_tokens":8,"stop":"x"})"));
  EXPECT_EQ(item.document.params.max_tokens, 8);
  EXPECT_THAT(item.document.params.stops, ElementsAre("x"));
  // Members in any order, no id.
  const InputItem other = Parse(
      R"({"body":{"messages":[{"role":"user","content":"U"}]},"url":"/v1/chat/completions","method":"POST"})");
  EXPECT_EQ(Summary(other), ": user=U");
}

TEST(OpenAiLine, Envelope) {
  const std::string body = R"({"messages":[{"role":"user","content":"U"}]})";
  const auto expect = [&](const std::string& line, int64_t column, const std::vector<std::string>& parts,
                          const std::string& reason = "PARAMETER_INVALID", const std::string& id = "c") {
    ExpectBad({line, reason, column, parts, id});
    EXPECT_EQ(Parse(line).document.form, RecordForm::kOpenAi) << line;
  };
  expect(R"({"custom_id":"c","method":"GET"})", 27, {"'method'", "'GET'", "'POST'"});
  expect(R"({"custom_id":"c","url":"/v1/embeddings"})", 24,
         {"'url'", "/v1/embeddings", "/v1/chat/completions"});
  expect(R"({"custom_id":"c","body":5})", 25, {"'body' is 5"});
  expect(R"({"custom_id":"c","text":"T"})", 18, {"'text'", "custom_id, method, url, body"});
  expect(absl::StrCat(R"({"custom_id":"c","url":"/v1/chat/completions","body":)", body, "}"), 1,
         {"'method' is missing"});
  expect(absl::StrCat(R"({"custom_id":"c","method":"POST","body":)", body, "}"), 1, {"'url' is missing"});
  expect(R"({"custom_id":"c","method":"POST","url":"/v1/chat/completions"})", 1, {"'body' is missing"});
  expect(absl::StrCat(R"({"custom_id":7,"body":)", body, "}"), 14, {"custom_id"}, "DOCUMENT_ID_INVALID", "");
}

TEST(OpenAiLine, Body) {
  const std::string good = R"("messages":[{"role":"user","content":"U"}])";
  const auto expect = [](const std::string& body, int64_t column, const std::vector<std::string>& parts,
                         const std::string& reason = "PARAMETER_INVALID") {
    ExpectBad({Batch(body), reason, kBodyColumn - 1 + column, parts, "c"});
  };
  expect("{}", 1, {"body.messages", "missing"});
  expect(R"({"model":7})", 10, {"body.model"});
  expect(R"({"messages":[]})", 13, {"body.messages", "at least one"});
  expect(R"({"messages":"hi"})", 13, {"body.messages"});
  expect(R"({"messages":["hi"]})", 14, {"body.messages[0]"});
  expect(R"({"messages":[{"role":"user"}]})", 14, {"body.messages[0].content", "missing"});
  expect(R"({"messages":[{"content":"x"}]})", 14, {"body.messages[0].role", "missing"});
  expect(R"({"messages":[{"role":"tool","content":"x"}]})", 22,
         {"'tool'", "'system', 'user' or 'assistant'"});
  expect(R"({"messages":[{"role":"user","content":null}]})", 39, {"content' is null"});
  expect(R"({"messages":[{"role":"user","content":"x","name":"n"}]})", 43,
         {"messages[0].name", "role, content"});
  expect(R"({"messages":[{"role":"user","content":[{"type":"image_url","image_url":{}}]}]})", 48,
         {"content[0].type", "image_url", "'text'"});
  expect(R"({"messages":[{"role":"user","content":[{"image_url":{},"type":"image_url"}]}]})", 63,
         {"content[0].type", "image_url", "'text'"});
  expect(R"({"messages":[{"role":"user","content":[{"text":"x"}]}]})", 40, {"content[0].type", "missing"});
  expect(R"({"messages":[{"role":"user","content":[{"type":"text"}]}]})", 40, {"content[0].text", "missing"});
  expect(R"({"messages":[{"role":"user","content":[{"type":"text","text":5}]}]})", 62,
         {"content[0].text", "is 5"});
  expect(R"({"messages":[{"role":"user","content":["x"]}]})", 40, {"content[0]", "'x'"});
  expect(R"({"messages":[{"role":"user","content":" "},{"role":"system","content":[]}]})", 13, {"empty"},
         "DOCUMENT_EMPTY");
  expect(R"({"messages":[{"role":"user","content":"a\u0000"}]})", 39, {"messages[0].content"},
         "DOCUMENT_NOT_UTF8");
  const int64_t next = static_cast<int64_t>(good.size()) + 3;
  struct Case {
    std::string field;
    std::string value;
    std::string expected;
  };
  for (const Case& c : std::vector<Case>{{"max_tokens", "0", "an integer from 1"},
                                         {"max_completion_tokens", "\"5\"", "an integer from 1"},
                                         {"temperature", "101", "a number from 0 to 100"},
                                         {"top_p", "0", "a number above 0"},
                                         {"stop", "[\"a\",\"b\",\"c\",\"d\",\"e\"]", "at most 4"},
                                         {"stop", "\"\"", "not empty"},
                                         {"seed", "-1", "an integer from 0"},
                                         {"n", "2", "expected 1"},
                                         {"n", "true", "expected 1"},
                                         {"stream", "true", "expected false"},
                                         {"stream", "0", "expected false"}}) {
    expect(absl::StrCat("{", good, ",\"", c.field, "\":", c.value, "}"),
           next + static_cast<int64_t>(c.field.size()) + 3, {"body." + c.field, c.expected});
  }
  for (const char* field :
       {"logprobs", "tools", "top_k", "presence_penalty", "metadata", "user", "response_format"}) {
    expect(absl::StrCat("{", good, ",\"", field, "\":null}"), next,
           {absl::StrCat("'body.", field, "'"), "known are"});
  }
  expect(absl::StrCat("{", good, R"(,"max_tokens":5,"max_completion_tokens":5})"), next + 39,
         {"max_completion_tokens", "only one"});
}

TEST(OpenAiLine, Size) {
  LineContext context = Context();
  context.read.max_bytes = 5;
  const auto body = [](const std::string& first, const std::string& second) {
    return Batch(absl::StrCat(R"({"messages":[{"role":"system","content":")", first,
                              R"("},{"role":"user","content":")", second, R"("}]})"));
  };
  EXPECT_TRUE(Parse(body("12", "345"), context).error.ok());
  ExpectBad({body("123", "456"), "DOCUMENT_TOO_LARGE", kBodyColumn + 12, {"6 bytes", "more than 5"}, "c"},
            context);
}

}  // namespace
}  // namespace snapkv::launch
