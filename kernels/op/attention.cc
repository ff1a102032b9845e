// SPDX-License-Identifier: Apache-2.0
// Front doors of InitAttentionState, Attention and FinishAttention.
#include "kernels/op/attention.h"

#include "kernels/cpu/cpu.h"
#include "kernels/op/validate.h"
#include "kernels/ref/ref.h"

namespace snapkv::kernels {
namespace {

// heads, queries, head_dim: kAnySize, or what q or out say.
absl::Status CheckState(const char* op, const AttentionState& state, absl::Span<const int64_t> o_shape) {
  RETURN_IF_ERROR(
      CheckTensor(op, "state.o", state.o, {DType::kF64, DType::kF32}, o_shape, Layout::kContiguousRows));
  const int64_t heads = state.o.dim(0), queries = state.o.dim(1);
  RETURN_IF_ERROR(
      CheckTensor(op, "state.l", state.l, {state.o.dtype}, {heads, queries}, Layout::kContiguousRows));
  return CheckTensor(op, "state.m", state.m, {DType::kF32}, {heads, queries}, Layout::kContiguousRows);
}

}  // namespace

absl::Status InitAttentionState(const Stream& stream, const AttentionState& state) {
  constexpr const char* kOp = "InitAttentionState";
  RETURN_IF_ERROR(CheckStream(kOp, stream));
  RETURN_IF_ERROR(CheckState(kOp, state, {kAnySize, kAnySize, kAnySize}));
  if (state.m.empty()) return absl::OkStatus();
  switch (stream.device) {
    case Device::kRef:
      ref::InitAttentionState(state);
      break;
    case Device::kCpu:
      cpu::InitAttentionState(stream.threads, state);
      break;
  }
  return absl::OkStatus();
}

absl::Status Attention(const Stream& stream, const AttentionParams& params) {
  constexpr const char* kOp = "Attention";
  const TensorView &q = params.q, &k = params.k, &v = params.v;
  RETURN_IF_ERROR(CheckStream(kOp, stream));
  RETURN_IF_ERROR(CheckTensor(kOp, "q", q, {DType::kF32, DType::kBF16}, {kAnySize, kAnySize, kAnySize},
                              Layout::kContiguousRows));
  RETURN_IF_ERROR(
      CheckTensor(kOp, "k", k, {q.dtype}, {kAnySize, kAnySize, q.dim(2)}, Layout::kContiguousRows));
  RETURN_IF_ERROR(CheckTensor(kOp, "v", v, {q.dtype}, ShapeOf(k), Layout::kContiguousRows));
  RETURN_IF_ERROR(CheckHeadGroups(kOp, "q", q.dim(0), "k", k.dim(0)));
  RETURN_IF_ERROR(CheckState(kOp, params.state, ShapeOf(q)));
  RETURN_IF_ERROR(CheckFinite(kOp, "scale", params.scale));
  if (q.empty() || k.empty()) return absl::OkStatus();
  switch (stream.device) {
    case Device::kRef:
      ref::Attention(params);
      break;
    case Device::kCpu:
      cpu::Attention(stream.threads, params);
      break;
  }
  return absl::OkStatus();
}

absl::Status FinishAttention(const Stream& stream, const AttentionState& state, const TensorView& out,
                             const TensorView& lse) {
  constexpr const char* kOp = "FinishAttention";
  RETURN_IF_ERROR(CheckStream(kOp, stream));
  RETURN_IF_ERROR(CheckTensor(kOp, "out", out, {DType::kF32, DType::kBF16}, {kAnySize, kAnySize, kAnySize},
                              Layout::kContiguousRows));
  RETURN_IF_ERROR(CheckState(kOp, state, ShapeOf(out)));
  RETURN_IF_ERROR(
      CheckTensor(kOp, "lse", lse, {DType::kF32}, {out.dim(0), out.dim(1)}, Layout::kContiguousRows));
  RETURN_IF_ERROR(CheckDisjoint(kOp, "state.o", state.o, "out", out));
  RETURN_IF_ERROR(CheckDisjoint(kOp, "state.l", state.l, "lse", lse));
  RETURN_IF_ERROR(CheckDisjoint(kOp, "state.m", state.m, "lse", lse));
  if (lse.empty()) return absl::OkStatus();
  switch (stream.device) {
    case Device::kRef:
      ref::FinishAttention(state, out, lse);
      break;
    case Device::kCpu:
      cpu::FinishAttention(stream.threads, state, out, lse);
      break;
  }
  return absl::OkStatus();
}

}  // namespace snapkv::kernels
