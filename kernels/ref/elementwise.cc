// SPDX-License-Identifier: Apache-2.0
// Reference Add, AddBias, Cast and SiluMul.
#include <cmath>

#include "kernels/ref/element.h"
#include "kernels/ref/ref.h"

namespace snapkv::kernels::ref {

void Add(const TensorView& x, const TensorView& y) {
  for (int64_t i = 0; i < x.dim(0); ++i) {
    for (int64_t j = 0; j < x.dim(1); ++j) Store(Load(x, i, j) + Load(y, i, j), x, i, j);
  }
}

void AddBias(const TensorView& x, const TensorView& bias) {
  for (int64_t i = 0; i < x.dim(0); ++i) {
    for (int64_t j = 0; j < x.dim(1); ++j) {
      // The contract rounds the sum to f32 before it becomes bf16.
      const float sum = static_cast<float>(Load(x, i, j) + Load(bias, j));
      Store(sum, x, i, j);
    }
  }
}

void Cast(const TensorView& in, const TensorView& out) {
  const auto extent = [&in](int d) { return d < in.rank ? in.dim(d) : 1; };
  for (int64_t i = 0; i < extent(0); ++i) {
    for (int64_t j = 0; j < extent(1); ++j) {
      for (int64_t k = 0; k < extent(2); ++k) {
        for (int64_t l = 0; l < extent(3); ++l) Store(Load(in, i, j, k, l), out, i, j, k, l);
      }
    }
  }
}

void SiluMul(const TensorView& gate_up, const TensorView& out) {
  const int64_t columns = out.dim(1);
  for (int64_t i = 0; i < out.dim(0); ++i) {
    for (int64_t j = 0; j < columns; ++j) {
      const double gate = Load(gate_up, i, j), up = Load(gate_up, i, columns + j);
      Store(gate / (1.0 + std::exp(-gate)) * up, out, i, j);
    }
  }
}

}  // namespace snapkv::kernels::ref
