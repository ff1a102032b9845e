// SPDX-License-Identifier: Apache-2.0
// Reference Embed and Dequantize of views; the block formats themselves are in dequantize.cc.
#include "kernels/ref/dequantize.h"
#include "kernels/ref/ref.h"

namespace snapkv::kernels::ref {

void Dequantize(const TensorView& in, const TensorView& out) {
  Dequantize(in.dtype, in.data, in.elements(), out.as<float>());
}

void Embed(const TensorView& table, std::span<const int32_t> ids, const TensorView& out) {
  const int64_t hidden = table.dim(1);
  const int64_t row_bytes = hidden / BlockElements(table.dtype) * BlockBytes(table.dtype);
  for (size_t i = 0; i < ids.size(); ++i) {
    Dequantize(table.dtype, table.as<char>() + ids[i] * row_bytes, hidden,
               out.at<float>(static_cast<int64_t>(i)));
  }
}

}  // namespace snapkv::kernels::ref
