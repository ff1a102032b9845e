// SPDX-License-Identifier: Apache-2.0
// Attention problems for the contract tests: inputs, the exact answer, and how far f32 may be from it.
#pragma once

#include <utility>
#include <vector>

#include "kernels/op/attention.h"
#include "kernels/ref/ref.h"
#include "tests/kernels/op_testing.h"

namespace snapkv::kernels {

struct AttentionShape {
  int64_t kv_heads = 1, group = 1, queries = 1, keys = 1, head_dim = 8;
  bool causal = false;
  int64_t q_position = 0, k_position = 0;
  int64_t heads() const { return kv_heads * group; }
  std::string ToString() const {
    return std::to_string(kv_heads) + " x " + std::to_string(group) + " heads, " + std::to_string(queries) +
           " queries at " + std::to_string(q_position) + ", " + std::to_string(keys) + " keys at " +
           std::to_string(k_position) + ", head_dim " + std::to_string(head_dim) + (causal ? ", causal" : "");
  }
};

// A carried state with its memory, and the finished result of it.
struct HostState {
  HostState(DType dtype, const AttentionShape& shape, DType out_dtype, DType lse_dtype = kF32)
      : m(kF32, {shape.heads(), shape.queries}, 1),
        l(dtype, {shape.heads(), shape.queries}, 2),
        o(dtype, {shape.heads(), shape.queries, shape.head_dim}, 3),
        out(out_dtype, {shape.heads(), shape.queries, shape.head_dim}, 4),
        lse(lse_dtype, {shape.heads(), shape.queries}, 5) {}
  AttentionState view() const { return {m, l, o}; }
  HostTensor m, l, o, out, lse;
};

// Half-open ranges of keys, in the order in which they are visited.
using KeyParts = std::vector<std::pair<int64_t, int64_t>>;

struct AttentionProblem {
  AttentionProblem(const AttentionShape& s, DType dtype, std::mt19937_64& rng, double sigma = 1.0)
      : shape(s),
        q(HostTensor::Normal(dtype, {s.heads(), s.queries, s.head_dim}, rng, sigma, 8)),
        k(HostTensor::Normal(dtype, {s.kv_heads, s.keys, s.head_dim}, rng, 1.0, 1)),
        v(HostTensor::Normal(dtype, {s.kv_heads, s.keys, s.head_dim}, rng, 1.0, 3)),
        scale(static_cast<float>(1.0 / std::sqrt(static_cast<double>(s.head_dim)))) {}

  // Keys [begin, end) against all queries.
  AttentionParams Params(const HostState& state, int64_t begin, int64_t end) const {
    return {.q = q,
            .k = k.view().Slice(1, begin, end),
            .v = v.view().Slice(1, begin, end),
            .state = state.view(),
            .scale = scale,
            .causal = shape.causal,
            .q_position = shape.q_position,
            .k_position = shape.k_position + begin};
  }

  // The result of `stream` for a state of `state_dtype`, part by part.
  HostState Run(const Stream& stream, DType state_dtype, DType out_dtype, const KeyParts& parts) const {
    HostState state(state_dtype, shape, out_dtype);
    const auto check = [](const absl::Status& status) { EXPECT_TRUE(status.ok()) << status; };
    check(InitAttentionState(stream, state.view()));
    for (const auto& [begin, end] : parts) check(Attention(stream, Params(state, begin, end)));
    check(FinishAttention(stream, state.view(), state.out, state.lse));
    return state;
  }
  HostState Run(const Stream& stream, DType state_dtype, DType out_dtype) const {
    return Run(stream, state_dtype, out_dtype, {{0, shape.keys}});
  }

