// SPDX-License-Identifier: Apache-2.0
// What snapkv-prefill writes: text, records, files, dumps, and where writing fails.
#include <sys/stat.h>

#include <cmath>
#include <filesystem>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/e2e/prefill_program.h"

namespace snapkv::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

class Output : public ::testing::Test {
 protected:
  // Runs on one short document; 12 tokens, whatever they are.
  ProgramResult Summarise(const Strings& flags, int ranks = 0) {
    return RunPrefill(
        WithSmallModel(Join({"--input", document_, "--max-tokens", "12", "--ignore-eos"}, flags)), ranks);
  }
  Json SummariseRecord(const Strings& flags, int ranks = 0) {
    const ProgramResult result = Summarise(Join(flags, {"--format", "jsonl", "--return-token-ids"}), ranks);
    EXPECT_EQ(result.exit_code, 0) << result.ToString();
    return ParseRecord(result.out);
  }

  const TestFolder folder_;
  const std::string document_ = folder_.Write("report.txt", "Sales rose in March. Nobody knows why.");
};

TEST_F(Output, DefaultFormats) {
  const ProgramResult text = Summarise({});
  ASSERT_EQ(text.exit_code, 0) << text.ToString();
  const Json record = SummariseRecord({});
  EXPECT_EQ(text.out, record["summary"].get<std::string>() + "\n") << "text: the summary and a line end";

  const std::string out = folder_.Path("out.jsonl");
  const ProgramResult file = Summarise({"--output", out});
  ASSERT_EQ(file.exit_code, 0) << file.ToString();
  EXPECT_EQ(file.out, "");
  EXPECT_EQ(ParseRecord(Slurp(out))["summary"], record["summary"]) << "--output: a record";

  const ProgramResult plain = Summarise({"--output", folder_.Path("out.txt"), "--format", "text"});
  ASSERT_EQ(plain.exit_code, 0) << plain.ToString();
  EXPECT_EQ(plain.out, "");
  EXPECT_EQ(Slurp(folder_.Path("out.txt")), text.out);

  const ProgramResult dash = Summarise({"--output", "-"});
  EXPECT_EQ(ParseRecord(dash.out)["summary"], record["summary"]) << "--output - is stdout";
  EXPECT_EQ(Summarise({"--output", "-", "--format", "text"}).out, text.out);

  const std::string ids = folder_.WriteIds("ids.json", {1, 2, 3});
  const ProgramResult by_ids = RunPrefill(WithSmallModel({"--token-ids", ids, "--max-tokens", "3"}));
  EXPECT_THAT(TokenIds(ParseRecord(by_ids.out)), SizeIs(::testing::Le(3u)))
      << "--token-ids: a record with ids";
  const ProgramResult ids_text =
      RunPrefill(WithSmallModel({"--token-ids", ids, "--max-tokens", "3", "--format", "text"}));
  EXPECT_EQ(ids_text.exit_code, 0) << ids_text.ToString();
  EXPECT_THAT(ids_text.out, ::testing::Not(HasSubstr("token_ids")));
}

TEST_F(Output, MessagesGoToStderr) {
  const ProgramResult result = Summarise({"--format", "jsonl"});
  EXPECT_THAT(ErrorLines(result), SizeIs(0));
  EXPECT_THAT(result.err, HasSubstr("prompt tokens on 1 rank x 1 thread, f32"));
  EXPECT_THAT(Summarise({"--format", "jsonl"}, 2).err, HasSubstr("prompt tokens on 2 ranks x 1 thread, f32"));
}

