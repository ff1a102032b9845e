// SPDX-License-Identifier: Apache-2.0
// Front door of WindowScores.
#include "kernels/op/window_scores.h"

#include "kernels/cpu/cpu.h"
#include "kernels/op/validate.h"
#include "kernels/ref/ref.h"

namespace snapkv::kernels {

absl::Status WindowScores(const Stream& stream, const TensorView& q, const TensorView& lse,
                          const TensorView& k, float scale, GroupMode group, const TensorView& scores) {
  constexpr const char* kOp = "WindowScores";
  RETURN_IF_ERROR(CheckStream(kOp, stream));
  RETURN_IF_ERROR(CheckTensor(kOp, "q", q, {DType::kF32, DType::kBF16}, {kAnySize, kAnySize, kAnySize},
                              Layout::kContiguousRows));
  RETURN_IF_ERROR(CheckTensor(kOp, "lse", lse, {DType::kF32}, {q.dim(0), q.dim(1)}, Layout::kContiguousRows));
  RETURN_IF_ERROR(
      CheckTensor(kOp, "k", k, {q.dtype}, {kAnySize, kAnySize, q.dim(2)}, Layout::kContiguousRows));
  RETURN_IF_ERROR(CheckHeadGroups(kOp, "q", q.dim(0), "k", k.dim(0)));
  const int64_t rows = group == GroupMode::kNone ? q.dim(0) : k.dim(0);
  RETURN_IF_ERROR(
      CheckTensor(kOp, "scores", scores, {DType::kF32}, {rows, k.dim(1)}, Layout::kContiguousRows));
  RETURN_IF_ERROR(CheckFinite(kOp, "scale", scale));
  RETURN_IF_ERROR(CheckDisjoint(kOp, "q", q, "scores", scores));
  RETURN_IF_ERROR(CheckDisjoint(kOp, "lse", lse, "scores", scores));
  RETURN_IF_ERROR(CheckDisjoint(kOp, "k", k, "scores", scores));
  if (scores.empty()) return absl::OkStatus();
  if (lse.empty()) {  // no query attends to anything
    SetZero(scores);
    return absl::OkStatus();
  }
  switch (stream.device) {
    case Device::kRef:
      ref::WindowScores(q, lse, k, scale, group, scores);
      break;
    case Device::kCpu:
      cpu::WindowScores(stream.threads, q, lse, k, scale, group, scores);
      break;
  }
  return absl::OkStatus();
}

}  // namespace snapkv::kernels
