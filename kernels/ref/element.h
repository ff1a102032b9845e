// SPDX-License-Identifier: Apache-2.0
// Reading and writing single elements of a view in double: what keeps the reference kernels free of types.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "kernels/base/tensor_view.h"

namespace snapkv::kernels::ref {

// x to bf16 in one rounding, to nearest even. By way of f32 a value just beside the middle of two bf16 values
// would land on the middle first and then go to the even one.
inline Bf16 RoundToBf16(double x) {
  const float f = static_cast<float>(x);
  const uint32_t bits = std::bit_cast<uint32_t>(f);
  const bool on_the_middle = (bits & 0xffffu) == 0x8000u;
  if (!on_the_middle || std::isnan(x) || std::isinf(f) || static_cast<double>(f) == x) return ToBf16(f);
  const bool too_large = std::fabs(static_cast<double>(f)) > std::fabs(x);
  return ToBf16(std::bit_cast<float>(too_large ? bits - 1 : bits + 1));
}

// Element (i, j, k, l) of an unquantised float view.
inline double Load(const TensorView& v, int64_t i = 0, int64_t j = 0, int64_t k = 0, int64_t l = 0) {
  switch (v.dtype) {
    case DType::kF64:
      return *v.at<double>(i, j, k, l);
    case DType::kF16:
      return ToFloat(*v.at<F16>(i, j, k, l));
    case DType::kBF16:
      return ToFloat(*v.at<Bf16>(i, j, k, l));
    default:
      return *v.at<float>(i, j, k, l);
  }
}

// Writes element (i, j, k, l) of a f32, f64 or bf16 view, rounded once to nearest even.
inline void Store(double x, const TensorView& v, int64_t i = 0, int64_t j = 0, int64_t k = 0, int64_t l = 0) {
  switch (v.dtype) {
    case DType::kF64:
      *v.at<double>(i, j, k, l) = x;
      break;
    case DType::kBF16:
      *v.at<Bf16>(i, j, k, l) = RoundToBf16(x);
      break;
    default:
      *v.at<float>(i, j, k, l) = static_cast<float>(x);
  }
}

}  // namespace snapkv::kernels::ref
