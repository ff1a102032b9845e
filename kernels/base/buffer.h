// SPDX-License-Identifier: Apache-2.0
// Buffer: owns counted memory; move-only. TensorView is its non-owning counterpart.
#pragma once

#include <utility>

#include "kernels/base/allocator.h"
#include "kernels/base/status.h"
#include "kernels/base/tensor_view.h"

namespace snapkv {

class Buffer {
 public:
  Buffer() = default;
  // Uninitialised memory from `allocator`, which must outlive the buffer.
  static absl::StatusOr<Buffer> Create(Allocator& allocator, int64_t bytes, MemoryKind kind,
                                       Device device = Device::kCpu) {
    ASSIGN_OR_RETURN(void* data, allocator.Allocate(bytes, kind));
    return Buffer(&allocator, data, bytes, kind, device);
  }
  // A buffer for a contiguous tensor of `dims`.
  template <class... Dims>
  static absl::StatusOr<Buffer> Of(Allocator& allocator, MemoryKind kind, Device device, DType dtype,
                                   Dims... dims) {
    const TensorView shape = TensorView::Of(nullptr, dtype, device, dims...);
    return Create(allocator, shape.bytes(), kind, device);
  }
  ~Buffer() { Reset(); }
  Buffer(Buffer&& other) noexcept { *this = std::move(other); }
  Buffer& operator=(Buffer&& other) noexcept {
    if (this == &other) return *this;
    Reset();
    allocator_ = std::exchange(other.allocator_, nullptr);
    data_ = std::exchange(other.data_, nullptr);
    bytes_ = std::exchange(other.bytes_, 0);
    kind_ = other.kind_;
    device_ = other.device_;
    return *this;
  }

  void* data() const { return data_; }
  int64_t bytes() const { return bytes_; }
  Device device() const { return device_; }

  // A contiguous view of the front of the buffer, which must be large enough.
  template <class... Dims>
  TensorView View(DType dtype, Dims... dims) const {
    return TensorView::Of(data_, dtype, device_, dims...);
  }

  void Reset() {
    if (data_ != nullptr) allocator_->Free(data_, bytes_, kind_);
    data_ = nullptr;
    bytes_ = 0;
  }

 private:
  Buffer(Allocator* allocator, void* data, int64_t bytes, MemoryKind kind, Device device)
      : allocator_(allocator), data_(data), bytes_(bytes), kind_(kind), device_(device) {}

  Allocator* allocator_ = nullptr;
  void* data_ = nullptr;
  int64_t bytes_ = 0;
  MemoryKind kind_ = MemoryKind::kWorkspace;
  Device device_ = Device::kCpu;
};

}  // namespace snapkv
