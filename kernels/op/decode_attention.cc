// SPDX-License-Identifier: Apache-2.0
// Front door of DecodeAttention.
#include "kernels/op/decode_attention.h"

#include "kernels/cpu/cpu.h"
#include "kernels/op/validate.h"
#include "kernels/ref/ref.h"

namespace snapkv::kernels {

absl::Status DecodeAttention(const Stream& stream, const TensorView& q, absl::Span<const CacheRows> caches,
                             int64_t cache_heads, float scale, const TensorView& out) {
  constexpr const char* kOp = "DecodeAttention";
  RETURN_IF_ERROR(CheckStream(kOp, stream));
  RETURN_IF_ERROR(CheckTensor(kOp, "q", q, {DType::kF32, DType::kBF16}, {kAnySize, kAnySize, kAnySize},
                              Layout::kContiguousRows));
  RETURN_IF_ERROR(CheckTensor(kOp, "out", out, {q.dtype}, ShapeOf(q), Layout::kContiguousRows));
  if (cache_heads < 1) return InvalidArgument(kOp, ": cache_heads is ", cache_heads, ", expected at least 1");
  RETURN_IF_ERROR(CheckHeadGroups(kOp, "q", q.dim(1), "each document's cache", cache_heads));
  if (static_cast<int64_t>(caches.size()) != q.dim(0) * cache_heads) {
    return InvalidArgument(kOp, ": caches has ", caches.size(), " entries, expected ", cache_heads,
                           " for each document of q ", q.ToString());
  }
  for (size_t i = 0; i < caches.size(); ++i) {
    if (caches[i].rows < 0 || (caches[i].rows > 0 && (caches[i].k == nullptr || caches[i].v == nullptr))) {
      return InvalidArgument(kOp, ": caches[", i, "] has ", caches[i].rows,
                             " rows, expected at least 0, with k and v unless 0");
    }
  }
  RETURN_IF_ERROR(CheckFinite(kOp, "scale", scale));
  RETURN_IF_ERROR(CheckDisjoint(kOp, "q", q, "out", out));
  if (q.empty()) return absl::OkStatus();
  const std::span<const CacheRows> rows(caches.data(), caches.size());
  switch (stream.device) {
    case Device::kRef:
      ref::DecodeAttention(q, rows, cache_heads, scale, out);
      break;
    case Device::kCpu:
      cpu::DecodeAttention(stream.threads, q, rows, cache_heads, scale, out);
      break;
  }
  return absl::OkStatus();
}

}  // namespace snapkv::kernels
