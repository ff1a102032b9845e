// SPDX-License-Identifier: Apache-2.0
// Batches through the real program: inputs, records, order, errors, resume, sampling.
#include <signal.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/model/gguf.h"
#include "tests/e2e/batch_support.h"

namespace snapkv::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;

std::vector<std::string> Ids(const std::vector<Json>& records) {
  std::vector<std::string> ids;
  for (const Json& record : records) ids.push_back(record["id"]);
  return ids;
}

class Batch : public ::testing::Test {
 protected:
  std::map<std::string, Json> RunRecords(const Strings& flags, int exit_code = 0, int ranks = 0) {
    const ProgramResult result = RunBatchProgram(flags, ranks);
    EXPECT_EQ(result.exit_code, exit_code) << result.ToString();
    return RecordsById(result.out);
  }

  const TestFolder folder_;
};

TEST_F(Batch, AFolderAPatternFilesAndLinesTogether) {
  fs::create_directories(folder_.Path("docs/sub"));
  folder_.Write("docs/b.txt", "Text b.");
  folder_.Write("docs/a.md", "\xEF\xBB\xBFText a.\r\nTwo lines.");
  folder_.Write("docs/sub/c.txt", "Text c.");
  folder_.Write("docs/skipped.pdf", "no text");
  folder_.Write("x1.txt", "Text x1.");
  folder_.Write("x2.txt", "Text x2.");
  folder_.Write("lines.jsonl", "\xEF\xBB\xBF" + BatchLine("one", "Text one.") + "\r\n\n" +
                                   "{\"text\": \"No id.\"}\r\n" +
                                   "{\"path\": \"x2.txt\", \"id\": \"by path\"}");
  ProgramOptions options;
  options.folder = folder_.path();
  const ProgramResult result = RunBatchProgram({"--input", "docs", "--input", "x?.txt", "--input",
                                                "./lines.jsonl", "--ordered", "--output", "o.jsonl"},
                                               0, options);
  ASSERT_EQ(result.exit_code, 0) << result.ToString();
  EXPECT_EQ(result.out, "");
  EXPECT_THAT(Ids(ParseRecords(Slurp(folder_.Path("o.jsonl")))),
              ElementsAre("docs/a.md", "docs/b.txt", "docs/sub/c.txt", "x1.txt", "x2.txt", "one",
                          "lines.jsonl:line-4", "by path"));
}

TEST_F(Batch, ARecordIsThatOfItsDocumentAlone) {
  const std::string lines = folder_.Write("lines.jsonl", BatchLines(12));
  const auto together = RunRecords({"--input", lines, "--return-token-ids"});
  ASSERT_THAT(together, SizeIs(12));
  for (const Strings& flags : std::vector<Strings>{{"--max-batch", "1"}, {"--max-batch", "3", "--ordered"}}) {
    for (const int ranks : {0, 3}) {
      const auto other = RunRecords(Join({"--input", lines, "--return-token-ids"}, flags), 0, ranks);
      ASSERT_THAT(other, SizeIs(12));
      for (const auto& [id, record] : together) {
        EXPECT_EQ(other.at(id)["token_ids"], record["token_ids"]) << id << " on " << ranks << " ranks";
        EXPECT_EQ(other.at(id)["summary"], record["summary"]) << id;
        EXPECT_EQ(other.at(id)["cache"], record["cache"]) << id;
        EXPECT_EQ(other.at(id)["params_sha256"], record["params_sha256"]) << id;
      }
    }
  }
  // And what a run of one text file gives.
  const Json line = Json::parse(BatchLines(12).substr(0, BatchLines(12).find('\n')));
  const std::string text = folder_.Write("d0.txt", line["text"]);
  const auto alone = RunRecords({"--input", text, "--format", "jsonl", "--return-token-ids"});
  EXPECT_EQ(alone.at(text)["token_ids"], together.at("d0")["token_ids"]);
}

