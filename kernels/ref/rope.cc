// SPDX-License-Identifier: Apache-2.0
// Reference Rope. In f32 as the contract says, not in double: the bits of a rotated key decide ties later.
#include "kernels/ref/element.h"
#include "kernels/ref/ref.h"

namespace snapkv::kernels::ref {

void Rope(const TensorView& in, const TensorView& cos, const TensorView& sin, const TensorView& out) {
  const int64_t half = in.dim(2) / 2;
  const auto load = [](const TensorView& v, int64_t i, int64_t j, int64_t k) {
    return static_cast<float>(Load(v, i, j, k));
  };
  for (int64_t h = 0; h < in.dim(0); ++h) {
    for (int64_t t = 0; t < in.dim(1); ++t) {
      for (int64_t j = 0; j < half; ++j) {
        const float c = *cos.at<float>(t, j), s = *sin.at<float>(t, j);
        const float first = load(in, h, t, j), second = load(in, h, t, j + half);  // out may be in
        const float first_c = first * c, first_s = first * s, second_c = second * c, second_s = second * s;
        Store(first_c - second_s, out, h, t, j);
        Store(second_c + first_s, out, h, t, j + half);
      }
    }
  }
}

}  // namespace snapkv::kernels::ref
