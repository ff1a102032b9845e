// SPDX-License-Identifier: Apache-2.0
// Plain structs and constants shared by the op front doors and the kernels below them. No Status, no model.
#pragma once

#include <bit>
#include <cstdint>

#include "kernels/base/tensor_view.h"

namespace snapkv::kernels {

// Keys per attention block. Chunk edges of the ring lie on multiples of it, so that a block holds the same
// keys whatever the number of ranks.
inline constexpr int64_t kKeyBlock = 64;

enum class PoolMode : uint8_t { kNone, kMax, kAvg };
// How the query heads of one KV head are reduced; kNone keeps one row of scores per query head.
enum class GroupMode : uint8_t { kNone, kMean, kMax, kSum };

// What a ring step carries for each (query head, query): a running reference m, the sum l of exp(s - m) and
// the un-normalised output o. Identity: m = -inf, l = 0, o = 0. `l` and `o` are f64 (exact mode) or f32. Last
// dimensions contiguous.
struct AttentionState {
  TensorView m;  // f32 [heads, queries]
  TensorView l;  // f64 | f32 [heads, queries]
  TensorView o;  // as l [heads, queries, head_dim]
};

// One part of attention: queries against one run of keys with consecutive positions.
struct AttentionParams {
  TensorView q;  // f32 | bf16 [heads, queries, head_dim], after RoPE; last dimension contiguous
  TensorView k;  // as q [kv_heads, keys, head_dim]; heads is a multiple of kv_heads
  TensorView v;  // as k
  AttentionState state;
  float scale = 1.0f;      // of q.k, 1/sqrt(head_dim) for the usual models
  bool causal = false;     // a query at position p sees keys at positions <= p; false: it sees all keys
  int64_t q_position = 0;  // global position of query 0; used when causal
  int64_t k_position = 0;  // global position of key 0; used when causal
};

// Rows of one (document, cache head), contiguous [rows, head_dim].
struct CacheRows {
  const void* k = nullptr;
  const void* v = nullptr;
  int64_t rows = 0;
};

// How a token is drawn: repeat_penalty, then temperature, then top_k, top_p and min_p in this order, each on
// what the one before it left; the draw is from the rest, renormalised. That is Hugging Face's order
// (llama.cpp applies its temperature last). temperature 0 takes the largest logit, lowest id on a tie, and
// ignores the three filters.
struct SampleParams {
  float temperature = 0.0f;
  // Logits of tokens in the history are divided by it when positive and multiplied when negative (Keskar et
  // al., CTRL, arXiv 1909.05858, section 4.1). 1 changes nothing.
  float repeat_penalty = 1.0f;
  // Keeps the top_k largest logits; of those equal to the last one the lower ids, so that exactly top_k
  // remain (Fan et al., arXiv 1805.04833, section 5). 0, or the vocabulary's size and more: off.
  int64_t top_k = 0;
  // In (0, 1]. Keeps the most probable tokens, the smallest set of them whose probability reaches top_p, the
  // token that crosses it included; lower ids first among equals (Holtzman et al., arXiv 1904.09751, section
  // 3.1). 1: off.
  double top_p = 1.0;
  // In [0, 1]. Keeps the tokens with at least min_p times the largest probability (Nguyen et al., arXiv
  // 2407.01082). 0: off.
  double min_p = 0.0;
  uint64_t seed = 0;  // with `step`, fixes the draw whatever else runs
  int64_t step = 0;   // index of the token in its document
};

// SelectTop's total order as one unsigned key: larger is better. score descending, then position ascending.
// Keys of different positions differ. -0 and +0 are equal scores.
inline uint64_t SelectKey(float score, int32_t position) {
  const uint32_t bits = std::bit_cast<uint32_t>(score + 0.0f);
  const uint32_t ordered = bits ^ ((bits >> 31) != 0 ? 0xffffffffu : 0x80000000u);
  return uint64_t{ordered} << 32 | (0xffffffffu - static_cast<uint32_t>(position));
}

inline constexpr int kSelectBits = 8;                   // per histogram round
inline constexpr int kSelectBins = 1 << kSelectBits;    // 256
inline constexpr int kSelectRounds = 64 / kSelectBits;  // 8, from the highest bits down

}  // namespace snapkv::kernels