TEST_F(Output, RecordHasTheKeysOfTheServiceInOrder) {
  const ProgramResult result = Summarise({"--format", "jsonl"});
  const Json record = ParseRecord(result.out);
  EXPECT_THAT(Keys(record), ElementsAre("id", "summary", "finish_reason", "usage", "timings", "cache",
                                        "params_sha256", "error"));
  EXPECT_EQ(record["id"], document_);
  EXPECT_TRUE(record["summary"].is_string());
  EXPECT_EQ(record["finish_reason"], "length");
  EXPECT_THAT(Keys(record["usage"]), ElementsAre("prompt_tokens", "completion_tokens", "total_tokens"));
  EXPECT_EQ(record["usage"]["completion_tokens"], 12);
  EXPECT_EQ(record["usage"]["total_tokens"], record["usage"]["prompt_tokens"].get<int>() + 12);
  EXPECT_THAT(Keys(record["timings"]), ElementsAre("queue_ms", "prefill_ms", "decode_ms",
                                                   "prefill_tokens_per_s", "decode_tokens_per_s"));
  for (const auto& [name, value] : record["timings"].items()) {
    EXPECT_TRUE(value.is_number()) << name;
    EXPECT_GE(value.get<double>(), 0) << name;
  }
  const double prefill_s = record["timings"]["prefill_ms"].get<double>() / 1e3;
  EXPECT_GT(prefill_s, 0);
  // Both are rounded to tenths, of milliseconds and of tokens a second.
  const double rate = record["timings"]["prefill_tokens_per_s"];
  EXPECT_NEAR(rate * prefill_s, record["usage"]["prompt_tokens"].get<double>(), 0.051e-3 * rate + 0.051);
  for (const auto& [name, value] : record["timings"].items()) {
    const double tenths = value.get<double>() * 10;
    EXPECT_NEAR(tenths, std::round(tenths), 1e-6) << name;
  }
  EXPECT_THAT(Keys(record["cache"]),
              ElementsAre("policy", "rows_full", "rows_kept", "bytes_full", "bytes_kept"));
  EXPECT_THAT(record["params_sha256"].get<std::string>(), ::testing::MatchesRegex("[0-9a-f]+"));
  EXPECT_THAT(record["params_sha256"].get<std::string>(), SizeIs(64));
  EXPECT_TRUE(record["error"].is_null());
}

TEST_F(Output, ReturnTokenIdsAddsThemAtTheEnd) {
  const Json record = SummariseRecord({});
  EXPECT_EQ(Keys(record).back(), "token_ids");
  EXPECT_THAT(Keys(record), SizeIs(9));
  EXPECT_THAT(TokenIds(record), SizeIs(12));
}

TEST_F(Output, CacheFigures) {
  // f32, 2 layers, 2 KV heads (6 query heads) of 8: a row of one head is 2 * 8 * 4 bytes in each layer.
  const int64_t row = 2 * 2 * 8 * 4;
  const Json full = SummariseRecord({"--policy", "full"});
  const int64_t tokens = full["usage"]["prompt_tokens"];
  EXPECT_EQ(full["cache"]["policy"], "full");
  EXPECT_EQ(full["cache"]["rows_full"], tokens);
  EXPECT_EQ(full["cache"]["rows_kept"], tokens);
  EXPECT_EQ(full["cache"]["bytes_full"], tokens * 2 * row);
  EXPECT_EQ(full["cache"]["bytes_kept"], tokens * 2 * row);
  const Json mean = SummariseRecord({"--capacity", "50", "--window", "8"});
  EXPECT_EQ(mean["cache"]["policy"], "snapkv");
  EXPECT_EQ(mean["cache"]["rows_full"], tokens);
  EXPECT_EQ(mean["cache"]["rows_kept"], 50);
  EXPECT_EQ(mean["cache"]["bytes_full"], tokens * 2 * row);
  EXPECT_EQ(mean["cache"]["bytes_kept"], 50 * 2 * row);
  const Json none = SummariseRecord({"--capacity", "50", "--window", "8", "--group", "none"});
  EXPECT_EQ(none["cache"]["rows_kept"], 50);
  EXPECT_EQ(none["cache"]["bytes_kept"], 50 * 6 * row);
  const Json fits = SummariseRecord({});  // 2048 is more than the prompt has
  EXPECT_EQ(fits["cache"]["rows_kept"], tokens);
}

