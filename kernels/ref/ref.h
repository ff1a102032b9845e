// SPDX-License-Identifier: Apache-2.0
// The reference kernels: scalar, accumulated in double, written to be obviously right; they judge the fast
// ones. Contracts are those of the op of the same name in kernels/op; arguments are valid and not empty.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/op/params.h"

namespace snapkv::kernels::ref {

void Embed(const TensorView& table, std::span<const int32_t> ids, const TensorView& out);
void Gemm(const TensorView& a, const TensorView& w,
          const TensorView& out);  // w: f32 | bf16 [outputs, inputs]
void Add(const TensorView& x, const TensorView& y);
void AddBias(const TensorView& x, const TensorView& bias);
void Cast(const TensorView& in, const TensorView& out);
void SiluMul(const TensorView& gate_up, const TensorView& out);
void Dequantize(const TensorView& in, const TensorView& out);
void RmsNorm(const TensorView& x, const TensorView& weight, float epsilon, const TensorView& out);
void Rope(const TensorView& in, const TensorView& cos, const TensorView& sin, const TensorView& out);
void InitAttentionState(const AttentionState& state);
void Attention(const AttentionParams& params);
void FinishAttention(const AttentionState& state, const TensorView& out, const TensorView& lse);
void MergeState(const TensorView& o, const TensorView& lse, const TensorView& other_o,
                const TensorView& other_lse);
void WindowScores(const TensorView& q, const TensorView& lse, const TensorView& k, float scale,
                  GroupMode group, const TensorView& scores);
void PoolScores(const TensorView& in, int64_t left, int kernel, PoolMode mode, const TensorView& out);
void CountSelectKeys(const TensorView& scores, std::span<const int32_t> positions,
                     std::span<const uint64_t> prefix, int round, std::span<int64_t> counts);
std::vector<std::vector<int32_t>> CollectSelected(const TensorView& scores,
                                                  std::span<const int32_t> positions,
                                                  std::span<const uint64_t> threshold);
void GatherRows(const TensorView& in, std::span<const std::vector<int32_t>> rows, const TensorView& out);
void DecodeAttention(const TensorView& q, std::span<const CacheRows> caches, int64_t cache_heads, float scale,
                     const TensorView& out);
int32_t Sample(const TensorView& logits, std::span<const int32_t> history, const SampleParams& params);

}  // namespace snapkv::kernels::ref
