// SPDX-License-Identifier: Apache-2.0
// snapkv-prefill on several ranks and without mpirun: the same results for every number of ranks at the edges
// of lengths, what --stats counts, and how it is started.
#include <sched.h>

#include <algorithm>
#include <optional>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/plan/plan.h"
#include "tests/e2e/prefill_program.h"

namespace snapkv::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;
using Json = nlohmann::ordered_json;

constexpr int kWindow = 16, kCapacity = 80;

struct Outcome {
  std::vector<int32_t> token_ids;
  std::string selection, logits;  // the files
};

TEST(Ranks, SameResultAtEveryEdge) {
  const TestFolder folder;
  int64_t runs = 0;
  for (const int64_t tokens :
       {1, 3, kWindow - 1, kWindow, kWindow + 1, kCapacity, kCapacity + 1, 211, 1031}) {
    const std::string ids = folder.WriteIds("ids.json", RandomTokens(tokens, kByteVocab, 17));
    std::optional<Outcome> one;
    for (const int ranks : {1, 2, 5, 8}) {
      // Two lengths suffice to see that mpirun -np 1 is the same as no mpirun.
      const int launched = ranks == 1 && tokens > 3 ? 0 : ranks;
      const std::string selection = folder.Path("s"), logits = folder.Path("l");
      const ProgramResult result =
          RunPrefill(WithSmallModel({"--token-ids", ids, "--max-tokens", "8", "--ignore-eos", "--window",
                                     std::to_string(kWindow), "--capacity", std::to_string(kCapacity),
                                     "--dump-selection", selection, "--dump-logits", logits}),
                     launched);
      const std::string what = std::to_string(tokens) + " tokens on " + std::to_string(ranks) + " ranks";
      ASSERT_EQ(result.exit_code, 0) << what << result.ToString();
      const Outcome outcome{TokenIds(ParseRecord(result.out)), Slurp(selection), Slurp(logits)};
      ++runs;
      if (!one.has_value()) {
        one = outcome;
        const auto layers = ReadSelection(selection);
        ASSERT_THAT(layers[0][0], SizeIs(std::min<int64_t>(tokens, kCapacity))) << what;
        continue;
      }
      EXPECT_EQ(outcome.token_ids, one->token_ids) << what;
      EXPECT_TRUE(outcome.selection == one->selection) << what << ": other rows are kept";
      EXPECT_TRUE(outcome.logits == one->logits) << what << ": other logits";
    }
  }
  std::printf("%ld runs\n", static_cast<long>(runs));
}

// --- What --stats counts.

constexpr const char* kPhases[] = {"load",  "embed", "gemm",   "other",  "attention", "ring_wait",
                                   "score", "pool",  "select", "gather", "decode"};

// Bytes that a binomial tree broadcast of `bytes` from `root` makes `rank` send.
int64_t TreeBytes(int rank, int root, int ranks, int64_t bytes) {
  const int place = (rank - root + ranks) % ranks;
  int64_t sends = 0;
  for (int bit = 1; bit < ranks && (place & bit) == 0; bit <<= 1) sends += place + bit < ranks ? 1 : 0;
  return sends * bytes;
}

struct Expected {
  int64_t bytes_sent = 0, shard = 0, receive = 0, compressed = 0;
};

