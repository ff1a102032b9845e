// SPDX-License-Identifier: Apache-2.0
// Which instruction set the SIMD kernels use.
#include "kernels/cpu/parallel.h"

#include <hwy/targets.h>

#include <cstdlib>
#include <string_view>

namespace snapkv::kernels::cpu {
namespace {

// Runs before main(), hence before Highway chooses a target at the first kernel call.
const bool isa_limited = [] {
  const char* text = std::getenv("SNAPKV_MAX_ISA");
  const std::string_view limit = text != nullptr ? text : "";
  if (limit == "avx2" || limit == "ssse3") hwy::DisableTargets(HWY_AVX3 | HWY_AVX3_DL);
  if (limit == "ssse3") hwy::DisableTargets(HWY_AVX3 | HWY_AVX3_DL | HWY_AVX2);
  return true;
}();

}  // namespace

const char* IsaName() {
  const int64_t targets = isa_limited ? hwy::SupportedTargets() : 0;
  if ((targets & HWY_AVX3) != 0) return "avx512";
  if ((targets & HWY_AVX2) != 0) return "avx2";
  return "ssse3";
}

}  // namespace snapkv::kernels::cpu
