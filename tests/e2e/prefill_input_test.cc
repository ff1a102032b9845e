// SPDX-License-Identifier: Apache-2.0
// What snapkv-prefill reads: documents in every state, prompts of token ids, and model files that are
// damaged.
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <random>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/e2e/prefill_program.h"
#include "tests/support/golden.h"

namespace snapkv::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::SizeIs;

namespace fs = std::filesystem;

// Ends with `exit_code` and one error line that contains every one of `parts`.
void ExpectError(const ProgramResult& result, int exit_code, const Strings& parts) {
  EXPECT_EQ(result.exit_code, exit_code) << result.ToString();
  const Strings lines = ErrorLines(result);
  ASSERT_THAT(lines, SizeIs(1)) << result.ToString();
  for (const std::string& part : parts) EXPECT_THAT(lines[0], HasSubstr(part));
}

// Runs the small model on a document with these bytes; 4 tokens as a record.
ProgramResult RunDocument(const TestFolder& folder, const std::string& bytes, const Strings& flags = {}) {
  const std::string path = folder.Write("document.txt", bytes);
  return RunPrefill(WithSmallModel(
      Join({"--input", path, "--max-tokens", "4", "--ignore-eos", "--format", "jsonl"}, flags)));
}

// A rejected document: exit code 1, and its record says why.
void ExpectRejected(const ProgramResult& result, const std::string& reason, const Strings& parts) {
  ExpectError(result, 1, parts);
  const auto record = ParseRecord(result.out);
  ASSERT_TRUE(record.is_object());
  EXPECT_EQ(record["error"]["code"], "INVALID_ARGUMENT");
  EXPECT_EQ(record["error"]["reason"], reason);
  const std::string said =
      record["id"].get<std::string>() + ": " + record["error"]["message"].get<std::string>();
  for (const std::string& part : parts) EXPECT_THAT(said, HasSubstr(part));
}

int64_t PromptTokens(const ProgramResult& result) {
  EXPECT_EQ(result.exit_code, 0) << result.ToString();
  const auto record = ParseRecord(result.out);
  return record.is_object() && record["usage"].is_object() ? record["usage"]["prompt_tokens"].get<int64_t>()
                                                           : -1;
}

// Bytes of the prompt around the document.
int64_t Around() {
  const std::string question = "Summarize the document above in one short paragraph.";
  // Three control tokens are one token each: begin, end, begin.
  return static_cast<int64_t>(RenderedPrompt("", question).size() -
                              std::string("<|im_start|><|im_end|><|im_start|>").size()) +
         3;
}

TEST(Document, MissingFolderAndUnreadable) {
  const TestFolder folder;
  ExpectError(RunPrefill(WithSmallModel({"--input", folder.Path("none.txt")})), 3,
              {folder.Path("none.txt"), "No such file"});
  ExpectError(RunPrefill(WithSmallModel({"--input", folder.path()})), 3, {folder.path(), "no document"});
  ExpectError(RunPrefill(WithSmallModel({"--input", folder.path()}), 2), 3, {folder.path(), "no document"});
  ExpectError(RunPrefill(WithSmallModel({"--token-ids", folder.Path("none.json")})), 3, {"none.json"});
  ExpectError(RunPrefill(WithSmallModel({"--token-ids", folder.path()})), 3, {"directory"});
}

TEST(Document, NoPermission) {
  if (geteuid() == 0) GTEST_SKIP() << "root may read every file";
  const TestFolder folder;
  const std::string path = folder.Write("secret.txt", "Text.");
  ASSERT_EQ(chmod(path.c_str(), 0), 0);
  ExpectError(RunPrefill(WithSmallModel({"--input", path})), 3, {path, "Permission denied"});
}

TEST(Document, EndlessInputEnds) {
  ProgramOptions options;
  const ProgramResult result = RunPrefill(WithSmallModel({"--input", "/dev/zero"}), 0, options);
  ExpectError(result, 1, {"/dev/zero", "--max-document-bytes"});
  EXPECT_LT(result.peak_rss_bytes, int64_t{1} << 30);
}

