// SPDX-License-Identifier: Apache-2.0
// One prompt of the golden data on 1, 2, 3, 4 and 8 ranks of either transport: the same kept sets in every
// configuration, and the same logits. engine_smollm2_test PROMPT thread|mpi DUMP_PROGRAM MPIRUN [FLAG ...]
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "runtime/model/safetensors.h"
#include "tests/support/engine_harness.h"
#include "tests/support/engine_observers.h"
#include "tests/support/golden.h"
#include "tests/support/run_program.h"
#include "tests/support/tensors.h"

namespace snapkv::testing {
namespace {

std::string prompt_name, transport, dump_program;
std::vector<std::string> mpirun;

constexpr int kRanks[] = {1, 2, 3, 4, 8};
constexpr double kLogits = 1e-4;     // of any N against N = 1
constexpr double kCloseCall = 1e-5;  // cuts that f64 rounding order may decide
constexpr int kMostHeads = 1, kMostPositions = 1;

struct Outcome {
  std::vector<float> logits;
  std::vector<std::vector<runtime::Selection>> kept;  // [config][layer]
};

class EngineSmollm2 : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto path = ModelPath();
    ASSERT_TRUE(path.ok()) << path.status();
    model_path_ = *path;
    const auto json_path = GoldenFile("model_smollm2.json");
    if (absl::IsUnavailable(json_path.status())) GTEST_SKIP() << json_path.status();
    ASSERT_TRUE(json_path.ok()) << json_path.status();
    const auto golden = LoadJson(*json_path);
    ASSERT_TRUE(golden.ok()) << golden.status();
    auto tensors = runtime::SafetensorsFile::Open(*GoldenFile("model_smollm2.safetensors"));
    ASSERT_TRUE(tensors.ok()) << tensors.status();
    tensors_ = std::make_unique<runtime::SafetensorsFile>(*std::move(tensors));
    ASSERT_TRUE(golden->at("prompts").contains(prompt_name)) << "no prompt " << prompt_name;
    const auto& prompt = golden->at("prompts").at(prompt_name);
    ids_ = prompt.at("ids").get<std::vector<int32_t>>();
    job_["ids"] = ids_;
    if (prompt.contains("snapkv"))
      for (const auto& [name, config] : prompt.at("snapkv").items()) AddConfig(name, config);
    // A prompt without configurations of its own: these, whose cuts must then match exactly.
    if (names_.empty())
      for (const int64_t capacity : {64, 128})
        for (const auto& [pool, kernel] : {std::pair("max", 7), std::pair("avg", 5)})
          AddConfig("C" + std::to_string(capacity) + "_" + pool,
                    {{"C", capacity}, {"W", 32}, {"kernel", kernel}, {"pool", pool}});
  }

  void AddConfig(const std::string& name, const nlohmann::json& config) {
    names_.push_back(name);
    configs_.push_back(ConfigFromJson(config));
    job_["configs"].push_back(config);
  }

  absl::StatusOr<Outcome> OnThreads(int ranks) {
    ASSIGN_OR_RETURN(const runtime::Model* model, LoadedModel(model_path_, DType::kF32));
    SelectionObserver observer(configs_, ranks, model->config().layers);
    // Threads do not show either: one rank has two.
    EngineRun run{
        .ranks = ranks, .threads = ranks == 1 ? 2 : 1, .compression = configs_[0], .observer = &observer};
    ASSIGN_OR_RETURN(EngineOutput output, RunEngine(*model, ids_, run));
    Outcome outcome{output.logits, {}};
    for (size_t i = 0; i < configs_.size(); ++i) {
      outcome.kept.push_back(observer.selections(i, 0));
      for (int rank = 1; rank < ranks; ++rank)
        for (size_t l = 0; l < outcome.kept[i].size(); ++l)
          EXPECT_EQ(observer.selections(i, rank)[l].positions, outcome.kept[i][l].positions)
              << names_[i] << ": rank " << rank << " of " << ranks << " disagrees in layer " << l;
    }
    // The prefill's own selection is the one the observer made.
    for (size_t l = 0; l < outcome.kept[0].size(); ++l)
      EXPECT_EQ(output.selections[0][l].positions, outcome.kept[0][l].positions) << "layer " << l;
    return outcome;
  }

  absl::StatusOr<Outcome> OnMpi(int ranks) {
    const std::string stem = ::testing::TempDir() + "engine_" + prompt_name + std::to_string(::getpid());
    const std::string job = stem + ".json", out = stem + ".safetensors";
    std::ofstream(job) << job_.dump();
    ProgramOptions program;
    program.argv = mpirun;
    for (const std::string& arg :
         {std::string("-np"), std::to_string(ranks), dump_program, model_path_, job, out})
      program.argv.push_back(arg);
    program.timeout = std::chrono::minutes(15);
    const auto result = RunProgram(program);
    std::remove(job.c_str());
    RETURN_IF_ERROR(result.status());
    if (result->exit_code != 0) return Internal(result->ToString());
    auto file = runtime::SafetensorsFile::Open(out);
    std::remove(out.c_str());
    RETURN_IF_ERROR(file.status());
    ASSIGN_OR_RETURN(const TensorView logits, file->tensor("logits"));
    Outcome outcome{{logits.as<float>(), logits.as<float>() + logits.elements()}, {}};
    for (size_t i = 0; i < configs_.size(); ++i) {
      ASSIGN_OR_RETURN(const TensorView kept, file->tensor(std::to_string(i) + ".kept"));
      std::vector<runtime::Selection> layers(static_cast<size_t>(kept.dim(0)));
      for (int64_t l = 0; l < kept.dim(0); ++l)
        for (int64_t h = 0; h < kept.dim(1); ++h)
          layers[static_cast<size_t>(l)].positions.emplace_back(kept.at<int32_t>(l, h),
                                                                kept.at<int32_t>(l, h) + kept.dim(2));
      outcome.kept.push_back(std::move(layers));
    }
    return outcome;
  }

