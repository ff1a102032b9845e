// SPDX-License-Identifier: Apache-2.0
// Decoding from compressed and full caches: which rows are read, where the next token stands, and that
// neither the batch nor what ran before shows.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "runtime/engine/decode.h"
#include "tests/support/engine_harness.h"
#include "tests/support/tensors.h"
#include "tests/support/tiny_model.h"

namespace snapkv::testing {
namespace {

using runtime::CachePolicy;
using runtime::DecodeCache;
using runtime::Decoder;
using runtime::Prefill;
using runtime::PrefillResult;
using runtime::RankContext;

constexpr int64_t kVocab = 97, kLayers = 2, kHeads = 6, kKvHeads = 2, kDim = 8, kHeadroom = 12;
constexpr int64_t kCapacity = 48;

runtime::CompressionOptions Snap(kernels::GroupMode group = kernels::GroupMode::kMean) {
  return {CachePolicy::kSnapKv, kCapacity, 16, 7, kernels::PoolMode::kMax, group};
}
runtime::CompressionOptions Full() { return {.policy = CachePolicy::kFull}; }

// One document at a time on one rank, with everything at hand.
class EngineDecode : public ::testing::Test {
 protected:
  static const runtime::Model& model() {
    static const auto* tiny = new auto(TinyModel::Create(
        {.layers = kLayers, .heads = kHeads, .kv_heads = kKvHeads, .head_dim = kDim, .vocab = kVocab}));
    return (**tiny)->model();
  }
  static std::vector<int32_t> Prompt(int64_t tokens, uint64_t seed) {
    return RandomTokens(tokens, kVocab, seed);
  }

  static absl::StatusOr<PrefillResult> RunPrefill(const RankContext& context,
                                                  const std::vector<int32_t>& tokens,
                                                  const runtime::CompressionOptions& compression) {
    return Prefill(context, tokens,
                   {.compression = compression, .headroom = kHeadroom, .keep_selections = true});
  }

  // The logits after each of `tokens`, decoded one document alone.
  static absl::StatusOr<std::vector<std::vector<float>>> Decode(const RankContext& context,
                                                                DecodeCache& cache,
                                                                const std::vector<int32_t>& tokens) {
    ASSIGN_OR_RETURN(Decoder decoder, Decoder::Create(model(), context.stream, context.allocator, 1));
    std::vector<std::vector<float>> logits;
    for (const int32_t token : tokens) {
      logits.emplace_back(kVocab);
      DecodeCache* caches[] = {&cache};
      RETURN_IF_ERROR(decoder.Step({token}, caches, ViewOf(logits.back(), {1, kVocab}), context.stats));
    }
    return logits;
  }