TEST_F(Batch, EveryBadLineIsOneRecordAndTheBatchGoesOn) {
  const std::string latin = folder_.Write("latin.txt", "caf\xE9");
  const std::string lines =
      "not json\n"                                                                   // line-1
      "[1, 2]\n"                                                                     // line-2
      "{\"id\": \"ok\", \"text\": \"Fine.\"}\n"                                      // ok
      "{\"id\": \"ok\", \"text\": \"Again.\"}\n"                                     // line-4: duplicate
      "{\"id\": \"\", \"text\": \"a\"}\n"                                            // line-5
      "{\"id\": 7, \"text\": \"a\"}\n"                                               // line-6
      "{\"id\": \"blank\", \"text\": \" \\n \"}\n"                                   // blank
      "{\"id\": \"nul\", \"text\": \"a\\u0000b\"}\n"                                 // nul
      "{\"id\": \"latin\", \"path\": \"latin.txt\"}\n"                               // latin
      "{\"id\": \"latin ok\", \"path\": \"latin.txt\", \"encoding\": \"latin1\"}\n"  // latin ok
      "{\"id\": \"gone\", \"path\": \"gone.txt\"}\n"                                 // gone
      "{\"id\": \"typo\", \"text\": \"a\", \"max_token\": 3}\n"                      // typo
      "{\"id\": \"range\", \"text\": \"a\", \"max_tokens\": 0}\n"                    // range
      "{\"id\": \"long\", \"text\": \"" +
      std::string(5000, 'x') +
      "\"}\n"                                                               // long
      "{\"id\": \"bad\xFF\", \"text\": \"a\"}\n"                            // line-15
      "{\"id\": \"stop\", \"text\": \"a\", \"stop_token_ids\": [99999]}\n"  // stop
      "{\"id\": \"huge\", \"text\": \"" +
      std::string(20000, 'y') +
      "\"}\n"  // huge
      "{\"custom_id\": \"chat\", \"method\": \"POST\", \"url\": \"/v1/chat/completions\", \"body\": "
      "{\"messages\": "
      "[{\"role\": \"user\", \"content\": \"Hi\"}], \"logprobs\": true}}\n"  // chat
      "{\"custom_id\": \"chat ok\", \"method\": \"POST\", \"url\": \"/v1/chat/completions\", \"body\": "
      "{\"model\": "
      "\"m\", \"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}], \"max_tokens\": 3}}\n";  // chat ok
  const std::string file = folder_.Write("lines.jsonl", lines);
  const auto records =
      RunRecords({"--input", file, "--max-document-bytes", "16K", "--max-line-bytes", "24K"}, 1);
  const std::map<std::string, std::string> reasons = {{"line-1", "LINE_INVALID"},
                                                      {"line-2", "LINE_INVALID"},
                                                      {"ok", ""},
                                                      {"line-4", "DOCUMENT_ID_DUPLICATE"},
                                                      {"line-5", "DOCUMENT_ID_INVALID"},
                                                      {"line-6", "DOCUMENT_ID_INVALID"},
                                                      {"blank", "DOCUMENT_EMPTY"},
                                                      {"nul", "DOCUMENT_NOT_UTF8"},
                                                      {"latin", "DOCUMENT_NOT_UTF8"},
                                                      {"latin ok", ""},
                                                      {"gone", "DOCUMENT_NOT_FOUND"},
                                                      {"typo", "PARAMETER_INVALID"},
                                                      {"range", "PARAMETER_INVALID"},
                                                      {"long", "CONTEXT_EXCEEDED"},
                                                      {"line-15", "LINE_INVALID"},
                                                      {"stop", "PARAMETER_INVALID"},
                                                      {"huge", "DOCUMENT_TOO_LARGE"},
                                                      {"chat", "PARAMETER_INVALID"},
                                                      {"chat ok", ""}};
  EXPECT_THAT(records, SizeIs(reasons.size()));
  for (const auto& [id, reason] : reasons) {
    ASSERT_TRUE(records.contains(id)) << id;
    EXPECT_EQ(ReasonOf(records.at(id)), reason) << id << ": " << records.at(id).dump();
  }
  EXPECT_EQ(records.at("line-1")["error"]["line"], 1);
  EXPECT_EQ(records.at("line-1")["error"]["column"], 2);
  EXPECT_EQ(records.at("line-15")["error"]["column"], 12) << records.at("line-15").dump();
  EXPECT_EQ(records.at("typo")["error"]["line"], 12);
  EXPECT_THAT(records.at("typo")["error"]["message"].get<std::string>(), HasSubstr("max_token"));
  EXPECT_THAT(records.at("long")["error"]["message"].get<std::string>(), HasSubstr("4096"));
  EXPECT_EQ(records.at("chat")["response"]["status_code"], 400) << "never 200 with an error";
  EXPECT_EQ(records.at("chat ok")["response"]["status_code"], 200);
  EXPECT_EQ(records.at("chat ok")["response"]["body"]["usage"]["completion_tokens"], 3);
}

