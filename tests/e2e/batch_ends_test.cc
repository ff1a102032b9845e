// SPDX-License-Identifier: Apache-2.0
// How batches end before their time: signals, limits, lost ranks, with and without run.sh; and going on after
// it.
#include <signal.h>
#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <filesystem>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/e2e/batch_support.h"
#include "tests/support/golden.h"

namespace snapkv::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;

// A batch that takes long: many layers, many tokens.
const std::string& LongModel() {
  static const TestFolder folder;
  static const std::string path = [] {
    TinyModelOptions options = SmallOptions();
    options.layers = 30;
    const std::string file = folder.Path("long.gguf");
    EXPECT_TRUE(TinyTextGguf(options).Write(file));
    return file;
  }();
  return path;
}

class Ends : public ::testing::Test {
 protected:
  // Starts a batch of 400 documents and waits for its first records.
  std::unique_ptr<Program> Start(const Strings& more, int ranks = 0) {
    ProgramOptions options;
    options.argv = PrefillCommand(Join({"--model", LongModel(), "--dtype", "f32", "--threads", "1", "--input",
                                        lines_, "--output", out_, "--max-tokens", "60", "--ignore-eos"},
                                       more),
                                  ranks);
    auto program = Program::Start(options);
    EXPECT_TRUE(program.ok()) << program.status();
    return *std::move(program);
  }
  void WaitForRecords(Program& program) {
    while (program.Poll(std::chrono::milliseconds(10))) {
      std::error_code error;
      if (fs::file_size(out_, error) > 0 && !error) return;
    }
    ADD_FAILURE() << "the batch ended without a record: " << program.err();
  }
  void CheckResumes(int ranks = 0) {
    auto program = Start({"--resume"}, ranks);
    const ProgramResult result = program->Wait();
    EXPECT_EQ(result.exit_code, 0) << result.ToString();
    EXPECT_THAT(RecordsById(Slurp(out_)), SizeIs(kDocuments));
  }
  static constexpr int kDocuments = 60;
  const TestFolder folder_;
  const std::string lines_ = folder_.Write("lines.jsonl", BatchLines(kDocuments));
  const std::string out_ = folder_.Path("out.jsonl");
};

TEST_F(Ends, ASignalFinishesOpenDocuments) {
  for (const auto& [number, exit_code] : {std::pair(SIGINT, 130), std::pair(SIGTERM, 143)}) {
    fs::remove(out_);
    auto program = Start({"--max-batch", "4"});
    WaitForRecords(*program);
    kill(program->pid(), number);
    const ProgramResult result = program->Wait();
    EXPECT_EQ(result.exit_code, exit_code) << result.ToString();
    const auto records = ParseRecords(Slurp(out_));
    EXPECT_GE(records.size(), 2u);
    EXPECT_LT(records.size(), static_cast<size_t>(kDocuments));
    for (const Json& record : records) EXPECT_EQ(record["usage"]["completion_tokens"], 60) << record.dump();
    EXPECT_THAT(result.err,
                HasSubstr("a second signal ends at once; for the rest start again with --resume\n"));
  }
  CheckResumes();
}

TEST_F(Ends, ASignalWhileWaitingForInputIsNoEndOfTheInput) {
  const std::string fifo = folder_.Path("lines.fifo.jsonl");
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  for (const int ranks : {0, 2}) {
    fs::remove(out_);
    auto program = Start({"--input", fifo, "--force", "--input-format", "jsonl"}, ranks);
    WaitForRecords(*program);
    for (int done = 0; done < kDocuments;) {  // all of the first input
      program->Poll(std::chrono::milliseconds(20));
      const std::string text = Slurp(out_);
      done = static_cast<int>(std::count(text.begin(), text.end(), '\n'));
    }
    pid_t rank = program->pid();
    for (const pid_t pid : program->Descendants()) rank = pid;
    kill(rank, SIGTERM);
    const ProgramResult result = program->Wait();
    EXPECT_EQ(result.exit_code, 143) << result.ToString();
  }
}

