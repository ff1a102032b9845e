// SPDX-License-Identifier: Apache-2.0
// Golden checkpoints_smollm2_p3.safetensors: RoPE, the first layer's q, k, v and attention output, the
// residual stream after every layer and the logits; and the short prompts' logits on the reference device.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "runtime/model/rope_table.h"
#include "runtime/model/safetensors.h"
#include "tests/support/engine_harness.h"
#include "tests/support/engine_observers.h"
#include "tests/support/golden.h"
#include "tests/support/tensors.h"

namespace snapkv::testing {
namespace {

// Of the tensor's largest absolute value. Two float32 implementations that round in different orders: the
// golden run itself is 4.7e-7 away from a float64 one, after 30 layers.
constexpr double kRelative = 2e-6;
// Of logits, absolute: 1e-4 is what the golden page asks for; the golden run is 1.3e-5 away from float64.
constexpr double kLogits = 1e-4;
constexpr const char* kFile = "checkpoints_smollm2_p3.safetensors";

class GoldenCheckpoints : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto path = GoldenFile(kFile);
    if (absl::IsUnavailable(path.status())) GTEST_SKIP() << path.status();
    ASSERT_TRUE(path.ok()) << path.status();
    auto file = runtime::SafetensorsFile::Open(*path);
    ASSERT_TRUE(file.ok()) << file.status();
    file_ = std::make_unique<runtime::SafetensorsFile>(*std::move(file));
    const auto model = ModelPath();
    ASSERT_TRUE(model.ok()) << model.status();
    model_path_ = *model;
  }

  TensorView Golden(const std::string& name) const {
    const auto tensor = file_->tensor(name);
    EXPECT_TRUE(tensor.ok()) << tensor.status();
    return tensor.value();
  }
  std::vector<int32_t> Ids() const {
    const TensorView ids = Golden("ids");
    return {ids.as<int32_t>(), ids.as<int32_t>() + ids.elements()};
  }

  // Every element within kRelative of the golden tensor's largest value.
  void Compare(const TensorView& got, const std::string& name) {
    const TensorView want = Golden(name);
    double largest = 0, worst = 0;
    for (int64_t i = 0; i < want.elements(); ++i) largest = std::max(largest, std::abs(ElementAt(want, i)));
    ASSERT_EQ(got.elements(), want.elements()) << name;
    for (int64_t i = 0; i < want.elements(); ++i)
      worst = std::max(worst, std::abs(ElementAt(got, i) - ElementAt(want, i)));
    ExpectClose(got, want, kRelative * largest, 0, name);
    worst_ = std::max(worst_, worst / largest);
    ++compared_;
  }
  void CompareLast4(const std::vector<float>& hidden, const std::string& name) {
    const int64_t width = Golden(name).dim(1);
    Compare(ViewOf(hidden.data() + hidden.size() - static_cast<size_t>(4 * width), DType::kF32, {4, width}),
            name);
  }

  // Layer 0: q, k, v, attention output; and its attention and MLP outputs as the residual stream shows them.
  void CompareFirstLayer(const CaptureObserver& seen) {
    const CaptureObserver::Layer& layer = seen.layer(0);
    const AttentionProblem& p = layer.problem;
    Compare(ViewOf(p.q, {p.heads, p.tokens, p.head_dim}), "layer00.q_rope");
    Compare(ViewOf(p.k, {p.kv_heads, p.tokens, p.head_dim}), "layer00.k_rope");
    Compare(ViewOf(p.v, {p.kv_heads, p.tokens, p.head_dim}), "layer00.v");
    const TensorView heads = ViewOf(layer.out, {p.heads, p.tokens, p.head_dim}).Transposed(0, 1);
    const TensorView want = Golden("layer00.attn_heads_out");
    const TestTensor merged = Converted(heads, DType::kF32);
    Compare(ViewOf(merged.view().data, DType::kF32, {want.dim(0), want.dim(1)}), "layer00.attn_heads_out");

    const TensorView attention = Golden("layer00.attn_out"), mlp = Golden("layer00.mlp_out");
    const TestTensor sum(DType::kF32, {attention.dim(0), attention.dim(1)});
    for (int64_t i = 0; i < attention.elements(); ++i)
      SetElement(
          sum, i,
          double{seen.embedding()[static_cast<size_t>(i)]} + ElementAt(attention, i) + ElementAt(mlp, i));
    double largest = 0;
    for (int64_t i = 0; i < attention.elements(); ++i)
      largest = std::max(largest, std::abs(ElementAt(sum, i)));
    ExpectClose(ViewOf(layer.hidden, {attention.dim(0), attention.dim(1)}), sum, kRelative * largest, 0,
                "layer00 residual");
    compared_ += 2;
  }