  AttentionShape shape;
  HostTensor q, k, v;
  float scale;
};

// The answer in double, and bounds on the error of a result whose blocks are summed in f32. With
// S = max over the keys of scale sum |q_c k_c| a score is wrong by at most (head_dim + 2) u S, and by 2 u S
// more when the reference is subtracted: d = (head_dim + 4) u S in all. A weight is then wrong by the factor
// 1 + d + 4u (the exponential is good to 2 ulp), and the sums over a block's keys by kKeyBlock u each. Each
// part rounds a state kept in f32 once more. So
//   |out error| <= (2 d + (2 kKeyBlock + 2 parts + 16) u) * sum_j w_j |v_j|  + roundoff(out) |out|
//   |lse error| <= d + (kKeyBlock + parts + 8) u + u |lse|
class ExactAttention {
 public:
  explicit ExactAttention(const AttentionProblem& problem)
      : shape_(problem.shape),
        exact_(kF64, problem.shape, kF64, kF64),
        magnitude_(kF64, problem.shape, kF64, kF64) {
    HostTensor abs_v = problem.v.Copy();
    abs_v.Fill([&](int64_t i) { return std::fabs(problem.v.Get(i)); });
    for (HostState* state : {&exact_, &magnitude_}) {
      AttentionParams params = problem.Params(*state, 0, shape_.keys);
      if (state == &magnitude_) params.v = abs_v;
      ref::InitAttentionState(state->view());
      ref::Attention(params);
      ref::FinishAttention(state->view(), state->out, state->lse);
    }
    FillScoreErrors(problem);
  }

  ::testing::AssertionResult Check(const HostState& state, size_t parts = 1) const {
    const double n = static_cast<double>(parts);
    const DType out_dtype = state.out.view().dtype;
    ::testing::AssertionResult out = WithinBound(state.out, exact_.out.Values(), [&](int64_t i) {
      const double d = score_error_[static_cast<size_t>(i / shape_.head_dim)];
      return (2 * d + (2 * kKeyBlock + 2 * n + 16) * kU32) * magnitude_.out.Get(i) +
             Roundoff(out_dtype) * std::fabs(exact_.out.Get(i));
    });
    if (!out) return out << " (out, " << shape_.ToString() << ")";
    ::testing::AssertionResult lse = WithinBound(state.lse, exact_.lse.Values(), [&](int64_t i) {
      return score_error_[static_cast<size_t>(i)] + (kKeyBlock + n + 8) * kU32 +
             kU32 * std::fabs(exact_.lse.Get(i));
    });
    if (!lse) return lse << " (lse, " << shape_.ToString() << ")";
    if (!state.out.GapsIntact() || !state.lse.GapsIntact() || !state.m.GapsIntact() ||
        !state.l.GapsIntact() || !state.o.GapsIntact()) {
      return ::testing::AssertionFailure() << "wrote between the rows, " << shape_.ToString();
    }
    return ::testing::AssertionSuccess();
  }

  // The largest error of an output relative to sum_j w_j |v_j|.
  double LargestError(const HostState& state) const {
    double largest = 0;
    for (int64_t i = 0; i < state.out.view().elements(); ++i) {
      const double error = std::fabs(state.out.Get(i) - exact_.out.Get(i));
      if (error > 0) largest = std::max(largest, error / magnitude_.out.Get(i));
    }
    return largest;
  }
  // The root of the mean square error of the outputs.
  double MeanError(const HostState& state) const {
    double squares = 0;
    for (int64_t i = 0; i < state.out.view().elements(); ++i) {
      squares += std::pow(state.out.Get(i) - exact_.out.Get(i), 2);
    }
    return std::sqrt(squares / static_cast<double>(state.out.view().elements()));
  }
  const HostTensor& out() const { return exact_.out; }
  const HostTensor& lse() const { return exact_.lse; }

 private:
  void FillScoreErrors(const AttentionProblem& p) {
    for (int64_t h = 0; h < shape_.heads(); ++h) {
      for (int64_t i = 0; i < shape_.queries; ++i) {
        double largest = 0;
        for (int64_t j = 0; j < shape_.keys; ++j) {
          double sum = 0;
          for (int64_t c = 0; c < shape_.head_dim; ++c) {
            sum += std::fabs(ref::Load(p.q, h, i, c) * ref::Load(p.k, h / shape_.group, j, c));
          }
          largest = std::max(largest, sum * p.scale);
        }
        score_error_.push_back(static_cast<double>(shape_.head_dim + 4) * kU32 * largest);
      }
    }
  }

  AttentionShape shape_;
  HostState exact_, magnitude_;
  std::vector<double> score_error_;  // [heads * queries]
};

}  // namespace snapkv::kernels