TEST_F(Output, ErrorRecordHasTheSameKeys) {
  folder_.Write("bad.txt", "caf\xe9");
  const Strings flags = {"--input", folder_.Path("bad.txt"), "--max-tokens", "12", "--ignore-eos"};
  const ProgramResult result = RunPrefill(WithSmallModel(Join(flags, {"--format", "jsonl"})));
  EXPECT_EQ(result.exit_code, 1) << result.ToString();
  const Json record = ParseRecord(result.out);
  EXPECT_THAT(Keys(record), ElementsAre("id", "summary", "finish_reason", "usage", "timings", "cache",
                                        "params_sha256", "error"));
  EXPECT_EQ(record["id"], folder_.Path("bad.txt"));
  EXPECT_TRUE(record["summary"].is_null());
  EXPECT_TRUE(record["usage"].is_null());
  EXPECT_THAT(Keys(record["error"]), ElementsAre("code", "reason", "message", "line", "column"));
  // To a file as well, and the same hash as a document of the same run that succeeds.
  const std::string out = folder_.Path("errors.jsonl");
  EXPECT_EQ(RunPrefill(WithSmallModel(Join(flags, {"--output", out}))).exit_code, 1);
  EXPECT_EQ(ParseRecord(Slurp(out))["error"], record["error"]);
  for (const char* dtype : {"f32", "bf16", "auto"}) {
    const auto hash = [&](const std::string& input) {
      const ProgramResult one = RunPrefill({"--model", SmallModel(), "--input", input, "--dtype", dtype,
                                            "--max-tokens", "2", "--format", "jsonl"});
      return ParseRecord(one.out)["params_sha256"].get<std::string>();
    };
    EXPECT_EQ(hash(folder_.Path("bad.txt")), hash(document_)) << dtype;
  }
}

TEST_F(Output, ParamsHash) {
  const auto hash = [&](const Strings& flags) {
    return SummariseRecord(flags)["params_sha256"].get<std::string>();
  };
  const std::string base = hash({});
  // What does not change the summary does not change the hash.
  EXPECT_EQ(hash({}), base);
  EXPECT_EQ(hash({"--comm-timeout", "5"}), base);
  EXPECT_EQ(hash({"--stats", folder_.Path("s.json")}), base);
  EXPECT_EQ(hash({"--dump-logits", folder_.Path("l.safetensors")}), base);
  const auto run = [&](const Strings& flags) {
    const ProgramResult result = RunPrefill(
        Join({"--input", document_, "--max-tokens", "12", "--ignore-eos", "--format", "jsonl"}, flags));
    return ParseRecord(result.out)["params_sha256"].get<std::string>();
  };
  EXPECT_EQ(run({"--model", SmallModel(), "--dtype", "f32", "--threads", "2"}), base);
  EXPECT_EQ(SummariseRecord({}, 2)["params_sha256"], base) << "the number of ranks";
  // What may change it does.
  std::vector<std::string> hashes = {base,
                                     run({"--model", SmallModel(), "--dtype", "bf16", "--threads", "1"})};
  for (const Strings& flags : std::vector<Strings>{{"--prompt", "Why?"},
                                                   {"--system", "Be brief."},
                                                   {"--encoding", "latin1"},
                                                   {"--raw"},
                                                   {"--context", "2000"},
                                                   {"--policy", "full"},
                                                   {"--capacity", "50"},
                                                   {"--window", "8"},
                                                   {"--kernel", "5"},
                                                   {"--pool", "avg"},
                                                   {"--group", "max"},
                                                   {"--temperature", "0.5"},
                                                   {"--repeat-penalty", "1.1"},
                                                   {"--seed", "3"},
                                                   {"--stop", "x"},
                                                   {"--stop", "y"},
                                                   {"--stop", "x", "--stop", "y"}}) {
    hashes.push_back(hash(flags));
  }
  hashes.push_back(ParseRecord(RunPrefill(WithSmallModel({"--input", document_, "--max-tokens", "13",
                                                          "--ignore-eos", "--format", "jsonl"}))
                                   .out)["params_sha256"]);
  hashes.push_back(ParseRecord(
      RunPrefill(WithSmallModel({"--input", document_, "--max-tokens", "12", "--format", "jsonl"}))
          .out)["params_sha256"]);
  for (size_t a = 0; a < hashes.size(); ++a)
    for (size_t b = 0; b < a; ++b) EXPECT_NE(hashes[a], hashes[b]) << a << " and " << b;
}

TEST_F(Output, NeverOverwritesWithoutForce) {
  const std::string out = folder_.Write("out.jsonl", "precious");
  const ProgramResult refused = Summarise({"--output", out});
  EXPECT_EQ(refused.exit_code, 6) << refused.ToString();
  EXPECT_THAT(refused.err, AllOf(HasSubstr("--output"), HasSubstr(out), HasSubstr("--force")));
  EXPECT_EQ(Slurp(out), "precious");
  EXPECT_EQ(Summarise({"--output", out}, 2).exit_code, 6);
  EXPECT_EQ(Slurp(out), "precious");
  const ProgramResult forced = Summarise({"--output", out, "--force"});
  EXPECT_EQ(forced.exit_code, 0) << forced.ToString();
  EXPECT_EQ(ParseRecord(Slurp(out))["id"], document_);
  // Nothing is left beside it.
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_.path()), fs::directory_iterator()), 2);
}

