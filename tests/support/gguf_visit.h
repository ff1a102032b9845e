// SPDX-License-Identifier: Apache-2.0
// VisitGguf: uses everything an open GgufFile offers, so that a sanitizer sees every byte it vouches for.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/ref/dequantize.h"
#include "runtime/model/gguf.h"

namespace snapkv::testing {

// Calls every getter on every key, reads every byte of every tensor and dequantises it. Returns how many
// values and bytes were read, so that nothing is optimised away; a failing getter is fine, a crash is not.
inline uint64_t VisitGguf(const runtime::GgufFile& file) {
  uint64_t seen = 0;
  for (const std::string& key : file.keys()) {
    seen += file.Get<bool>(key).ok() + file.Get<uint32_t>(key).ok() + file.Get<uint64_t>(key).ok() +
            file.Get<int32_t>(key).ok() + file.Get<int64_t>(key).ok() + file.Get<float>(key).ok() +
            file.Get<double>(key).ok() + file.Get<std::string>(key).ok() +
            file.Get<std::vector<std::string>>(key).ok() + file.Get<std::vector<int32_t>>(key).ok() +
            file.Get<std::vector<int64_t>>(key).ok() + file.Get<std::vector<float>>(key).ok();
  }
  for (const runtime::GgufTensor& tensor : file.tensors()) {
    const auto* bytes = tensor.view.as<const uint8_t>();
    for (int64_t i = 0; i < tensor.view.bytes(); ++i) seen += bytes[i] != 0;
    if (!kernels::ref::CanDequantize(tensor.dtype())) continue;
    std::vector<float> values(static_cast<size_t>(tensor.view.elements()));
    kernels::ref::Dequantize(tensor.dtype(), bytes, tensor.view.elements(), values.data());
    for (const float value : values) seen += value == value;
    seen += file.tensor(tensor.name).ok();
  }
  return seen;
}

}  // namespace snapkv::testing
