// SPDX-License-Identifier: Apache-2.0
// A key planted in a long prompt is found by construction, at whatever distance and however the prompt is
// cut.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include "kernels/base/log.h"
#include "runtime/engine/decode.h"
#include "tests/support/engine_harness.h"
#include "tests/support/induction_model.h"
#include "tests/support/tensors.h"

namespace snapkv::testing {
namespace {

using runtime::CachePolicy;
using runtime::Plan;
using S = InductionShape;

#ifdef __SANITIZE_ADDRESS__
constexpr int64_t kTokens = 2048;  // 16 times less work
#else
constexpr int64_t kTokens = 8192;
#endif
constexpr int64_t kCapacity = 256, kWindow = 32, kKeyBlock = kernels::kKeyBlock;

const runtime::Model& Induction() {
  static const auto model = [] {
    const std::string path = ::testing::TempDir() + "induction_" + std::to_string(getpid()) + ".gguf";
    CHECK(InductionGguf().Write(path)) << path;
    auto loaded = LoadedModel(path, DType::kF32);
    std::remove(path.c_str());
    return loaded;
  }();
  CHECK(model.ok()) << model.status();
  return **model;
}

std::vector<int32_t> Values(int64_t count = 4) {
  return {kInductionValues.begin(), kInductionValues.begin() + count};
}

EngineRun Compressed(int ranks, int kernel = 7) {
  return {.ranks = ranks,
          .threads = 1,
          .compression = {CachePolicy::kSnapKv, kCapacity, kWindow, kernel, kernels::PoolMode::kMax,
                          kernels::GroupMode::kMean},
          .generate = 4};
}

EngineOutput Generate(const std::vector<int32_t>& prompt, const EngineRun& run) {
  auto output = RunEngine(Induction(), prompt, run);
  EXPECT_TRUE(output.ok()) << output.status();
  return output.ok() ? *std::move(output) : EngineOutput();
}

// The positions that layer 1, which looks the key up, keeps; the same on every rank.
std::vector<int32_t> Kept(const EngineOutput& output) {
  for (const auto& layers : output.selections) {
    EXPECT_EQ(layers.size(), 2u);
    EXPECT_EQ(layers.at(1).positions, output.selections.at(0).at(1).positions);
  }
  return output.selections.at(0).at(1).positions.at(0);
}

bool Keeps(const std::vector<int32_t>& kept, int64_t position) {
  return std::binary_search(kept.begin(), kept.end(), static_cast<int32_t>(position));
}

// After layer 0 every token has the code of the one before it: full attention was exact, row by row.
class LookBackChecker : public runtime::PrefillObserver {
 public:
  explicit LookBackChecker(const std::vector<int32_t>& prompt) : prompt_(prompt) {}

  absl::Status OnHidden(const runtime::RankContext& context, const Plan& plan, int64_t layer,
                        const TensorView& hidden) override {
    if (layer != 0) return absl::OkStatus();
    const std::vector<int32_t> positions = plan.Positions(context.rank());
    for (size_t row = 0; row < positions.size(); ++row) {
      const auto position = static_cast<size_t>(positions[row]);
      const auto want = InductionCode(prompt_[position == 0 ? 0 : position - 1]);
      for (size_t c = 0; c < want.size(); ++c) {
        const double got = *hidden.at<float>(static_cast<int64_t>(row), S::kBefore + static_cast<int64_t>(c));
        if (std::fabs(got - want[c]) <= 1e-4) continue;
        return Internal("position ", position, " element ", c, " of the code before is ", got, ", should be ",
                        want[c]);
      }
    }
    rows_ += static_cast<int64_t>(positions.size());
    return absl::OkStatus();
  }
  absl::Status OnAttention(const runtime::RankContext&, const Plan&, int64_t, const TensorView&,
                           const runtime::KvShard&, const runtime::RingAttention&) override {
    return absl::OkStatus();
  }
  int64_t rows() const { return rows_; }

