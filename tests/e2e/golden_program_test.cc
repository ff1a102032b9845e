// SPDX-License-Identifier: Apache-2.0
// Goldens of SmolLM2 through the program: greedy tokens, kept sets and logits from its files, on one rank and
// on two.
#include <algorithm>
#include <cstdio>
#include <set>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/e2e/prefill_program.h"
#include "tests/support/golden.h"
#include "tests/support/tensors.h"

namespace snapkv::testing {
namespace {

using Json = nlohmann::json;

constexpr double kDecidedMargin = 4e-3;  // tokens are compared up to the first step below it
constexpr double kDecidedGap = 1e-3;     // heads whose cut is wider must be equal
constexpr int kMostHeads = 5, kMostPositions = 4;
constexpr double kLogits = 2e-3;
constexpr size_t kTokens = 64;

class GoldenProgram : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto json_path = GoldenFile("model_smollm2.json");
    if (absl::IsUnavailable(json_path.status())) GTEST_SKIP() << json_path.status();
    ASSERT_TRUE(json_path.ok()) << json_path.status();
    const auto model = ModelPath();
    ASSERT_TRUE(model.ok()) << model.status();
    model_ = *model;
    auto golden = LoadJson(*json_path);
    ASSERT_TRUE(golden.ok()) << golden.status();
    golden_ = *std::move(golden);
    const auto tensors_path = GoldenFile("model_smollm2.safetensors");
    ASSERT_TRUE(tensors_path.ok()) << tensors_path.status();
    auto tensors = runtime::SafetensorsFile::Open(*tensors_path);
    ASSERT_TRUE(tensors.ok()) << tensors.status();
    tensors_ = std::make_unique<runtime::SafetensorsFile>(*std::move(tensors));
  }

  // One run; returns its token ids. The logits are compared here: full attention gives them in every config.
  std::vector<int32_t> Run(const std::string& prompt, const Strings& flags, int ranks) {
    const std::string ids =
        folder_.WriteIds("ids.json", golden_["prompts"][prompt]["ids"].get<std::vector<int32_t>>());
    ProgramOptions options;
    options.timeout = std::chrono::minutes(10);
    const ProgramResult result =
        RunPrefill(Join({"--model", model_, "--token-ids", ids, "--ignore-eos", "--max-tokens",
                         std::to_string(kTokens), "--dtype", "f32", "--dump-logits", folder_.Path("logits"),
                         "--dump-selection", folder_.Path("selection")},
                        flags),
                   ranks, options);
    EXPECT_EQ(result.exit_code, 0) << result.ToString();
    const auto want = tensors_->tensor(prompt + ".logits");
    EXPECT_TRUE(want.ok()) << want.status();
    if (result.exit_code != 0 || !want.ok()) return {};
    ExpectClose(ReadLogits(folder_.Path("logits")),
                std::vector<float>(want->as<float>(), want->as<float>() + want->elements()),
                {want->elements()}, kLogits, 0, prompt + " logits");
    return TokenIds(ParseRecord(result.out));
  }

  // Returns the number of steps compared.
  static size_t CompareGreedy(const std::vector<int32_t>& got, const Json& greedy, const std::string& what) {
    const auto want = greedy.at("ids").get<std::vector<int32_t>>();
    const auto margin = greedy.at("margin").get<std::vector<double>>();
    EXPECT_EQ(got.size(), kTokens) << what;
    EXPECT_EQ(want.size(), kTokens) << what;
    size_t step = 0;
    for (; step < std::min(got.size(), want.size()) && margin[step] > kDecidedMargin; ++step)
      if (got[step] != want[step]) {
        ADD_FAILURE() << what << " step " << step << ": " << got[step] << " instead of " << want[step]
                      << ", margin " << margin[step];
        break;
      }
    return step;
  }

  void CompareKept(const std::string& name) {
    const auto kept = tensors_->tensor(name + ".kept"), gap = tensors_->tensor(name + ".cut_gap");
    ASSERT_TRUE(kept.ok() && gap.ok()) << kept.status() << gap.status();
    const auto layers = ReadSelection(folder_.Path("selection"));
    ASSERT_EQ(static_cast<int64_t>(layers.size()), kept->dim(0)) << name;
    int differing = 0;
    for (int64_t l = 0; l < kept->dim(0); ++l) {
      const auto& heads = layers[static_cast<size_t>(l)];
      ASSERT_EQ(static_cast<int64_t>(heads.size()), kept->dim(1)) << name << " layer " << l;
      for (int64_t h = 0; h < kept->dim(1); ++h) {
        const auto& mine = heads[static_cast<size_t>(h)];
        const int32_t* row = kept->at<int32_t>(l, h);
        const std::vector<int32_t> theirs(row, row + kept->dim(2));
        ASSERT_EQ(mine.size(), theirs.size()) << name << " layer " << l << " head " << h;
        std::vector<int32_t> missing;
        std::set_difference(theirs.begin(), theirs.end(), mine.begin(), mine.end(),
                            std::back_inserter(missing));
        if (missing.empty()) continue;
        ++differing;
        EXPECT_LT(*gap->at<double>(l, h), kDecidedGap)
            << name << " layer " << l << " head " << h << ": position " << missing[0] << " is missing";
        EXPECT_LE(missing.size(), static_cast<size_t>(kMostPositions))
            << name << " layer " << l << " head " << h;
      }
    }
    EXPECT_LE(differing, kMostHeads) << name;
    std::printf("  %s: %d of %ld heads differ\n", name.c_str(), differing,
                static_cast<long>(kept->dim(0) * kept->dim(1)));
  }

  const TestFolder folder_;
  std::string model_;
  Json golden_;
  std::unique_ptr<runtime::SafetensorsFile> tensors_;
};

TEST_F(GoldenProgram, TokensKeptSetsAndLogits) {
  int runs = 0, configs = 0;
  size_t compared = 0;
  for (const auto& [name, prompt] : golden_.at("prompts").items()) {
    if (prompt.at("ids").size() > 4000) continue;  // p5 is golden_model's
    for (const int ranks : {0, 2}) {
      const std::string what = name + " full, " + std::to_string(std::max(1, ranks)) + " ranks";
      const size_t steps = CompareGreedy(Run(name, {"--policy", "full"}, ranks), prompt.at("greedy"), what);
      // Without compression every position is there.
      for (const auto& heads : ReadSelection(folder_.Path("selection")))
        for (const auto& rows : heads) ASSERT_EQ(rows.size(), prompt.at("ids").size()) << what;
      std::printf("  %s: %zu greedy tokens equal\n", what.c_str(), steps);
      compared += steps;
      ++runs;
    }
    if (!prompt.contains("snapkv") || prompt.at("snapkv").empty()) continue;
    const auto& [config, expected] = *prompt.at("snapkv").items().begin();
    for (const int ranks : {0, 2}) {
      const std::string what = name + "." + config;
      const auto ids =
          Run(name,
              {"--capacity", expected.at("C").dump(), "--window", expected.at("W").dump(), "--kernel",
               expected.at("kernel").dump(), "--pool", expected.at("pool").get<std::string>(), "--group",
               expected.at("group").get<std::string>()},
              ranks);
      compared += CompareGreedy(ids, expected.at("greedy"), what);
      CompareKept(what);
      ++runs;
      ++configs;
    }
  }
  std::printf("golden: model_smollm2 through the program: %d runs, %d of them compressed, %zu tokens\n", runs,
              configs, compared);
  ASSERT_GT(runs, 0);
  ASSERT_GT(configs, 0);
  ASSERT_GT(compared, 0u);
}

}  // namespace
}  // namespace snapkv::testing
