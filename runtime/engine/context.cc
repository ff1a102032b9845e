// SPDX-License-Identifier: Apache-2.0
// Compression options checked, phases named.
#include "runtime/engine/context.h"

namespace snapkv::runtime {

const char* PhaseName(Phase phase) {
  constexpr const char* kNames[] = {"load",  "embed", "gemm",   "other",  "attention", "ring_wait",
                                    "score", "pool",  "select", "gather", "decode"};
  return kNames[static_cast<int>(phase)];
}

absl::Status ValidateCompression(const CompressionOptions& options) {
  if (options.window < 1)
    return InvalidArgument("--window ", options.window, " is too small: at least 1 token is observed");
  if (options.kernel < 1 || options.kernel % 2 == 0) {
    return InvalidArgument("--kernel ", options.kernel, " must be odd and at least 1");
  }
  if (options.capacity < options.window) {
    return InvalidArgument("--capacity ", options.capacity, " is below --window ", options.window,
                           ": the window is part of the capacity");
  }
  return absl::OkStatus();
}

}  // namespace snapkv::runtime
