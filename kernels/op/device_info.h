// SPDX-License-Identifier: Apache-2.0
// What the CPU backend runs on: for --dtype auto, the start line and --stats.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace snapkv::kernels {

// The instruction set of the SIMD kernels: "avx512", "avx2" or "ssse3".
std::string CpuKernelIsa();

// Names of what this CPU has, of: avx2 fma avx512f avx512_vnni avx512_bf16 amx_bf16.
std::vector<std::string> CpuFeatures();

// Whether bf16 products are native and faster than f32 ones (AMX): what --dtype auto goes by.
bool HasFastBf16();

// The implementation of each op on the CPU but for Gemm, which depends on the weights
// (PackedWeights::kernel).
std::map<std::string, std::string> CpuKernelNames();

}  // namespace snapkv::kernels