  // The first `layers` layers of the whole prompt.
  void CompareLayers(const CaptureObserver& seen, int64_t layers) {
    CompareLast4(seen.embedding(), "embed.last4");
    for (int64_t l = 0; l < layers; ++l) {
      const std::string number = (l < 10 ? "0" : "") + std::to_string(l);
      CompareLast4(seen.layer(l).hidden, "layer" + number + ".out.last4");
    }
  }

  double CompareLogits(const std::vector<float>& got, const TensorView& want, const std::string& what) {
    double worst = 0;
    for (int64_t i = 0; i < want.elements(); ++i)
      worst = std::max(worst, std::abs(double{got[static_cast<size_t>(i)]} - ElementAt(want, i)));
    ExpectClose(ViewOf(got, {want.elements()}), want, kLogits, 0, what);
    ++compared_;
    return worst;
  }

  std::unique_ptr<runtime::SafetensorsFile> file_;
  std::string model_path_;
  double worst_ = 0;
  int compared_ = 0;
};

// final_norm.last4 from the last hidden states that the engine made.
TestTensor FinalNorm(const std::string& model_path, const runtime::ModelConfig& c,
                     const std::vector<float>& hidden) {
  const runtime::GgufFile file = *runtime::GgufFile::Open(model_path);
  const TensorView weight = file.tensor("output_norm.weight")->view;
  TestTensor out(DType::kF32, {4, c.hidden});
  const float* rows = hidden.data() + hidden.size() - static_cast<size_t>(4 * c.hidden);
  for (int64_t row = 0; row < 4; ++row) {
    const float* x = rows + row * c.hidden;
    double squares = 0;
    for (int64_t i = 0; i < c.hidden; ++i) squares += double{x[i]} * x[i];
    const double scale = 1 / std::sqrt(squares / static_cast<double>(c.hidden) + c.rms_epsilon);
    for (int64_t i = 0; i < c.hidden; ++i)
      SetElement(out, row * c.hidden + i, x[i] * scale * ElementAt(weight, i));
  }
  return out;
}

TEST_F(GoldenCheckpoints, RopeTable) {
  const auto model = LoadedModel(model_path_, DType::kF32);
  ASSERT_TRUE(model.ok()) << model.status();
  const auto frequencies = (*model)->rope_frequencies();
  ExpectEqualBits(ViewOf(frequencies, {static_cast<int64_t>(frequencies.size())}), Golden("rope.inv_freq"),
                  "rope.inv_freq");
  const TensorView positions = Golden("rope.positions");
  Allocator allocator;
  const auto table =
      runtime::RopeTable::Create(allocator, 1, frequencies, absl::MakeConstSpan(positions.as<int32_t>(), 8));
  ASSERT_TRUE(table.ok()) << table.status();
  // The golden's own cosines come from an f32 library: one ulp of values up to 1.
  ExpectClose(table->cos(), Golden("rope.cos"), 1.2e-7, 0, "rope.cos");
  ExpectClose(table->sin(), Golden("rope.sin"), 1.2e-7, 0, "rope.sin");
}

