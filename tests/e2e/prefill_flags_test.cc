// SPDX-License-Identifier: Apache-2.0
// Flags of snapkv-prefill: every one with bad values, help and version, cached models, and arguments that try
// to be taken for something else.
#include <filesystem>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/e2e/prefill_program.h"

namespace snapkv::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// All flags of the command line.
const Strings kFlags = {"--input",
                        "--prompt",
                        "--system",
                        "--encoding",
                        "--raw",
                        "--token-ids",
                        "--context",
                        "--policy",
                        "--capacity",
                        "--window",
                        "--kernel",
                        "--pool",
                        "--group",
                        "--model",
                        "--dtype",
                        "--threads",
                        "--comm-timeout",
                        "--max-tokens",
                        "--temperature",
                        "--repeat-penalty",
                        "--seed",
                        "--ignore-eos",
                        "--stop",
                        "--format",
                        "--output",
                        "--force",
                        "--return-token-ids",
                        "--stats",
                        "--dump-selection",
                        "--dump-logits",
                        "--dry-run",
                        "--print-tokens",
                        "--list-models",
                        "--version",
                        "--help"};

struct BadFlags {
  Strings flags;
  Strings named;      // what the message must contain
  bool input = true;  // a good --input stands before them
};

const std::vector<BadFlags>& Bad() {
  static const std::vector<BadFlags> bad = {
      {{"--context", "-1"}, {"--context"}},
      {{"--context", "many"}, {"--context", "many"}},
      {{"--context", "99999999999999999999"}, {"--context"}},
      {{"--context", ""}, {"--context"}},
      {{"--context", "1e3"}, {"--context", "1e3"}},
      {{"--context", "8192"}, {"--context", "8192", "4096"}},  // the model's is 4096
      {{"--encoding", "utf-16"}, {"--encoding", "utf-16", "utf-8|latin1"}},
      {{"--encoding", ""}, {"--encoding"}},
      {{"--encoding"}, {"--encoding"}},
      {{"--raw=maybe"}, {"--raw"}},
      {{"--raw", "--prompt", "why?"}, {"--raw", "--prompt"}},
      {{"--raw", "--system", "be brief"}, {"--raw", "--system"}},
      {{"--prompt"}, {"--prompt"}},
      {{"--prompt", "caf\xe9"}, {"--prompt", "UTF-8", "3"}},
      {{"--system"}, {"--system"}},
      {{"--system", "\xff"}, {"--system", "UTF-8", "0"}},
      {{"--input"}, {"--input"}, false},
      {{"--input", ""}, {"--input"}, false},
      {{}, {"--input"}, false},
      {{"--input-format", "csv"}, {"--input-format", "csv"}},
      {{"--overflow", "start"}, {"--overflow", "start"}},
      {{"--max-document-bytes", "0"}, {"--max-document-bytes", "0"}},
      {{"--max-line-bytes", "5X"}, {"--max-line-bytes", "5X"}},
      {{"--max-batch", "0"}, {"--max-batch"}},
      {{"--max-batch", "257"}, {"--max-batch"}},
      {{"--cache-bytes", "-1"}, {"--cache-bytes", "-1"}},
      {{"--cache-bytes", "9999999999G"}, {"--cache-bytes"}},
      {{"--time-limit", "-1"}, {"--time-limit"}},
      {{"--progress", "loud"}, {"--progress", "loud"}},
      {{"--top-k", "-1"}, {"--top-k"}},
      {{"--top-p", "0"}, {"--top-p"}},
      {{"--top-p", "nan"}, {"--top-p"}},
      {{"--min-p", "1.5"}, {"--min-p"}},
      {{"--stop-token-id", "-1"}, {"--stop-token-id"}},
      {{"--resume"}, {"--resume", "--output"}},
      {{"--resume", "--output", "o.jsonl", "--force"}, {"--resume", "--force"}},
      {{"--resume", "--output", "o.txt", "--format", "text"}, {"--resume", "jsonl"}},
      {{"--retry-errors", "--output", "o.jsonl"}, {"--retry-errors", "--resume"}},
      {{"--token-ids", "ids.json"}, {"--token-ids", "--input"}},
      {{"--token-ids", "ids.json", "--raw"}, {"--token-ids", "--raw"}, false},
      {{"--token-ids", "ids.json", "--prompt", "why?"}, {"--token-ids", "--prompt"}, false},
      {{"--token-ids", "ids.json", "--system", "x"}, {"--token-ids", "--system"}, false},
      {{"--token-ids", "ids.json", "--encoding", "latin1"}, {"--token-ids", "--encoding"}, false},
      {{"--token-ids", ""}, {"--token-ids"}, false},
      {{"--token-ids"}, {"--token-ids"}, false},
      {{"--policy", "snap"}, {"--policy", "snap", "snapkv|full"}},
      {{"--policy", "FULL"}, {"--policy", "FULL"}},
      {{"--capacity", "0"}, {"--capacity"}},
      {{"--capacity", "-5"}, {"--capacity", "-5"}},
      {{"--capacity", "31"}, {"--capacity", "31", "--window", "32"}},
      {{"--capacity", "1.5"}, {"--capacity", "1.5"}},
      {{"--capacity", "0x40 "}, {"--capacity"}},
      {{"--capacity", "9223372036854775807"}, {"--capacity"}},
      {{"--window", "0"}, {"--window"}},
      {{"--window", "-1"}, {"--window"}},
      {{"--window", "3000"}, {"--window", "3000", "--capacity", "2048"}},
      {{"--kernel", "0"}, {"--kernel"}},
      {{"--kernel", "4"}, {"--kernel", "4", "odd"}},
      {{"--kernel", "-3"}, {"--kernel"}},
      {{"--kernel", "1048577"}, {"--kernel"}},
      {{"--pool", "mean"}, {"--pool", "mean", "max|avg|none"}},
      {{"--group", "avg"}, {"--group", "avg", "mean|max|sum|none"}},
      {{"--dtype", "f16"}, {"--dtype", "f16", "auto|f32|bf16"}},
      {{"--threads", "-1"}, {"--threads"}},
      {{"--threads", "5000"}, {"--threads"}},
      {{"--threads", "two"}, {"--threads", "two"}},
      {{"--threads", "2147483648"}, {"--threads"}},
      {{"--comm-timeout", "0"}, {"--comm-timeout"}},
      {{"--comm-timeout", "-1"}, {"--comm-timeout"}},
      {{"--comm-timeout", "nan"}, {"--comm-timeout"}},
      {{"--comm-timeout", "inf"}, {"--comm-timeout"}},
      {{"--comm-timeout", "soon"}, {"--comm-timeout", "soon"}},
      {{"--comm-timeout", "5s"}, {"--comm-timeout", "5s"}},
      {{"--max-tokens", "0"}, {"--max-tokens"}},
      {{"--max-tokens", "-1"}, {"--max-tokens"}},
      {{"--max-tokens", "2147483648"}, {"--max-tokens"}},
      {{"--max-tokens", ""}, {"--max-tokens"}},
      {{"--max-tokens", "5", "--max-tokens", "6"}, {"--max-tokens"}},
      {{"--temperature", "-0.1"}, {"--temperature"}},
      {{"--temperature", "nan"}, {"--temperature"}},
      {{"--temperature", "inf"}, {"--temperature"}},
      {{"--temperature", "101"}, {"--temperature"}},
      {{"--temperature", "hot"}, {"--temperature", "hot"}},
      {{"--temperature", "0,7"}, {"--temperature", "0,7"}},
      {{"--repeat-penalty", "0"}, {"--repeat-penalty"}},
      {{"--repeat-penalty", "-1"}, {"--repeat-penalty"}},
      {{"--repeat-penalty", "nan"}, {"--repeat-penalty"}},
      {{"--repeat-penalty", "1000"}, {"--repeat-penalty"}},
      {{"--seed", "-1"}, {"--seed", "-1"}},
      {{"--seed", "1.5"}, {"--seed", "1.5"}},
      {{"--seed", "18446744073709551616"}, {"--seed"}},
      {{"--seed", "lucky"}, {"--seed", "lucky"}},
      {{"--ignore-eos=maybe"}, {"--ignore-eos"}},
      {{"--stop"}, {"--stop"}},
      {{"--stop", ""}, {"--stop"}},
      {{"--stop", "a", "--stop", "\x80"}, {"--stop", "UTF-8"}},
      {{"--stop", "a", "b"}, {"b"}},  // one string per flag
      {{"--format", "xml"}, {"--format", "xml", "text|jsonl"}},
      {{"--format", ""}, {"--format"}},
      {{"--output"}, {"--output"}},
      {{"--output", ""}, {"--output"}},
      {{"--force"}, {"--force", "--output"}},
      {{"--force=maybe"}, {"--force"}},
      {{"--return-token-ids"}, {"--return-token-ids", "--format jsonl"}},
      {{"--return-token-ids", "--format", "text"}, {"--return-token-ids", "--format jsonl"}},
      {{"--stats", ""}, {"--stats"}},
      {{"--stats", "-"}, {"--stats", "-"}},
      {{"--stats"}, {"--stats"}},
      {{"--dump-selection", ""}, {"--dump-selection"}},
      {{"--dump-selection", "-"}, {"--dump-selection", "-"}},
      {{"--dump-selection"}, {"--dump-selection"}},
      {{"--dump-logits", ""}, {"--dump-logits"}},
      {{"--dump-logits", "-"}, {"--dump-logits", "-"}},
      {{"--dump-logits"}, {"--dump-logits"}},
      {{"--stats", "same.json", "--dump-logits", "same.json"}, {"--stats", "--dump-logits", "same.json"}},
      {{"--output", "./same.json", "--stats", "same.json"}, {"--output", "--stats", "same.json"}},
      {{"--dry-run=maybe"}, {"--dry-run"}},
      {{"--print-tokens=maybe"}, {"--print-tokens"}},
      {{"--list-models=maybe"}, {"--list-models"}},
      {{"--version=maybe"}, {"--version"}},
      {{"--model"}, {"--model"}},
      {{"--model", "again.gguf"}, {"--model"}},
      {{"--no-such-flag"}, {"--no-such-flag"}},
      {{"--Prompt", "x"}, {"--Prompt"}},
      {{"--prom", "x"}, {"--prom"}},  // no abbreviations
      {{"stray.txt"}, {"stray.txt"}},
  };
  return bad;
}

