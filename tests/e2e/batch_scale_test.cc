// SPDX-License-Identifier: Apache-2.0
// Thousands of documents, and batches that are killed again and again: every document gets one record.
#include <signal.h>

#include <filesystem>
#include <random>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/e2e/batch_support.h"

namespace snapkv::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::SizeIs;

// One bad line of every kind in turn, with the reason of its record.
struct BadLine {
  std::string line;
  std::string reason;
};

std::vector<BadLine> BadLines(int i) {
  const std::string id = "\"bad-" + std::to_string(i) + "\"";
  return {{"hello world", "LINE_INVALID"},
          {"[1, 2]", "LINE_INVALID"},
          {"{\"id\": " + id + ", \"text\": \"cut off", "LINE_INVALID"},
          {"{\"id\": " + id + ", \"text\": " + std::string(200, '[') + std::string(200, ']') + "}",
           "LINE_INVALID"},
          {"{\"id\": " + id + ", \"text\": \"\xFF\"}", "LINE_INVALID"},
          {"{\"id\": \"doc-0\", \"text\": \"twice\"}", "DOCUMENT_ID_DUPLICATE"},
          {"{\"id\": \"\", \"text\": \"x\"}", "DOCUMENT_ID_INVALID"},
          {"{\"id\": 5, \"text\": \"x\"}", "DOCUMENT_ID_INVALID"},
          {"{\"id\": " + id + ", \"text\": \" \\n\\t\"}", "DOCUMENT_EMPTY"},
          {"{\"id\": " + id + ", \"text\": \"a\\u0000b\"}", "DOCUMENT_NOT_UTF8"},
          {"{\"id\": " + id + ", \"path\": \"no such file\"}", "DOCUMENT_NOT_FOUND"},
          {"{\"id\": " + id + ", \"text\": \"x\", \"max_token\": 3}", "PARAMETER_INVALID"},
          {"{\"id\": " + id + ", \"text\": \"x\", \"temperature\": -1}", "PARAMETER_INVALID"},
          {"{\"id\": " + id + "}", "PARAMETER_INVALID"},
          {"{\"id\": " + id + ", \"text\": \"" + std::string(5000, 'x') + "\"}", "CONTEXT_EXCEEDED"},
          {"{\"id\": " + id + ", \"text\": \"" + std::string(9000, 'x') + "\"}", "DOCUMENT_TOO_LARGE"}};
}

// `count` lines, every hundredth bad; `reasons` counts those.
std::string Lines(int count, std::map<std::string, int>& reasons) {
  std::string text;
  int bad = 0;
  for (int i = 0; i < count; ++i) {
    if (i % 100 == 50) {
      const auto kinds = BadLines(i);
      const BadLine& line = kinds[static_cast<size_t>(bad++) % kinds.size()];
      text += line.line + "\n";
      ++reasons[line.reason];
    } else {
      text +=
          BatchLine("doc-" + std::to_string(i), "Report " + std::to_string(i * 7919 % 1000) + " is short.");
    }
  }
  return text;
}

TEST(BatchScale, FiveThousandDocumentsTakeTheMemoryOfFiveHundred) {
  const TestFolder folder;
  std::map<int, int64_t> peak;
  for (const int count : {500, 5000}) {
    std::map<std::string, int> want, got;
    const std::string lines = folder.Write("lines.jsonl", Lines(count, want));
    const std::string out = folder.Path("out.jsonl"), stats = folder.Path("stats.json");
    ProgramOptions options;
    options.timeout = std::chrono::minutes(10);
    const ProgramResult result = RunBatchProgram(
        {"--input", lines, "--output", out, "--force", "--stats", stats, "--max-document-bytes", "8K"}, 2,
        options);
    ASSERT_EQ(result.exit_code, 1) << result.ToString();
    const auto records = RecordsById(Slurp(out));
    EXPECT_THAT(records, SizeIs(static_cast<size_t>(count)));
    int failed = 0;
    for (const auto& [id, record] : records) {
      const std::string reason = ReasonOf(record);
      if (reason.empty()) continue;
      ++failed;
      ++got[reason];
    }
    EXPECT_EQ(failed, count / 100);
    EXPECT_EQ(got, want);
    peak[count] = Json::parse(Slurp(stats))["ranks"][0]["peak_rss_bytes"];
    std::printf("%d documents: %.1f MiB peak memory of rank 0, %.1f s\n", count,
                static_cast<double>(peak[count]) / (1 << 20), result.seconds);
  }
  EXPECT_LE(static_cast<double>(peak[5000]), 1.05 * static_cast<double>(peak[500]));
}

