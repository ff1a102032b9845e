// SPDX-License-Identifier: Apache-2.0
// Front door of Dequantize.
#include "kernels/op/dequantize.h"

#include "kernels/cpu/cpu.h"
#include "kernels/op/validate.h"
#include "kernels/ref/ref.h"

namespace snapkv::kernels {

absl::Status Dequantize(const Stream& stream, const TensorView& in, const TensorView& out) {
  constexpr const char* kOp = "Dequantize";
  RETURN_IF_ERROR(CheckStream(kOp, stream));
  RETURN_IF_ERROR(CheckTensor(kOp, "in", in, kStoredTypes, ShapeOf(in), Layout::kContiguous));
  RETURN_IF_ERROR(CheckTensor(kOp, "out", out, {DType::kF32}, ShapeOf(in), Layout::kContiguous));
  RETURN_IF_ERROR(CheckDisjoint(kOp, "in", in, "out", out));
  if (in.empty()) return absl::OkStatus();
  switch (stream.device) {
    case Device::kRef:
      ref::Dequantize(in, out);
      break;
    case Device::kCpu:
      cpu::Dequantize(stream.threads, in, out);
      break;
  }
  return absl::OkStatus();
}

}  // namespace snapkv::kernels