std::string Shown(const Strings& flags) {
  std::string text;
  for (const std::string& flag : flags) text += " '" + flag + "'";
  return text;
}

TEST(Flags, EveryBadValueIsAUsageErrorThatNamesIt) {
  const TestFolder folder;
  const std::string document = folder.Write("d.txt", "A document.");
  folder.WriteIds("ids.json", {1, 2, 3});
  ProgramOptions in_folder;
  in_folder.folder = folder.path();
  for (const BadFlags& bad : Bad()) {
    const Strings flags = Join(bad.input ? Strings{"--input", document} : Strings{}, bad.flags);
    const ProgramResult result = RunPrefill(Join({"--model", SmallModel()}, flags), 0, in_folder);
    EXPECT_EQ(result.exit_code, 2) << Shown(flags) << ": " << result.ToString();
    EXPECT_EQ(result.out, "") << Shown(flags);
    EXPECT_THAT(ErrorLines(result), SizeIs(1)) << Shown(flags) << ": " << result.ToString();
    if (ErrorLines(result).empty()) continue;
    for (const std::string& name : bad.named)
      EXPECT_THAT(ErrorLines(result)[0], HasSubstr(name)) << Shown(flags);
  }
  for (const std::string& flag : kFlags) {
    const bool covered = std::any_of(Bad().begin(), Bad().end(), [&](const BadFlags& bad) {
      return std::any_of(bad.named.begin(), bad.named.end(), [&](const auto& n) { return n == flag; });
    });
    EXPECT_TRUE(covered || flag == "--help") << flag << " has no bad value";
  }
  std::printf("%zu bad command lines\n", Bad().size());
  // Nothing was written on the way.
  EXPECT_FALSE(std::filesystem::exists(folder.Path("-")));
  EXPECT_FALSE(std::filesystem::exists(folder.Path("same.json")));
}