// SIGKILL at a random moment, to a random rank or to mpirun, then --resume, until the batch is done.
TEST(BatchScale, FortyKilledRunsLoseAndDoubleNothing) {
  const TestFolder folder;
  constexpr int kRuns = 40, kDocuments = 60, kRanks = 2;
  const std::string lines = folder.Write("lines.jsonl", BatchLines(kDocuments));
  const auto command = [&](const std::string& out, const Strings& more) {
    return PrefillCommand(WithSmallModel(Join({"--input", lines, "--output", out, "--max-tokens", "30",
                                               "--ignore-eos", "--capacity", "64", "--comm-timeout", "5"},
                                              more)),
                          kRanks);
  };
  // How long an undisturbed run takes, and what it gives.
  const std::string reference = folder.Path("reference.jsonl");
  ProgramOptions options;
  options.argv = command(reference, {});
  const auto whole = RunProgram(options);
  ASSERT_TRUE(whole.ok() && whole->exit_code == 0) << (whole.ok() ? whole->ToString() : "not started");
  const auto want = RecordsById(Slurp(reference));
  ASSERT_THAT(want, SizeIs(kDocuments));

  std::mt19937 random(7);
  int kills = 0, torn = 0, unfinished = 0;
  const std::string out = folder.Path("out.jsonl");
  for (int run = 0; run < kRuns; ++run) {
    fs::remove(out);
    for (int attempt = 0;; ++attempt) {
      ASSERT_LT(attempt, 50) << "run " << run << " makes no progress";
      options.argv = command(out, {"--resume"});
      auto program = Program::Start(options);
      ASSERT_TRUE(program.ok()) << program.status();
      // One kill a run for certain, a second for every other.
      const bool disturb = attempt == 0 || (attempt == 1 && run % 2 == 0);
      if (disturb) {
        const double seconds = std::uniform_real_distribution<double>(0.1, whole->seconds)(random);
        const auto end =
            std::chrono::steady_clock::now() + std::chrono::milliseconds(static_cast<int64_t>(seconds * 1e3));
        while (std::chrono::steady_clock::now() < end && (*program)->Poll(std::chrono::milliseconds(5))) {
        }
        std::vector<pid_t> victims = (*program)->Descendants();
        victims.push_back((*program)->pid());
        kill(victims[random() % victims.size()], SIGKILL);
        ++kills;
      }
      const ProgramResult result = (*program)->Wait();
      const std::string text = fs::exists(out) ? Slurp(out) : "";
      torn += !text.empty() && !text.ends_with("\n");
      if (result.exit_code == 0) break;
      ++unfinished;
      ASSERT_TRUE(disturb) << "run " << run << " failed by itself: " << result.ToString();
    }
    const auto got = RecordsById(Slurp(out));
    ASSERT_THAT(got, SizeIs(kDocuments)) << "run " << run;
    for (const auto& [id, record] : want) {
      ASSERT_TRUE(got.contains(id)) << id << " is missing in run " << run;
      EXPECT_EQ(got.at(id)["summary"], record["summary"]) << id << " in run " << run;
    }
  }
  std::printf("%d runs, %d kills, %d of them before the end, %d torn lines\n", kRuns, kills, unfinished,
              torn);
  EXPECT_GT(unfinished, kRuns / 2) << "the kills came too late to prove anything";
}

}  // namespace
}  // namespace snapkv::testing