TEST_F(Batch, NaNIsAnErrorOfItsDocument) {
  const std::string model = ModelWithoutZ(folder_);
  const std::string lines = folder_.Write(
      "lines.jsonl", BatchLine("a", "Fine.") + BatchLine("z", "Zero.") + BatchLine("b", "Fine."));
  for (const int ranks : {0, 2}) {
    const ProgramResult result = RunPrefill({"--model", model, "--dtype", "f32", "--threads", "1", "--input",
                                             lines, "--max-tokens", "4", "--prompt", "Why?"},
                                            ranks);
    EXPECT_EQ(result.exit_code, 1) << result.ToString();
    const auto records = RecordsById(result.out);
    EXPECT_EQ(ReasonOf(records.at("z")), "INTERNAL");
    EXPECT_THAT(records.at("z")["error"]["message"].get<std::string>(), HasSubstr("NaN"));
    EXPECT_EQ(ReasonOf(records.at("a")) + ReasonOf(records.at("b")), "");
  }
}

TEST_F(Batch, NoMemoryIsAnErrorOfItsDocument) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer needs more address space than this test allows";
#endif
  TinyModelOptions shape = SmallOptions();
  shape.context = int64_t{1} << 28;
  const std::string model = folder_.Path("wide.gguf");
  ASSERT_TRUE(TinyTextGguf(shape).Write(model));
  // 200 million rows take 51 GB; the process may have 4.
  const std::string lines = folder_.Write(
      "lines.jsonl", BatchLine("a", "Fine.") + BatchLine("big", "Wide.", {{"max_tokens", 200'000'000}}) +
                         BatchLine("b", "Fine."));
  ProgramOptions options;
  options.argv = {"/bin/sh", "-c", "ulimit -v 4000000; exec \"$0\" \"$@\""};
  for (const std::string& argument : PrefillCommand(
           {"--model", model, "--dtype", "f32", "--threads", "1", "--input", lines, "--max-tokens", "4"}))
    options.argv.push_back(argument);
  const auto result = RunProgram(options);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->exit_code, 1) << result->ToString();
  const auto records = RecordsById(result->out);
  EXPECT_EQ(ReasonOf(records.at("big")), "OUT_OF_MEMORY");
  EXPECT_EQ(ReasonOf(records.at("a")) + ReasonOf(records.at("b")), "");
}

TEST_F(Batch, StrictEndsAtTheFirstBadLine) {
  const std::string file = folder_.Write("lines.jsonl", BatchLines(2) + "bad\n" + BatchLine("later", "x"));
  const ProgramResult result = RunBatchProgram({"--input", file, "--strict", "--ordered"});
  EXPECT_EQ(result.exit_code, 7) << result.ToString();
  EXPECT_THAT(Ids(ParseRecords(result.out)), ElementsAre("d0", "d1", "line-3"));
  EXPECT_THAT(result.err, HasSubstr("--strict"));
}

TEST_F(Batch, NoGoodDocumentNeedsNoWeights) {
  const std::string file = folder_.Write("lines.jsonl", "bad\n{}\n");
  const ProgramResult result = RunBatchProgram({"--input", file}, 2);
  EXPECT_EQ(result.exit_code, 1) << result.ToString();
  EXPECT_THAT(ParseRecords(result.out), SizeIs(2));
  EXPECT_THAT(result.err, HasSubstr("2 documents: 0 summarised, 2 failed\n"));
}

