// SPDX-License-Identifier: Apache-2.0
// TensorView: a non-owning, trivially copyable view of up to four dimensions with strides.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "kernels/base/device.h"
#include "kernels/base/dtype.h"

namespace snapkv {

inline constexpr int kMaxRank = 4;

// Row-major by default. Strides are in elements. A quantised view is always contiguous, its last dimension a
// multiple of the block, and its `data` points at raw blocks. Does not own: the Buffer must outlive it.
struct TensorView {
  void* data = nullptr;
  DType dtype = DType::kF32;
  Device device = Device::kCpu;
  int rank = 0;
  std::array<int64_t, kMaxRank> shape{};
  std::array<int64_t, kMaxRank> strides{};

  TensorView() = default;
  // A contiguous view of `dims`.
  template <class... Dims>
  static TensorView Of(void* data, DType dtype, Device device, Dims... dims) {
    TensorView v;
    v.data = data;
    v.dtype = dtype;
    v.device = device;
    v.rank = sizeof...(Dims);
    v.shape = {static_cast<int64_t>(dims)...};
    v.SetContiguous();
    return v;
  }
  void SetContiguous() {
    int64_t step = 1;
    for (int i = rank - 1; i >= 0; --i) {
      strides[static_cast<size_t>(i)] = step;
      step *= shape[static_cast<size_t>(i)];
    }
  }

  int64_t dim(int i) const { return shape[static_cast<size_t>(i)]; }
  int64_t stride(int i) const { return strides[static_cast<size_t>(i)]; }
  int64_t elements() const {
    int64_t n = 1;
    for (int i = 0; i < rank; ++i) n *= dim(i);
    return n;
  }
  bool empty() const { return elements() == 0; }
  // Bytes of the elements, gaps of a strided view not counted.
  int64_t bytes() const { return elements() / BlockElements(dtype) * BlockBytes(dtype); }
  bool contiguous() const {
    int64_t step = 1;
    for (int i = rank - 1; i >= 0; --i) {
      if (dim(i) != 1 && stride(i) != step) return false;
      step *= dim(i);
    }
    return true;
  }

  template <class T>
  T* as() const {
    return static_cast<T*>(data);
  }
  // Address of element (i, j, k, l); plain types only.
  template <class T>
  T* at(int64_t i = 0, int64_t j = 0, int64_t k = 0, int64_t l = 0) const {
    return static_cast<T*>(data) + i * strides[0] + j * strides[1] + k * strides[2] + l * strides[3];
  }

  // [begin, end) of dimension `d`; plain types only.
  TensorView Slice(int d, int64_t begin, int64_t end) const {
    TensorView v = *this;
    v.shape[static_cast<size_t>(d)] = end - begin;
    v.data = static_cast<char*>(data) + begin * stride(d) * BlockBytes(dtype);
    return v;
  }
  // Element `i` of dimension 0, one rank less; plain types only.
  TensorView operator[](int64_t i) const {
    TensorView v = *this;
    v.data = static_cast<char*>(data) + i * stride(0) * BlockBytes(dtype);
    v.rank = rank - 1;
    for (size_t d = 0; d + 1 < kMaxRank; ++d) {
      v.shape[d] = shape[d + 1];
      v.strides[d] = strides[d + 1];
    }
    v.shape[kMaxRank - 1] = v.strides[kMaxRank - 1] = 0;
    return v;
  }
  // Dimensions a and b swapped.
  TensorView Transposed(int a, int b) const {
    TensorView v = *this;
    std::swap(v.shape[static_cast<size_t>(a)], v.shape[static_cast<size_t>(b)]);
    std::swap(v.strides[static_cast<size_t>(a)], v.strides[static_cast<size_t>(b)]);
    return v;
  }

  // "f32[3, 5]", for messages.
  std::string ToString() const {
    std::string s = std::string(DTypeName(dtype)) + "[";
    for (int i = 0; i < rank; ++i) s += (i ? ", " : "") + std::to_string(dim(i));
    return s + "]";
  }
};

}  // namespace snapkv
