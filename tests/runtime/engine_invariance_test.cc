// SPDX-License-Identifier: Apache-2.0
// The number of ranks does not show: kept sets, logits and tokens of tiny models of every group size, on
// prompts around every edge, with every pool, group and kernel; and the kept sets are those of an oracle.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "tests/support/engine_harness.h"
#include "tests/support/engine_observers.h"
#include "tests/support/tensors.h"
#include "tests/support/tiny_model.h"

namespace snapkv::testing {
namespace {

using kernels::GroupMode;
using kernels::PoolMode;
using runtime::CachePolicy;
using runtime::CompressionOptions;

constexpr int64_t kCapacity = 40, kWindow = 16;
// Heads whose cut the oracle sees decided by less may keep other positions than the oracle: f32 scores.
constexpr double kDecidedGap = 1e-5;

std::vector<CompressionOptions> Configs() {
  std::vector<CompressionOptions> configs;
  const auto add = [&](int64_t capacity, int64_t window, int kernel, PoolMode pool, GroupMode group) {
    configs.push_back({CachePolicy::kSnapKv, capacity, window, kernel, pool, group});
  };
  for (const PoolMode pool : {PoolMode::kMax, PoolMode::kAvg, PoolMode::kNone})
    for (const GroupMode group : {GroupMode::kMean, GroupMode::kMax, GroupMode::kSum, GroupMode::kNone})
      add(kCapacity, kWindow, 7, pool, group);
  for (const PoolMode pool : {PoolMode::kMax, PoolMode::kAvg}) {
    add(kCapacity, kWindow, 1, pool, GroupMode::kMean);
    add(kCapacity, kWindow, 193, pool, GroupMode::kMean);   // reaches over a whole chunk of 64
    add(kCapacity, kWindow, 2001, pool, GroupMode::kMean);  // over every prefix
    add(100, 70, 7, pool, GroupMode::kMean);                // a window over more than one chunk
    add(400, 200, 5, pool, GroupMode::kMean);               // and over more than two ranks
  }
  add(16, 16, 7, PoolMode::kMax, GroupMode::kMean);  // the window alone
  add(2, 1, 7, PoolMode::kMax, GroupMode::kMean);
  return configs;
}

std::string Name(const CompressionOptions& c) {
  return "C" + std::to_string(c.capacity) + " W" + std::to_string(c.window) + " k" +
         std::to_string(c.kernel) + " pool " + std::to_string(static_cast<int>(c.pool)) + " group " +
         std::to_string(static_cast<int>(c.group));
}

struct Shape {
  const char* name;
  TinyModelOptions model;
};
// Group sizes 1, 3, 7, 8; head dimensions on and off the vector lengths; biases; own and shared heads.
const Shape kShapes[] = {
    {"g1", {.heads = 2, .kv_heads = 2, .head_dim = 8, .seed = 11}},
    {"g3", {.heads = 6, .kv_heads = 2, .head_dim = 16, .tied = false, .seed = 13}},
    {"g7", {.architecture = "qwen2", .heads = 7, .kv_heads = 1, .head_dim = 12, .tied = false, .seed = 17}},
    {"g8", {.architecture = "qwen2", .heads = 8, .kv_heads = 1, .head_dim = 8, .seed = 19}},
};

// One token, fewer tokens than ranks or than 2 N, around W, C and key blocks, primes, hundreds, a thousand.
const int64_t kLengths[] = {1,  3,   13,  kWindow - 1, kWindow, kWindow + 1, kCapacity, kCapacity + 1,
                            65, 127, 263, 400,         521,     1000};
const int kRanks[] = {1, 2, 3, 5, 8};

struct Outcome {
  EngineOutput compressed, full;
  std::unique_ptr<SelectionObserver> selected;
};

class EngineInvariance : public ::testing::TestWithParam<Shape> {
 protected:
  void SetUp() override {
    auto tiny = TinyModel::Create(GetParam().model);
    ASSERT_TRUE(tiny.ok()) << tiny.status();
    tiny_ = *std::move(tiny);
  }
  const runtime::Model& model() const { return tiny_->model(); }

  // One compressed prefill, in which all configurations select, and one with the full policy.
  absl::StatusOr<Outcome> Run(const std::vector<int32_t>& tokens, const CompressionOptions& own, int ranks,
                              runtime::PrefillObserver* also) const {
    Outcome outcome;
    outcome.selected = std::make_unique<SelectionObserver>(Configs(), ranks, model().config().layers);
    std::vector<runtime::PrefillObserver*> observers = {outcome.selected.get()};
    if (also != nullptr) observers.push_back(also);
    ObserverList list(observers);
    EngineRun run{.ranks = ranks, .threads = 1, .compression = own, .generate = 5, .observer = &list};
    ASSIGN_OR_RETURN(outcome.compressed, RunEngine(model(), tokens, run));
    run.compression.policy = CachePolicy::kFull;
    run.observer = nullptr;
    ASSIGN_OR_RETURN(outcome.full, RunEngine(model(), tokens, run));
    return outcome;
  }

  void CompareLogits(const std::vector<float>& got, const std::vector<float>& want, const std::string& what) {
    ExpectClose(got, want, {model().config().vocab}, 1e-4, 0, what + " logits");
    for (size_t i = 0; i < want.size(); ++i) differing_ += std::memcmp(&got[i], &want[i], sizeof(float)) != 0;
    compared_ += static_cast<int64_t>(want.size());
  }