TEST(Document, Empty) {
  const TestFolder folder;
  for (const std::string& bytes :
       Strings{"", "\n", " \t\r\n \n", "\xEF\xBB\xBF", "\xEF\xBB\xBF \n", "\v\f"}) {
    ExpectRejected(RunDocument(folder, bytes), "DOCUMENT_EMPTY", {"document.txt", "empty"});
    ExpectRejected(RunDocument(folder, bytes, {"--raw"}), "DOCUMENT_EMPTY", {"document.txt", "empty"});
  }
  // Without a record, the line on stderr is all.
  const ProgramResult text = RunPrefill(WithSmallModel({"--input", folder.Write("e.txt", "")}));
  ExpectError(text, 1, {"e.txt", "empty"});
  EXPECT_EQ(text.out, "");
}

TEST(Document, NulBytes) {
  const TestFolder folder;
  ExpectRejected(RunDocument(folder, std::string("abc\0def", 7)), "DOCUMENT_NOT_UTF8",
                 {"document.txt", "NUL", "offset 3"});
  ExpectRejected(RunDocument(folder, std::string("\xEF\xBB\xBF"
                                                 "ab\0",
                                                 6)),
                 "DOCUMENT_NOT_UTF8", {"offset 5"});
  ExpectRejected(RunDocument(folder, std::string("\xe9\xe9\0", 3), {"--encoding", "latin1"}),
                 "DOCUMENT_NOT_UTF8", {"offset 2"});
  ExpectRejected(RunDocument(folder, std::string("\0", 1)), "DOCUMENT_NOT_UTF8", {"offset 0"});
}

