// SPDX-License-Identifier: Apache-2.0
// Reference Gemm.
#include "kernels/ref/element.h"
#include "kernels/ref/ref.h"

namespace snapkv::kernels::ref {

void Gemm(const TensorView& a, const TensorView& w, const TensorView& out) {
  const int64_t rows = out.dim(0), outputs = out.dim(1), inputs = a.dim(1);
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < outputs; ++j) {
      double sum = 0;
      for (int64_t k = 0; k < inputs; ++k) sum += Load(a, i, k) * Load(w, j, k);
      Store(sum, out, i, j);
    }
  }
}

}  // namespace snapkv::kernels::ref