// A batch without any document is an input that cannot be read; one empty text is a document that failed.
TEST_F(Batch, AnEmptyInput) {
  const std::string out = folder_.Path("out.jsonl");
  const std::string blank = folder_.Write("blank.jsonl", "\n\r\n");
  fs::create_directories(folder_.Path("none"));
  ProgramOptions no_input;
  no_input.input = "";
  const std::vector<Strings> inputs = {{"--input", blank},
                                       {"--input", folder_.Write("empty.jsonl", ""), "--input", blank},
                                       {"--input", folder_.Path("none")},
                                       {"--input", folder_.Path("none/*.txt")},
                                       {"--input", "-", "--input-format", "jsonl"}};
  for (const Strings& input : inputs) {
    for (const Strings& more :
         std::vector<Strings>{{"--output", out}, {"--output", out, "--resume"}, {"--dry-run"}}) {
      const ProgramResult result = RunBatchProgram(Join(input, more), 0, no_input);
      EXPECT_EQ(result.exit_code, 3) << result.ToString();
      EXPECT_EQ(ErrorLines(result).size(), 1u) << result.ToString();
      EXPECT_FALSE(fs::exists(out)) << "an empty output is left";
    }
  }
  const ProgramResult ranks = RunBatchProgram(inputs[0], 2);
  EXPECT_EQ(ranks.exit_code, 3) << ranks.ToString();
  EXPECT_THAT(ranks.err, HasSubstr("the input holds no document"));
  const ProgramResult text = RunBatchProgram({"--input", "-", "--format", "jsonl"}, 0, no_input);
  EXPECT_EQ(text.exit_code, 1) << text.ToString();
  EXPECT_EQ(ReasonOf(ParseRecord(text.out)), "DOCUMENT_EMPTY");
}

TEST_F(Batch, AnOutputThatTheNextRunWouldReadIsRefusedAtOnce) {
  fs::create_directories(folder_.Path("docs/sub"));
  folder_.Write("docs/a.txt", "Text a.");
  ProgramOptions options;
  options.folder = folder_.path();
  for (const Strings& flags : std::vector<Strings>{{"--input", "docs", "--output", "docs/out.txt"},
                                                   {"--input", "docs", "--output", "docs/sub/out.md"},
                                                   {"--input", "docs/*.txt", "--output", "./docs/out.txt"},
                                                   {"--input", "docs", "--stats", "docs/s.txt"}}) {
    const ProgramResult result = RunBatchProgram(flags, 0, options);
    EXPECT_EQ(result.exit_code, 2) << result.ToString();
    EXPECT_THAT(result.err, HasSubstr("would be an input of the next run, by --input docs"));
    EXPECT_FALSE(fs::exists(folder_.Path(flags[3])));
  }
  // What the folder is not searched for may lie there.
  EXPECT_EQ(RunBatchProgram({"--input", "docs", "--output", "docs/out.jsonl"}, 0, options).exit_code, 0);
}

TEST_F(Batch, OnePipeForInputAndOutputIsRefused) {
  const std::string pipe = folder_.Path("pipe.jsonl"), link = folder_.Path("link.jsonl");
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  fs::create_symlink(pipe, link);
  for (const std::string& out : {pipe, link}) {
    const ProgramResult result = RunBatchProgram({"--input", pipe, "--output", out});
    EXPECT_EQ(result.exit_code, 2) << result.ToString();
    EXPECT_THAT(result.err, HasSubstr("is the input"));
  }
}

TEST_F(Batch, ASignalEndsTheWaitForAReaderOfAPipe) {
  const std::string pipe = folder_.Path("pipe");
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  ProgramOptions options;
  options.argv = PrefillCommand(
      WithSmallModel({"--input", folder_.Write("lines.jsonl", BatchLines(2)), "--output", pipe}));
  auto program = Program::Start(options);
  ASSERT_TRUE(program.ok()) << program.status();
  ASSERT_TRUE((*program)->WaitForOutput("waiting for somebody to read this pipe"));
  kill((*program)->pid(), SIGTERM);
  const ProgramResult result = (*program)->Wait();
  EXPECT_EQ(result.exit_code, 143) << result.ToString();
}

// Lines of stderr.
std::vector<std::string> ErrLines(const ProgramResult& result) {
  std::vector<std::string> lines;
  std::istringstream text(result.err);
  for (std::string line; std::getline(text, line);) lines.push_back(line);
  return lines;
}