TEST_F(Output, OutputMayNotBeTheInputOrTheModel) {
  const std::string link = folder_.Path("link.txt");
  fs::create_symlink(document_, link);
  const std::string before = Slurp(document_);
  for (const std::string& out : {document_, link, folder_.path() + "/./report.txt"}) {
    for (const char* flag : {"--output", "--stats", "--dump-selection", "--dump-logits"}) {
      const Strings force = std::string(flag) == "--output" ? Strings{"--force"} : Strings{};
      const ProgramResult result = Summarise(Join({flag, out}, force));
      EXPECT_EQ(result.exit_code, 2) << flag << " " << out << result.ToString();
      EXPECT_THAT(result.err, AllOf(HasSubstr(flag), HasSubstr("input")));
    }
  }
  EXPECT_EQ(Slurp(document_), before);
  const ProgramResult model = Summarise({"--stats", SmallModel()});
  EXPECT_EQ(model.exit_code, 2) << model.ToString();
  EXPECT_TRUE(Slurp(SmallModel()).starts_with("GGUF"));
}

TEST_F(Output, PlacesThatCannotBeWritten) {
  fs::create_directories(folder_.Path("sub"));
  for (const char* flag : {"--output", "--stats", "--dump-selection", "--dump-logits"}) {
    for (const std::string& path :
         {folder_.Path("none/out"), folder_.Path("sub"), document_ + "/x", std::string("/proc/none/out")}) {
      const ProgramResult result = Summarise({flag, path});
      EXPECT_EQ(result.exit_code, 6) << flag << " " << path << result.ToString();
      ASSERT_THAT(ErrorLines(result), SizeIs(1)) << result.ToString();
      EXPECT_THAT(ErrorLines(result)[0], AllOf(HasSubstr(flag), HasSubstr(path)));
      EXPECT_EQ(result.out, "") << "found before any work";
    }
  }
  EXPECT_EQ(Summarise({"--output", folder_.Path("none/out")}, 2).exit_code, 6);
}

TEST_F(Output, DevicesAndPipesAreWrittenNotReplaced) {
  const ProgramResult null = Summarise({"--output", "/dev/null", "--force", "--stats", "/dev/null"});
  EXPECT_EQ(null.exit_code, 0) << null.ToString();
  struct stat info;
  ASSERT_EQ(stat("/dev/null", &info), 0);
  ASSERT_TRUE(S_ISCHR(info.st_mode)) << "/dev/null was replaced by a file";
  const ProgramResult standard = Summarise({"--output", "/dev/stdout", "--force"});
  EXPECT_EQ(standard.exit_code, 0) << standard.ToString();
  EXPECT_EQ(ParseRecord(standard.out)["id"], document_);
  // A link stays a link.
  const std::string target = folder_.Write("target.json", "old"), link = folder_.Path("link.json");
  fs::create_symlink("target.json", link);
  EXPECT_EQ(Summarise({"--output", link, "--force"}).exit_code, 0);
  EXPECT_TRUE(fs::is_symlink(link));
  EXPECT_EQ(ParseRecord(Slurp(target))["id"], document_);
}

// `command` runs in a shell with $P as the program and its flags.
ProgramResult Shell(const std::string& command, const Strings& flags) {
  ProgramOptions options;
  options.argv = Join({"/bin/bash", "-c", command, "bash"}, PrefillCommand(flags));
  const auto result = RunProgram(options);
  EXPECT_TRUE(result.ok()) << result.status();
  return *result;
}

