// SPDX-License-Identifier: Apache-2.0
// Front door of Embed.
#include "kernels/op/embed.h"

#include "kernels/cpu/cpu.h"
#include "kernels/op/validate.h"
#include "kernels/ref/ref.h"

namespace snapkv::kernels {

absl::Status Embed(const Stream& stream, const TensorView& table, absl::Span<const int32_t> ids,
                   const TensorView& out) {
  constexpr const char* kOp = "Embed";
  RETURN_IF_ERROR(CheckStream(kOp, stream));
  RETURN_IF_ERROR(CheckTensor(kOp, "table", table, kStoredTypes, {kAnySize, kAnySize}, Layout::kContiguous));
  RETURN_IF_ERROR(CheckTensor(kOp, "out", out, {DType::kF32},
                              {static_cast<int64_t>(ids.size()), table.dim(1)}, Layout::kContiguousRows));
  RETURN_IF_ERROR(CheckDisjoint(kOp, "table", table, "out", out));
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < 0 || ids[i] >= table.dim(0)) {
      return InvalidArgument(kOp, ": ids[", i, "] is ", ids[i], ", expected a row of table ",
                             table.ToString());
    }
  }
  if (out.empty()) return absl::OkStatus();
  const std::span<const int32_t> rows(ids.data(), ids.size());
  switch (stream.device) {
    case Device::kRef:
      ref::Embed(table, rows, out);
      break;
    case Device::kCpu:
      cpu::Embed(stream.threads, table, rows, out);
      break;
  }
  return absl::OkStatus();
}

}  // namespace snapkv::kernels
