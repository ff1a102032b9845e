// SPDX-License-Identifier: Apache-2.0
// The checks of validate.h.
#include "kernels/op/validate.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

namespace snapkv::kernels {
namespace {

std::string Expected(absl::Span<const DType> dtypes, absl::Span<const int64_t> shape) {
  std::string text;
  for (const DType dtype : dtypes) absl::StrAppend(&text, text.empty() ? "" : " or ", DTypeName(dtype));
  absl::StrAppend(&text, " [");
  const char* separator = "";
  for (const int64_t size : shape) {
    absl::StrAppend(&text, separator, size == kAnySize ? std::string("any") : std::to_string(size));
    separator = ", ";
  }
  return text + "]";
}

std::string StridesToString(const TensorView& view) {
  std::string text = "[";
  for (int d = 0; d < view.rank; ++d) absl::StrAppend(&text, d ? ", " : "", view.stride(d));
  return text + "]";
}

bool HasShape(const TensorView& view, absl::Span<const int64_t> shape) {
  if (view.rank < 1 || view.rank != static_cast<int>(shape.size())) return false;
  for (int d = 0; d < view.rank; ++d) {
    const int64_t size = shape[static_cast<size_t>(d)];
    if (view.dim(d) < 0 || (size != kAnySize && view.dim(d) != size)) return false;
  }
  return true;
}

absl::Status CheckLayout(const char* op, const char* name, const TensorView& view, Layout layout) {
  const auto wrong = [&](const char* want) {
    return InvalidArgument(op, ": ", name, " is ", view.ToString(), " with strides ", StridesToString(view),
                           ", expected ", want);
  };
  for (int d = 0; d < view.rank; ++d) {
    if (view.stride(d) < 0) return wrong("no negative stride");
  }
  const int last = view.rank - 1;
  if (layout == Layout::kContiguousRows && view.dim(last) > 1 && view.stride(last) != 1) {
    return wrong("a contiguous last dimension");
  }
  if ((layout == Layout::kContiguous || IsQuantized(view.dtype)) && !view.contiguous()) {
    return wrong("a contiguous tensor");
  }
  return absl::OkStatus();
}

using ByteRange = std::pair<const char*, const char*>;

// The bytes from the first to the last element.
ByteRange Extent(const TensorView& view) {
  const char* begin = view.as<const char>();
  if (IsQuantized(view.dtype)) return {begin, begin + view.bytes()};
  int64_t last = 0;
  for (int d = 0; d < view.rank; ++d) last += (view.dim(d) - 1) * view.stride(d);
  return {begin, begin + (last + 1) * BlockBytes(view.dtype)};
}

// The bytes of each run of consecutive elements, ascending.
std::vector<ByteRange> Runs(const TensorView& view) {
  if (IsQuantized(view.dtype)) return {Extent(view)};
  const int64_t size = BlockBytes(view.dtype);
  const int last = view.rank - 1;
  const bool rows = view.dim(last) == 1 || view.stride(last) == 1;
  const int64_t run = rows ? view.dim(last) : 1;
  std::vector<ByteRange> runs;
  runs.reserve(static_cast<size_t>(view.elements() / run));
  for (int64_t i = 0; i < view.elements(); i += run) {
    int64_t offset = 0, rest = i;
    for (int d = last; d >= 0; --d) {
      offset += rest % view.dim(d) * view.stride(d);
      rest /= view.dim(d);
    }
    const char* begin = view.as<const char>() + offset * size;
    runs.emplace_back(begin, begin + run * size);
  }
  std::sort(runs.begin(), runs.end());
  return runs;
}

// Interleaved views, such as two column ranges of one matrix, overlap in extent and yet share nothing; only
// then are the runs compared.
bool Overlap(const TensorView& a, const TensorView& b) {
  if (a.empty() || b.empty()) return false;
  const ByteRange extent_a = Extent(a), extent_b = Extent(b);
  if (extent_a.second <= extent_b.first || extent_b.second <= extent_a.first) return false;
  const std::vector<ByteRange> runs_a = Runs(a), runs_b = Runs(b);
  size_t i = 0, j = 0;
  while (i < runs_a.size() && j < runs_b.size()) {
    if (runs_a[i].second <= runs_b[j].first) {
      ++i;
    } else if (runs_b[j].second <= runs_a[i].first) {
      ++j;
    } else {
      return true;
    }
  }
  return false;
}

}  // namespace

absl::Status CheckStream(const char* op, const Stream& stream) {
  if (stream.device != Device::kRef && stream.device != Device::kCpu) {
    return InvalidArgument(op, ": stream has the unknown device ", static_cast<int>(stream.device),
                           ", expected ref or cpu");
  }
  if (stream.threads < 1) {
    return InvalidArgument(op, ": stream has ", stream.threads, " threads, expected at least 1");
  }
  return absl::OkStatus();
}

absl::Status CheckTensor(const char* op, const char* name, const TensorView& view,
                         absl::Span<const DType> dtypes, absl::Span<const int64_t> shape, Layout layout) {
  if (view.device != Device::kRef && view.device != Device::kCpu) {
    return InvalidArgument(op, ": ", name, " is on the unknown device ", static_cast<int>(view.device),
                           ", expected host memory");
  }
  if (std::find(dtypes.begin(), dtypes.end(), view.dtype) == dtypes.end() || !HasShape(view, shape)) {
    return InvalidArgument(op, ": ", name, " is ", view.ToString(), ", expected ", Expected(dtypes, shape));
  }
  RETURN_IF_ERROR(CheckLayout(op, name, view, layout));
  const int block = BlockElements(view.dtype);
  if (view.dim(view.rank - 1) % block != 0) {
    return InvalidArgument(op, ": ", name, " is ", view.ToString(), ", expected rows of whole blocks of ",
                           block);
  }
  if (view.empty()) return absl::OkStatus();
  if (view.data == nullptr) return InvalidArgument(op, ": ", name, " is ", view.ToString(), " without data");
  const uintptr_t alignment = IsQuantized(view.dtype) ? 1 : static_cast<uintptr_t>(BlockBytes(view.dtype));
  if (reinterpret_cast<uintptr_t>(view.data) % alignment != 0) {
    return InvalidArgument(op, ": ", name, " is ", view.ToString(), " at an address that is no multiple of ",
                           alignment);
  }
  return absl::OkStatus();
}

absl::Status CheckSameDType(const char* op, const char* name, const TensorView& view, const char* other_name,
                            const TensorView& other) {
  if (view.dtype == other.dtype) return absl::OkStatus();
  return InvalidArgument(op, ": ", name, " is ", view.ToString(), ", expected ", DTypeName(other.dtype),
                         " as ", other_name, " ", other.ToString());
}

absl::Status CheckDisjoint(const char* op, const char* name_a, const TensorView& a, const char* name_b,
                           const TensorView& b) {
  if (!Overlap(a, b)) return absl::OkStatus();
  return InvalidArgument(op, ": ", name_a, " ", a.ToString(), " and ", name_b, " ", b.ToString(),
                         " share memory, expected separate tensors");
}

absl::Status CheckSameOrDisjoint(const char* op, const char* name_a, const TensorView& a, const char* name_b,
                                 const TensorView& b) {
  bool same = a.data == b.data && a.dtype == b.dtype && a.rank == b.rank;
  for (int d = 0; same && d < a.rank; ++d) {
    same = a.dim(d) == b.dim(d) && (a.dim(d) <= 1 || a.stride(d) == b.stride(d));
  }
  return same ? absl::OkStatus() : CheckDisjoint(op, name_a, a, name_b, b);
}

absl::Status CheckHeadGroups(const char* op, const char* name, int64_t heads, const char* kv_name,
                             int64_t kv_heads) {
  if (kv_heads == 0 ? heads == 0 : heads % kv_heads == 0) return absl::OkStatus();
  return InvalidArgument(op, ": ", name, " has ", heads, " heads and ", kv_name, " has ", kv_heads,
                         ", expected a multiple");
}

absl::Status CheckFinite(const char* op, const char* name, float value) {
  if (std::isfinite(value)) return absl::OkStatus();
  return InvalidArgument(op, ": ", name, " is ", value, ", expected a finite number");
}

void SetZero(const TensorView& out) {
  const int64_t row_bytes = out.dim(1) * BlockBytes(out.dtype);
  for (int64_t i = 0; i < out.dim(0); ++i) {
    std::memset(out.as<char>() + i * out.stride(0) * BlockBytes(out.dtype), 0,
                static_cast<size_t>(row_bytes));
  }
}

}  // namespace snapkv::kernels