// What the plan says for one rank; `kept` is [layer][head][row].
Expected FromPlan(const runtime::Plan& plan, int rank, const TinyModelOptions& model, bool compresses,
                  int kernel, const std::vector<std::vector<std::vector<int32_t>>>& kept, int64_t headroom) {
  const int ranks = plan.ranks();
  const int64_t row = model.head_dim * 4, kv_row = 2 * model.kv_heads * row;
  const int64_t selecting = static_cast<int64_t>(kept[0].size());
  Expected e;
  for (int step = 0; step + 1 < ranks; ++step)
    e.bytes_sent += model.layers * kv_row * plan.RankTokens(plan.RingSource(rank, step));
  if (compresses) {
    for (const runtime::Plan::WindowPart& part : plan.WindowParts())
      e.bytes_sent +=
          model.layers * TreeBytes(rank, part.rank, ranks, model.heads * part.range.size() * (row + 4));
    for (const runtime::HaloTransfer& t : plan.HaloTransfers(kernel))
      if (t.from == rank && t.to != rank) e.bytes_sent += model.layers * selecting * t.range.size() * 4;
  }
  int64_t kept_rows = 0;
  for (const auto& layer : kept) {
    int64_t own = 0;
    for (const auto& head : layer)
      own += std::count_if(head.begin(), head.end(), [&](int32_t p) { return plan.Owner(p) == rank; });
    if (rank != 0) {
      e.bytes_sent += own * 2 * row;
      e.compressed = std::max(e.compressed, own * 2 * row);  // packed, one layer at a time
    }
    kept_rows += selecting * (static_cast<int64_t>(layer[0].size()) + headroom);
  }
  if (rank == 0) e.compressed = kept_rows * 2 * row;
  e.shard = plan.RankTokens(rank) * kv_row;
  e.receive = std::min(2, ranks - 1) * plan.MaxRankTokens() * kv_row;
  return e;
}

struct StatsCase {
  int ranks;
  int64_t tokens;
  Strings flags;
  bool compresses;
  int kernel;
};

void CheckRank(const Json& report, const StatsCase& c, const runtime::Plan& plan, int rank,
               const Expected& e) {
  const std::string what = "rank " + std::to_string(rank) + " of " + std::to_string(c.ranks);
  EXPECT_THAT(Keys(report), ElementsAre("rank", "node", "threads", "dtype", "phases", "bytes_sent",
                                        "peak_bytes", "peak_rss_bytes", "cpu", "kernels"))
      << what;
  EXPECT_EQ(report["rank"], rank);
  EXPECT_THAT(report["node"].get<std::string>(), HasSubstr("process"));
  EXPECT_EQ(report["threads"], 1);
  EXPECT_EQ(report["dtype"], "f32");
  EXPECT_THAT(Keys(report["phases"]), ::testing::ElementsAreArray(kPhases)) << what;
  for (const auto& [name, phase] : report["phases"].items()) {
    EXPECT_THAT(Keys(phase), ElementsAre("seconds", "tokens")) << name;
    EXPECT_GE(phase["seconds"].get<double>(), 0) << what << " " << name;
    EXPECT_LT(phase["seconds"].get<double>(), 60) << what << " " << name;
  }
  const int64_t local = plan.RankTokens(rank), layers = SmallOptions().layers;
  const auto tokens = [&](const char* phase) { return report["phases"][phase]["tokens"].get<int64_t>(); };
  EXPECT_EQ(tokens("embed"), local) << what;
  EXPECT_EQ(tokens("gemm"), layers * local) << what;
  EXPECT_EQ(tokens("attention"), layers * local) << what;
  EXPECT_EQ(tokens("decode"), rank == 0 ? 4 : 0) << what << ": the first of 5 tokens comes from prefill";
  if (c.compresses) {
    const int64_t scored = plan.ScoredChunk(rank, 0).size() + plan.ScoredChunk(rank, 1).size();
    EXPECT_EQ(tokens("score"), layers * scored) << what;
    EXPECT_EQ(tokens("pool"), layers * scored) << what;
  } else {
    EXPECT_EQ(tokens("score"), 0) << what;
    EXPECT_EQ(report["phases"]["score"]["seconds"], 0.0) << what;
  }
  EXPECT_EQ(report["bytes_sent"], e.bytes_sent) << what;
  const Json& peak = report["peak_bytes"];
  EXPECT_THAT(Keys(peak), ElementsAre("weights", "activation", "kv_shard", "kv_receive", "kv_compressed",
                                      "workspace", "kv_total"));
  EXPECT_EQ(peak["kv_shard"], e.shard) << what;
  EXPECT_EQ(peak["kv_receive"], e.receive) << what;
  EXPECT_EQ(peak["kv_compressed"], e.compressed) << what;
  EXPECT_LE(peak["kv_total"].get<int64_t>(), e.shard + e.receive + e.compressed) << what;
  EXPECT_GE(peak["kv_total"].get<int64_t>(), std::max(e.shard + e.receive, e.compressed)) << what;
  EXPECT_GT(peak["weights"].get<int64_t>(), 0) << what;
  EXPECT_GT(peak["activation"].get<int64_t>(), 0) << what;
  EXPECT_GT(report["peak_rss_bytes"].get<int64_t>(), 1 << 20) << what;
  EXPECT_THAT(Keys(report["cpu"]), ElementsAre("isa", "features"));
  EXPECT_FALSE(report["kernels"].empty()) << what;
}

