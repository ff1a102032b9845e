// SPDX-License-Identifier: Apache-2.0
// Golden attn_merge: parts of attention, their merge in both directions, and the carried state, on every
// device.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include "kernels/op/attention.h"
#include "kernels/op/merge_state.h"
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
  bool causal = false;
  std::vector<int64_t> bounds;     // of the parts: [bounds[b], bounds[b + 1])
  std::vector<int64_t> positions;  // of the queries, when causal
  TensorView q, k, v, part_o, part_lse, o, lse;
  float scale() const { return 1.0f / std::sqrt(static_cast<float>(q.dim(2))); }
};

Case ReadCase(const json& j, const runtime::SafetensorsFile& file) {
  Case c;
  c.name = j.at("name");
  c.causal = j.at("causal");
  c.bounds = j.at("bounds").get<std::vector<int64_t>>();
  if (c.causal) c.positions = j.at("q_pos").get<std::vector<int64_t>>();
  const auto read = [&](const char* part) {
    const absl::StatusOr<TensorView> view = file.tensor(c.name + "." + part);
    EXPECT_TRUE(view.ok()) << view.status();
    c.complete &= view.ok();
    return view.ok() ? *view : TensorView();
  };
  c.q = read("q");
  c.k = read("k");
  c.v = read("v");
  c.part_o = read("part_o");
  c.part_lse = read("part_lse");
  c.o = read("o");
  c.lse = read("lse");
  return c;
}

void ExpectOk(const absl::Status& status) { ASSERT_TRUE(status.ok()) << status; }

struct Result {
  explicit Result(const Case& c)
      : o(DType::kF32, {c.q.dim(0), c.q.dim(1), c.q.dim(2)}), lse(DType::kF32, {c.q.dim(0), c.q.dim(1)}) {}
  TestTensor o, lse;
};

// Adds part b to the state: one call per run of queries at consecutive positions.
void AddPart(const Stream& stream, const Case& c, size_t b, const AttentionState& state) {
  const int64_t queries = c.q.dim(1);
  for (int64_t begin = 0, end = 0; begin < queries; begin = end) {
    const auto position = [&](int64_t i) { return c.causal ? c.positions[static_cast<size_t>(i)] : i; };
    for (end = begin + 1; end < queries && position(end) == position(end - 1) + 1; ++end) continue;
    ExpectOk(Attention(stream, {.q = c.q.Slice(1, begin, end),
                                .k = c.k.Slice(1, c.bounds[b], c.bounds[b + 1]),
                                .v = c.v.Slice(1, c.bounds[b], c.bounds[b + 1]),
                                .state = {state.m.Slice(1, begin, end), state.l.Slice(1, begin, end),
                                          state.o.Slice(1, begin, end)},
                                .scale = c.scale(),
                                .causal = c.causal,
                                .q_position = position(begin),
                                .k_position = c.bounds[b]}));
  }
}

// The given parts through one carried state.
Result Carry(const Stream& stream, const Case& c, DType state_dtype, const std::vector<size_t>& parts) {
  const int64_t heads = c.q.dim(0), queries = c.q.dim(1), head_dim = c.q.dim(2);
  const TestTensor m(DType::kF32, {heads, queries}), l(state_dtype, {heads, queries}),
      o(state_dtype, {heads, queries, head_dim});
  const AttentionState state = {m, l, o};
  Result result(c);
  ExpectOk(InitAttentionState(stream, state));
  for (const size_t b : parts) AddPart(stream, c, b, state);
  ExpectOk(FinishAttention(stream, state, result.o, result.lse));
  return result;
}

// o within 1e-5 and LSE within 1e-5 + 2 ulp, infinities exactly.
void Compare(const Result& result, const TensorView& o, const TensorView& lse, double* largest) {
  for (int64_t i = 0; i < o.elements(); ++i) {
    const double expected = ElementAt(o, i), got = ElementAt(result.o, i);
    ASSERT_LE(std::fabs(got - expected), 1e-5) << "o " << i << " is " << got << ", expected " << expected;
    *largest = std::max(*largest, std::fabs(got - expected) / 1e-5);
  }
  for (int64_t i = 0; i < lse.elements(); ++i) {
    const double expected = ElementAt(lse, i), got = ElementAt(result.lse, i);
    if (expected == got) continue;
    const float magnitude = std::fabs(static_cast<float>(expected));
    const double ulp = static_cast<double>(std::nextafter(magnitude, INFINITY)) - magnitude;
    ASSERT_TRUE(std::fabs(got - expected) <= 1e-5 + 2 * ulp)
        << "lse " << i << " is " << got << ", expected " << expected;
    *largest = std::max(*largest, std::fabs(got - expected) / (1e-5 + 2 * ulp));
  }
}

void CompareCase(const Stream& stream, const Case& c, double* largest) {
  std::vector<size_t> parts;
  for (size_t b = 0; b + 1 < c.bounds.size(); ++b) parts.push_back(b);
  ASSERT_FALSE(parts.empty());
  for (const size_t b : parts) {
    SCOPED_TRACE("part " + std::to_string(b));
    Compare(Carry(stream, c, DType::kF64, {b}), c.part_o[static_cast<int64_t>(b)],
            c.part_lse[static_cast<int64_t>(b)], largest);
  }
  for (const bool reversed : {false, true}) {
    SCOPED_TRACE(reversed ? "last part first" : "first part first");
    if (reversed) std::reverse(parts.begin(), parts.end());
    Result merged = Carry(stream, c, DType::kF64, {parts[0]});
    for (size_t i = 1; i < parts.size(); ++i) {
      const Result other = Carry(stream, c, DType::kF64, {parts[i]});
      ExpectOk(MergeState(stream, merged.o, merged.lse, other.o, other.lse));
    }
    Compare(merged, c.o, c.lse, largest);
    for (const DType state : {DType::kF64, DType::kF32}) {
      SCOPED_TRACE(std::string("carried in ") + DTypeName(state));
      Compare(Carry(stream, c, state, parts), c.o, c.lse, largest);
    }
  }
}

TEST(GoldenAttnMerge, EveryCaseOnEveryDevice) {
  const auto json_path = testing::GoldenFile("attn_merge.json");
  const auto path = testing::GoldenFile("attn_merge.safetensors");
  ASSERT_TRUE(json_path.ok()) << json_path.status();
  ASSERT_TRUE(path.ok()) << path.status();
  const absl::StatusOr<json> description = testing::LoadJson(*json_path);
  ASSERT_TRUE(description.ok()) << description.status();
  const auto file = runtime::SafetensorsFile::Open(*path);
  ASSERT_TRUE(file.ok()) << file.status();
  int compared = 0;
  double largest = 0;
  for (const json& j : description->at("cases")) {
    const Case c = ReadCase(j, *file);
    if (!c.complete) continue;  // reported by ReadCase
    for (const Stream& stream : {Stream{Device::kRef, 1}, Stream{Device::kCpu, 2}}) {
      SCOPED_TRACE(c.name + " on " + DeviceName(stream.device));
      CompareCase(stream, c, &largest);
    }
    ++compared;
  }
  std::printf("golden: %d cases of %s compared on 2 devices; largest error %.2f of the tolerance\n", compared,
              path->c_str(), largest);
  ASSERT_GT(compared, 0) << *json_path << ": holds no case";
}

}  // namespace
}  // namespace snapkv::kernels
