// SPDX-License-Identifier: Apache-2.0
// Front door of PoolScores.
#include "kernels/op/pool_scores.h"

#include "kernels/cpu/cpu.h"
#include "kernels/op/validate.h"
#include "kernels/ref/ref.h"

namespace snapkv::kernels {

absl::Status PoolScores(const Stream& stream, const TensorView& in, int64_t left, int kernel, PoolMode mode,
                        const TensorView& out) {
  constexpr const char* kOp = "PoolScores";
  RETURN_IF_ERROR(CheckStream(kOp, stream));
  RETURN_IF_ERROR(CheckTensor(kOp, "in", in, {DType::kF32}, {kAnySize, kAnySize}, Layout::kContiguousRows));
  RETURN_IF_ERROR(
      CheckTensor(kOp, "out", out, {DType::kF32}, {in.dim(0), kAnySize}, Layout::kContiguousRows));
  if (kernel < 1 || kernel % 2 == 0) {
    return InvalidArgument(kOp, ": kernel is ", kernel, ", expected an odd number from 1 up");
  }
  const int64_t right = in.dim(1) - out.dim(1) - left;
  if (left < 0 || left > kernel / 2 || right < 0 || right > kernel / 2) {
    return InvalidArgument(kOp, ": in is ", in.ToString(), " and out is ", out.ToString(), " with ", left,
                           " halo columns on the left and ", right, " on the right, expected 0 to ",
                           kernel / 2, " for kernel ", kernel);
  }
  RETURN_IF_ERROR(CheckDisjoint(kOp, "in", in, "out", out));
  if (out.empty()) return absl::OkStatus();
  switch (stream.device) {
    case Device::kRef:
      ref::PoolScores(in, left, kernel, mode, out);
      break;
    case Device::kCpu:
      cpu::PoolScores(stream.threads, in, left, kernel, mode, out);
      break;
  }
  return absl::OkStatus();
}

}  // namespace snapkv::kernels