TEST(Stats, CountsWhatThePlanSays) {
  const TestFolder folder;
  const StatsCase cases[] = {
      {1, 300, {"--capacity", "100", "--window", "16"}, true, 7},
      {2, 300, {"--policy", "full"}, false, 7},
      {3, 500, {"--capacity", "100", "--window", "16", "--kernel", "5", "--pool", "avg"}, true, 5},
      {4, 777, {"--capacity", "200", "--window", "70", "--group", "none"}, true, 7},
      {5, 100, {"--capacity", "50", "--window", "16", "--pool", "none"}, true, 1},
  };
  for (const StatsCase& c : cases) {
    const std::string ids = folder.WriteIds("ids.json", RandomTokens(c.tokens, 256, 5));
    const std::string selection = folder.Path("s"), stats = folder.Path("stats.json");
    const ProgramResult result =
        RunPrefill(WithSmallModel(Join({"--token-ids", ids, "--max-tokens", "5", "--ignore-eos",
                                        "--dump-selection", selection, "--stats", stats},
                                       c.flags)),
                   c.ranks);
    ASSERT_EQ(result.exit_code, 0) << result.ToString();
    const Json report = Json::parse(Slurp(stats));
    EXPECT_THAT(Keys(report), ElementsAre("run", "ranks"));
    EXPECT_THAT(Keys(report["run"]),
                ElementsAre("ranks", "documents", "failed", "prompt_tokens", "generated_tokens",
                            "prefill_seconds", "decode_seconds", "model"));
    EXPECT_EQ(report["run"]["documents"], 1);
    EXPECT_EQ(report["run"]["generated_tokens"], 5);
    EXPECT_EQ(report["run"]["ranks"], c.ranks);
    EXPECT_EQ(report["run"]["prompt_tokens"], c.tokens);
    EXPECT_EQ(report["run"]["model"], SmallModel());
    const double prefill_s = report["run"]["prefill_seconds"];
    EXPECT_GT(prefill_s, 0);
    EXPECT_NEAR(ParseRecord(result.out)["timings"]["prefill_ms"].get<double>(), prefill_s * 1e3, 0.051);
    ASSERT_THAT(report["ranks"], SizeIs(c.ranks));

    const auto window = std::find(c.flags.begin(), c.flags.end(), "--window");
    const auto plan =
        runtime::Plan::Create(c.tokens, c.ranks, window == c.flags.end() ? 32 : std::stol(window[1]), 64);
    ASSERT_TRUE(plan.ok());
    const auto kept = ReadSelection(selection);
    for (int rank = 0; rank < c.ranks; ++rank) {
      const Json& mine = report["ranks"][static_cast<size_t>(rank)];
      const Expected expected = FromPlan(*plan, rank, SmallOptions(), c.compresses, c.kernel, kept,
                                         4);  // of 5 tokens the last needs no row
      CheckRank(mine, c, *plan, rank, expected);
      if (rank != 0) continue;
      // The parts of prefill lie inside it; other ranks may end later than rank 0, whose time is reported.
      double sum = 0;
      for (const auto& [name, phase] : mine["phases"].items())
        if (name != "load" && name != "decode") sum += phase["seconds"].get<double>();
      EXPECT_LE(sum, prefill_s * 1.05 + 0.05);
    }
  }
}

