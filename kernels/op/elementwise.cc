// SPDX-License-Identifier: Apache-2.0
// Front doors of Add, AddBias, Cast and SiluMul.
#include "kernels/op/elementwise.h"

#include "kernels/cpu/cpu.h"
#include "kernels/op/validate.h"
#include "kernels/ref/ref.h"

namespace snapkv::kernels {

absl::Status Add(const Stream& stream, const TensorView& x, const TensorView& y) {
  constexpr const char* kOp = "Add";
  RETURN_IF_ERROR(CheckStream(kOp, stream));
  RETURN_IF_ERROR(CheckTensor(kOp, "x", x, {DType::kF32}, {kAnySize, kAnySize}, Layout::kContiguousRows));
  RETURN_IF_ERROR(CheckTensor(kOp, "y", y, {DType::kF32, DType::kBF16}, ShapeOf(x), Layout::kContiguousRows));
  RETURN_IF_ERROR(CheckDisjoint(kOp, "x", x, "y", y));
  if (x.empty()) return absl::OkStatus();
  switch (stream.device) {
    case Device::kRef:
      ref::Add(x, y);
      break;
    case Device::kCpu:
      cpu::Add(stream.threads, x, y);
      break;
  }
  return absl::OkStatus();
}

absl::Status AddBias(const Stream& stream, const TensorView& x, const TensorView& bias) {
  constexpr const char* kOp = "AddBias";
  RETURN_IF_ERROR(CheckStream(kOp, stream));
  RETURN_IF_ERROR(
      CheckTensor(kOp, "x", x, {DType::kF32, DType::kBF16}, {kAnySize, kAnySize}, Layout::kContiguousRows));
  RETURN_IF_ERROR(CheckTensor(kOp, "bias", bias, {DType::kF32}, {x.dim(1)}, Layout::kContiguous));
  RETURN_IF_ERROR(CheckDisjoint(kOp, "x", x, "bias", bias));
  if (x.empty()) return absl::OkStatus();
  switch (stream.device) {
    case Device::kRef:
      ref::AddBias(x, bias);
      break;
    case Device::kCpu:
      cpu::AddBias(stream.threads, x, bias);
      break;
  }
  return absl::OkStatus();
}

absl::Status Cast(const Stream& stream, const TensorView& in, const TensorView& out) {
  constexpr const char* kOp = "Cast";
  RETURN_IF_ERROR(CheckStream(kOp, stream));
  RETURN_IF_ERROR(CheckTensor(kOp, "in", in, {DType::kF32, DType::kF64, DType::kF16, DType::kBF16},
                              ShapeOf(in), Layout::kAnyStrides));
  RETURN_IF_ERROR(CheckTensor(kOp, "out", out, {DType::kF32, DType::kF64, DType::kBF16}, ShapeOf(in),
                              Layout::kAnyStrides));
  RETURN_IF_ERROR(CheckDisjoint(kOp, "in", in, "out", out));
  if (in.empty()) return absl::OkStatus();
  switch (stream.device) {
    case Device::kRef:
      ref::Cast(in, out);
      break;
    case Device::kCpu:
      cpu::Cast(stream.threads, in, out);
      break;
  }
  return absl::OkStatus();
}

absl::Status SiluMul(const Stream& stream, const TensorView& gate_up, const TensorView& out) {
  constexpr const char* kOp = "SiluMul";
  RETURN_IF_ERROR(CheckStream(kOp, stream));
  RETURN_IF_ERROR(CheckTensor(kOp, "out", out, {DType::kF32, DType::kBF16}, {kAnySize, kAnySize},
                              Layout::kContiguousRows));
  RETURN_IF_ERROR(CheckTensor(kOp, "gate_up", gate_up, {out.dtype}, {out.dim(0), 2 * out.dim(1)},
                              Layout::kContiguousRows));
  if (out.empty()) return absl::OkStatus();
  const TensorView gate = gate_up.Slice(1, 0, out.dim(1)), up = gate_up.Slice(1, out.dim(1), 2 * out.dim(1));
  RETURN_IF_ERROR(CheckSameOrDisjoint(kOp, "the gates of gate_up", gate, "out", out));
  RETURN_IF_ERROR(CheckDisjoint(kOp, "the second half of gate_up", up, "out", out));
  switch (stream.device) {
    case Device::kRef:
      ref::SiluMul(gate_up, out);
      break;
    case Device::kCpu:
      cpu::SiluMul(stream.threads, gate_up, out);
      break;
  }
  return absl::OkStatus();
}

}  // namespace snapkv::kernels
