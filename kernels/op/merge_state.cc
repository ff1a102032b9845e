// SPDX-License-Identifier: Apache-2.0
// Front door of MergeState.
#include "kernels/op/merge_state.h"

#include "kernels/cpu/cpu.h"
#include "kernels/op/validate.h"
#include "kernels/ref/ref.h"

namespace snapkv::kernels {

absl::Status MergeState(const Stream& stream, const TensorView& o, const TensorView& lse,
                        const TensorView& other_o, const TensorView& other_lse) {
  constexpr const char* kOp = "MergeState";
  RETURN_IF_ERROR(CheckStream(kOp, stream));
  RETURN_IF_ERROR(
      CheckTensor(kOp, "o", o, {DType::kF32}, {kAnySize, kAnySize, kAnySize}, Layout::kContiguousRows));
  RETURN_IF_ERROR(CheckTensor(kOp, "lse", lse, {DType::kF32}, {o.dim(0), o.dim(1)}, Layout::kContiguousRows));
  RETURN_IF_ERROR(CheckTensor(kOp, "other_o", other_o, {DType::kF32}, ShapeOf(o), Layout::kContiguousRows));
  RETURN_IF_ERROR(
      CheckTensor(kOp, "other_lse", other_lse, {DType::kF32}, ShapeOf(lse), Layout::kContiguousRows));
  RETURN_IF_ERROR(CheckDisjoint(kOp, "o", o, "other_o", other_o));
  RETURN_IF_ERROR(CheckDisjoint(kOp, "lse", lse, "other_lse", other_lse));
  if (lse.empty()) return absl::OkStatus();
  switch (stream.device) {
    case Device::kRef:
      ref::MergeState(o, lse, other_o, other_lse);
      break;
    case Device::kCpu:
      cpu::MergeState(stream.threads, o, lse, other_o, other_lse);
      break;
  }
  return absl::OkStatus();
}

}  // namespace snapkv::kernels
