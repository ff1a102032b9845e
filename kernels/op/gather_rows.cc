// SPDX-License-Identifier: Apache-2.0
// Front door of GatherRows.
#include "kernels/op/gather_rows.h"

#include "kernels/cpu/cpu.h"
#include "kernels/op/validate.h"
#include "kernels/ref/ref.h"

namespace snapkv::kernels {

absl::Status GatherRows(const Stream& stream, const TensorView& in,
                        absl::Span<const std::vector<int32_t>> rows, const TensorView& out) {
  constexpr const char* kOp = "GatherRows";
  RETURN_IF_ERROR(CheckStream(kOp, stream));
  RETURN_IF_ERROR(CheckTensor(kOp, "in", in, {DType::kF32, DType::kBF16}, {kAnySize, kAnySize, kAnySize},
                              Layout::kContiguousRows));
  RETURN_IF_ERROR(CheckHeadGroups(kOp, "rows", static_cast<int64_t>(rows.size()), "in", in.dim(0)));
  int64_t total = 0;
  for (size_t h = 0; h < rows.size(); ++h) {
    total += static_cast<int64_t>(rows[h].size());
    for (size_t i = 0; i < rows[h].size(); ++i) {
      if (rows[h][i] < 0 || rows[h][i] >= in.dim(1)) {
        return InvalidArgument(kOp, ": rows[", h, "][", i, "] is ", rows[h][i], ", expected a row of in ",
                               in.ToString());
      }
    }
  }
  RETURN_IF_ERROR(CheckTensor(kOp, "out", out, {in.dtype}, {total, in.dim(2)}, Layout::kContiguous));
  RETURN_IF_ERROR(CheckDisjoint(kOp, "in", in, "out", out));
  if (out.empty()) return absl::OkStatus();
  const std::span<const std::vector<int32_t>> lists(rows.data(), rows.size());
  switch (stream.device) {
    case Device::kRef:
      ref::GatherRows(in, lists, out);
      break;
    case Device::kCpu:
      cpu::GatherRows(stream.threads, in, lists, out);
      break;
  }
  return absl::OkStatus();
}

}  // namespace snapkv::kernels