TEST(Flags, BadValueOnTwoRanksIsSaidOnce) {
  const ProgramResult result = RunPrefill(WithSmallModel({"--input", "-", "--kernel", "4"}), 2);
  EXPECT_EQ(result.exit_code, 2) << result.ToString();
  EXPECT_THAT(ErrorLines(result), SizeIs(1)) << result.ToString();
}

TEST(Flags, NoModelAtAll) {
  const ProgramResult result = RunPrefill({"--input", "-"});
  EXPECT_EQ(result.exit_code, 2) << result.ToString();
  ASSERT_THAT(ErrorLines(result), SizeIs(1));
  EXPECT_THAT(ErrorLines(result)[0], HasSubstr("--model"));
  EXPECT_THAT(ErrorLines(result)[0], HasSubstr("--list-models"));
}

TEST(Flags, Help) {
  const ProgramResult result = RunPrefill({"--help"});
  ASSERT_EQ(result.exit_code, 0) << result.ToString();
  EXPECT_EQ(result.err, "");
  for (const std::string& flag : kFlags) EXPECT_THAT(result.out, HasSubstr(flag));
  for (const char* group : {"Input:", "Generation:", "Cache compression:", "Model and device:", "Output:",
                            "Batch:", "Other:", "Examples:", "Exit codes:"}) {
    EXPECT_THAT(result.out, HasSubstr(group));
  }
  // Defaults, each on the line of its flag.
  const std::pair<const char*, const char*> defaults[] = {
      {"--capacity", "2048"}, {"--window", "32"},        {"--kernel", "7"},        {"--pool", "max"},
      {"--group", "mean"},    {"--policy", "snapkv"},    {"--dtype", "auto"},      {"--max-tokens", "256"},
      {"--temperature", "0"}, {"--repeat-penalty", "1"}, {"--seed", "0"},          {"--comm-timeout", "60"},
      {"--threads", "0"},     {"--encoding", "utf-8"},   {"--prompt", "Summarize"}};
  for (const auto& [flag, value] : defaults) {
    const size_t begin = result.out.find(std::string("  ") + flag + " ");
    ASSERT_NE(begin, std::string::npos) << flag;
    const std::string line = result.out.substr(begin, result.out.find('\n', begin) - begin);
    EXPECT_THAT(line, HasSubstr(std::string("=") + value)) << flag;
  }
  EXPECT_EQ(RunPrefill({"-h"}).out, result.out);
}

