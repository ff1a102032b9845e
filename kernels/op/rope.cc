// SPDX-License-Identifier: Apache-2.0
// Front door of Rope.
#include "kernels/op/rope.h"

#include "kernels/cpu/cpu.h"
#include "kernels/op/validate.h"
#include "kernels/ref/ref.h"

namespace snapkv::kernels {

absl::Status Rope(const Stream& stream, const TensorView& in, const TensorView& cos, const TensorView& sin,
                  const TensorView& out) {
  constexpr const char* kOp = "Rope";
  RETURN_IF_ERROR(CheckStream(kOp, stream));
  RETURN_IF_ERROR(CheckTensor(kOp, "in", in, {DType::kF32, DType::kBF16}, {kAnySize, kAnySize, kAnySize},
                              Layout::kContiguousRows));
  if (in.dim(2) % 2 != 0) {
    return InvalidArgument(kOp, ": in is ", in.ToString(), ", expected an even head_dim");
  }
  RETURN_IF_ERROR(
      CheckTensor(kOp, "cos", cos, {DType::kF32}, {in.dim(1), in.dim(2) / 2}, Layout::kContiguousRows));
  RETURN_IF_ERROR(
      CheckTensor(kOp, "sin", sin, {DType::kF32}, {in.dim(1), in.dim(2) / 2}, Layout::kContiguousRows));
  RETURN_IF_ERROR(CheckTensor(kOp, "out", out, {in.dtype}, ShapeOf(in), Layout::kContiguousRows));
  RETURN_IF_ERROR(CheckSameOrDisjoint(kOp, "in", in, "out", out));
  RETURN_IF_ERROR(CheckDisjoint(kOp, "cos", cos, "out", out));
  RETURN_IF_ERROR(CheckDisjoint(kOp, "sin", sin, "out", out));
  if (in.empty()) return absl::OkStatus();
  switch (stream.device) {
    case Device::kRef:
      ref::Rope(in, cos, sin, out);
      break;
    case Device::kCpu:
      cpu::Rope(stream.threads, in, cos, sin, out);
      break;
  }
  return absl::OkStatus();
}

}  // namespace snapkv::kernels