  // Golden cut_gap of a head; 0 when there is none is not said: such a head must match.
  double CutGap(size_t config, int64_t layer, int64_t head) const {
    const auto gap = tensors_->tensor(prompt_name + "." + names_[config] + ".cut_gap");
    return gap.ok() ? *gap->at<double>(layer, head) : std::numeric_limits<double>::infinity();
  }

  void Compare(const Outcome& got, const Outcome& one, const std::string& what) {
    const int64_t vocab = static_cast<int64_t>(one.logits.size());
    ExpectClose(got.logits, one.logits, {vocab}, kLogits, 0, what + " logits");
    int64_t bits = 0;
    double worst = 0;
    for (size_t i = 0; i < one.logits.size(); ++i) {
      bits += std::memcmp(&got.logits[i], &one.logits[i], sizeof(float)) != 0;
      worst = std::max(worst, std::abs(double{got.logits[i]} - one.logits[i]));
    }
    int64_t heads = 0, differing = 0;
    for (size_t i = 0; i < configs_.size(); ++i) {
      int in_config = 0;
      ASSERT_EQ(got.kept[i].size(), one.kept[i].size()) << what;
      for (size_t l = 0; l < one.kept[i].size(); ++l)
        for (size_t h = 0; h < one.kept[i][l].positions.size(); ++h) {
          ++heads;
          const auto &a = one.kept[i][l].positions[h], &b = got.kept[i][l].positions[h];
          if (a == b) continue;
          ++differing;
          std::vector<int32_t> missing;
          std::set_difference(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(missing));
          const double gap = CutGap(i, static_cast<int64_t>(l), static_cast<int64_t>(h));
          std::printf("  %s %s: layer %zu head %zu differs in %zu positions, cut_gap %.2e\n", what.c_str(),
                      names_[i].c_str(), l, h, missing.size(), gap);
          EXPECT_EQ(b.size(), a.size()) << what << " " << names_[i] << " layer " << l << " head " << h;
          EXPECT_LT(gap, kCloseCall) << what << " " << names_[i] << " layer " << l << " head " << h;
          EXPECT_LE(static_cast<int>(missing.size()), kMostPositions) << what << " " << names_[i];
          EXPECT_LE(++in_config, kMostHeads) << what << " " << names_[i];
        }
    }
    std::printf("  %s: %ld of %ld kept sets differ; %ld of %ld logits differ bitwise, at most by %.3g\n",
                what.c_str(), static_cast<long>(differing), static_cast<long>(heads), static_cast<long>(bits),
                static_cast<long>(vocab), worst);
    ASSERT_GT(heads, 0) << "nothing was compared";
  }

  std::string model_path_;
  std::unique_ptr<runtime::SafetensorsFile> tensors_;
  std::vector<int32_t> ids_;
  std::vector<std::string> names_;
  std::vector<runtime::CompressionOptions> configs_;
  nlohmann::json job_;
};

TEST_F(EngineSmollm2, SameForAnyNumberOfRanks) {
  const auto one = OnThreads(1);
  ASSERT_TRUE(one.ok()) << one.status();
  for (const int ranks : kRanks) {
    if (transport == "thread" && ranks == 1) continue;
    const absl::Time start = absl::Now();
    const auto got = transport == "mpi" ? OnMpi(ranks) : OnThreads(ranks);
    const std::string what = prompt_name + " " + transport + " N " + std::to_string(ranks);
    ASSERT_TRUE(got.ok()) << what << ": " << got.status();
    ASSERT_NO_FATAL_FAILURE(Compare(*got, *one, what));
    std::printf("  %s: %.1f s\n", what.c_str(), absl::ToDoubleSeconds(absl::Now() - start));
    std::fflush(stdout);
  }
}

}  // namespace
}  // namespace snapkv::testing

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  if (argc < 5) {
    std::fprintf(stderr, "engine_smollm2_test PROMPT thread|mpi DUMP_PROGRAM MPIRUN [FLAG ...]\n");
    return 2;
  }
  snapkv::testing::prompt_name = argv[1];
  snapkv::testing::transport = argv[2];
  snapkv::testing::dump_program = argv[3];
  snapkv::testing::mpirun.assign(argv + 4, argv + argc);
  return RUN_ALL_TESTS();
}