TEST(Flags, HelpAndVersionOnTwoRanksAreSaidOnce) {
  const ProgramResult version = RunPrefill({"--version"}, 2);
  EXPECT_EQ(version.exit_code, 0) << version.ToString();
  EXPECT_THAT(version.out, ::testing::MatchesRegex("snapkv-prefill [0-9]+\\.[0-9]+\\.[0-9]+\n"));
}

TEST(Flags, Version) {
  const ProgramResult result = RunPrefill({"--version"});
  EXPECT_EQ(result.exit_code, 0) << result.ToString();
  EXPECT_THAT(result.out, ::testing::MatchesRegex("snapkv-prefill [0-9]+\\.[0-9]+\\.[0-9]+\n"));
  EXPECT_EQ(result.err, "");
}

TEST(CachedModels, ListAndUseByName) {
  const TestFolder cache;
  const std::string models = cache.Path("snapkv/models");
  ProgramOptions options;
  options.environment["XDG_CACHE_HOME"] = cache.path();
  const auto list = [&] { return RunPrefill({"--list-models"}, 0, options); };

  ProgramResult result = list();  // the folder is missing
  EXPECT_EQ(result.exit_code, 0) << result.ToString();
  EXPECT_EQ(result.out, "");
  EXPECT_THAT(result.err, HasSubstr("no model is cached"))
      << "an empty list without a word looks like a failure";
  std::filesystem::create_directories(models);
  result = list();
  EXPECT_EQ(result.exit_code, 0) << result.ToString();
  EXPECT_EQ(result.out, "");

  const ProgramResult unknown = RunPrefill({"--model", "smol", "--input", "-"}, 0, options);
  EXPECT_EQ(unknown.exit_code, 3) << unknown.ToString();
  ASSERT_THAT(ErrorLines(unknown), SizeIs(1));
  EXPECT_THAT(ErrorLines(unknown)[0], ::testing::AllOf(HasSubstr("--model smol"), HasSubstr("setup.sh")));

  std::filesystem::copy_file(SmallModel(), models + "/small one.gguf");
  std::filesystem::copy_file(SmallModel(), models + "/b.gguf");
  cache.Write("snapkv/models/half.gguf.part", "x");
  std::filesystem::create_directories(models + "/folder.gguf");
  result = list();
  EXPECT_EQ(result.exit_code, 0) << result.ToString();
  EXPECT_THAT(result.out, HasSubstr("b\t" + models + "/b.gguf\t"));
  EXPECT_THAT(result.out, HasSubstr("small one\t"));
  EXPECT_LT(result.out.find("b\t"), result.out.find("small one\t"));
  EXPECT_THAT(result.out, ::testing::Not(HasSubstr("half")));
  EXPECT_THAT(result.out, ::testing::Not(HasSubstr("folder")));

  options.input = "A document.";
  options.folder = cache.path();
  result = RunPrefill({"--model", "b", "--input", "-", "--max-tokens", "3", "--threads", "1"}, 0, options);
  EXPECT_EQ(result.exit_code, 0) << result.ToString();
  // A folder of the same name in the current folder does not hide the cached model.
  std::filesystem::create_directories(cache.Path("b"));
  result = RunPrefill({"--model", "b", "--input", "-", "--max-tokens", "3", "--threads", "1"}, 0, options);
  EXPECT_EQ(result.exit_code, 0) << result.ToString();

  const ProgramResult other = RunPrefill({"--model", "c", "--input", "-"}, 0, options);
  EXPECT_EQ(other.exit_code, 3) << other.ToString();
  EXPECT_THAT(other.err, ::testing::AllOf(HasSubstr("--model c"), HasSubstr("b, small one")));
}

