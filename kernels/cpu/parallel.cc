// SPDX-License-Identifier: Apache-2.0
// Which instruction set the SIMD kernels use.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/parallel.cc"
#include <hwy/foreach_target.h>
// After foreach_target.h.
#include <hwy/highway.h>

#include <cstdlib>
#include <string_view>

#include "kernels/cpu/parallel.h"

HWY_BEFORE_NAMESPACE();
namespace snapkv::kernels::cpu::HWY_NAMESPACE {

const char* TargetName() {
  if constexpr (HWY_TARGET == HWY_AVX3) return "avx512";
  if constexpr (HWY_TARGET == HWY_AVX2) return "avx2";
  return "ssse3";
}

}  // namespace snapkv::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace snapkv::kernels::cpu {

HWY_EXPORT(TargetName);

bool LimitIsa() {
  static const bool limited = [] {
    const char* text = std::getenv("SNAPKV_MAX_ISA");
    const std::string_view limit = text != nullptr ? text : "";
    if (limit == "avx2") hwy::DisableTargets(HWY_AVX3 | HWY_AVX3_DL);
    if (limit == "ssse3") hwy::DisableTargets(HWY_AVX3 | HWY_AVX3_DL | HWY_AVX2);
    return true;
  }();
  return limited;
}

// Asks the code that runs. Not hwy::SupportedTargets(): in 1.0.3 that call puts every target of the CPU into
// Highway's choice, the disabled ones too.
const char* IsaName() { return HWY_DYNAMIC_DISPATCH(TargetName)(); }

}  // namespace snapkv::kernels::cpu
#endif  // HWY_ONCE
