// SPDX-License-Identifier: Apache-2.0
// What the front doors of kernels/op check their arguments with. Every message reads "Op: argument is
// f32[3, 5], expected ...", so that the caller sees which of its tensors is wrong and why.
#pragma once

#include "absl/types/span.h"
#include "kernels/base/device.h"
#include "kernels/base/status.h"
#include "kernels/base/tensor_view.h"

namespace snapkv::kernels {

// A dimension of any size.
inline constexpr int64_t kAnySize = -1;

// The types that Dequantize and Embed read.
inline constexpr DType kStoredTypes[] = {DType::kF32,  DType::kF16,  DType::kBF16, DType::kQ4_0, DType::kQ4_1,
                                         DType::kQ5_0, DType::kQ5_1, DType::kQ8_0, DType::kQ2_K, DType::kQ3_K,
                                         DType::kQ4_K, DType::kQ5_K, DType::kQ6_K};

enum class Layout {
  kAnyStrides,      // strides >= 0
  kContiguousRows,  // the last dimension is contiguous
  kContiguous,      // everything is
};

// OK for a host device and at least one thread.
absl::Status CheckStream(const char* op, const Stream& stream);

// OK when `view` (the argument `name` of `op`) lives on a host device, has one of `dtypes`, the rank and
// sizes of `shape`, strides as `layout` wants them, and data that is aligned to its element and not null
// unless the view is empty.
absl::Status CheckTensor(const char* op, const char* name, const TensorView& view,
                         absl::Span<const DType> dtypes, absl::Span<const int64_t> shape, Layout layout);
// The sizes of `view`, as the `shape` of another.
inline absl::Span<const int64_t> ShapeOf(const TensorView& view) {
  return {view.shape.data(), static_cast<size_t>(view.rank)};
}

// OK when `view` has the same dtype as `other`.
absl::Status CheckSameDType(const char* op, const char* name, const TensorView& view, const char* other_name,
                            const TensorView& other);

// OK when a and b share no element.
absl::Status CheckDisjoint(const char* op, const char* name_a, const TensorView& a, const char* name_b,
                           const TensorView& b);
// The same, but b may be a itself: same data, dtype, shape and strides.
absl::Status CheckSameOrDisjoint(const char* op, const char* name_a, const TensorView& a, const char* name_b,
                                 const TensorView& b);

// OK when `heads`, of argument `name`, is a multiple of `kv_heads`, of argument `kv_name`, which is not 0
// unless heads is.
absl::Status CheckHeadGroups(const char* op, const char* name, int64_t heads, const char* kv_name,
                             int64_t kv_heads);

// OK when `value` is finite.
absl::Status CheckFinite(const char* op, const char* name, float value);

// out = 0, the result of an empty sum. out: f32 | bf16 of rank 2 with contiguous rows.
void SetZero(const TensorView& out);

}  // namespace snapkv::kernels
