// SPDX-License-Identifier: Apache-2.0
// Golden snapkv_ops: LSE, pooled scores and kept positions of every case, through the ops, on every device.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "kernels/op/attention.h"
#include "kernels/op/pool_scores.h"
#include "kernels/op/select_top.h"
#include "kernels/op/window_scores.h"
#include "runtime/model/safetensors.h"
#include "tests/support/golden.h"
#include "tests/support/tensors.h"

namespace snapkv::kernels {
namespace {

using nlohmann::json;
using testing::ElementAt;
using testing::TestTensor;

struct Case {
  std::string name;
  bool complete = true;  // all its tensors are in the file
  int64_t tokens, window, capacity;
  int kernel;
  PoolMode pool;
  GroupMode group;
  bool offset;
  TensorView q, k, lse, pooled, kept;
};

// The largest relative error of float32 that was measured when the cases were made (their README, section B).
double PooledTolerance(const Case& c) { return c.offset ? 3e-3 : 2.3e-6; }

Case ReadCase(const json& j, const runtime::SafetensorsFile& file) {
  static const std::map<std::string, PoolMode> kPools = {{"avg", PoolMode::kAvg}, {"max", PoolMode::kMax}};
  static const std::map<std::string, GroupMode> kGroups = {
      {"mean", GroupMode::kMean}, {"max", GroupMode::kMax}, {"sum", GroupMode::kSum}};
  Case c;
  c.name = j.at("name");
  c.tokens = j.at("N");
  c.window = j.at("q_rows");
  c.capacity = j.at("C");
  c.kernel = j.at("kernel");
  c.pool = kPools.at(j.at("pool"));
  c.group = kGroups.at(j.at("group"));
  c.offset = c.name.ends_with("offset");
  const auto read = [&](const char* part) {
    const absl::StatusOr<TensorView> view = file.tensor(c.name + "." + part);
    EXPECT_TRUE(view.ok()) << view.status();
    c.complete &= view.ok();
    return view.ok() ? *view : TensorView();
  };
  c.q = read("q");
  c.k = read("k");
  c.lse = read("lse");
  c.pooled = read("pooled");
  c.kept = read("kept");
  return c;
}

void ExpectOk(const absl::Status& status) { ASSERT_TRUE(status.ok()) << status; }

// The final LSE of the window queries: [heads, window] f32.
TestTensor WindowLse(const Stream& stream, const Case& c, float scale) {
  const int64_t heads = c.q.dim(0), rows = c.q.dim(1), head_dim = c.q.dim(2);
  const TestTensor m(DType::kF32, {heads, rows}), l(DType::kF64, {heads, rows}),
      o(DType::kF64, {heads, rows, head_dim}), out(DType::kF32, {heads, rows, head_dim});
  TestTensor lse(DType::kF32, {heads, rows});
  const AttentionState state = {m, l, o};
  ExpectOk(InitAttentionState(stream, state));
  // The keys stand in for the values, which the cases do not have.
  ExpectOk(Attention(stream, {.q = c.q,
                              .k = c.k,
                              .v = c.k,
                              .state = state,
                              .scale = scale,
                              .causal = true,
                              .q_position = c.tokens - rows}));
  ExpectOk(FinishAttention(stream, state, out, lse));
  return lse;
}

// Prints the largest ratio of error to tolerance, which tells how near the edge this build is.
struct Margin {
  double lse = 0, pooled = 0;
};

void CompareCase(const Stream& stream, const Case& c, Margin* margin) {
  const float scale = 1.0f / std::sqrt(static_cast<float>(c.q.dim(2)));
  const TestTensor lse = WindowLse(stream, c, scale);
  for (int64_t i = 0; i < c.lse.elements(); ++i) {
    const double expected = ElementAt(c.lse, i), got = ElementAt(lse, i);
    const float magnitude = std::fabs(static_cast<float>(expected));
    const double ulp = static_cast<double>(std::nextafter(magnitude, INFINITY)) - magnitude;
    const double tolerance = 1e-5 + 2 * ulp;
    ASSERT_LE(std::fabs(got - expected), tolerance)
        << "lse " << i << " is " << got << ", expected " << expected;
    margin->lse = std::max(margin->lse, std::fabs(got - expected) / tolerance);
  }

  const int64_t kv_heads = c.k.dim(0), prefix = c.tokens - c.window;
  const TestTensor scores(DType::kF32, {kv_heads, prefix}), pooled(DType::kF32, {kv_heads, prefix});
  ExpectOk(WindowScores(stream, c.q, lse, c.k.Slice(1, 0, prefix), scale, c.group, scores));
  ExpectOk(PoolScores(stream, scores, 0, c.kernel, c.pool, pooled));
  ASSERT_EQ(c.pooled.elements(), kv_heads * prefix);
  for (int64_t i = 0; i < c.pooled.elements(); ++i) {
    const double expected = ElementAt(c.pooled, i), got = ElementAt(pooled, i);
    // f32 ends at 1.4e-45: relative errors mean nothing near it.
    const double tolerance = PooledTolerance(c) * expected + 1e-44;
    ASSERT_LE(std::fabs(got - expected), tolerance)
        << "pooled " << i / prefix << ", " << i % prefix << " is " << got << ", expected " << expected;
    margin->pooled = std::max(margin->pooled, std::fabs(got - expected) / tolerance);
  }

  std::vector<int32_t> positions(static_cast<size_t>(prefix));
  std::iota(positions.begin(), positions.end(), 0);
  const int64_t count = c.tokens <= c.capacity ? prefix : c.capacity - c.window;
  const auto columns = SelectTop(stream, pooled, positions, count);
  ASSERT_TRUE(columns.ok()) << columns.status();
  for (int64_t h = 0; h < kv_heads; ++h) {
    std::vector<int32_t> kept = (*columns)[static_cast<size_t>(h)], expected;
    for (int64_t i = prefix; i < c.tokens; ++i) kept.push_back(static_cast<int32_t>(i));
    for (int64_t i = 0; i < c.kept.dim(1); ++i) expected.push_back(*c.kept.at<int32_t>(h, i));
    ASSERT_EQ(kept, expected) << "kv head " << h;
  }
}

TEST(GoldenSnapkvOps, EveryCaseOnEveryDevice) {
  const auto json_path = testing::GoldenFile("snapkv_ops.json");
  const auto path = testing::GoldenFile("snapkv_ops.safetensors");
  for (const auto* file : {&json_path, &path}) {
    if (absl::IsUnavailable(file->status())) GTEST_SKIP() << file->status().message();
    ASSERT_TRUE(file->ok()) << file->status();
  }
  const absl::StatusOr<json> description = testing::LoadJson(*json_path);
  ASSERT_TRUE(description.ok()) << description.status();
  const auto file = runtime::SafetensorsFile::Open(*path);
  ASSERT_TRUE(file.ok()) << file.status();
  int compared = 0;
  Margin margin;
  for (const json& j : description->at("cases")) {
    const Case c = ReadCase(j, *file);
    if (!c.complete) continue;  // reported by ReadCase
    for (const Stream& stream : {Stream{Device::kRef, 1}, Stream{Device::kCpu, 2}}) {
      SCOPED_TRACE(c.name + " on " + DeviceName(stream.device));
      CompareCase(stream, c, &margin);
    }
    ++compared;
  }
  std::printf(
      "golden: %d cases of %s compared on 2 devices; largest error: LSE %.2f, pooled %.2f of the tolerance\n",
      compared, path->c_str(), margin.lse, margin.pooled);
  ASSERT_GT(compared, 0) << *json_path << ": holds no case";
}

}  // namespace
}  // namespace snapkv::kernels