TEST_F(Ends, AFileThatMayNotGrowIsAnOutputThatCannotBeWritten) {
  ProgramOptions options;
  options.argv = {"/bin/sh", "-c", "ulimit -f 8; exec \"$0\" \"$@\""};
  for (const std::string& argument :
       PrefillCommand(WithSmallModel({"--input", lines_, "--output", out_, "--max-tokens", "8"})))
    options.argv.push_back(argument);
  const auto result = RunProgram(options);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->exit_code, 6) << result->ToString();
  EXPECT_THAT(result->err, HasSubstr("--output"));
  EXPECT_GT(ParseRecords(Slurp(out_)).size(), 1u) << "whole records stay";
}

TEST_F(Ends, TheSecondSignalEndsAtOnce) {
  auto program = Start({});
  WaitForRecords(*program);
  kill(program->pid(), SIGTERM);
  program->WaitForOutput("second signal");
  kill(program->pid(), SIGTERM);
  const ProgramResult result = program->Wait();
  EXPECT_EQ(result.exit_code, 143) << result.ToString();
  ParseRecords(Slurp(out_));  // whole lines
}

TEST_F(Ends, TheTimeLimitFinishesOpenDocuments) {
  auto program = Start({"--time-limit", "0.5"});
  const ProgramResult result = program->Wait();
  EXPECT_EQ(result.exit_code, 124) << result.ToString();
  EXPECT_THAT(result.err,
              HasSubstr("--time-limit: no further document is started; for the rest start again with "
                        "--resume\n"));
  EXPECT_LT(ParseRecords(Slurp(out_)).size(), static_cast<size_t>(kDocuments));
  CheckResumes(2);
}

TEST_F(Ends, ASignalToOneRankEndsAllInOrder) {
  auto program = Start({"--max-batch", "4"}, 3);
  WaitForRecords(*program);
  pid_t last = 0;
  for (const pid_t pid : program->Descendants()) last = pid;
  kill(last, SIGTERM);
  const ProgramResult result = program->Wait();
  EXPECT_EQ(result.exit_code, 143) << result.ToString();
  for (const Json& record : ParseRecords(Slurp(out_))) EXPECT_EQ(record["usage"]["completion_tokens"], 60);
  CheckResumes(3);
}

class RunSh : public Ends {
 protected:
  std::unique_ptr<Program> StartRunSh(const Strings& more = {}) {
    ProgramOptions options;
    options.argv = Join(
        {SourceFolder() + "/launch/run.sh", "-n", "2", "--build-dir",
         fs::path(PrefillPath()).parent_path().parent_path().string(), "--model", LongModel(), "--dtype",
         "f32", "--threads", "1", "--input", lines_, "--output", out_, "--max-tokens", "60", "--ignore-eos"},
        more);
    auto program = Program::Start(options);
    EXPECT_TRUE(program.ok()) << program.status();
    return *std::move(program);
  }
  // Waits for the end of run.sh and checks that nothing of `below` outlives it.
  static void WaitForScript(Program& program, const std::vector<pid_t>& below) {
    // Signal 0 sends nothing.
    while (kill(program.pid(), 0) == 0 && program.Poll(std::chrono::milliseconds(1))) {
    }
    for (const pid_t pid : below) EXPECT_FALSE(IsRunning(pid)) << "process " << pid << " outlives run.sh";
  }
};

TEST_F(RunSh, HandsSignalsToTheRanks) {
  for (const auto& [number, exit_code] : {std::pair(SIGINT, 130), std::pair(SIGTERM, 143)}) {
    fs::remove(out_);
    auto program = StartRunSh();
    WaitForRecords(*program);
    const std::vector<pid_t> below = program->Descendants();
    ASSERT_GE(below.size(), 3u) << "mpirun and two ranks";
    kill(program->pid(), number);
    WaitForScript(*program, below);
    const ProgramResult result = program->Wait();
    EXPECT_EQ(result.exit_code, exit_code) << result.ToString();
    const auto records = ParseRecords(Slurp(out_));
    EXPECT_LT(records.size(), static_cast<size_t>(kDocuments));
    for (const Json& record : records) EXPECT_EQ(record["usage"]["completion_tokens"], 60);
    EXPECT_THAT(result.err, Not(HasSubstr("-----"))) << "a banner of mpirun's";
  }
}

