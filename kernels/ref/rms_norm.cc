// SPDX-License-Identifier: Apache-2.0
// Reference RmsNorm.
#include <cmath>

#include "kernels/ref/element.h"
#include "kernels/ref/ref.h"

namespace snapkv::kernels::ref {

void RmsNorm(const TensorView& x, const TensorView& weight, float epsilon, const TensorView& out) {
  const int64_t columns = x.dim(1);
  for (int64_t i = 0; i < x.dim(0); ++i) {
    double squares = 0;
    for (int64_t j = 0; j < columns; ++j) squares += Load(x, i, j) * Load(x, i, j);
    const double rms = std::sqrt(squares / static_cast<double>(columns) + epsilon);
    for (int64_t j = 0; j < columns; ++j) Store(Load(x, i, j) / rms * Load(weight, j), out, i, j);
  }
}

}  // namespace snapkv::kernels::ref