TEST_F(Batch, TheClosingTableIsInTheOrderOfTheInput) {
  // The first document finishes last.
  std::string lines = BatchLine("d0", "Long.", {{"max_tokens", 60}}) + "bad\n";
  for (int i = 2; i < 8; ++i) lines += BatchLine("d" + std::to_string(i), "Short.", {{"max_tokens", 2}});
  const ProgramResult result =
      RunBatchProgram({"--input", folder_.Write("lines.jsonl", lines), "--ignore-eos"}, 2);
  EXPECT_EQ(result.exit_code, 1) << result.ToString();
  EXPECT_EQ(ParseRecords(result.out).back()["id"], "d0");
  std::vector<std::string> ids;
  bool in_table = false;
  for (const std::string& line : ErrLines(result)) {
    if (in_table && line.empty()) break;
    if (in_table) ids.push_back(line.substr(0, line.find(' ')));
    in_table = in_table || line.starts_with("document ");
  }
  EXPECT_THAT(ids, ElementsAre("d0", "line-2", "d2", "d3", "d4", "d5", "d6", "d7"));
  // 60 and 6 times 2 tokens; a document's first comes from its prefill.
  EXPECT_THAT(result.err,
              ::testing::ContainsRegex("8 documents: 7 summarised, 1 failed; [0-9]+ prompt tokens, 72 "
                                       "generated in [^(]+ \\([0-9.]+ tokens/s\\); prefill [0-9.]+ "
                                       "tokens/s for [^,]+, decode [0-9.]+ tokens/s for "));
}

TEST_F(Batch, ManyDocumentsAreClosedWithTheFailedOnes) {
  std::string lines;
  for (int i = 0; i < 60; ++i)
    lines += i % 2 == 1 ? BatchLine("", "x") : BatchLine("d" + std::to_string(i), "Text.");
  const ProgramResult result = RunBatchProgram({"--input", folder_.Write("lines.jsonl", lines)});
  EXPECT_EQ(result.exit_code, 1) << result.ToString();
  const std::vector<std::string> err = ErrLines(result);
  const auto heading = std::find(err.begin(), err.end(), "failed:");
  ASSERT_NE(heading, err.end()) << result.ToString();
  ASSERT_EQ(err.end() - heading, 22) << result.ToString();
  for (int i = 0; i < 20; ++i) {
    EXPECT_THAT(heading[i + 1],
                ::testing::MatchesRegex("  line-" + std::to_string(2 * i + 2) + " +DOCUMENT_ID_INVALID"));
  }
  EXPECT_EQ(heading[21], "  and 10 more");
}

TEST_F(Batch, FieldsOfARecordBeatFlags) {
  const std::string text = "The same text for all.";
  const std::string file =
      folder_.Write("lines.jsonl", BatchLine("flag", text) + BatchLine("tokens", text, {{"max_tokens", 3}}) +
                                       BatchLine("prompt", text, {{"prompt", "Why?"}}) +
                                       BatchLine("system", text, {{"system", "Be brief."}}) +
                                       BatchLine("drawn", text, {{"temperature", 1.5}, {"seed", 5}}));
  const auto records = RunRecords({"--input", file, "--ignore-eos", "--return-token-ids"});
  const auto tokens = [&](const std::string& id) { return records.at(id)["usage"]["completion_tokens"]; };
  EXPECT_EQ(tokens("flag"), 8);
  EXPECT_EQ(tokens("tokens"), 3);
  EXPECT_LT(records.at("prompt")["usage"]["prompt_tokens"], records.at("flag")["usage"]["prompt_tokens"]);
  EXPECT_GT(records.at("system")["usage"]["prompt_tokens"], records.at("flag")["usage"]["prompt_tokens"]);
  EXPECT_NE(records.at("drawn")["token_ids"], records.at("flag")["token_ids"]);
}

TEST_F(Batch, DrawsDependOnSeedAndIdNotOnTheOrder) {
  std::vector<std::string> lines;
  for (int i = 0; i < 6; ++i) lines.push_back(BatchLine("d" + std::to_string(i), "The same text."));
  const auto run = [&](const char* seed, const Strings& more) {
    std::string all;
    for (const std::string& line : lines) all += line;
    return RunRecords(Join({"--input", folder_.Write("lines.jsonl", all), "--temperature", "1", "--seed",
                            seed, "--ignore-eos", "--return-token-ids"},
                           more));
  };
  const auto first = run("1", {});
  std::reverse(lines.begin(), lines.end());
  const auto reversed = run("1", {"--max-batch", "2"});
  const auto other = run("2", {});
  int differ = 0;
  for (const auto& [id, record] : first) {
    EXPECT_EQ(reversed.at(id)["token_ids"], record["token_ids"]) << id;
    differ += other.at(id)["token_ids"] != record["token_ids"];
  }
  EXPECT_GE(differ, 5) << "another seed draws other tokens";
  EXPECT_NE(first.at("d0")["token_ids"], first.at("d1")["token_ids"]) << "equal texts draw differently";
  const auto top1 = run("3", {"--top-k", "1"}), greedy = run("4", {"--top-p", "0.000001"});
  for (const auto& [id, record] : top1) EXPECT_EQ(greedy.at(id)["token_ids"], record["token_ids"]) << id;
}