// --- Starting it.

TEST(Launch, AloneItNeedsNoMpi) {
  const TestFolder folder;
  const std::string document = folder.Write("d.txt", "Text.");
  ProgramOptions options;
  options.environment["PATH"] = "/nonexistent";
  const ProgramResult result =
      RunPrefill(WithSmallModel({"--input", document, "--max-tokens", "3", "--ignore-eos"}), 0, options);
  EXPECT_EQ(result.exit_code, 0) << result.ToString();
}

TEST(Launch, FromAnotherFolderWithRelativePaths) {
  const TestFolder folder;
  folder.Write("d.txt", "Text.");
  folder.Write("model.gguf", Slurp(SmallModel()));
  for (const int ranks : {0, 2}) {
    ProgramOptions options;
    options.folder = folder.path();
    const std::string out = "out" + std::to_string(ranks) + ".jsonl";
    const ProgramResult result = RunPrefill(
        {"--model", "model.gguf", "--input", "d.txt", "--output", out, "--max-tokens", "3", "--threads", "1"},
        ranks, options);
    EXPECT_EQ(result.exit_code, 0) << result.ToString();
    EXPECT_EQ(ParseRecord(Slurp(folder.Path(out)))["id"], "d.txt");
  }
}

TEST(Launch, TwoProgramsAtOnce) {
  const TestFolder folder;
  const std::string document = folder.Write("d.txt", "Text.");
  const Strings flags = WithSmallModel(
      {"--input", document, "--max-tokens", "30", "--ignore-eos", "--format", "jsonl", "--return-token-ids"});
  const std::vector<int32_t> alone = TokenIds(ParseRecord(RunPrefill(flags).out));
  std::vector<std::unique_ptr<Program>> programs;
  for (const int ranks : {2, 2, 0, 0}) {
    ProgramOptions options;
    options.argv = PrefillCommand(flags, ranks);
    auto program = Program::Start(options);
    ASSERT_TRUE(program.ok()) << program.status();
    programs.push_back(*std::move(program));
  }
  for (const auto& program : programs) {
    const ProgramResult result = program->Wait();
    ASSERT_EQ(result.exit_code, 0) << result.ToString();
    EXPECT_EQ(TokenIds(ParseRecord(result.out)), alone);
  }
}

// The first rank may wait for its document longer than ranks may wait for each other.
TEST(Launch, SlowStdinIsNoLostRank) {
  ProgramOptions options;
  const Strings program = PrefillCommand(
      WithSmallModel({"--input", "-", "--max-tokens", "3", "--comm-timeout", "2", "--format", "jsonl"}), 2);
  options.argv = Join({"/bin/bash", "-c", "(echo first; sleep 6; echo last) | \"$@\"", "bash"}, program);
  const auto result = RunProgram(options);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->exit_code, 0) << result->ToString();
  EXPECT_GT(result->seconds, 6);
}

TEST(Launch, ThreadsAreDividedAmongTheRanksOfAHost) {
  const TestFolder folder;
  const std::string ids = folder.WriteIds("ids.json", {1, 2, 3});
  cpu_set_t mask;
  ASSERT_EQ(sched_getaffinity(0, sizeof(mask), &mask), 0);
  const int cpus = CPU_COUNT(&mask);
  for (const int ranks : {0, 2}) {
    const std::string stats = folder.Path("stats.json");
    const ProgramResult result = RunPrefill(
        {"--model", SmallModel(), "--token-ids", ids, "--max-tokens", "1", "--stats", stats}, ranks);
    ASSERT_EQ(result.exit_code, 0) << result.ToString();
    for (const Json& rank : Json::parse(Slurp(stats))["ranks"])
      EXPECT_EQ(rank["threads"], std::max(1, cpus / std::max(ranks, 1)));
  }
}

}  // namespace
}  // namespace snapkv::testing