 private:
  const std::vector<int32_t>& prompt_;
  std::atomic<int64_t> rows_{0};
};

// The whole claim for one placement.
void ExpectFound(int64_t tokens, int64_t planted, int ranks) {
  SCOPED_TRACE(std::to_string(tokens) + " tokens, key at " + std::to_string(planted) + ", " +
               std::to_string(ranks) + " ranks");
  const std::vector<int32_t> prompt = InductionPrompt(tokens, planted, 11);
  LookBackChecker look_back(prompt);
  EngineRun run = Compressed(ranks);
  run.observer = &look_back;
  const EngineOutput output = Generate(prompt, run);
  if (output.logits.empty()) return;
  EXPECT_EQ(look_back.rows(), tokens);
  // The first token sees all rows: all of the attention is on the one that matches.
  for (int32_t token = 0; token < S::kVocab; ++token) {
    const double want = token == kInductionValues[0] ? S::kCertain : 0;
    EXPECT_NEAR(output.logits[static_cast<size_t>(token)], want, 1e-3) << "logit " << token;
  }
  // The others are found in the rows that are left.
  EXPECT_EQ(output.generated, Values());
  for (const double margin : output.margins) EXPECT_GT(margin, S::kCertain - 0.01);
  const std::vector<int32_t> kept = Kept(output);
  EXPECT_EQ(static_cast<int64_t>(kept.size()), kCapacity);
  // The match is at planted + 1; pooling with kernel 7 keeps three neighbours on either side. Inside the
  // window nothing is scored.
  const bool scored = planted + 1 < tokens - kWindow;
  for (int64_t i = scored ? -2 : 1; i <= 4; ++i) {
    EXPECT_TRUE(planted + i < 0 || Keeps(kept, planted + i)) << "row " << planted + i << " is gone";
  }
}

TEST(Retrieval, FindsAKeyPlantedAnywhere) {
  constexpr int64_t kPrefix = kTokens - kWindow;
  for (const int64_t planted :
       std::vector<int64_t>{1, 2, 500, kTokens / 2, kPrefix - 50, kPrefix - 6, kPrefix - 5, kPrefix - 3,
                            kPrefix - 1, kPrefix + 3, kTokens - 6}) {
    ExpectFound(kTokens, planted, 4);
  }
  // Across every edge of the chunks: the match and its neighbours cut at every place.
  const auto plan = Plan::Create(kTokens, 4, kWindow, kKeyBlock);
  ASSERT_TRUE(plan.ok()) << plan.status();
  for (int chunk = 1; chunk < 8; ++chunk) {
    for (int64_t shift = -4; shift <= 2; ++shift) ExpectFound(kTokens, plan->Chunk(chunk).begin + shift, 4);
  }
  for (const int ranks : {1, 2, 3, 8}) ExpectFound(kTokens, kTokens / 2 - 1, ranks);
}

TEST(Retrieval, FullCacheFindsItAsWell) {
  EngineRun run = Compressed(4);
  run.compression.policy = CachePolicy::kFull;
  EXPECT_EQ(Generate(InductionPrompt(kTokens, 1000, 5), run).generated, Values());
}

// What the tests above would see if something were wrong.
TEST(Retrieval, WithoutTheKeyThereIsNoAnswer) {
  for (const uint64_t seed : {11, 12, 13}) {
    const EngineOutput output = Generate(InductionPrompt(kTokens, -1, seed), Compressed(4));
    ASSERT_EQ(output.generated.size(), 4u);
    for (const int32_t token : output.generated) {
      for (const int32_t value : kInductionValues) EXPECT_NE(token, value) << "seed " << seed;
    }
    for (const int32_t value : kInductionValues)
      EXPECT_NEAR(output.logits[static_cast<size_t>(value)], 0, 1e-3) << "seed " << seed;
  }
}

// Pooling with kernel 1 keeps the row of the first value alone: the first token is right, since it comes from
// full attention, and the one after it is not to be found any more. Kernel 3 keeps one more row, kernel 5
// two.
TEST(Retrieval, EvictedRowsAreNotFound) {
  constexpr int64_t kPlanted = 1000;
  for (const int kernel : {1, 3, 5}) {
    SCOPED_TRACE("kernel " + std::to_string(kernel));
    const EngineOutput output = Generate(InductionPrompt(kTokens, kPlanted, 11), Compressed(4, kernel));
    const std::vector<int32_t> kept = Kept(output);
    const int64_t reach = kernel / 2;
    for (int64_t i = 0; i < 4; ++i) EXPECT_EQ(Keeps(kept, kPlanted + 1 + i), i <= reach) << "value " << i;
    ASSERT_EQ(output.generated.size(), 4u);
    const std::vector<int32_t> right(output.generated.begin(), output.generated.begin() + 1 + reach);
    EXPECT_EQ(right, Values(1 + reach));
    EXPECT_NE(output.generated[static_cast<size_t>(1 + reach)],
              kInductionValues[static_cast<size_t>(1 + reach)]);
  }
}

// Decoded tokens stand at T, T + 1, ...: the first has the prompt's last token before it, and what was
// decoded is found like what was read.
TEST(Retrieval, DecodedTokensAreFound) {
  const std::vector<int32_t> prompt = InductionPrompt(kTokens, -1, 11);  // ends in the key
  const std::vector<int32_t> fed = {'W', 'X', 'q', '#', 'W'};
  std::vector<std::vector<float>> logits(fed.size(), std::vector<float>(S::kVocab));
  const auto body = [&](const runtime::RankContext& context) -> absl::Status {
    const runtime::PrefillOptions options{.compression = Compressed(4).compression,
                                          .headroom = static_cast<int64_t>(fed.size())};
    ASSIGN_OR_RETURN(runtime::PrefillResult result, runtime::Prefill(context, prompt, options));
    if (context.rank() != runtime::kDecodeRank) return absl::OkStatus();
    ASSIGN_OR_RETURN(runtime::Decoder decoder,
                     runtime::Decoder::Create(Induction(), context.stream, context.allocator, 1));
    runtime::DecodeCache* caches[] = {result.cache.get()};
    for (size_t i = 0; i < fed.size(); ++i) {
      RETURN_IF_ERROR(decoder.Step({fed[i]}, caches, ViewOf(logits[i], {1, S::kVocab}), context.stats));
    }
    return absl::OkStatus();
  };
  const absl::Status status = OnRanks(Induction(), {.ranks = 4}, body);
  ASSERT_TRUE(status.ok()) << status;
  // One position further on, the first would have itself before it as much as the key, and find itself.
  EXPECT_LT(logits[0]['W'], S::kCertain / 2);
  EXPECT_NEAR(logits[3]['W'], S::kCertain, 1e-3) << "after the key";
  EXPECT_NEAR(logits[4]['X'], S::kCertain, 1e-3) << "after the first value";
}

TEST(RetrievalLong, AQuarterOfAMillionTokens) {
  constexpr int64_t kLong = int64_t{1} << 18;
  const auto plan = Plan::Create(kLong, 4, kWindow, kKeyBlock);
  ASSERT_TRUE(plan.ok()) << plan.status();
  // Key and first value in one chunk, the others in the next, which another rank owns.
  ExpectFound(kLong, plan->Chunk(1).begin - 2, 4);
}

}  // namespace
}  // namespace snapkv::testing
