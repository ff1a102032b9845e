// SPDX-License-Identifier: Apache-2.0
// CPU features, by CPUID through the compiler's built-ins.
#include "kernels/op/device_info.h"

#include <cpuid.h>

#include "kernels/cpu/gemm.h"
#include "kernels/cpu/parallel.h"

namespace snapkv::kernels {

std::string CpuKernelIsa() { return cpu::IsaName(); }

std::vector<std::string> CpuFeatures() {
  std::vector<std::string> names;
  const auto add = [&names](bool has, const char* name) {
    if (has) names.emplace_back(name);
  };
  add(__builtin_cpu_supports("avx2"), "avx2");
  add(__builtin_cpu_supports("fma"), "fma");
  add(__builtin_cpu_supports("avx512f"), "avx512f");
  add(__builtin_cpu_supports("avx512vnni"), "avx512_vnni");
  add(__builtin_cpu_supports("avx512bf16"), "avx512_bf16");
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) != 0) add((d >> 22 & 1) != 0, "amx_bf16");
  return names;
}

bool HasFastBf16() { return cpu::HasFastBf16(); }

std::map<std::string, std::string> CpuKernelNames() {
  const std::string simd = std::string("simd ") + cpu::IsaName();
  std::map<std::string, std::string> names;
  for (const char* op : {"add", "add_bias", "attention", "cast", "decode_attention", "pool_scores",
                         "rms_norm", "rope", "silu_mul", "window_scores"}) {
    names[op] = simd;
  }
  for (const char* op : {"dequantize", "embed", "gather_rows", "sample", "select_top"}) names[op] = "scalar";
  return names;
}

}  // namespace snapkv::kernels