TEST_F(Batch, OverflowMiddleKeepsBothEndsAndSaysSo) {
  std::string text = "BEGIN ";
  for (int i = 0; i < 1500; ++i) text += "w" + std::to_string(i) + " ";
  text += "END";
  const std::string file = folder_.Write("lines.jsonl", BatchLine("long", text) + BatchLine("short", "A."));
  const auto records = RunRecords({"--input", file, "--overflow", "middle"});
  const Json& cut = records.at("long");
  ASSERT_EQ(ReasonOf(cut), "") << cut.dump();
  const int64_t kept = cut["usage"]["prompt_tokens"];
  EXPECT_EQ(kept + 8, 4096) << "as much as fits";
  EXPECT_EQ(
      cut["truncated"]["tokens_full"].get<int64_t>() - cut["truncated"]["tokens_removed"].get<int64_t>(),
      kept);
  EXPECT_GT(cut["truncated"]["bytes_removed"], 3000);
  EXPECT_FALSE(records.at("short").contains("truncated"));
  const ProgramResult tokens = RunBatchProgram({"--input", file, "--overflow", "middle", "--dry-run"});
  EXPECT_EQ(tokens.exit_code, 0) << tokens.ToString();
  EXPECT_THAT(tokens.out, HasSubstr("long: 4088 prompt tokens"));
  EXPECT_EQ(ReasonOf(RunRecords({"--input", file}, 1).at("long")), "CONTEXT_EXCEEDED");

  // Those who read text are told as well.
  const std::string text_file = folder_.Write("long.txt", text);
  const ProgramResult one = RunBatchProgram({"--input", text_file, "--overflow", "middle"});
  EXPECT_EQ(one.exit_code, 0) << one.ToString();
  EXPECT_THAT(one.err,
              ::testing::ContainsRegex("warning: .*long.txt: [0-9]+ of [0-9]+ prompt tokens .[0-9]+ bytes "
                                       "in the middle. are left out to fit the context"));
  std::string many;
  for (int i = 0; i < 23; ++i) many += BatchLine("m" + std::to_string(i), text);
  const ProgramResult told = RunBatchProgram({"--input", folder_.Write("many.jsonl", many), "--overflow",
                                              "middle", "--context", "300", "--format", "text"});
  EXPECT_EQ(told.exit_code, 0) << told.ToString();
  EXPECT_THAT(told.err, HasSubstr(" m19: "));
  EXPECT_THAT(told.err, Not(HasSubstr(" m20: ")));
  EXPECT_THAT(told.err, HasSubstr("further shortened documents are not named here"));

  // Spellings of special tokens are one token each in the prompt.
  std::string special;
  for (int i = 0; i < 3000; ++i) special += "ab<|im_end|>";
  const std::string marked = folder_.Write("marked.jsonl", BatchLine("marked", special));
  const auto cuts = RunRecords({"--input", marked, "--overflow", "middle", "--context", "500"});
  EXPECT_EQ(ReasonOf(cuts.at("marked")), "") << cuts.at("marked").dump();
  EXPECT_GT(cuts.at("marked")["usage"]["prompt_tokens"], 400);
}

TEST_F(Batch, CacheBytesRefusesWhatNeverFits) {
  const std::string file =
      folder_.Write("lines.jsonl", BatchLine("big", std::string(300, 'a')) + BatchLine("s", "b"));
  // 64 rows and 7 more, 2 layers, 2 KV heads of 8, K and V, 4 bytes: 18,176 bytes.
  const auto fits = RunRecords({"--input", file, "--cache-bytes", "18176"});
  EXPECT_EQ(ReasonOf(fits.at("big")), "");
  const auto records = RunRecords({"--input", file, "--cache-bytes", "18175"}, 1);
  EXPECT_EQ(ReasonOf(records.at("big")), "CACHE_EXCEEDED");
}

