// SPDX-License-Identifier: Apache-2.0
// Front doors of PackMatrix and Gemm, and what the host backends keep of a weight matrix.
#include "kernels/op/gemm.h"

#include <utility>

#include "kernels/cpu/gemm.h"
#include "kernels/op/validate.h"
#include "kernels/ref/ref.h"

namespace snapkv::kernels {
namespace {

// Weights of a host device.
class HostWeights : public PackedWeights {
 public:
  virtual void Multiply(int threads, const TensorView& a, const TensorView& out) const = 0;
};

// A plain copy, rounded to the compute type.
class RefWeights : public HostWeights {
 public:
  RefWeights(Buffer buffer, const TensorView& w) : buffer_(std::move(buffer)), w_(w) {}
  std::string kernel() const override { return "ref"; }
  void Multiply(int, const TensorView& a, const TensorView& out) const override { ref::Gemm(a, w_, out); }

 private:
  Buffer buffer_;
  TensorView w_;
};

class CpuWeights : public HostWeights {
 public:
  CpuWeights(Buffer buffer, std::unique_ptr<cpu::GemmKernel> kernel)
      : buffer_(std::move(buffer)), kernel_(std::move(kernel)) {}
  std::string kernel() const override { return kernel_->name(); }
  void Multiply(int threads, const TensorView& a, const TensorView& out) const override {
    kernel_->Run(threads, a, buffer_.data(), out);
  }

 private:
  Buffer buffer_;
  std::unique_ptr<cpu::GemmKernel> kernel_;
};

absl::StatusOr<std::unique_ptr<PackedWeights>> PackRef(Allocator& allocator, const TensorView& w,
                                                       DType dtype) {
  ASSIGN_OR_RETURN(Buffer buffer,
                   Buffer::Of(allocator, MemoryKind::kWeights, Device::kRef, dtype, w.dim(0), w.dim(1)));
  const TensorView copy = buffer.View(dtype, w.dim(0), w.dim(1));
  ref::Cast(w, copy);
  return std::make_unique<RefWeights>(std::move(buffer), copy);
}

absl::StatusOr<std::unique_ptr<PackedWeights>> PackCpu(int threads, Allocator& allocator, const TensorView& w,
                                                       DType dtype) {
  std::unique_ptr<cpu::GemmKernel> kernel = cpu::MakeGemmKernel(w.dim(0), w.dim(1), dtype);
  ASSIGN_OR_RETURN(Buffer buffer, Buffer::Create(allocator, kernel->packed_bytes(), MemoryKind::kWeights));
  kernel->Pack(threads, w.as<float>(), buffer.data());
  return std::make_unique<CpuWeights>(std::move(buffer), std::move(kernel));
}

}  // namespace

absl::StatusOr<PackedMatrix> PackMatrix(const Stream& stream, Allocator& allocator, const TensorView& w,
                                        DType dtype) {
  constexpr const char* kOp = "PackMatrix";
  RETURN_IF_ERROR(CheckStream(kOp, stream));
  RETURN_IF_ERROR(CheckTensor(kOp, "w", w, {DType::kF32}, {kAnySize, kAnySize}, Layout::kContiguous));
  if (dtype != DType::kF32 && dtype != DType::kBF16) {
    return InvalidArgument(kOp, ": dtype is ", DTypeName(dtype), " for w ", w.ToString(),
                           ", expected f32 or bf16");
  }
  PackedMatrix matrix;
  matrix.outputs = w.dim(0);
  matrix.inputs = w.dim(1);
  matrix.dtype = dtype;
  matrix.device = stream.device;
  if (w.empty()) return matrix;
  switch (stream.device) {
    case Device::kRef: {
      ASSIGN_OR_RETURN(matrix.weights, PackRef(allocator, w, dtype));
      break;
    }
    case Device::kCpu: {
      ASSIGN_OR_RETURN(matrix.weights, PackCpu(stream.threads, allocator, w, dtype));
      break;
    }
  }
  return matrix;
}

absl::Status Gemm(const Stream& stream, const TensorView& a, const PackedMatrix& w, const TensorView& out) {
  constexpr const char* kOp = "Gemm";
  RETURN_IF_ERROR(CheckStream(kOp, stream));
  const std::string shape =
      absl::StrCat(DTypeName(w.dtype), "[", w.outputs, ", ", w.inputs, "]");  // of w, for messages
  if (w.device != stream.device) {
    return InvalidArgument(kOp, ": w ", shape, " is packed for ", DeviceName(w.device),
                           ", expected the stream's device ", DeviceName(stream.device));
  }
  RETURN_IF_ERROR(CheckTensor(kOp, "a", a, {w.dtype}, {kAnySize, w.inputs}, Layout::kContiguousRows));
  const DType out_dtypes[] = {DType::kF32, w.dtype};
  RETURN_IF_ERROR(CheckTensor(kOp, "out", out, {out_dtypes, w.dtype == DType::kF32 ? size_t{1} : size_t{2}},
                              {a.dim(0), w.outputs}, Layout::kContiguousRows));
  RETURN_IF_ERROR(CheckDisjoint(kOp, "a", a, "out", out));
  if (out.empty()) return absl::OkStatus();
  if (w.inputs == 0) {
    SetZero(out);
    return absl::OkStatus();
  }
  if (w.weights == nullptr) {
    return FailedPrecondition(kOp, ": w ", shape, " holds no weights, expected what PackMatrix returned");
  }
  static_cast<const HostWeights&>(*w.weights).Multiply(stream.threads, a, out);
  return absl::OkStatus();
}

}  // namespace snapkv::kernels