  static void OnOneRank(const std::function<absl::Status(const RankContext&)>& body) {
    const absl::Status status = OnRanks(model(), {}, body);
    ASSERT_TRUE(status.ok()) << status;
  }
};

TEST_F(EngineDecode, TwoPromptsInARow) {
  const auto a = Prompt(200, 1), b = Prompt(300, 2);
  for (const int ranks : {1, 3}) {
    EngineRun run{.ranks = ranks, .threads = 1, .compression = Snap(), .generate = 6};
    const auto alone = RunEngine(model(), b, run);
    ASSERT_TRUE(alone.ok()) << alone.status();
    // The same objects serve one prompt, its decoding, and then the other.
    const absl::Status status =
        OnRanks(model(), {.ranks = ranks}, [&](const RankContext& context) -> absl::Status {
          for (const auto* prompt : {&a, &b}) {
            ASSIGN_OR_RETURN(PrefillResult result, RunPrefill(context, *prompt, Snap()));
            EXPECT_EQ(result.rows_kept, kCapacity) << "the prompt was not compressed";
            if (context.rank() != 0) continue;
            std::vector<int32_t> generated;
            std::vector<double> margins;
            RETURN_IF_ERROR(DecodeGreedy(model(), context.stream, context.allocator, result.logits,
                                         *result.cache, 6, generated, margins));
            if (prompt == &a) continue;
            for (int64_t l = 0; l < kLayers; ++l)
              EXPECT_EQ(result.selections[static_cast<size_t>(l)].positions,
                        alone->selections[0][static_cast<size_t>(l)].positions)
                  << "layer " << l;
            ExpectEqualBits(result.logits, alone->logits, {kVocab}, "second prompt");
            EXPECT_EQ(generated, alone->generated);
          }
          return absl::OkStatus();
        });
    ASSERT_TRUE(status.ok()) << status;
  }
}

// Decoding token by token from a full cache is prefill of the longer prompt.
TEST_F(EngineDecode, StepsAfterPromptsOfOneTokenAndMore) {
  for (const int64_t tokens : {1, 2, 40, 64, 100}) {
    for (const auto& compression : {Snap(), Full()}) {
      if (compression.policy == CachePolicy::kSnapKv && tokens > kCapacity) continue;
      const auto all = Prompt(tokens + 5, static_cast<uint64_t>(tokens));
      const std::vector<int32_t> prompt(all.begin(), all.begin() + tokens),
          rest(all.begin() + tokens, all.end());
      OnOneRank([&](const RankContext& context) -> absl::Status {
        ASSIGN_OR_RETURN(PrefillResult result, RunPrefill(context, prompt, compression));
        ASSIGN_OR_RETURN(const auto logits, Decode(context, *result.cache, rest));
        for (size_t i = 0; i < rest.size(); ++i) {
          const std::vector<int32_t> longer(all.begin(), all.begin() + tokens + static_cast<int64_t>(i) + 1);
          ASSIGN_OR_RETURN(const PrefillResult want, RunPrefill(context, longer, Full()));
          ExpectClose(logits[i], want.logits, {kVocab}, 2e-5, 0,
                      "T " + std::to_string(tokens) + " step " + std::to_string(i));
        }
        return absl::OkStatus();
      });
    }
  }
}

TEST_F(EngineDecode, TheFirstTokenComesFromFullAttention) {
  const auto prompt = Prompt(500, 3);
  OnOneRank([&](const RankContext& context) -> absl::Status {
    ASSIGN_OR_RETURN(const PrefillResult full, RunPrefill(context, prompt, Full()));
    ASSIGN_OR_RETURN(const PrefillResult snap, RunPrefill(context, prompt, Snap()));
    ExpectEqualBits(snap.logits, full.logits, {kVocab});
    // The compressed cache does change what follows, or this test would prove nothing.
    ASSIGN_OR_RETURN(const auto a, Decode(context, *full.cache, {1}));
    ASSIGN_OR_RETURN(const auto b, Decode(context, *snap.cache, {1}));
    EXPECT_NE(a, b);
    return absl::OkStatus();
  });
}

// The rows of the cache are the kept rows of the prompt, in their order, for every head.
TEST_F(EngineDecode, TheCacheHoldsTheKeptRows) {
  const auto prompt = Prompt(300, 4);
  for (const auto group : {kernels::GroupMode::kMean, kernels::GroupMode::kNone}) {
    for (const int ranks : {1, 2, 5}) {
      const absl::Status status =
          OnRanks(model(), {.ranks = ranks}, [&](const RankContext& context) -> absl::Status {
            ASSIGN_OR_RETURN(const PrefillResult full, RunPrefill(context, prompt, Full()));
            ASSIGN_OR_RETURN(const PrefillResult snap, RunPrefill(context, prompt, Snap(group)));
            if (context.rank() != 0) return absl::OkStatus();
            const int64_t heads = snap.cache->cache_heads();
            EXPECT_EQ(heads, group == kernels::GroupMode::kNone ? kHeads : kKvHeads);
            for (int64_t l = 0; l < kLayers; ++l)
              for (int64_t h = 0; h < heads; ++h) {
                const auto& positions =
                    snap.selections[static_cast<size_t>(l)].positions[static_cast<size_t>(h)];
                EXPECT_EQ(static_cast<int64_t>(positions.size()), kCapacity);
                const int64_t kv = h / (heads / kKvHeads);
                for (int64_t i = 0; i < static_cast<int64_t>(positions.size()); ++i) {
                  const int64_t p = positions[static_cast<size_t>(i)];
                  const std::string what = "N " + std::to_string(ranks) + " layer " + std::to_string(l) +
                                           " head " + std::to_string(h) + " row " + std::to_string(i);
                  ExpectEqualBits(snap.cache->k(l, h)[i], full.cache->k(l, kv)[p], what + " k");
                  ExpectEqualBits(snap.cache->v(l, h)[i], full.cache->v(l, kv)[p], what + " v");
                }
              }
            return absl::OkStatus();
          });
      ASSERT_TRUE(status.ok()) << status;
    }
  }
}

TEST_F(EngineDecode, ReadsExactlyTheKeptRowsAndThoseAppended) {
  const auto prompt = Prompt(300, 5);
  const auto next = Prompt(4, 6);
  OnOneRank([&](const RankContext& context) -> absl::Status {
    ASSIGN_OR_RETURN(PrefillResult clean, RunPrefill(context, prompt, Snap()));
    ASSIGN_OR_RETURN(const auto want, Decode(context, *clean.cache, next));
    for (int64_t l = 0; l < kLayers; ++l) EXPECT_EQ(clean.cache->rows(l), kCapacity + 4);
    EXPECT_EQ(clean.cache->next_position, 304) << "positions continue behind the prompt, not behind C";

    // Rows behind the used ones are not read: NaN there does not show.
    ASSIGN_OR_RETURN(PrefillResult poisoned, RunPrefill(context, prompt, Snap()));
    for (int64_t l = 0; l < kLayers; ++l)
      for (int64_t h = 0; h < kKvHeads; ++h)
        for (const TensorView& side : {poisoned.cache->k(l, h), poisoned.cache->v(l, h)}) {
          EXPECT_EQ(side.dim(0), kCapacity + kHeadroom);
          for (int64_t row = kCapacity; row < side.dim(0); ++row)
            std::fill_n(side[row].as<float>(), kDim, std::numeric_limits<float>::quiet_NaN());
        }
    ASSIGN_OR_RETURN(const auto got, Decode(context, *poisoned.cache, next));
    for (size_t i = 0; i < next.size(); ++i)
      ExpectEqualBits(got[i], want[i], {kVocab}, "NaN behind the rows");

    // Every kept row is read: a NaN in any one of them shows.
    for (int64_t row = 0; row < kCapacity; ++row) {
      ASSIGN_OR_RETURN(PrefillResult holed, RunPrefill(context, prompt, Snap()));
      *holed.cache->v(row % kLayers, row % kKvHeads)[row].as<float>() =
          std::numeric_limits<float>::quiet_NaN();
      ASSIGN_OR_RETURN(const auto bad, Decode(context, *holed.cache, {next[0]}));
      EXPECT_TRUE(std::isnan(bad[0][0])) << "row " << row << " was not read";
    }
    return absl::OkStatus();
  });
}

TEST_F(EngineDecode, AFullCacheIsAnError) {
  OnOneRank([&](const RankContext& context) -> absl::Status {
    ASSIGN_OR_RETURN(PrefillResult result, RunPrefill(context, Prompt(60, 7), Snap()));
    ASSIGN_OR_RETURN(const auto ignored, Decode(context, *result.cache, Prompt(kHeadroom, 8)));
    const auto more = Decode(context, *result.cache, {1});
    EXPECT_EQ(more.status().code(), absl::StatusCode::kResourceExhausted) << more.status();
    return absl::OkStatus();
  });
}

TEST_F(EngineDecode, TheOrderOfRowsDoesNotMatter) {
  const auto prompt = Prompt(300, 9);
  OnOneRank([&](const RankContext& context) -> absl::Status {
    ASSIGN_OR_RETURN(PrefillResult sorted, RunPrefill(context, prompt, Snap()));
    ASSIGN_OR_RETURN(PrefillResult shuffled, RunPrefill(context, prompt, Snap()));
    for (int64_t l = 0; l < kLayers; ++l)
      for (int64_t h = 0; h < kKvHeads; ++h)
        for (int64_t i = 0; i < kCapacity; ++i) {  // 29 and 48 have no common factor: a permutation
          const int64_t from = (i * 29 + h + l) % kCapacity;
          std::memcpy(shuffled.cache->k(l, h)[i].data, sorted.cache->k(l, h)[from].data,
                      kDim * sizeof(float));
          std::memcpy(shuffled.cache->v(l, h)[i].data, sorted.cache->v(l, h)[from].data,
                      kDim * sizeof(float));
        }
    const auto next = Prompt(5, 10);
    ASSIGN_OR_RETURN(const auto want, Decode(context, *sorted.cache, next));
    ASSIGN_OR_RETURN(const auto got, Decode(context, *shuffled.cache, next));
    for (size_t i = 0; i < next.size(); ++i) ExpectClose(got[i], want[i], {kVocab}, 2e-5, 0, "shuffled");
    return absl::OkStatus();
  });
}

// Documents of different lengths, policies and numbers of cache heads, alone and together.
TEST_F(EngineDecode, CompanionsInABatchDoNotShow) {
  struct Document {
    std::vector<int32_t> prompt, next;
    runtime::CompressionOptions compression;
  };
  const std::vector<Document> documents = {
      {Prompt(300, 11), Prompt(6, 21), Snap()},
      {Prompt(7, 12), Prompt(6, 22), Full()},
      {Prompt(150, 13), Prompt(6, 23), Snap(kernels::GroupMode::kNone)},
      {Prompt(1, 14), Prompt(6, 24), Snap()},
      {Prompt(500, 15), Prompt(6, 25), Full()},
  };
  for (const std::vector<size_t>& batch :
       std::vector<std::vector<size_t>>{{0, 1, 3}, {4, 3, 2, 1, 0}, {2, 2, 0, 0, 4}}) {
    OnOneRank([&](const RankContext& context) -> absl::Status {
      std::vector<std::unique_ptr<DecodeCache>> together;
      std::vector<std::vector<std::vector<float>>> alone;
      std::vector<DecodeCache*> caches;
      for (const size_t d : batch) {
        ASSIGN_OR_RETURN(PrefillResult one,
                         RunPrefill(context, documents[d].prompt, documents[d].compression));
        ASSIGN_OR_RETURN(auto logits, Decode(context, *one.cache, documents[d].next));
        alone.push_back(std::move(logits));
        ASSIGN_OR_RETURN(PrefillResult again,
                         RunPrefill(context, documents[d].prompt, documents[d].compression));
        together.push_back(std::move(again.cache));
        caches.push_back(together.back().get());
      }
      const int64_t n = static_cast<int64_t>(batch.size());
      ASSIGN_OR_RETURN(Decoder decoder, Decoder::Create(model(), context.stream, context.allocator, n));
      for (size_t step = 0; step < 6; ++step) {
        std::vector<int32_t> tokens;
        for (const size_t d : batch) tokens.push_back(documents[d].next[step]);
        const TestTensor logits(DType::kF32, {n, kVocab});
        RETURN_IF_ERROR(decoder.Step(tokens, caches, logits, context.stats));
        for (int64_t b = 0; b < n; ++b)
          ExpectEqualBits(
              logits.view()[b], ViewOf(alone[static_cast<size_t>(b)][step], {kVocab}),
              "document " + std::to_string(batch[static_cast<size_t>(b)]) + " step " + std::to_string(step));
      }
      return absl::OkStatus();
    });
  }
}

TEST_F(EngineDecode, BadOptionsAndPromptsAreNamed) {
  OnOneRank([&](const RankContext& context) -> absl::Status {
    const auto message = [&](const std::vector<int32_t>& tokens, runtime::CompressionOptions options) {
      const absl::Status status = RunPrefill(context, tokens, options).status();
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
      return std::string(status.message());
    };
    auto options = Snap();
    options.window = 0;
    EXPECT_NE(message({1}, options).find("--window"), std::string::npos);
    options = Snap();
    options.kernel = 4;
    EXPECT_NE(message({1}, options).find("--kernel"), std::string::npos);
    options.kernel = -1;
    EXPECT_NE(message({1}, options).find("--kernel"), std::string::npos);
    options = Snap();
    options.capacity = 15;
    EXPECT_NE(message({1}, options).find("--capacity"), std::string::npos);
    EXPECT_NE(message({}, Snap()).find("no tokens"), std::string::npos);
    EXPECT_NE(message({1, static_cast<int32_t>(kVocab)}, Snap()).find("token 1 "), std::string::npos);
    EXPECT_NE(message({-1}, Snap()).find("token 0 "), std::string::npos);
    return absl::OkStatus();
  });
}

// A token outside the vocabulary is one rank's to embed, but every rank's to refuse.
TEST_F(EngineDecode, ABadTokenEndsEveryRankAlike) {
  auto prompt = Prompt(300, 16);
  prompt[100] = static_cast<int32_t>(kVocab);
  const absl::Status status = OnRanks(model(), {.ranks = 3}, [&](const RankContext& context) -> absl::Status {
    const absl::Status mine = RunPrefill(context, prompt, Snap()).status();
    EXPECT_EQ(mine.code(), absl::StatusCode::kInvalidArgument) << "rank " << context.rank() << ": " << mine;
    EXPECT_NE(std::string(mine.message()).find("token 100 "), std::string::npos) << mine;
    return context.host.Barrier();  // the group is still whole
  });
  EXPECT_TRUE(status.ok()) << status;
}

}  // namespace
}  // namespace snapkv::testing
