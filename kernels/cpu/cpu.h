// SPDX-License-Identifier: Apache-2.0
// The CPU kernels: Highway SIMD over OpenMP threads, GEMM by oneDNN. The best instruction set is chosen at
// run time. Contracts are those of the op of the same name in kernels/op; arguments are valid and not empty.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/op/params.h"

namespace snapkv::kernels::cpu {

void Embed(int threads, const TensorView& table, std::span<const int32_t> ids, const TensorView& out);
void Add(int threads, const TensorView& x, const TensorView& y);
void AddBias(int threads, const TensorView& x, const TensorView& bias);
void Cast(int threads, const TensorView& in, const TensorView& out);
void SiluMul(int threads, const TensorView& gate_up, const TensorView& out);
void Dequantize(int threads, const TensorView& in, const TensorView& out);
void RmsNorm(int threads, const TensorView& x, const TensorView& weight, float epsilon,
             const TensorView& out);
void Rope(int threads, const TensorView& in, const TensorView& cos, const TensorView& sin,
          const TensorView& out);
void InitAttentionState(int threads, const AttentionState& state);
void Attention(int threads, const AttentionParams& params);
void FinishAttention(int threads, const AttentionState& state, const TensorView& out, const TensorView& lse);
void MergeState(int threads, const TensorView& o, const TensorView& lse, const TensorView& other_o,
                const TensorView& other_lse);
void WindowScores(int threads, const TensorView& q, const TensorView& lse, const TensorView& k, float scale,
                  GroupMode group, const TensorView& scores);
void PoolScores(int threads, const TensorView& in, int64_t left, int kernel, PoolMode mode,
                const TensorView& out);
void CountSelectKeys(int threads, const TensorView& scores, std::span<const int32_t> positions,
                     std::span<const uint64_t> prefix, int round, std::span<int64_t> counts);
std::vector<std::vector<int32_t>> CollectSelected(int threads, const TensorView& scores,
                                                  std::span<const int32_t> positions,
                                                  std::span<const uint64_t> threshold);
void GatherRows(int threads, const TensorView& in, std::span<const std::vector<int32_t>> rows,
                const TensorView& out);
void DecodeAttention(int threads, const TensorView& q, std::span<const CacheRows> caches, int64_t cache_heads,
                     float scale, const TensorView& out);

}  // namespace snapkv::kernels::cpu