TEST_F(Output, FullOrClosedStdout) {
  const Strings base = WithSmallModel({"--input", document_, "--max-tokens", "12", "--ignore-eos"});
  for (const char* redirection : {">/dev/full", ">&-"}) {
    const std::string command = std::string("\"$@\" ") + redirection;
    for (const Strings& flags : std::vector<Strings>{{},
                                                     {"--format", "jsonl"},
                                                     {"--print-tokens"},
                                                     {"--dry-run"},
                                                     {"--list-models"},
                                                     {"--help"},
                                                     {"--version"}}) {
      const ProgramResult result = Shell(command, Join(base, flags));
      EXPECT_EQ(result.exit_code, 6) << redirection << (flags.empty() ? "" : flags[0]) << result.ToString();
      EXPECT_THAT(result.err, HasSubstr("stdout")) << result.ToString();
    }
  }
  const ProgramResult full = Summarise({"--output", "/dev/full", "--force"});
  EXPECT_EQ(full.exit_code, 6) << full.ToString();
  EXPECT_THAT(full.err, AllOf(HasSubstr("--output"), HasSubstr("/dev/full")));
  const ProgramResult stats = Summarise({"--stats", "/dev/full"});
  EXPECT_EQ(stats.exit_code, 6) << stats.ToString();
  EXPECT_THAT(stats.err, AllOf(HasSubstr("--stats"), HasSubstr("/dev/full")));
}

TEST_F(Output, ClosedStdinAndStderr) {
  const Strings base = WithSmallModel({"--input", document_, "--max-tokens", "12", "--ignore-eos"});
  const ProgramResult good = Shell("\"$@\"", base);
  EXPECT_EQ(Shell("\"$@\" <&-", base).out, good.out);
  const ProgramResult quiet = Shell("\"$@\" 2>&-", base);
  EXPECT_EQ(quiet.exit_code, 0) << quiet.ToString();
  EXPECT_EQ(quiet.out, good.out);
  const std::string out = folder_.Path("out.jsonl");
  EXPECT_EQ(Shell("\"$@\" 2>&- >&- <&-", Join(base, {"--output", out})).exit_code, 0);
  EXPECT_EQ(ParseRecord(Slurp(out))["id"], document_) << "no message ended up in the file";
  const ProgramResult closed = Shell("\"$@\" <&-", WithSmallModel({"--input", "-"}));
  EXPECT_EQ(closed.exit_code, 3) << closed.ToString();
}

// A reader that stops: the ordinary end of a pipeline.
TEST_F(Output, ReaderThatStopsEndsTheProgram) {
  const ProgramResult result =
      Shell("\"$@\" | head -c 1; exit ${PIPESTATUS[0]}",
            WithSmallModel({"--input", document_, "--max-tokens", "3000", "--ignore-eos"}));
  EXPECT_THAT(result.exit_code, ::testing::AnyOf(141, 6)) << result.ToString();
}

TEST_F(Output, DryRun) {
  const ProgramResult result = Summarise({"--dry-run", "--capacity", "50", "--window", "8"}, 2);
  EXPECT_EQ(result.exit_code, 0) << result.ToString();
  EXPECT_THAT(result.out,
              AllOf(HasSubstr(SmallModel()), HasSubstr("context 4096"), HasSubstr("up to 12 generated"),
                    HasSubstr("rank 0: "), HasSubstr("rank 1: "), HasSubstr("50 of ")));
  EXPECT_THAT(result.out, ::testing::Not(HasSubstr("rank 2")));
  // Everything is checked, nothing is written.
  const std::string out = folder_.Path("out.jsonl");
  EXPECT_EQ(Summarise({"--dry-run", "--output", out, "--stats", folder_.Path("s")}).exit_code, 0);
  EXPECT_FALSE(fs::exists(out));
  EXPECT_FALSE(fs::exists(folder_.Path("s")));
  EXPECT_EQ(Summarise({"--dry-run", "--context", "100"}).exit_code, 1);
  EXPECT_EQ(Summarise({"--dry-run", "--output", document_}).exit_code, 2);
}

TEST_F(Output, PrintTokens) {
  const std::string ids = folder_.WriteIds("ids.json", {72, 105, 258, 10, 255});
  const ProgramResult result = RunPrefill(WithSmallModel({"--token-ids", ids, "--print-tokens"}));
  EXPECT_EQ(result.exit_code, 0) << result.ToString();
  EXPECT_EQ(result.out, "72\t\"H\"\n105\t\"i\"\n258\t\"<|im_end|>\"\n10\t\"\\n\"\n255\t\"\xEF\xBF\xBD\"\n");
}

}  // namespace
}  // namespace snapkv::testing