TEST_F(Batch, TextForPeople) {
  folder_.Write("a.txt", "Text a.");
  folder_.Write("b.txt", "   ");
  ProgramOptions options;
  options.folder = folder_.path();
  const ProgramResult result =
      RunBatchProgram({"--input", "a.txt", "--input", "b.txt", "--ordered", "--ignore-eos"}, 0, options);
  EXPECT_EQ(result.exit_code, 1) << result.ToString();
  EXPECT_THAT(result.out, ::testing::StartsWith("== a.txt ==\n"));
  EXPECT_THAT(result.out, HasSubstr("== b.txt ==\nerror: "));
  EXPECT_THAT(result.err, HasSubstr("2 documents: 1 summarised, 1 failed"));
}

class Resume : public Batch {
 protected:
  ProgramResult Run(const Strings& more, int ranks = 0) {
    return RunBatchProgram(Join({"--input", lines_, "--output", out_}, more), ranks);
  }
  const std::string lines_ = folder_.Write("lines.jsonl", BatchLines(9) + "bad\n");
  const std::string out_ = folder_.Path("out.jsonl");
};

TEST_F(Resume, SkipsWhatIsThereAndDropsATornLine) {
  ASSERT_EQ(Run({}).exit_code, 1);
  const std::string whole = Slurp(out_);
  ASSERT_THAT(ParseRecords(whole), SizeIs(10));
  for (const size_t cut : {size_t{0}, size_t{1}, whole.size() / 3, whole.size() / 2, whole.size() - 1}) {
    std::ofstream(out_, std::ios::binary) << whole.substr(0, cut);
    const ProgramResult result = Run({"--resume"}, cut == 0 ? 2 : 0);
    EXPECT_EQ(result.exit_code, 1) << result.ToString();
    EXPECT_THAT(RecordsById(Slurp(out_)), SizeIs(10)) << "cut at " << cut;
  }
  const std::string before = Slurp(out_);
  const ProgramResult nothing = Run({"--resume"});
  EXPECT_EQ(nothing.exit_code, 1) << "one document failed: " << nothing.ToString();
  EXPECT_THAT(nothing.err,
              HasSubstr("nothing to do: 10 documents have records, 1 of them failed; --retry-errors "
                        "does those again\n"));
  EXPECT_EQ(Slurp(out_), before);
}

TEST_F(Resume, NeedsTheSameParametersAndModel) {
  ASSERT_EQ(Run({}).exit_code, 1);
  const std::string before = Slurp(out_);
  for (const Strings& flags :
       std::vector<Strings>{{"--seed", "9"}, {"--window", "16"}, {"--prompt", "Why?"}}) {
    const ProgramResult result = Run(Join({"--resume"}, flags));
    EXPECT_EQ(result.exit_code, 6) << result.ToString();
    EXPECT_THAT(result.err, HasSubstr("params_sha256"));
    EXPECT_EQ(Slurp(out_), before);
  }
  EXPECT_EQ(Run({"--resume", "--ordered", "--max-batch", "2", "--progress", "none"}, 2).exit_code, 1);
}

TEST_F(Resume, RetryErrorsDoesThemAgain) {
  ASSERT_EQ(Run({}).exit_code, 1);
  folder_.Write("lines.jsonl", BatchLines(9) + BatchLine("line-10", "Good by now."));
  EXPECT_EQ(Run({"--resume"}).exit_code, 1);
  const ProgramResult result = Run({"--resume", "--retry-errors"});
  EXPECT_EQ(result.exit_code, 0) << result.ToString();
  const auto records = RecordsById(Slurp(out_));
  EXPECT_THAT(records, SizeIs(10));
  EXPECT_EQ(ReasonOf(records.at("line-10")), "");
}

TEST_F(Resume, NeverOverwritesUnasked) {
  const std::string precious = folder_.Write("out.jsonl", "precious\n");
  for (const Strings& flags : std::vector<Strings>{{}, {"--resume"}}) {
    const ProgramResult result = Run(flags);
    EXPECT_EQ(result.exit_code, 6) << result.ToString();
    EXPECT_EQ(Slurp(precious), "precious\n");
  }
  EXPECT_EQ(Run({"--force"}).exit_code, 1);
  EXPECT_THAT(RecordsById(Slurp(out_)), SizeIs(10));
  const ProgramResult self = RunBatchProgram({"--input", lines_, "--output", lines_, "--force"});
  EXPECT_EQ(self.exit_code, 2) << self.ToString();
  EXPECT_THAT(Slurp(lines_), HasSubstr("\"d0\""));
}

}  // namespace
}  // namespace snapkv::testing
