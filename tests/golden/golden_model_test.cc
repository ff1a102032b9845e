// SPDX-License-Identifier: Apache-2.0
// Whole models against the float32 reference: logits, kept sets and greedy tokens of every golden prompt and
// config. Arguments: model name (smollm2 | qwen2), dtype (f32 | bf16), and optionally the prompts to run.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <set>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "runtime/model/safetensors.h"
#include "tests/support/engine_harness.h"
#include "tests/support/golden.h"
#include "tests/support/tensors.h"

namespace snapkv::testing {
namespace {

std::string model_name = "smollm2";
DType dtype = DType::kF32;
std::set<std::string> wanted;  // prompts; empty: all

struct Limits {
  double logits, overlap_mean, overlap_worst;
};
Limits GoldenLimits() {
  if (dtype == DType::kF32) return {2e-3, 1, 1};
  return model_name == "smollm2" ? Limits{0.8, 0.985, 0.90} : Limits{0.8, 0.97, 0.70};
}
constexpr double kDecidedMargin = 4e-3;  // greedy tokens are compared up to the first step below it (f32)
constexpr double kDecidedGap = 1e-3;     // heads whose cut is wider must match exactly (f32)
constexpr int kMostHeads = 5, kMostPositions = 4;

std::vector<int32_t> Ids(const nlohmann::json& j) { return j.get<std::vector<int32_t>>(); }

runtime::CompressionOptions ConfigOf(const nlohmann::json& j) {
  runtime::CompressionOptions options;
  options.capacity = j.at("C");
  options.window = j.at("W");
  options.kernel = j.at("kernel");
  options.pool = j.at("pool") == "max" ? kernels::PoolMode::kMax : kernels::PoolMode::kAvg;
  options.group = kernels::GroupMode::kMean;
  return options;
}

void CompareGreedy(const std::vector<int32_t>& got, const nlohmann::json& golden, const std::string& what) {
  if (dtype != DType::kF32) return;
  const auto want = Ids(golden.at("ids"));
  const auto margin = golden.at("margin").get<std::vector<double>>();
  ASSERT_EQ(got.size(), want.size()) << what;
  size_t compared = 0;
  for (; compared < want.size() && margin[compared] > kDecidedMargin; ++compared)
    ASSERT_EQ(got[compared], want[compared])
        << what << " step " << compared << " margin " << margin[compared];
  std::printf("  %s: %zu of %zu greedy tokens compared, all equal\n", what.c_str(), compared, want.size());
}

// Kept sets of one config: exact where the cut is decided, few differences elsewhere (f32); overlap (bf16).
void CompareKept(const std::vector<runtime::Selection>& got, const TensorView& kept, const TensorView& gap,
                 const std::string& what) {
  const int64_t layers = kept.dim(0), heads = kept.dim(1), rows = kept.dim(2);
  ASSERT_EQ(static_cast<int64_t>(got.size()), layers) << what;
  int differing = 0, most = 0;
  double overlap_sum = 0, worst = 1, widest_gap = 0;
  for (int64_t l = 0; l < layers; ++l)
    for (int64_t h = 0; h < heads; ++h) {
      const std::vector<int32_t>& mine = got[static_cast<size_t>(l)].positions[static_cast<size_t>(h)];
      const std::vector<int32_t> theirs(kept.at<int32_t>(l, h), kept.at<int32_t>(l, h) + rows);
      ASSERT_EQ(static_cast<int64_t>(mine.size()), rows) << what << " layer " << l << " head " << h;
      ASSERT_TRUE(std::is_sorted(mine.begin(), mine.end())) << what << " layer " << l << " head " << h;
      std::vector<int32_t> missing;
      std::set_difference(theirs.begin(), theirs.end(), mine.begin(), mine.end(),
                          std::back_inserter(missing));
      const double overlap = 1 - static_cast<double>(missing.size()) / static_cast<double>(rows);
      overlap_sum += overlap;
      worst = std::min(worst, overlap);
      if (missing.empty()) continue;
      const double cut = *gap.at<double>(l, h);
      ++differing;
      most = std::max(most, static_cast<int>(missing.size()));
      widest_gap = std::max(widest_gap, cut);
      if (dtype == DType::kF32) {
        EXPECT_LT(cut, kDecidedGap) << what << " layer " << l << " head " << h << ": " << missing.size()
                                    << " positions differ, the first is " << missing[0];
        EXPECT_LE(static_cast<int>(missing.size()), kMostPositions)
            << what << " layer " << l << " head " << h;
      }
    }
  const double mean = overlap_sum / static_cast<double>(layers * heads);
  std::printf(
      "  %s: %d of %ld heads differ, at most %d positions, widest cut_gap of them %.2e; overlap mean %.5f "
      "worst %.4f\n",
      what.c_str(), differing, static_cast<long>(layers * heads), most, widest_gap, mean, worst);
  if (dtype == DType::kF32) {
    EXPECT_LE(differing, kMostHeads) << what;
  } else {
    EXPECT_GE(mean, GoldenLimits().overlap_mean) << what;
    EXPECT_GE(worst, GoldenLimits().overlap_worst) << what;
  }
}

void CompareLogits(const std::vector<float>& got, const TensorView& want, const std::string& what) {
  double worst = 0;
  for (int64_t i = 0; i < want.elements(); ++i)
    worst = std::max(worst, std::abs(double{got[static_cast<size_t>(i)]} - double{*want.at<float>(i)}));
  std::printf("  %s: logits differ by at most %.3g\n", what.c_str(), worst);
  ExpectClose(got, std::vector<float>(want.as<float>(), want.as<float>() + want.elements()),
              {want.elements()}, GoldenLimits().logits, 0, what + " logits");
}

TEST(GoldenModel, EveryPromptAndConfig) {
  absl::StatusOr<std::string> path = ModelPath();
  if (model_name == "qwen2") {
    const char* qwen = std::getenv("SNAPKV_QWEN_GGUF");
    if (qwen == nullptr) GTEST_SKIP() << "SNAPKV_QWEN_GGUF is not set";
    path = std::string(qwen);
  }
  ASSERT_TRUE(path.ok()) << path.status();
  const auto json_path = GoldenFile("model_" + model_name + ".json");
  if (absl::IsUnavailable(json_path.status())) GTEST_SKIP() << json_path.status();
  ASSERT_TRUE(json_path.ok()) << json_path.status();
  const auto golden = LoadJson(*json_path);
  ASSERT_TRUE(golden.ok()) << golden.status();
  const auto tensors = runtime::SafetensorsFile::Open(*GoldenFile("model_" + model_name + ".safetensors"));
  ASSERT_TRUE(tensors.ok()) << tensors.status();
  const auto model = LoadedModel(*path, dtype);
  ASSERT_TRUE(model.ok()) << model.status();

  int prompts = 0, configs = 0;
  for (const auto& [name, prompt] : golden->at("prompts").items()) {
    if (!wanted.empty() && !wanted.contains(name)) continue;
    ++prompts;
    const auto ids = Ids(prompt.at("ids"));
    std::printf("%s: %zu tokens\n", name.c_str(), ids.size());
    EngineRun run;
    run.generate = static_cast<int64_t>(prompt.at("greedy").at("ids").size());
    const bool has_configs = prompt.contains("snapkv") && !prompt.at("snapkv").empty();
    run.compression.policy = runtime::CachePolicy::kFull;
    const auto full = RunEngine(**model, ids, run);
    ASSERT_TRUE(full.ok()) << name << ": " << full.status();
    CompareLogits(full->logits, *tensors->tensor(name + ".logits"), name);
    CompareGreedy(full->generated, prompt.at("greedy"), name + " full");
    if (!has_configs) continue;
    for (const auto& [config, expected] : prompt.at("snapkv").items()) {
      ++configs;
      const std::string what = name + "." + config;
      run.compression = ConfigOf(expected);
      run.ranks = 1 + configs % 2;  // both without and with a ring
      run.threads = run.ranks == 1 ? 2 : 1;
      const auto compressed = RunEngine(**model, ids, run);
      ASSERT_TRUE(compressed.ok()) << what << ": " << compressed.status();
      // The first token comes from full attention.
      CompareLogits(compressed->logits, *tensors->tensor(name + ".logits"), what);
      CompareKept(compressed->selections[0], *tensors->tensor(what + ".kept"),
                  *tensors->tensor(what + ".cut_gap"), what);
      for (const auto& other : compressed->selections)
        for (size_t l = 0; l < other.size(); ++l)
          ASSERT_EQ(other[l].positions, compressed->selections[0][l].positions)
              << what << ": ranks disagree in layer " << l;
      CompareGreedy(compressed->generated, expected.at("greedy"), what);
      EXPECT_EQ(compressed->result.rows_kept, run.compression.capacity);
    }
  }
  std::printf("compared %d prompts and %d configs of %s in %s\n", prompts, configs, model_name.c_str(),
              DTypeName(dtype));
  ASSERT_GT(prompts, 0) << "no case was compared";
}

}  // namespace
}  // namespace snapkv::testing

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  using snapkv::testing::wanted;
  if (argc > 1) snapkv::testing::model_name = argv[1];
  if (argc > 2 && std::string(argv[2]) == "bf16") snapkv::testing::dtype = snapkv::DType::kBF16;
  for (int i = 3; i < argc; ++i) wanted.insert(argv[i]);
  return RUN_ALL_TESTS();
}
