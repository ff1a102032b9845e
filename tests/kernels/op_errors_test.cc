// SPDX-License-Identifier: Apache-2.0
// Every argument of every op, given wrongly: the status names the op, the argument and what was expected, and
// no device is asked.
#include <functional>
#include <limits>

#include "kernels/op/attention.h"
#include "kernels/op/decode_attention.h"
#include "kernels/op/dequantize.h"
#include "kernels/op/elementwise.h"
#include "kernels/op/embed.h"
#include "kernels/op/gather_rows.h"
#include "kernels/op/gemm.h"
#include "kernels/op/merge_state.h"
#include "kernels/op/pool_scores.h"
#include "kernels/op/rms_norm.h"
#include "kernels/op/rope.h"
#include "kernels/op/sample.h"
#include "kernels/op/select_top.h"
#include "kernels/op/window_scores.h"
#include "tests/kernels/op_testing.h"

namespace snapkv::kernels {
namespace {

class OpErrors : public ::testing::TestWithParam<Device> {
 protected:
  Stream stream() const { return {GetParam(), 1}; }
};
INSTANTIATE_TEST_SUITE_P(Ops, OpErrors, ::testing::Values(Device::kRef, Device::kCpu),
                         [](const auto& info) { return std::string(DeviceName(info.param)); });

// The status is INVALID_ARGUMENT and its message is `message` to the letter.
void ExpectInvalid(const absl::Status& status, const std::string& message) {
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << message;
  EXPECT_EQ(std::string(status.message()), message);
}

HostTensor Zeros(DType dtype, std::vector<int64_t> shape) {
  HostTensor t(dtype, std::move(shape));
  t.Fill([](int64_t) { return 0; });
  return t;
}
HostTensor Zeros(std::vector<int64_t> shape) { return Zeros(kF32, std::move(shape)); }

TEST_P(OpErrors, StreamsNeedAThreadAndAKnownDevice) {
  const HostTensor x = Zeros({2, 3}), y = Zeros({2, 3});
  ExpectInvalid(Add({GetParam(), 0}, x, y), "Add: stream has 0 threads, expected at least 1");
  ExpectInvalid(Add({static_cast<Device>(9), 1}, x, y),
                "Add: stream has the unknown device 9, expected ref or cpu");
}

TEST_P(OpErrors, ViewsNeedHostMemoryDataAlignmentAndStrides) {
  const HostTensor x = Zeros({2, 3}), y = Zeros({2, 3});
  TensorView bad = y;
  bad.device = static_cast<Device>(9);
  ExpectInvalid(Add(stream(), x, bad), "Add: y is on the unknown device 9, expected host memory");
  bad = y;
  bad.data = nullptr;
  ExpectInvalid(Add(stream(), x, bad), "Add: y is f32[2, 3] without data");
  bad.data = static_cast<char*>(y.view().data) + 2;
  ExpectInvalid(Add(stream(), x, bad), "Add: y is f32[2, 3] at an address that is no multiple of 4");
  bad = y;
  bad.strides = {-3, 1};
  ExpectInvalid(Add(stream(), x, bad),
                "Add: y is f32[2, 3] with strides [-3, 1], expected no negative stride");
  bad.strides = {1, 2};
  ExpectInvalid(Add(stream(), x, bad),
                "Add: y is f32[2, 3] with strides [1, 2], expected a contiguous last dimension");
  bad = y;
  bad.shape[0] = -2;
  ExpectInvalid(Add(stream(), x, bad), "Add: y is f32[-2, 3], expected f32 or bf16 [2, 3]");
}

TEST_P(OpErrors, Elementwise) {
  const HostTensor x = Zeros({2, 3}), wide = Zeros({2, 6}), flat = Zeros({3});
  ExpectInvalid(Add(stream(), Zeros(kBF16, {2, 3}), x), "Add: x is bf16[2, 3], expected f32 [any, any]");
  ExpectInvalid(Add(stream(), x, Zeros({3, 2})), "Add: y is f32[3, 2], expected f32 or bf16 [2, 3]");
  ExpectInvalid(Add(stream(), x, x),
                "Add: x f32[2, 3] and y f32[2, 3] share memory, expected separate tensors");
  ExpectInvalid(AddBias(stream(), Zeros(kF64, {2, 3}), flat),
                "AddBias: x is f64[2, 3], expected f32 or bf16 [any, any]");
  ExpectInvalid(AddBias(stream(), x, Zeros({2})), "AddBias: bias is f32[2], expected f32 [3]");
  ExpectInvalid(AddBias(stream(), x, Zeros(kBF16, {3})), "AddBias: bias is bf16[3], expected f32 [3]");
  ExpectInvalid(Cast(stream(), Zeros(DType::kI32, {2}), Zeros({2})),
                "Cast: in is i32[2], expected f32 or f64 or f16 or bf16 [2]");
  ExpectInvalid(Cast(stream(), x, HostTensor(DType::kF16, {2, 3})),
                "Cast: out is f16[2, 3], expected f32 or f64 or bf16 [2, 3]");
  ExpectInvalid(Cast(stream(), x, flat), "Cast: out is f32[3], expected f32 or f64 or bf16 [2, 3]");
  ExpectInvalid(Cast(stream(), TensorView(), flat),
                "Cast: in is f32[], expected f32 or f64 or f16 or bf16 []");
  ExpectInvalid(Cast(stream(), x, x.view().Slice(0, 0, 2)),
                "Cast: in f32[2, 3] and out f32[2, 3] share memory, expected separate tensors");
  ExpectInvalid(SiluMul(stream(), wide, Zeros({2, 2})), "SiluMul: gate_up is f32[2, 6], expected f32 [2, 4]");
  ExpectInvalid(SiluMul(stream(), wide, Zeros(kBF16, {2, 3})),
                "SiluMul: gate_up is f32[2, 6], expected bf16 [2, 6]");
  ExpectInvalid(SiluMul(stream(), wide, flat), "SiluMul: out is f32[3], expected f32 or bf16 [any, any]");
  ExpectInvalid(SiluMul(stream(), wide, wide.view().Slice(1, 1, 4)),
                "SiluMul: the gates of gate_up f32[2, 3] and out f32[2, 3] share memory, expected separate "
                "tensors");
  ExpectInvalid(
      SiluMul(stream(), wide, wide.view().Slice(1, 3, 6)),
      "SiluMul: the second half of gate_up f32[2, 3] and out f32[2, 3] share memory, expected separate "
      "tensors");
}

TEST_P(OpErrors, InterleavedViewsAreNotTakenForOverlap) {
  const HostTensor both = Zeros({4, 6});
  const TensorView left = both.view().Slice(1, 0, 3), right = both.view().Slice(1, 3, 6);
  ASSERT_OK(Add(stream(), left, right));
  ASSERT_OK(Cast(stream(), left, right));
  ExpectInvalid(Cast(stream(), left, both.view().Slice(1, 2, 5)),
                "Cast: in f32[4, 3] and out f32[4, 3] share memory, expected separate tensors");
  ExpectInvalid(Cast(stream(), both.view().Slice(0, 0, 2), both.view().Slice(0, 1, 3)),
                "Cast: in f32[2, 6] and out f32[2, 6] share memory, expected separate tensors");
}

TEST_P(OpErrors, DequantizeAndEmbed) {
  std::vector<unsigned char> raw(4 * 18);
  const TensorView blocks = TensorView::Of(raw.data(), DType::kQ4_0, GetParam(), 2, 64);
  TensorView ragged = blocks;
  ragged.shape[1] = 40;
  ragged.SetContiguous();
  TensorView strided = blocks;
  strided.strides[0] = 128;
  ExpectInvalid(Dequantize(stream(), ragged, Zeros({2, 40})),
                "Dequantize: in is q4_0[2, 40], expected rows of whole blocks of 32");
  ExpectInvalid(Dequantize(stream(), strided, Zeros({2, 64})),
                "Dequantize: in is q4_0[2, 64] with strides [128, 1], expected a contiguous tensor");
  ExpectInvalid(Dequantize(stream(), blocks, Zeros({2, 65})),
                "Dequantize: out is f32[2, 65], expected f32 [2, 64]");
  ExpectInvalid(Dequantize(stream(), blocks, Zeros(kBF16, {2, 64})),
                "Dequantize: out is bf16[2, 64], expected f32 [2, 64]");
  const std::string stored =
      "f32 or f16 or bf16 or q4_0 or q4_1 or q5_0 or q5_1 or q8_0 or q2_K or q3_K or q4_K "
      "or q5_K or q6_K";
  ExpectInvalid(Dequantize(stream(), Zeros(kF64, {2, 2}), Zeros({2, 2})),
                "Dequantize: in is f64[2, 2], expected " + stored + " [2, 2]");

  const std::vector<int32_t> ids = {1, 0, 2}, good = {1, 0}, negative = {-1};
  ExpectInvalid(Embed(stream(), blocks, ids, Zeros({3, 64})),
                "Embed: ids[2] is 2, expected a row of table q4_0[2, 64]");
  ExpectInvalid(Embed(stream(), blocks, negative, Zeros({1, 64})),
                "Embed: ids[0] is -1, expected a row of table q4_0[2, 64]");
  ExpectInvalid(Embed(stream(), blocks, good, Zeros({3, 64})),
                "Embed: out is f32[3, 64], expected f32 [2, 64]");
  ExpectInvalid(Embed(stream(), Zeros(DType::kI32, {2, 4}), good, Zeros({2, 4})),
                "Embed: table is i32[2, 4], expected " + stored + " [any, any]");
}

TEST_P(OpErrors, RmsNorm) {
  const HostTensor x = Zeros({2, 3}), weight = Zeros({3}), out = Zeros({2, 3});
  ExpectInvalid(RmsNorm(stream(), Zeros(kBF16, {2, 3}), weight, 0, out),
                "RmsNorm: x is bf16[2, 3], expected f32 [any, any]");
  ExpectInvalid(RmsNorm(stream(), x, Zeros({2}), 0, out), "RmsNorm: weight is f32[2], expected f32 [3]");
  ExpectInvalid(RmsNorm(stream(), x, weight, -1, out), "RmsNorm: epsilon is -1, expected at least 0");
  ExpectInvalid(RmsNorm(stream(), x, weight, kInf, out), "RmsNorm: epsilon is inf, expected a finite number");
  ExpectInvalid(RmsNorm(stream(), x, weight, 0, Zeros({3, 3})),
                "RmsNorm: out is f32[3, 3], expected f32 or bf16 [2, 3]");
  const HostTensor tall = Zeros({3, 3});
  ExpectInvalid(RmsNorm(stream(), tall.view().Slice(0, 0, 2), weight, 0, tall.view().Slice(0, 1, 3)),
                "RmsNorm: x f32[2, 3] and out f32[2, 3] share memory, expected separate tensors");
  ExpectInvalid(RmsNorm(stream(), x, tall.view()[1], 0, tall.view().Slice(0, 0, 2)),
                "RmsNorm: weight f32[3] and out f32[2, 3] share memory, expected separate tensors");
}

TEST_P(OpErrors, Rope) {
  const HostTensor in = Zeros({2, 3, 4}), angle = Zeros({3, 2}), out = Zeros({2, 3, 4});
  ExpectInvalid(Rope(stream(), Zeros(kF64, {2, 3, 4}), angle, angle, out),
                "Rope: in is f64[2, 3, 4], expected f32 or bf16 [any, any, any]");
  ExpectInvalid(Rope(stream(), Zeros({2, 3, 5}), angle, angle, Zeros({2, 3, 5})),
                "Rope: in is f32[2, 3, 5], expected an even head_dim");
  ExpectInvalid(Rope(stream(), in, Zeros({3, 4}), angle, out), "Rope: cos is f32[3, 4], expected f32 [3, 2]");
  ExpectInvalid(Rope(stream(), in, angle, Zeros({2, 2}), out), "Rope: sin is f32[2, 2], expected f32 [3, 2]");
  ExpectInvalid(Rope(stream(), in, angle, angle, Zeros(kBF16, {2, 3, 4})),
                "Rope: out is bf16[2, 3, 4], expected f32 [2, 3, 4]");
  ExpectInvalid(Rope(stream(), in, angle, angle, in.view().Slice(0, 0, 1)),
                "Rope: out is f32[1, 3, 4], expected f32 [2, 3, 4]");
  const HostTensor four = Zeros({2, 4, 4});
  ExpectInvalid(Rope(stream(), four.view().Slice(1, 0, 3), angle, angle, four.view().Slice(1, 1, 4)),
                "Rope: in f32[2, 3, 4] and out f32[2, 3, 4] share memory, expected separate tensors");
}

TEST_P(OpErrors, Gemm) {
  Allocator allocator;
  const HostTensor w = Zeros({4, 3});
  ExpectInvalid(PackMatrix(stream(), allocator, Zeros(kBF16, {4, 3}), kBF16).status(),
                "PackMatrix: w is bf16[4, 3], expected f32 [any, any]");
  ExpectInvalid(PackMatrix(stream(), allocator, w, kF64).status(),
                "PackMatrix: dtype is f64 for w f32[4, 3], expected f32 or bf16");
  ExpectInvalid(PackMatrix(stream(), allocator, w.view().Transposed(0, 1), kF32).status(),
                "PackMatrix: w is f32[3, 4] with strides [1, 3], expected a contiguous tensor");
  absl::StatusOr<PackedMatrix> packed = PackMatrix(stream(), allocator, w, kF32);
  ASSERT_OK(packed.status());
  ExpectInvalid(Gemm(stream(), Zeros({2, 4}), *packed, Zeros({2, 4})),
                "Gemm: a is f32[2, 4], expected f32 [any, 3]");
  ExpectInvalid(Gemm(stream(), Zeros(kBF16, {2, 3}), *packed, Zeros({2, 4})),
                "Gemm: a is bf16[2, 3], expected f32 [any, 3]");
  ExpectInvalid(Gemm(stream(), Zeros({2, 3}), *packed, Zeros({2, 3})),
                "Gemm: out is f32[2, 3], expected f32 [2, 4]");
  const HostTensor both = Zeros({2, 7});
  ExpectInvalid(Gemm(stream(), both.view().Slice(1, 0, 3), *packed, both.view().Slice(1, 2, 6)),
                "Gemm: a f32[2, 3] and out f32[2, 4] share memory, expected separate tensors");
  const Device other = GetParam() == Device::kRef ? Device::kCpu : Device::kRef;
  ExpectInvalid(Gemm({other, 1}, Zeros({2, 3}), *packed, Zeros({2, 4})),
                absl::StrCat("Gemm: w f32[4, 3] is packed for ", DeviceName(GetParam()),
                             ", expected the stream's device ", DeviceName(other)));
  packed->weights.reset();
  const absl::Status gone = Gemm(stream(), Zeros({2, 3}), *packed, Zeros({2, 4}));
  EXPECT_EQ(gone.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(std::string(gone.message()),
            "Gemm: w f32[4, 3] holds no weights, expected what PackMatrix returned");
}

TEST_P(OpErrors, Attention) {
  const HostTensor q = Zeros({4, 3, 8}), k = Zeros({2, 5, 8}), m = Zeros({4, 3}), l = Zeros({4, 3}),
                   o = Zeros({4, 3, 8});
  const AttentionParams good = {.q = q, .k = k, .v = k, .state = {m, l, o}};
  ASSERT_OK(Attention(stream(), good));
  const auto invalid = [&](const std::function<void(AttentionParams&)>& change, const std::string& message) {
    AttentionParams params = good;
    change(params);
    ExpectInvalid(Attention(stream(), params), message);
  };
  const HostTensor q64 = Zeros(kF64, {4, 3, 8}), k7 = Zeros({2, 5, 7}), v4 = Zeros({2, 4, 8}),
                   k3 = Zeros({3, 5, 8}), none = Zeros({0, 5, 8}), m2 = Zeros({4, 2}),
                   l64 = Zeros(kF64, {4, 3}), o7 = Zeros({4, 3, 7}), k16 = Zeros(kBF16, {2, 5, 8});
  invalid([&](AttentionParams& p) { p.q = q64; },
          "Attention: q is f64[4, 3, 8], expected f32 or bf16 [any, any, any]");
  invalid([&](AttentionParams& p) { p.k = k7; }, "Attention: k is f32[2, 5, 7], expected f32 [any, any, 8]");
  invalid([&](AttentionParams& p) { p.k = k16; },
          "Attention: k is bf16[2, 5, 8], expected f32 [any, any, 8]");
  invalid([&](AttentionParams& p) { p.v = v4; }, "Attention: v is f32[2, 4, 8], expected f32 [2, 5, 8]");
  invalid([&](AttentionParams& p) { p.k = p.v = k3; },
          "Attention: q has 4 heads and k has 3, expected a multiple");
  invalid([&](AttentionParams& p) { p.k = p.v = none; },
          "Attention: q has 4 heads and k has 0, expected a multiple");
  invalid([&](AttentionParams& p) { p.state.m = m2; },
          "Attention: state.m is f32[4, 2], expected f32 [4, 3]");
  invalid([&](AttentionParams& p) { p.state.l = l64; },
          "Attention: state.l is f64[4, 3], expected f32 [4, 3]");
  invalid([&](AttentionParams& p) { p.state.o = o7; },
          "Attention: state.o is f32[4, 3, 7], expected f64 or f32 [4, 3, 8]");
  invalid([&](AttentionParams& p) { p.scale = std::numeric_limits<float>::quiet_NaN(); },
          "Attention: scale is nan, expected a finite number");

  ExpectInvalid(InitAttentionState(stream(), {m2, l, o}),
                "InitAttentionState: state.m is f32[4, 2], expected f32 [4, 3]");
  ExpectInvalid(InitAttentionState(stream(), {m, l64, o}),
                "InitAttentionState: state.l is f64[4, 3], expected f32 [4, 3]");
  ExpectInvalid(InitAttentionState(stream(), {m, l, m}),
                "InitAttentionState: state.o is f32[4, 3], expected f64 or f32 [any, any, any]");

  const HostTensor out = Zeros({4, 3, 8}), lse = Zeros({4, 3});
  ExpectInvalid(FinishAttention(stream(), {m, l, o}, q64, lse),
                "FinishAttention: out is f64[4, 3, 8], expected f32 or bf16 [any, any, any]");
  ExpectInvalid(FinishAttention(stream(), {m, l, o7}, out, lse),
                "FinishAttention: state.o is f32[4, 3, 7], expected f64 or f32 [4, 3, 8]");
  ExpectInvalid(FinishAttention(stream(), {m, l, o}, out, m2),
                "FinishAttention: lse is f32[4, 2], expected f32 [4, 3]");
  ExpectInvalid(FinishAttention(stream(), {m, l, o}, o, lse),
                "FinishAttention: state.o f32[4, 3, 8] and out f32[4, 3, 8] share memory, expected separate "
                "tensors");
  ExpectInvalid(
      FinishAttention(stream(), {m, l, o}, out, m),
      "FinishAttention: state.m f32[4, 3] and lse f32[4, 3] share memory, expected separate tensors");
  ExpectInvalid(
      FinishAttention(stream(), {m, l, o}, out, l),
      "FinishAttention: state.l f32[4, 3] and lse f32[4, 3] share memory, expected separate tensors");
}

TEST_P(OpErrors, MergeState) {
  const HostTensor o = Zeros({2, 3, 4}), lse = Zeros({2, 3}), o2 = Zeros({2, 3, 4}), lse2 = Zeros({2, 3});
  ExpectInvalid(MergeState(stream(), Zeros(kBF16, {2, 3, 4}), lse, o2, lse2),
                "MergeState: o is bf16[2, 3, 4], expected f32 [any, any, any]");
  ExpectInvalid(MergeState(stream(), o, Zeros({2, 4}), o2, lse2),
                "MergeState: lse is f32[2, 4], expected f32 [2, 3]");
  ExpectInvalid(MergeState(stream(), o, lse, Zeros({2, 3, 5}), lse2),
                "MergeState: other_o is f32[2, 3, 5], expected f32 [2, 3, 4]");
  ExpectInvalid(MergeState(stream(), o, lse, o2, Zeros({3, 3})),
                "MergeState: other_lse is f32[3, 3], expected f32 [2, 3]");
  ExpectInvalid(
      MergeState(stream(), o, lse, o, lse2),
      "MergeState: o f32[2, 3, 4] and other_o f32[2, 3, 4] share memory, expected separate tensors");
  ExpectInvalid(MergeState(stream(), o, lse, o2, lse),
                "MergeState: lse f32[2, 3] and other_lse f32[2, 3] share memory, expected separate tensors");
}

TEST_P(OpErrors, DecodeAttention) {
  const HostTensor q = Zeros({2, 4, 8}), out = Zeros({2, 4, 8}), k = Zeros({3, 8});
  const CacheRows rows = {k.view().data, k.view().data, 3};
  std::vector<CacheRows> caches(4, rows);
  ASSERT_OK(DecodeAttention(stream(), q, caches, 2, 1, out));
  ExpectInvalid(DecodeAttention(stream(), Zeros(kF64, {2, 4, 8}), caches, 2, 1, out),
                "DecodeAttention: q is f64[2, 4, 8], expected f32 or bf16 [any, any, any]");
  ExpectInvalid(DecodeAttention(stream(), q, caches, 2, 1, Zeros({2, 4, 7})),
                "DecodeAttention: out is f32[2, 4, 7], expected f32 [2, 4, 8]");
  ExpectInvalid(DecodeAttention(stream(), q, caches, 0, 1, out),
                "DecodeAttention: cache_heads is 0, expected at least 1");
  ExpectInvalid(DecodeAttention(stream(), q, caches, 3, 1, out),
                "DecodeAttention: q has 4 heads and each document's cache has 3, expected a multiple");
  ExpectInvalid(DecodeAttention(stream(), q, caches, 1, 1, out),
                "DecodeAttention: caches has 4 entries, expected 1 for each document of q f32[2, 4, 8]");
  ExpectInvalid(DecodeAttention(stream(), q, caches, 2, kInf, out),
                "DecodeAttention: scale is inf, expected a finite number");
  ExpectInvalid(
      DecodeAttention(stream(), q, caches, 2, 1, q),
      "DecodeAttention: q f32[2, 4, 8] and out f32[2, 4, 8] share memory, expected separate tensors");
  const std::string message = " rows, expected at least 0, with k and v unless 0";
  caches[3].v = nullptr;
  ExpectInvalid(DecodeAttention(stream(), q, caches, 2, 1, out),
                "DecodeAttention: caches[3] has 3" + message);
  caches[1].rows = -1;
  ExpectInvalid(DecodeAttention(stream(), q, caches, 2, 1, out),
                "DecodeAttention: caches[1] has -1" + message);
}

TEST_P(OpErrors, WindowScores) {
  const HostTensor q = Zeros({4, 3, 8}), lse = Zeros({4, 3}), k = Zeros({2, 5, 8}), scores = Zeros({2, 5});
  const auto run = [&](const TensorView& q_, const TensorView& lse_, const TensorView& k_, float scale,
                       GroupMode mode, const TensorView& scores_) {
    return WindowScores(stream(), q_, lse_, k_, scale, mode, scores_);
  };
  ASSERT_OK(run(q, lse, k, 1, GroupMode::kMean, scores));
  ExpectInvalid(run(Zeros({4, 8}), lse, k, 1, GroupMode::kMean, scores),
                "WindowScores: q is f32[4, 8], expected f32 or bf16 [any, any, any]");
  ExpectInvalid(run(q, Zeros({4, 2}), k, 1, GroupMode::kMean, scores),
                "WindowScores: lse is f32[4, 2], expected f32 [4, 3]");
  ExpectInvalid(run(q, lse, Zeros({2, 5, 9}), 1, GroupMode::kMean, scores),
                "WindowScores: k is f32[2, 5, 9], expected f32 [any, any, 8]");
  ExpectInvalid(run(q, lse, Zeros({3, 5, 8}), 1, GroupMode::kMean, Zeros({3, 5})),
                "WindowScores: q has 4 heads and k has 3, expected a multiple");
  ExpectInvalid(run(q, lse, k, -kInf, GroupMode::kMean, scores),
                "WindowScores: scale is -inf, expected a finite number");
  ExpectInvalid(run(q, lse, k, 1, GroupMode::kNone, scores),
                "WindowScores: scores is f32[2, 5], expected f32 [4, 5]");
  ExpectInvalid(run(q, lse, k, 1, GroupMode::kSum, Zeros({4, 5})),
                "WindowScores: scores is f32[4, 5], expected f32 [2, 5]");
  const TensorView over_k = TensorView::Of(k.view().data, kF32, GetParam(), 2, 5);
  ExpectInvalid(run(q, lse, k, 1, GroupMode::kSum, over_k),
                "WindowScores: k f32[2, 5, 8] and scores f32[2, 5] share memory, expected separate tensors");
}

TEST_P(OpErrors, PoolScores) {
  const HostTensor in = Zeros({2, 9}), out = Zeros({2, 6});
  ASSERT_OK(PoolScores(stream(), in, 1, 5, PoolMode::kMax, out));
  ExpectInvalid(PoolScores(stream(), Zeros(kBF16, {2, 9}), 1, 5, PoolMode::kMax, out),
                "PoolScores: in is bf16[2, 9], expected f32 [any, any]");
  ExpectInvalid(PoolScores(stream(), in, 1, 5, PoolMode::kMax, Zeros({3, 6})),
                "PoolScores: out is f32[3, 6], expected f32 [2, any]");
  for (const int kernel : {-1, 0, 4}) {
    ExpectInvalid(PoolScores(stream(), in, 1, kernel, PoolMode::kMax, out),
                  absl::StrCat("PoolScores: kernel is ", kernel, ", expected an odd number from 1 up"));
  }
  const auto halos = [](int64_t left, int64_t right) {
    return absl::StrCat("PoolScores: in is f32[2, 9] and out is f32[2, 6] with ", left,
                        " halo columns on the left and ", right,
                        " on the right, expected 0 to 2 for kernel 5");
  };
  for (const int64_t left : {-1, 0, 3, 4}) {
    ExpectInvalid(PoolScores(stream(), in, left, 5, PoolMode::kAvg, out), halos(left, 3 - left));
  }
  ExpectInvalid(PoolScores(stream(), in, 1, 5, PoolMode::kMax, in.view().Slice(1, 0, 6)),
                "PoolScores: in f32[2, 9] and out f32[2, 6] share memory, expected separate tensors");
}

TEST_P(OpErrors, Selection) {
  const HostTensor scores = Zeros({2, 3});
  const std::vector<int32_t> positions = {0, 1, 2}, few = {0, 1};
  const std::vector<uint64_t> prefix = {0, 0}, one = {0};
  std::vector<int64_t> counts(2 * kSelectBins), short_counts(kSelectBins);
  const auto count = [&](const TensorView& scores_, const std::vector<int32_t>& positions_,
                         const std::vector<uint64_t>& prefix_, int round, std::vector<int64_t>& counts_) {
    return CountSelectKeys(stream(), scores_, positions_, prefix_, round, absl::MakeSpan(counts_));
  };
  ASSERT_OK(count(scores, positions, prefix, 0, counts));
  ExpectInvalid(count(Zeros(kF64, {2, 3}), positions, prefix, 0, counts),
                "CountSelectKeys: scores is f64[2, 3], expected f32 [any, any]");
  ExpectInvalid(count(scores, few, prefix, 0, counts),
                "CountSelectKeys: positions has 2 entries, expected 3 for scores f32[2, 3]");
  ExpectInvalid(count(scores, positions, one, 0, counts),
                "CountSelectKeys: prefix has 1 entries, expected 2 for scores f32[2, 3]");
  ExpectInvalid(count(scores, positions, prefix, 0, short_counts),
                "CountSelectKeys: counts has 256 entries, expected 512 for scores f32[2, 3]");
  for (const int round : {-1, 8}) {
    ExpectInvalid(count(scores, positions, prefix, round, counts),
                  absl::StrCat("CountSelectKeys: round is ", round, ", expected 0 to 7"));
  }
  ExpectInvalid(CollectSelected(stream(), Zeros({6}), positions, prefix).status(),
                "CollectSelected: scores is f32[6], expected f32 [any, any]");
  ExpectInvalid(CollectSelected(stream(), scores, few, prefix).status(),
                "CollectSelected: positions has 2 entries, expected 3 for scores f32[2, 3]");
  ExpectInvalid(CollectSelected(stream(), scores, positions, one).status(),
                "CollectSelected: threshold has 1 entries, expected 2 for scores f32[2, 3]");
  ExpectInvalid(SelectTop(stream(), Zeros(kBF16, {2, 3}), positions, 1).status(),
                "SelectTop: scores is bf16[2, 3], expected f32 [any, any]");
  ExpectInvalid(SelectTop(stream(), scores, few, 1).status(),
                "SelectTop: positions has 2 entries, expected 3 for scores f32[2, 3]");
}

TEST_P(OpErrors, GatherRows) {
  using Lists = std::vector<std::vector<int32_t>>;
  const HostTensor in = Zeros({2, 3, 4});
  ASSERT_OK(GatherRows(stream(), in, Lists{{0, 2}, {1}}, Zeros({3, 4})));
  ExpectInvalid(GatherRows(stream(), Zeros(kF64, {2, 3, 4}), Lists{{0}, {1}}, Zeros({2, 4})),
                "GatherRows: in is f64[2, 3, 4], expected f32 or bf16 [any, any, any]");
  ExpectInvalid(GatherRows(stream(), in, Lists{{0}, {1}, {2}}, Zeros({3, 4})),
                "GatherRows: rows has 3 heads and in has 2, expected a multiple");
  ExpectInvalid(GatherRows(stream(), in, Lists{{0}, {1, 3}}, Zeros({3, 4})),
                "GatherRows: rows[1][1] is 3, expected a row of in f32[2, 3, 4]");
  ExpectInvalid(GatherRows(stream(), in, Lists{{-1}, {1}}, Zeros({2, 4})),
                "GatherRows: rows[0][0] is -1, expected a row of in f32[2, 3, 4]");
  ExpectInvalid(GatherRows(stream(), in, Lists{{0}, {1}}, Zeros({3, 4})),
                "GatherRows: out is f32[3, 4], expected f32 [2, 4]");
  ExpectInvalid(GatherRows(stream(), in, Lists{{0}, {1}}, Zeros(kBF16, {2, 4})),
                "GatherRows: out is bf16[2, 4], expected f32 [2, 4]");
  ExpectInvalid(GatherRows(stream(), in, Lists{{0, 1, 2}, {}}, in.view()[1]),
                "GatherRows: in f32[2, 3, 4] and out f32[3, 4] share memory, expected separate tensors");
}

TEST_P(OpErrors, Sample) {
  const HostTensor logits = Zeros({3});
  const auto run = [&](const TensorView& logits_, const std::vector<int32_t>& history, SampleParams params) {
    return Sample(stream(), logits_, history, params).status();
  };
  ExpectInvalid(run(Zeros(kBF16, {3}), {}, {}), "Sample: logits is bf16[3], expected f32 [any]");
  ExpectInvalid(run(Zeros({0}), {}, {}), "Sample: logits is f32[0], expected at least one");
  ExpectInvalid(run(logits, {0, 3}, {}), "Sample: history[1] is 3, expected a token of logits f32[3]");
  ExpectInvalid(run(logits, {-1}, {}), "Sample: history[0] is -1, expected a token of logits f32[3]");
  ExpectInvalid(run(logits, {}, {.temperature = -1}), "Sample: temperature is -1, expected at least 0");
  ExpectInvalid(run(logits, {}, {.temperature = kInf}),
                "Sample: temperature is inf, expected a finite number");
  ExpectInvalid(run(logits, {}, {.repeat_penalty = 0}), "Sample: repeat_penalty is 0, expected more than 0");
  ExpectInvalid(run(logits, {}, {.top_k = -1}), "Sample: top_k is -1, expected at least 0");
  for (const auto& [value, shown] : {std::pair{0.0, "0"}, {-0.5, "-0.5"}, {1.5, "1.5"}, {kNan, "nan"}}) {
    ExpectInvalid(run(logits, {}, {.top_p = value}),
                  std::string("Sample: top_p is ") + shown + ", expected more than 0 and at most 1");
  }
  for (const auto& [value, shown] : {std::pair{-0.5, "-0.5"}, {1.5, "1.5"}, {kNan, "nan"}}) {
    ExpectInvalid(run(logits, {}, {.min_p = value}),
                  std::string("Sample: min_p is ") + shown + ", expected 0 to 1");
  }
  const absl::Status nan = run(HostTensor::Of(kF32, {3}, {0, kNan, kNan}), {}, {});
  EXPECT_EQ(nan.code(), absl::StatusCode::kInternal);
  EXPECT_EQ(std::string(nan.message()), "Sample: logits[1] of f32[3] is NaN: the forward pass is broken");
}

}  // namespace
}  // namespace snapkv::kernels
