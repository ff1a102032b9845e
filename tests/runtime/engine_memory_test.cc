// SPDX-License-Identifier: Apache-2.0
// Peak KV memory of prefill is one layer's shard, the receive buffers and the compressed rows: to the byte.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tests/support/engine_harness.h"
#include "tests/support/tiny_model.h"

namespace snapkv::testing {
namespace {

using runtime::CachePolicy;
using runtime::Plan;
using runtime::PrefillResult;
using runtime::RankContext;

constexpr int64_t kHeads = 6, kKvHeads = 2, kDim = 8, kHeadroom = 10, kFloat = 4;
constexpr int64_t kRowBytes = 2 * kDim * kFloat;  // K and V of one head

// The largest layer's rows of `rank`, all heads.
int64_t MostOwnRows(const Plan& plan, int rank, const std::vector<runtime::Selection>& selections) {
  int64_t most = 0;
  for (const runtime::Selection& layer : selections) {
    int64_t rows = 0;
    for (const auto& head : layer.positions)
      for (const int32_t p : head) rows += plan.Owner(p) == rank;
    most = std::max(most, rows);
  }
  return most;
}

void Check(const RankContext& context, int64_t tokens, const runtime::CompressionOptions& compression) {
  const int64_t layers = context.model.config().layers;
  const std::string what = std::to_string(layers) + " layers, T " + std::to_string(tokens) + ", N " +
                           std::to_string(context.ranks()) + ", rank " + std::to_string(context.rank());
  const Plan plan = *Plan::Create(tokens, context.ranks(), compression.window, kernels::kKeyBlock);
  const auto prompt = RandomTokens(tokens, context.model.config().vocab, 77);
  const auto result = runtime::Prefill(
      context, prompt, {.compression = compression, .headroom = kHeadroom, .keep_selections = true});
  ASSERT_TRUE(result.ok()) << what << ": " << result.status();

  const bool compressed = runtime::Compresses(compression, tokens);
  const int64_t kept = compressed ? compression.capacity : tokens;
  const int64_t cache_heads =
      compressed && compression.group == kernels::GroupMode::kNone ? kHeads : kKvHeads;
  const int64_t shard = plan.RankTokens(context.rank()) * kKvHeads * kRowBytes;
  const int64_t receive = std::min(2, context.ranks() - 1) * plan.MaxRankTokens() * kKvHeads * kRowBytes;
  const int64_t rows = context.rank() == runtime::kDecodeRank
                           ? layers * cache_heads * (kept + kHeadroom) * kRowBytes
                           : MostOwnRows(plan, context.rank(), result->selections) * kRowBytes;
  EXPECT_EQ(context.allocator.kv_use().peak_bytes, shard + receive + rows) << what;
  EXPECT_EQ(context.allocator.use(MemoryKind::kKvShard).peak_bytes, shard) << what;
  EXPECT_EQ(context.allocator.use(MemoryKind::kKvReceive).peak_bytes, receive) << what;

  // Afterwards only the decode rank holds rows: of the KV heads, not of the query heads.
  EXPECT_EQ(context.allocator.use(MemoryKind::kKvShard).current_bytes, 0) << what;
  EXPECT_EQ(context.allocator.use(MemoryKind::kKvReceive).current_bytes, 0) << what;
  const int64_t left = context.allocator.use(MemoryKind::kKvCompressed).current_bytes;
  EXPECT_EQ(left, context.rank() == runtime::kDecodeRank ? rows : 0) << what;
  EXPECT_EQ(result->rows_full, tokens) << what;
  EXPECT_EQ(result->rows_kept, kept) << what;
  EXPECT_EQ(result->bytes_full, layers * kKvHeads * tokens * kRowBytes) << what;
  EXPECT_EQ(result->bytes_kept, layers * cache_heads * kept * kRowBytes) << what;
  if (context.rank() == runtime::kDecodeRank) {
    EXPECT_EQ(result->cache->row_bytes(), layers * cache_heads * kept * kRowBytes) << what;
  } else {
    EXPECT_EQ(result->cache, nullptr) << what;
  }
}

class EngineMemory : public ::testing::TestWithParam<int64_t> {};

TEST_P(EngineMemory, PeakIsOneLayer) {
  const auto tiny = TinyModel::Create({.layers = GetParam(),
                                       .heads = kHeads,
                                       .kv_heads = kKvHeads,
                                       .head_dim = kDim,
                                       .hidden = 16,
                                       .ffn = 16});
  ASSERT_TRUE(tiny.ok()) << tiny.status();
  using kernels::GroupMode;
  using kernels::PoolMode;
  const runtime::CompressionOptions cases[] = {
      {CachePolicy::kSnapKv, 60, 16, 7, PoolMode::kMax, GroupMode::kMean},
      {CachePolicy::kSnapKv, 60, 16, 7, PoolMode::kAvg, GroupMode::kNone},
      {CachePolicy::kSnapKv, 5000, 16, 7, PoolMode::kMax, GroupMode::kNone},  // fits: nothing is compressed
      {.policy = CachePolicy::kFull},
  };
  for (const int ranks : {1, 2, 3, 4, 8}) {
    for (const int64_t tokens : {700, 40}) {
      for (const auto& compression : cases) {
        const absl::Status status =
            OnRanks((*tiny)->model(), {.ranks = ranks}, [&](const RankContext& context) -> absl::Status {
              Check(context, tokens, compression);
              return absl::OkStatus();
            });
        ASSERT_TRUE(status.ok()) << status;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Layers, EngineMemory, ::testing::Values(2, 30));

}  // namespace
}  // namespace snapkv::testing