TEST(CachedModels, HomeWithoutXdg) {
  const TestFolder home;
  std::filesystem::create_directories(home.Path(".cache/snapkv/models"));
  std::filesystem::copy_file(SmallModel(), home.Path(".cache/snapkv/models/mine.gguf"));
  ProgramOptions options;
  options.environment["HOME"] = home.path();
  options.unset = {"XDG_CACHE_HOME"};
  EXPECT_THAT(RunPrefill({"--list-models"}, 0, options).out, HasSubstr("mine\t"));
}

// The prompt as the program sees it: --print-tokens, spelled.
std::string PromptSeen(const Strings& flags, const ProgramOptions& options = {}) {
  const ProgramResult result = RunPrefill(WithSmallModel(Join(flags, {"--print-tokens"})), 0, options);
  EXPECT_EQ(result.exit_code, 0) << result.ToString();
  std::vector<int32_t> ids;
  std::istringstream lines(result.out);
  for (std::string line; std::getline(lines, line);) {
    EXPECT_THAT(line, ::testing::ContainsRegex("^[0-9]+\t\".*\"$"));
    ids.push_back(std::stoi(line));
  }
  return SpellTokens(ids);
}

TEST(HostileFlags, TextArrivesAsItIs) {
  const TestFolder folder;
  const std::string document = folder.Write("d.txt", "Text.");
  for (const std::string& text : Strings{"[1,2]",
                                         "{}",
                                         "%%",
                                         "[]",
                                         "a,b",
                                         "\"quoted\"",
                                         "'single'",
                                         "%s%n%d",
                                         "$(id)",
                                         "`id`",
                                         "line\nbreak\ttab",
                                         "--help",
                                         "-",
                                         "--",
                                         "\\n",
                                         " ",
                                         "caf\xc3\xa9",
                                         "@d.txt",
                                         "true",
                                         "[[x]]"}) {
    EXPECT_EQ(PromptSeen({"--input", document, "--prompt=" + text}), RenderedPrompt("Text.", text)) << text;
    EXPECT_EQ(PromptSeen({"--input", document, "--system=" + text}),
              RenderedPrompt("Text.", "Summarize the document above in one short paragraph.", text))
        << text;
  }
  EXPECT_EQ(PromptSeen({"--input", document, "--prompt", "[1,2]"}), RenderedPrompt("Text.", "[1,2]"));
  EXPECT_EQ(PromptSeen({"--input", document, "--prompt", ""}), RenderedPrompt("Text.", ""));
  EXPECT_EQ(PromptSeen({"--input", document, "--prompt", "-1"}), RenderedPrompt("Text.", "-1"));
  const std::string large(100'000, 'x');
  EXPECT_EQ(PromptSeen({"--input", document, "--prompt", "y", "--max-tokens", "1"}),
            RenderedPrompt("Text.", "y"));
  const ProgramResult over = RunPrefill(WithSmallModel({"--input", document, "--prompt", large}));
  EXPECT_EQ(over.exit_code, 1) << over.ToString();
  EXPECT_THAT(over.err, HasSubstr("4096"));
}

TEST(HostileFlags, FileNames) {
  const TestFolder folder;
  ProgramOptions options;
  options.folder = folder.path();
  for (const std::string& name :
       Strings{"with space.txt", "-dash.txt", "[a,b].txt", "new\nline.txt", "caf\xe9.txt"}) {
    folder.Write(name, "Text.");
    const ProgramResult result =
        RunPrefill(WithSmallModel({"--input=" + name, "--max-tokens", "2", "--format", "jsonl"}), 0, options);
    EXPECT_EQ(result.exit_code, 0) << result.ToString();
    const auto record = ParseRecord(result.out);
    // In ids what is no UTF-8 and control characters are replaced.
    const std::string id = name == "caf\xe9.txt"     ? "caf\xEF\xBF\xBD.txt"
                           : name == "new\nline.txt" ? "new\xEF\xBF\xBDline.txt"
                                                     : name;
    EXPECT_EQ(record["id"], id);
  }
}

TEST(HostileFlags, HugeSizesDoNoHarm) {
  const TestFolder folder;
  const std::string document = folder.Write("d.txt", "Text.");
  for (const Strings& flags : std::vector<Strings>{{"--capacity", "2147483647", "--window", "2147483647"},
                                                   {"--kernel", "1048575", "--capacity", "40"},
                                                   {"--seed", "18446744073709551615", "--temperature", "100"},
                                                   {"--threads", "200"},
                                                   {"--comm-timeout", "1000000"}}) {
    const ProgramResult result = RunPrefill(
        Join({"--model", SmallModel(), "--input", document, "--max-tokens", "2", "--ignore-eos"}, flags));
    EXPECT_EQ(result.exit_code, 0) << Shown(flags) << result.ToString();
  }
}

}  // namespace
}  // namespace snapkv::testing