// What has this process's name: /proc/PID/comm.
std::vector<pid_t> Named(const std::vector<pid_t>& pids, const std::string& name) {
  std::vector<pid_t> named;
  for (const pid_t pid : pids) {
    std::string comm = Slurp("/proc/" + std::to_string(pid) + "/comm");
    if (comm.ends_with('\n')) comm.pop_back();
    if (comm == name) named.push_back(pid);
  }
  return named;
}

TEST_F(RunSh, AKilledRankOrMpirunIsALostRank) {
  for (const char* victim : {"snapkv-prefill", "mpirun"}) {
    fs::remove(out_);
    auto program = StartRunSh();
    WaitForRecords(*program);
    const std::vector<pid_t> below = program->Descendants();
    const std::vector<pid_t> victims = Named(below, victim);
    ASSERT_FALSE(victims.empty()) << victim;
    kill(victims.back(), SIGKILL);
    WaitForScript(*program, below);
    const ProgramResult result = program->Wait();
    EXPECT_EQ(result.exit_code, 70) << victim << result.ToString();
    EXPECT_THAT(result.err, HasSubstr("run: error: a rank (or mpirun) was killed by signal KILL"));
    EXPECT_THAT(result.err, HasSubstr("start again with --resume\n"));
    EXPECT_THAT(result.err, Not(HasSubstr("-----"))) << "a banner of mpirun's";
    EXPECT_THAT(result.err, Not(HasSubstr("Killed "))) << "bash's own words";
    auto resumed = StartRunSh({"--resume"});
    const ProgramResult rest = resumed->Wait();
    EXPECT_EQ(rest.exit_code, 0) << rest.ToString();
    EXPECT_THAT(RecordsById(Slurp(out_)), SizeIs(kDocuments)) << victim;
  }
}

TEST_F(RunSh, SignalsWhileItEndsAreNoCrash) {
  for (const int signals : {2, 3}) {
    fs::remove(out_);
    auto program = StartRunSh();
    WaitForRecords(*program);
    const std::vector<pid_t> below = program->Descendants();
    // One rank that hears of nothing.
    const std::vector<pid_t> ranks = Named(below, "snapkv-prefill");
    ASSERT_THAT(ranks, SizeIs(2));
    kill(ranks.back(), SIGSTOP);
    for (int i = 0; i < signals; ++i) {
      kill(program->pid(), SIGTERM);
      const auto start = std::chrono::steady_clock::now();
      while (std::chrono::steady_clock::now() - start < std::chrono::milliseconds(600))
        program->Poll(std::chrono::milliseconds(50));
    }
    WaitForScript(*program, below);
    const ProgramResult result = program->Wait();
    EXPECT_EQ(result.exit_code, 143) << signals << " signals" << result.ToString();
    EXPECT_LT(result.seconds, 60);
    ParseRecords(Slurp(out_));  // whole lines
  }
}

TEST_F(Ends, TwoRunsDoNotShareAnOutput) {
  auto program = Start({});
  WaitForRecords(*program);
  kill(program->pid(), SIGSTOP);  // or it might be done before the second gives up
  for (const char* flag : {"--resume", "--force"}) {
    const ProgramResult second = Start({flag})->Wait();
    EXPECT_EQ(second.exit_code, 6) << second.ToString();
    EXPECT_THAT(second.err, HasSubstr("another run"));
    const bool waits = std::string(flag) == "--resume";
    EXPECT_EQ(second.err.find("waiting up to 5s for its end") != std::string::npos, waits)
        << second.ToString();
  }
  kill(program->pid(), SIGKILL);
  program->Wait();
  CheckResumes();
}

}  // namespace
}  // namespace snapkv::testing
