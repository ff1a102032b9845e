// SPDX-License-Identifier: Apache-2.0
// Front door of RmsNorm.
#include "kernels/op/rms_norm.h"

#include "kernels/cpu/cpu.h"
#include "kernels/op/validate.h"
#include "kernels/ref/ref.h"

namespace snapkv::kernels {

absl::Status RmsNorm(const Stream& stream, const TensorView& x, const TensorView& weight, float epsilon,
                     const TensorView& out) {
  constexpr const char* kOp = "RmsNorm";
  RETURN_IF_ERROR(CheckStream(kOp, stream));
  RETURN_IF_ERROR(CheckTensor(kOp, "x", x, {DType::kF32}, {kAnySize, kAnySize}, Layout::kContiguousRows));
  RETURN_IF_ERROR(CheckTensor(kOp, "weight", weight, {DType::kF32}, {x.dim(1)}, Layout::kContiguous));
  RETURN_IF_ERROR(
      CheckTensor(kOp, "out", out, {DType::kF32, DType::kBF16}, ShapeOf(x), Layout::kContiguousRows));
  RETURN_IF_ERROR(CheckFinite(kOp, "epsilon", epsilon));
  if (epsilon < 0) return InvalidArgument(kOp, ": epsilon is ", epsilon, ", expected at least 0");
  RETURN_IF_ERROR(CheckSameOrDisjoint(kOp, "x", x, "out", out));
  RETURN_IF_ERROR(CheckDisjoint(kOp, "weight", weight, "out", out));
  if (x.empty()) return absl::OkStatus();
  switch (stream.device) {
    case Device::kRef:
      ref::RmsNorm(x, weight, epsilon, out);
      break;
    case Device::kCpu:
      cpu::RmsNorm(stream.threads, x, weight, epsilon, out);
      break;
  }
  return absl::OkStatus();
}

}  // namespace snapkv::kernels