TEST_F(GoldenCheckpoints, EveryLayerOnCpu) {
  const auto model = LoadedModel(model_path_, DType::kF32);
  ASSERT_TRUE(model.ok()) << model.status();
  const std::vector<int32_t> ids = Ids();
  const runtime::ModelConfig& config = (*model)->config();
  for (const int ranks : {1, 2}) {
    CaptureObserver seen(config, static_cast<int64_t>(ids.size()));
    EngineRun run{.ranks = ranks, .threads = 2 / ranks, .observer = &seen};
    run.compression.policy = runtime::CachePolicy::kFull;
    const auto output = RunEngine(**model, ids, run);
    ASSERT_TRUE(output.ok()) << output.status();
    worst_ = 0;
    CompareFirstLayer(seen);
    CompareLayers(seen, config.layers);
    Compare(FinalNorm(model_path_, config, seen.layer(config.layers - 1).hidden), "final_norm.last4");
    const double logits = CompareLogits(output->logits, Golden("logits"), "logits");
    std::printf("  cpu, N %d: %d tensors compared, largest error %.2e of a tensor's absmax; logits %.2e\n",
                ranks, compared_, worst_, logits);
  }
  ASSERT_GE(compared_, 2 * (4 + 1 + 30 + 1 + 1));
}

// Ends the prefill once `layers` layers are done.
class StopAfter : public runtime::PrefillObserver {
 public:
  explicit StopAfter(int64_t layers) : layers_(layers) {}
  absl::Status OnHidden(const runtime::RankContext&, const runtime::Plan&, int64_t layer,
                        const TensorView&) override {
    return layer + 1 < layers_ ? absl::OkStatus() : absl::CancelledError("enough layers");
  }
  absl::Status OnAttention(const runtime::RankContext&, const runtime::Plan&, int64_t, const TensorView&,
                           const runtime::KvShard&, const runtime::RingAttention&) override {
    return absl::OkStatus();
  }

 private:
  int64_t layers_;
};

// The reference kernels are slow: the first layers only.
TEST_F(GoldenCheckpoints, FirstLayersOnReference) {
  constexpr int64_t kLayers = 3;
  const auto model = LoadedModel(model_path_, DType::kF32, Device::kRef);
  ASSERT_TRUE(model.ok()) << model.status();
  const std::vector<int32_t> ids = Ids();
  CaptureObserver seen((*model)->config(), static_cast<int64_t>(ids.size()));
  StopAfter stop(kLayers);
  ObserverList list({&seen, &stop});
  EngineRun run{.ranks = 1, .device = Device::kRef, .observer = &list};
  run.compression.policy = runtime::CachePolicy::kFull;
  const auto output = RunEngine(**model, ids, run);
  ASSERT_EQ(output.status().code(), absl::StatusCode::kCancelled) << output.status();
  CompareFirstLayer(seen);
  CompareLayers(seen, kLayers);
  std::printf("  ref: %d tensors compared, largest error %.2e of a tensor's absmax\n", compared_, worst_);
  ASSERT_GE(compared_, 4 + 1 + kLayers);
}

TEST_F(GoldenCheckpoints, ShortPromptsOnReference) {
  const auto golden = LoadJson(*GoldenFile("model_smollm2.json"));
  ASSERT_TRUE(golden.ok()) << golden.status();
  const auto tensors = runtime::SafetensorsFile::Open(*GoldenFile("model_smollm2.safetensors"));
  ASSERT_TRUE(tensors.ok()) << tensors.status();
  const auto model = LoadedModel(model_path_, DType::kF32, Device::kRef);
  ASSERT_TRUE(model.ok()) << model.status();
  for (const auto& [name, prompt] : golden->at("prompts").items()) {
    const auto ids = prompt.at("ids").get<std::vector<int32_t>>();
    if (ids.size() > 20) continue;
    EngineRun run{.ranks = 1, .device = Device::kRef, .generate = 2};
    const auto output = RunEngine(**model, ids, run);
    ASSERT_TRUE(output.ok()) << name << ": " << output.status();
    const double worst = CompareLogits(output->logits, *tensors->tensor(name + ".logits"), name + " on ref");
    std::printf("  ref, %s: logits differ by at most %.2e\n", name.c_str(), worst);
    const auto greedy = prompt.at("greedy").at("ids").get<std::vector<int32_t>>();
    EXPECT_EQ(output->generated, std::vector<int32_t>(greedy.begin(), greedy.begin() + 2)) << name;
  }
  ASSERT_GT(compared_, 0) << "no prompt of at most 20 tokens in model_smollm2.json";
}

}  // namespace
}  // namespace snapkv::testing
