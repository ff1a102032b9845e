// SPDX-License-Identifier: Apache-2.0
// Ranks of snapkv-prefill that are killed, stopped, or given another model, in prefill and in decode; signals
// to mpirun; and decoding that takes longer than ranks may wait for each other.
#include <signal.h>

#include <chrono>
#include <fstream>
#include <map>
#include <sstream>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/base/log.h"
#include "tests/e2e/prefill_program.h"

namespace snapkv::testing {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using Clock = std::chrono::steady_clock;

constexpr int kRanks = 4;
constexpr int kTimeoutS = 5;  // --comm-timeout
constexpr int kGraceS = 5;    // beyond it

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Many cheap layers: prefill and decode both take minutes, in steps far shorter than a time-out.
const std::string& SlowModel() {
  static const TestFolder folder;
  static const std::string path = [] {
    TinyModelOptions options = SmallOptions();
    options.layers = 400;
    options.heads = 2;
    options.kv_heads = 1;
    options.hidden = 16;
    options.ffn = 16;
    options.context = 1 << 17;
    const std::string file = folder.Path("slow.gguf");
    EXPECT_TRUE(TinyTextGguf(options).Write(file));
    return file;
  }();
  return path;
}

// The rank that a process has by its launcher's variables, -1 without.
int RankOf(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/environ");
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  const std::string name = std::string(1, '\0') + "OMPI_COMM_WORLD_RANK=";
  const size_t at = text.find(name);
  return at == std::string::npos ? -1 : std::stoi(text.substr(at + name.size()));
}

enum class Phase { kPrefill, kDecode };

// A job of kRanks ranks that is in the middle of a phase. Kills what is left of it at the end.
class Job {
 public:
  explicit Job(Phase phase) {
    const int64_t prompt = phase == Phase::kPrefill ? 20'000 : 30;
    const std::string ids = folder_.WriteIds("ids.json", RandomTokens(prompt, 256, 3));
    ProgramOptions options;
    options.argv = PrefillCommand(
        {"--model", SlowModel(), "--dtype", "f32", "--threads", "1", "--token-ids", ids, "--format", "text",
         "--ignore-eos", "--max-tokens", "50000", "--comm-timeout", std::to_string(kTimeoutS)},
        kRanks);
    options.timeout = milliseconds(120'000);
    auto program = Program::Start(options);
    CHECK(program.ok()) << program.status();
    program_ = *std::move(program);
    ready_ = program_->WaitForOutput("prompt tokens on 4 ranks");
    if (phase == Phase::kDecode) {
      while (program_->out().empty() && program_->Poll(milliseconds(10))) {
      }
    }
    // Past loading, and into the phase.
    const auto start = Clock::now();
    while (SecondsSince(start) < 0.4 && program_->Poll(milliseconds(50))) {
    }
    for (const pid_t pid : program_->Descendants()) {
      if (const int rank = RankOf(pid); rank >= 0) ranks_[rank] = pid;
      all_.push_back(pid);
    }
    ready_ = ready_ && ranks_.size() == kRanks && program_->out().empty() == (phase == Phase::kPrefill);
    EXPECT_TRUE(ready_) << ranks_.size() << " ranks; stdout: " << program_->out()
                        << "; stderr: " << program_->err();
  }
  ~Job() {
    program_.reset();
    for (const pid_t pid : all_)
      if (IsRunning(pid)) kill(pid, SIGKILL);
  }

  bool ready() const { return ready_; }
  pid_t rank(int r) const { return ranks_.at(r); }
  pid_t mpirun() const { return program_->pid(); }

  // Sends a signal, waits for the end and checks that it comes in time and leaves nobody behind.
  ProgramResult End(pid_t pid, int signal, double limit_s) {
    const auto start = Clock::now();
    EXPECT_EQ(kill(pid, signal), 0);
    // The ranks as well as mpirun: pipes of ranks end at mpirun.
    ProgramResult result;
    bool ended = false;
    double took = 0;
    while (SecondsSince(start) < limit_s + 20) {
      if (!ended) ended = !program_->Poll(milliseconds(20));
      if (ended && Left().empty()) break;
      if (ended) std::this_thread::sleep_for(milliseconds(20));
    }
    took = SecondsSince(start);
    EXPECT_THAT(Left(), IsEmpty()) << "processes left behind";
    EXPECT_LE(took, limit_s);
    result = program_->Wait();
    EXPECT_FALSE(result.left_running);
    EXPECT_FALSE(result.timed_out) << result.ToString();
    std::printf("  ended after %.1f s, exit code %d, signal %d\n", took, result.exit_code, result.signal);
    return result;
  }

 private:
  std::vector<pid_t> Left() const {
    std::vector<pid_t> left;
    for (const pid_t pid : all_)
      if (IsRunning(pid)) left.push_back(pid);
    return left;
  }

  const TestFolder folder_;
  std::unique_ptr<Program> program_;
  std::map<int, pid_t> ranks_;
  std::vector<pid_t> all_;
  bool ready_ = false;
};

using Victim = std::tuple<Phase, int>;

std::string VictimName(const ::testing::TestParamInfo<Victim>& info) {
  return std::string(std::get<0>(info.param) == Phase::kPrefill ? "Prefill" : "Decode") + "Rank" +
         std::to_string(std::get<1>(info.param));
}

class Killed : public ::testing::TestWithParam<Victim> {};

TEST_P(Killed, EverythingEnds) {
  const auto [phase, rank] = GetParam();
  Job job(phase);
  ASSERT_TRUE(job.ready());
  const ProgramResult result = job.End(job.rank(rank), SIGKILL, 10);
  EXPECT_NE(result.exit_code, 0) << result.ToString();
}

INSTANTIATE_TEST_SUITE_P(Faults, Killed,
                         ::testing::Combine(::testing::Values(Phase::kPrefill, Phase::kDecode),
                                            ::testing::Values(0, 2, kRanks - 1)),
                         VictimName);

class Stopped : public ::testing::TestWithParam<Victim> {};

TEST_P(Stopped, IsNamedAndEverythingEnds) {
  const auto [phase, rank] = GetParam();
  Job job(phase);
  ASSERT_TRUE(job.ready());
  const ProgramResult result = job.End(job.rank(rank), SIGSTOP, kTimeoutS + kGraceS);
  EXPECT_EQ(result.exit_code, 70) << result.ToString();
  const Strings lines = ErrorLines(result);
  ASSERT_THAT(lines, SizeIs(1)) << result.ToString();
  EXPECT_THAT(lines[0], HasSubstr("error: rank " + std::to_string(rank) + " ("));
  EXPECT_THAT(lines[0], HasSubstr("--comm-timeout"));
}

INSTANTIATE_TEST_SUITE_P(Faults, Stopped,
                         ::testing::Combine(::testing::Values(Phase::kPrefill, Phase::kDecode),
                                            ::testing::Values(0, 1, kRanks - 1)),
                         VictimName);

class Launcher : public ::testing::TestWithParam<std::tuple<Phase, int>> {};

TEST_P(Launcher, SignalledEndsItsRanks) {
  const auto [phase, signal] = GetParam();
  Job job(phase);
  ASSERT_TRUE(job.ready());
  const ProgramResult result = job.End(job.mpirun(), signal, 10);
  EXPECT_TRUE(result.exit_code != 0 || result.signal != 0) << result.ToString();
  EXPECT_THAT(ErrorLines(result), IsEmpty()) << "no rank is to blame";
}

INSTANTIATE_TEST_SUITE_P(
    Faults, Launcher,
    ::testing::Values(std::make_tuple(Phase::kPrefill, SIGKILL), std::make_tuple(Phase::kDecode, SIGKILL),
                      std::make_tuple(Phase::kPrefill, SIGTERM), std::make_tuple(Phase::kDecode, SIGINT)),
    [](const auto& info) {
      return std::string(std::get<0>(info.param) == Phase::kPrefill ? "Prefill" : "Decode") + "Signal" +
             std::to_string(std::get<1>(info.param));
    });

// The other ranks hear of the decoding one often enough, however long it takes.
TEST(LongDecode, IsNoTimeOut) {
  const TestFolder folder;
  const std::string ids = folder.WriteIds("ids.json", RandomTokens(30, 256, 3));
  const auto run = [&](int64_t tokens) {
    ProgramOptions options;
    options.timeout = milliseconds(120'000);
    const ProgramResult result =
        RunPrefill({"--model", SlowModel(), "--dtype", "f32", "--threads", "1", "--token-ids", ids,
                    "--ignore-eos", "--max-tokens", std::to_string(tokens), "--comm-timeout", "2"},
                   3, options);
    EXPECT_EQ(result.exit_code, 0) << result.ToString();
    return ParseRecord(result.out);
  };
  const double per_second = run(100)["timings"]["decode_tokens_per_s"];
  ASSERT_GT(per_second, 0);
  const auto record = run(std::max<int64_t>(200, static_cast<int64_t>(per_second * 8)));
  EXPECT_GT(record["timings"]["decode_ms"].get<double>(), 6000) << "too short to prove anything";
  std::printf("  decoded for %.1f s\n", record["timings"]["decode_ms"].get<double>() / 1e3);
}

// One rank gets another model than the rest: a script chooses by rank.
class OddModel : public ::testing::Test {
 protected:
  ProgramResult Run(const std::string& odd, int odd_rank) {
    const std::string script = "if [ \"$OMPI_COMM_WORLD_RANK\" = " + std::to_string(odd_rank) +
                               " ]; then model='" + odd + "'; else model='" + SmallModel() +
                               "'; fi; exec \"$0\" --model \"$model\" \"$@\"";
    const std::string ids = folder_.WriteIds("ids.json", RandomTokens(100, 256, 3));
    Strings command = PrefillCommand({}, 3);
    command.pop_back();
    ProgramOptions options;
    options.argv = Join(command, {"/bin/bash", "-c", script, PrefillPath(), "--token-ids", ids,
                                  "--max-tokens", "2", "--threads", "1", "--comm-timeout", "20"});
    const auto result = RunProgram(options);
    EXPECT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(result->exit_code, 3) << result->ToString();
    EXPECT_THAT(ErrorLines(*result), SizeIs(1)) << result->ToString();
    EXPECT_LT(result->seconds, 15);
    return *result;
  }
  const TestFolder folder_;
};

TEST_F(OddModel, Missing) {
  for (const int rank : {0, 2}) {
    const std::string path = folder_.Path("none.gguf");
    const ProgramResult result = Run(path, rank);
    EXPECT_THAT(result.err, HasSubstr(path));
    if (rank != 0) {
      EXPECT_THAT(result.err, HasSubstr("rank 2"));
    }
  }
}

TEST_F(OddModel, Truncated) {
  const std::string good = Slurp(SmallModel());
  EXPECT_THAT(Run(folder_.Write("cut.gguf", good.substr(0, good.size() / 2)), 1).err, HasSubstr("rank 1"));
}

TEST_F(OddModel, OtherShapeOrOtherWeights) {
  TinyModelOptions options = SmallOptions();
  options.layers = 3;
  const std::string shape = folder_.Path("shape.gguf");
  ASSERT_TRUE(TinyTextGguf(options).Write(shape));
  EXPECT_THAT(Run(shape, 1).err, ::testing::AllOf(HasSubstr("rank 1"), HasSubstr(shape)));
  options = SmallOptions();
  options.seed = 99;  // the same sizes everywhere
  const std::string weights = folder_.Path("weights.gguf");
  ASSERT_TRUE(TinyTextGguf(options).Write(weights));
  EXPECT_THAT(Run(weights, 2).err, ::testing::AllOf(HasSubstr("rank 2"), HasSubstr(weights)));
  EXPECT_THAT(Run(weights, 0).err, HasSubstr("rank 1"));
}

}  // namespace
}  // namespace snapkv::testing