  // All ranks of `got` hold the same sets, those of `want`.
  void CompareSelections(const Outcome& got, const Outcome& want, int ranks, const std::string& what) {
    for (size_t i = 0; i < Configs().size(); ++i)
      for (int rank = 0; rank < ranks; ++rank)
        for (size_t l = 0; l < static_cast<size_t>(model().config().layers); ++l) {
          ASSERT_EQ(got.selected->selections(i, rank)[l].positions,
                    want.selected->selections(i, 0)[l].positions)
              << what << " " << Name(Configs()[i]) << " rank " << rank << " layer " << l;
          ++sets_;
        }
    for (const auto& of_rank : got.compressed.selections)
      for (size_t l = 0; l < of_rank.size(); ++l)
        ASSERT_EQ(of_rank[l].positions, want.compressed.selections[0][l].positions) << what << " layer " << l;
  }

  // The engine's own sets against the oracle's, from the q and k that it saw.
  void CompareOracle(const Outcome& got, const CaptureObserver& seen, const std::string& what) {
    for (size_t i = 0; i < Configs().size(); ++i)
      for (int64_t l = 0; l < model().config().layers; ++l) {
        const DenseSelection want = DenseSnapKv(seen.layer(l).problem, Configs()[i]);
        const auto& positions = got.selected->selections(i, 0)[static_cast<size_t>(l)].positions;
        ASSERT_EQ(positions.size(), want.positions.size()) << what << " " << Name(Configs()[i]);
        for (size_t h = 0; h < positions.size(); ++h) {
          ++oracle_heads_;
          if (positions[h] == want.positions[h]) continue;
          ++oracle_differing_;
          ASSERT_EQ(positions[h].size(), want.positions[h].size()) << what << " " << Name(Configs()[i]);
          EXPECT_LT(want.cut_gap[h], kDecidedGap)
              << what << " " << Name(Configs()[i]) << " layer " << l << " head " << h;
        }
      }
  }

  void CompareAttention(const CaptureObserver& seen, const std::string& what) {
    for (int64_t l = 0; l < model().config().layers; ++l) {
      const AttentionProblem& p = seen.layer(l).problem;
      const DenseAttention want = Attend(p);
      const std::string where = what + " layer " + std::to_string(l);
      ExpectClose(seen.layer(l).out, want.out, {p.heads, p.tokens, p.head_dim}, 5e-6, 0, where + " output");
      ExpectClose(seen.layer(l).lse, want.lse, {p.heads, p.tokens}, 1e-5, 2.4e-7, where + " lse");
    }
  }

  std::unique_ptr<TinyModel> tiny_;
  int64_t differing_ = 0, compared_ = 0, sets_ = 0, oracle_heads_ = 0, oracle_differing_ = 0;
};

TEST_P(EngineInvariance, SameForAnyNumberOfRanks) {
  const std::vector<CompressionOptions> configs = Configs();
  size_t turn = 0;
  for (const int64_t tokens : kLengths) {
    const auto prompt = RandomTokens(tokens, model().config().vocab, static_cast<uint64_t>(tokens));
    const CompressionOptions own = configs[turn++ % configs.size()];  // the prefill's own configuration
    CaptureObserver seen(model().config(), tokens);
    Outcome one;
    for (const int ranks : kRanks) {
      const std::string what = "T " + std::to_string(tokens) + " N " + std::to_string(ranks);
      auto outcome = Run(prompt, own, ranks, ranks == 1 ? &seen : nullptr);
      ASSERT_TRUE(outcome.ok()) << what << ": " << outcome.status();
      if (ranks == 1) {
        one = *std::move(outcome);
        ASSERT_NO_FATAL_FAILURE(CompareOracle(one, seen, what));
        CompareAttention(seen, what);
        // The first token comes from full attention.
        ExpectEqualBits(one.compressed.logits, one.full.logits, {model().config().vocab}, what);
        if (tokens <= own.capacity) {
          EXPECT_EQ(one.compressed.generated, one.full.generated) << what;
        }
        continue;
      }
      ASSERT_NO_FATAL_FAILURE(CompareSelections(*outcome, one, ranks, what));
      CompareLogits(outcome->compressed.logits, one.compressed.logits, what);
      CompareLogits(outcome->full.logits, one.full.logits, what + " full");
      EXPECT_EQ(outcome->compressed.generated, one.compressed.generated) << what << " " << Name(own);
      EXPECT_EQ(outcome->full.generated, one.full.generated) << what << " full";
      EXPECT_EQ(outcome->full.result.rows_kept, tokens) << what;
      EXPECT_EQ(outcome->compressed.result.rows_kept, std::min(tokens, own.capacity)) << what;
    }
  }
  std::printf(
      "  %s: %ld kept sets equal to those of one rank; %ld of %ld logits differ bitwise; %ld of %ld heads "
      "differ "
      "from the oracle\n",
      GetParam().name, static_cast<long>(sets_), static_cast<long>(differing_), static_cast<long>(compared_),
      static_cast<long>(oracle_differing_), static_cast<long>(oracle_heads_));
  ASSERT_GT(sets_, 0);
  ASSERT_LE(oracle_differing_ * 200, oracle_heads_)
      << "too many cuts are undecided for this test to mean much";
}

INSTANTIATE_TEST_SUITE_P(Shapes, EngineInvariance, ::testing::ValuesIn(kShapes),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace snapkv::testing