TEST(Document, NotUtf8) {
  const TestFolder folder;
  const std::pair<std::string, const char*> cases[] = {
      {"caf\xe9 au lait", "offset 3"},    // Latin-1
      {"ab\xc3", "offset 2"},             // cut off at the end
      {"ab\xc0\xaf", "offset 2"},         // overlong
      {"ab\xed\xa0\x80", "offset 2"},     // a surrogate
      {"a\xf4\x90\x80\x80", "offset 1"},  // above the last code point
      {"\xEF\xBB\xBF"
       "abc\xe9",
       "offset 6"},  // counted from the file's first byte
      {std::string(70'000, 'x') + "\x80", "offset 70000"}};
  for (const auto& [bytes, offset] : cases)
    ExpectRejected(RunDocument(folder, bytes), "DOCUMENT_NOT_UTF8",
                   {"document.txt", offset, "--encoding latin1"});
}

TEST(Document, Utf16IsNamed) {
  const TestFolder folder;
  for (const std::string mark : {"\xff\xfe", "\xfe\xff"})
    ExpectRejected(RunDocument(folder, mark + "ab"), "DOCUMENT_NOT_UTF8",
                   {"document.txt", "offset 0", "UTF-16", "iconv"});
}

TEST(Document, Latin1) {
  const TestFolder folder;
  // Each of the two characters above 7F becomes two bytes, that is, two tokens.
  EXPECT_EQ(PromptTokens(RunDocument(folder, "caf\xe9 \xff", {"--encoding", "latin1"})), Around() + 6 + 2);
}

TEST(Document, ByteOrderMarkIsNoText) {
  const TestFolder folder;
  EXPECT_EQ(PromptTokens(RunDocument(folder, "abc")), Around() + 3);
  EXPECT_EQ(PromptTokens(RunDocument(folder,
                                     "\xEF\xBB\xBF"
                                     "abc")),
            Around() + 3);
  EXPECT_EQ(PromptTokens(RunDocument(folder,
                                     "a\xEF\xBB\xBF"
                                     "bc")),
            Around() + 6)
      << "only in front";
}

TEST(Document, LineEndsAreKept) {
  const TestFolder folder;
  EXPECT_EQ(PromptTokens(RunDocument(folder, "a\r\nb\r\n")), Around() + 6);
  EXPECT_EQ(PromptTokens(RunDocument(folder, "a\nb\n")), Around() + 4);
}

TEST(Document, RawIsTheWholePromptWithControlTokens) {
  const TestFolder folder;
  const std::string text = "<|im_start|>user\nHi<|im_end|>\n";
  EXPECT_EQ(PromptTokens(RunDocument(folder, text, {"--raw"})), 1 + 5 + 2 + 1 + 1);
  const ProgramResult printed =
      RunPrefill(WithSmallModel({"--input", folder.Write("r.txt", text), "--raw", "--print-tokens"}));
  EXPECT_THAT(printed.out, AllOf(HasSubstr("257\t\"<|im_start|>\"\n"), HasSubstr("258\t\"<|im_end|>\"\n")));
}

TEST(Document, BosOfRawPromptsAsTheModelSays) {
  const TestFolder folder;
  GgufWriter writer = TinyTextGguf(SmallOptions());
  writer.Add("tokenizer.ggml.add_bos_token", true);
  const std::string model = folder.Path("bos.gguf");
  ASSERT_TRUE(writer.Write(model));
  const std::string document = folder.Write("d.txt", "Hi");
  const ProgramResult raw = RunPrefill({"--model", model, "--input", document, "--raw", "--print-tokens"});
  EXPECT_EQ(raw.out, "257\t\"<|im_start|>\"\n72\t\"H\"\n105\t\"i\"\n") << raw.ToString();
}

TEST(Document, NoTemplate) {
  const TestFolder folder;
  GgufWriter writer = TinyTextGguf(SmallOptions());
  const std::string with = [&] {
    const std::string path = folder.Path("t.gguf");
    EXPECT_TRUE(writer.Write(path));
    return Slurp(path);
  }();
  // The key renamed, so that nobody finds a template.
  std::string without = with;
  const size_t at = without.find("tokenizer.chat_template");
  ASSERT_NE(at, std::string::npos);
  without.replace(at, std::string("tokenizer.chat_template").size(), "tokenizer.chat_tempiate");
  const std::string model = folder.Write("without.gguf", without);
  const std::string document = folder.Write("d.txt", "Hi");
  ExpectError(RunPrefill({"--model", model, "--input", document}), 1, {"chat template", "--raw"});
  EXPECT_EQ(RunPrefill({"--model", model, "--input", document, "--raw", "--max-tokens", "1"}).exit_code, 0);
}

TEST(Document, OverTheContext) {
  const TestFolder folder;
  const int64_t around = Around();
  // 4096 - 4 to generate: exactly full, and one too many.
  const std::string full(static_cast<size_t>(4092 - around), 'x');
  EXPECT_EQ(PromptTokens(RunDocument(folder, full)), 4092);
  ExpectRejected(RunDocument(folder, full + "x"), "CONTEXT_EXCEEDED", {"document.txt", "4093", "4096"});
  ExpectRejected(RunDocument(folder, full, {"--context", "4095"}), "CONTEXT_EXCEEDED", {"4092", "4095"});
  ExpectRejected(RunDocument(folder, std::string(200'000, 'x')), "CONTEXT_EXCEEDED",
                 {std::to_string(200'000 + around), "4096"});
  const std::string ids = folder.WriteIds("ids.json", std::vector<int32_t>(4096, 7));
  ExpectRejected(RunPrefill(WithSmallModel({"--token-ids", ids, "--max-tokens", "1"})), "CONTEXT_EXCEEDED",
                 {"ids.json", "4096", "4097"});
  ExpectRejected(RunPrefill(WithSmallModel({"--token-ids", ids, "--max-tokens", "1"}), 2), "CONTEXT_EXCEEDED",
                 {"ids.json", "4096", "4097"});
}

TEST(Document, SharedLatin1Document) {
  const std::string path = SourceFolder() + "/../shared/documents/1974-Nixon.txt";
  if (!fs::exists(path)) GTEST_SKIP() << path << " is not there";
  const std::string bytes = Slurp(path);
  // Where the first byte above 7F stands: the file is ASCII before it, and Latin-1 there.
  const size_t offset = static_cast<size_t>(
      std::find_if(bytes.begin(), bytes.end(), [](char c) { return (c & 0x80) != 0; }) - bytes.begin());
  const ProgramResult result = RunPrefill(WithSmallModel({"--input", path}));
  ExpectError(result, 1,
              {"shared/documents/1974-Nixon.txt", "offset " + std::to_string(offset), "--encoding latin1"});
  const ProgramResult latin1 = RunPrefill(WithSmallModel({"--input", path, "--encoding", "latin1"}));
  ExpectError(latin1, 1,
              {"shared/documents/1974-Nixon.txt", "4096"});  // read, and then too long for this model
}

TEST(Document, FromStdin) {
  for (const int ranks : {0, 2}) {
    ProgramOptions options;
    options.input = "A document.";
    const Strings flags =
        WithSmallModel({"--input", "-", "--max-tokens", "4", "--ignore-eos", "--format", "jsonl"});
    const ProgramResult result = RunPrefill(flags, ranks, options);
    EXPECT_EQ(PromptTokens(result), Around() + 11);
    EXPECT_EQ(ParseRecord(result.out)["id"], "-");
    options.input = "";
    ExpectRejected(RunPrefill(flags, ranks, options), "DOCUMENT_EMPTY", {"empty"});
    // More than a pipe holds.
    options.input = std::string(300'000, 'x');
    ExpectRejected(RunPrefill(flags, ranks, options), "CONTEXT_EXCEEDED",
                   {std::to_string(300'000 + Around())});
  }
}

TEST(Document, TokenIdsFromStdin) {
  ProgramOptions options;
  options.input = "[1, 2, 3]";
  EXPECT_EQ(PromptTokens(RunPrefill(WithSmallModel({"--token-ids", "-", "--max-tokens", "2"}), 0, options)),
            3);
}

TEST(TokenIdFile, Bad) {
  const TestFolder folder;
  const std::string deep(200'000, '[');
  const struct {
    std::string json;
    Strings parts;
  } cases[] = {
      {"", {"JSON array"}},
      {"[1, 2", {"JSON array"}},
      {"[1, 2]]", {"JSON array"}},
      {"{\"ids\": [1]}", {"JSON array"}},
      {"7", {"JSON array"}},
      {"\"[1]\"", {"JSON array"}},
      {"[]", {"at least one"}},
      {"[1, -1]", {"element 1", "-1", "258"}},
      {"[259]", {"element 0", "259", "258"}},
      {"[1.0]", {"element 0", "1.0"}},
      {"[1, 2, 1e2]", {"element 2"}},
      {"[2147483648]", {"2147483648"}},
      {"[4294967297]", {"4294967297"}},
      {"[9223372036854775808]", {"9223372036854775808"}},
      {"[18446744073709551615]", {"18446744073709551615"}},
      {"[99999999999999999999999]", {"element 0"}},
      {"[true]", {"element 0", "true"}},
      {"[null]", {"element 0", "null"}},
      {"[\"1\"]", {"element 0"}},
      {"[\"" + std::string(100'000, 'x') + "\"]", {"element 0"}},
      {"[[1]]", {"element 0"}},
      {deep, {"JSON array"}},
      {"[" + deep + std::string(deep.size(), ']') + "]", {"element 0"}},
      {std::string("[1\0]", 4), {"JSON array"}},
      {"[1] [2]", {"JSON array"}},
  };
  for (const auto& bad : cases) {
    const std::string path = folder.Write("ids.json", bad.json);
    const ProgramResult result = RunPrefill(WithSmallModel({"--token-ids", path}));
    ExpectError(result, 3, Join({"ids.json"}, bad.parts));
    EXPECT_LT(result.err.size(), 1000u) << bad.json.substr(0, 50) << ": the message is too long";
  }
}

TEST(TokenIdFile, Good) {
  const TestFolder folder;
  for (const std::string& json : Strings{"[0]", "[258, 0]", " [ 1 ,\n2\t] \n", "\xEF\xBB\xBF[1]"}) {
    const ProgramResult result =
        RunPrefill(WithSmallModel({"--token-ids", folder.Write("ids.json", json), "--max-tokens", "2"}));
    EXPECT_EQ(result.exit_code, 0) << json << result.ToString();
  }
}

TEST(ModelFile, Damaged) {
  const TestFolder folder;
  const std::string good = Slurp(SmallModel()), document = folder.Write("d.txt", "Text.");
  std::mt19937 random(7);
  std::string noise(100'000, '\0');
  for (char& c : noise) c = static_cast<char>(random());
  std::string no_tokenizer = good;
  no_tokenizer.replace(no_tokenizer.find("tokenizer.ggml.model"), 20, "tokenizer.ggml.m0del");
  std::string architecture = good;
  architecture.replace(architecture.find("llama"), 5, "llamb");
  std::vector<std::pair<std::string, std::string>> files = {{"zero.gguf", ""},
                                                            {"four.gguf", good.substr(0, 4)},
                                                            {"noise.gguf", noise},
                                                            {"signed_noise.gguf", "GGUF" + noise},
                                                            {"text.gguf", "# A model card\n"},
                                                            {"zeros.gguf", std::string(good.size(), '\0')},
                                                            {"no_tokenizer.gguf", no_tokenizer},
                                                            {"architecture.gguf", architecture}};
  for (const double part : {0.01, 0.1, 0.3, 0.5, 0.9, 0.99})
    files.push_back({"cut" + std::to_string(part) + ".gguf",
                     good.substr(0, static_cast<size_t>(part * static_cast<double>(good.size())))});
  files.push_back({"one_short.gguf", good.substr(0, good.size() - 1)});
  for (const auto& [name, bytes] : files) {
    const std::string path = folder.Write(name, bytes);
    ExpectError(RunPrefill({"--model", path, "--input", document, "--max-tokens", "2"}), 3, {name});
  }
  const std::string cut = folder.Write("cut.gguf", good.substr(0, good.size() / 2));
  ExpectError(RunPrefill({"--model", cut, "--input", document}, 2), 3, {"cut.gguf"});
  ExpectError(RunPrefill({"--model", folder.path(), "--input", document}), 3, {folder.path(), "directory"});
  ExpectError(RunPrefill({"--model", folder.Path("none.gguf"), "--input", document}), 3, {"none.gguf"});
  ExpectError(RunPrefill({"--model", "/dev/null", "--input", document}), 3, {"/dev/null"});
}

TEST(ModelFile, NoPermission) {
  if (geteuid() == 0) GTEST_SKIP() << "root may read every file";
  const TestFolder folder;
  const std::string path = folder.Write("m.gguf", Slurp(SmallModel()));
  ASSERT_EQ(chmod(path.c_str(), 0), 0);
  ExpectError(RunPrefill({"--model", path, "--input", folder.Write("d.txt", "x")}), 3, {path, "permission"});
}

// Not a number in the weights: the document fails and says so.
TEST(ModelFile, NanInWeights) {
  const TestFolder folder;
  std::string bytes = Slurp(SmallModel());
  // The embedding is the first tensor; the data section is behind all metadata, so the last bytes are
  // weights.
  for (size_t i = bytes.size() - 96; i + 4 <= bytes.size(); i += 4)
    bytes.replace(i, 4, "\x00\x00\xc0\x7f", 4);
  const std::string model = folder.Write("nan.gguf", bytes);
  for (const int ranks : {0, 2}) {
    const ProgramResult result =
        RunPrefill({"--model", model, "--input", folder.Write("d.txt", "x"), "--format", "jsonl"}, ranks);
    ExpectError(result, 1, {"d.txt", "NaN"});
    const auto record = ParseRecord(result.out);
    ASSERT_TRUE(record.is_object());
    EXPECT_EQ(record["error"]["code"], "INTERNAL");
    EXPECT_EQ(record["error"]["reason"], "INTERNAL");
  }
}

}  // namespace
}  // namespace snapkv::testing
