// SPDX-License-Identifier: Apache-2.0
// Many documents through RunBatch: neither the batch, nor the ranks, nor what else decodes shows in a result.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "runtime/engine/batch.h"
#include "tests/runtime/tiny_vocabulary.h"
#include "tests/support/engine_harness.h"
#include "tests/support/tiny_model.h"

namespace snapkv::testing {
namespace {

using runtime::BatchDriver;
using runtime::BatchOptions;
using runtime::DocumentTimes;
using runtime::Generation;
using runtime::Prompt;
using runtime::RankContext;
using runtime::Tokenizer;
using ::testing::HasSubstr;

constexpr int64_t kVocab = 270;

const runtime::Model& SharedModel() {
  static const auto* tiny = new auto(TinyModel::Create({.vocab = kVocab}));
  return (**tiny)->model();
}

const Tokenizer& SharedTokenizer() {
  static const auto* tokenizer = new auto(Tokenizer::Create(runtime::TinyVocabulary()));
  return **tokenizer;
}

Prompt MakePrompt(int64_t ticket, int64_t tokens, int64_t max_tokens) {
  Prompt prompt;
  prompt.ticket = ticket;
  prompt.tokens = RandomTokens(tokens, 256, static_cast<uint64_t>(ticket) + 1);
  prompt.compression = {.capacity = 48, .window = 16};
  prompt.generation.max_tokens = max_tokens;
  prompt.generation.sampling.repeat_penalty = 1.3f;
  return prompt;
}

// Lengths around the capacity and the chunk edges, compressed and not, drawn and greedy.
std::vector<Prompt> MixedPrompts() {
  std::vector<Prompt> prompts;
  const int64_t lengths[] = {200, 1, 47, 48, 49, 333, 64, 128, 7, 150, 90};
  for (size_t i = 0; i < std::size(lengths); ++i) {
    Prompt prompt = MakePrompt(static_cast<int64_t>(i), lengths[i], 3 + static_cast<int64_t>(i * 7 % 19));
    if (i % 3 == 1) prompt.compression.policy = runtime::CachePolicy::kFull;
    if (i % 4 == 2) prompt.compression.group = kernels::GroupMode::kNone;
    if (i % 2 == 1) {
      prompt.generation.sampling.temperature = 0.8f;
      prompt.generation.sampling.seed = i;
    }
    prompts.push_back(std::move(prompt));
  }
  return prompts;
}

// Hands out prompts and keeps what comes back.
class ScriptedDriver : public BatchDriver {
 public:
  explicit ScriptedDriver(std::vector<Prompt> prompts) : prompts_(std::move(prompts)) {}

  Supply Next(bool idle, Prompt& prompt) override {
    if (wait_every > 0 && ++calls_ % wait_every != 0) return Supply::kWait;
    if (next_ == prompts_.size() || signal != 0) return Supply::kEnd;
    EXPECT_TRUE(idle || most_open > 0);
    prompt = prompts_[next_++];
    return Supply::kPrompt;
  }
  void OnPrefillStarted(int64_t ticket) override { started.push_back(ticket); }
  void OnProgress(int64_t layers_done, int64_t layers, int64_t open_documents, int64_t) override {
    if (layers > 0) layers_seen[started.back()] = layers_done;
    most_open = std::max(most_open, open_documents);
  }
  void OnPrefilled(int64_t ticket, const runtime::PrefillResult& result, double seconds) override {
    EXPECT_GE(seconds, 0) << ticket;
    rows_kept[ticket] = result.rows_kept;
    most_open = std::max<int64_t>(most_open, 1);
  }
  void OnFinished(int64_t ticket, absl::StatusOr<Generation> generation,
                  const DocumentTimes& times) override {
    EXPECT_GE(times.decode_s, 0) << ticket;
    EXPECT_LE(times.decode_s, times.batch_decode_s) << ticket << ": a part of all decoding steps";
    if (generation.ok() && generation->token_ids.size() > 1) {
      EXPECT_GT(times.decode_s, 0) << ticket;
      EXPECT_GE(times.batch_decode_s, batch_decode_s_) << "a sum goes up";
      batch_decode_s_ = times.batch_decode_s;
    }
    EXPECT_TRUE(results.emplace(ticket, std::move(generation)).second) << ticket << " finished twice";
  }
  bool Abandoned() override { return abandon_after > 0 && results.size() >= abandon_after; }
  bool Cancelled(int64_t ticket) override { return cancel && cancel(ticket); }
  void OnSignal(int number) override { signal = number; }

  int wait_every = 0;  // of that many calls all but one have no prompt
  int64_t most_open = 0;
  int signal = 0;
  size_t abandon_after = 0;  // results
  std::function<bool(int64_t ticket)> cancel;
  std::map<int64_t, int64_t> layers_seen;  // of the prefill, by ticket
  std::vector<int64_t> started;
  std::map<int64_t, int64_t> rows_kept;
  std::map<int64_t, absl::StatusOr<Generation>> results;

 private:
  std::vector<Prompt> prompts_;
  size_t next_ = 0;
  int calls_ = 0;
  double batch_decode_s_ = 0;
};

void RunDriver(ScriptedDriver& driver, int ranks, BatchOptions options) {
  const absl::Status status =
      OnRanks(SharedModel(), {.ranks = ranks}, [&](const RankContext& context) -> absl::Status {
        const bool leader = context.rank() == runtime::kDecodeRank;
        return RunBatch(context, leader ? &SharedTokenizer() : nullptr, leader ? &driver : nullptr, options);
      });
  ASSERT_TRUE(status.ok()) << status;
}

TEST(EngineBatch, ADocumentsTokensDoNotDependOnItsCompanionsOrTheRanks) {
  ScriptedDriver alone(MixedPrompts());
  RunDriver(alone, 1, {.max_batch = 1});
  ASSERT_EQ(alone.results.size(), MixedPrompts().size());
  EXPECT_EQ(alone.most_open, 1);
  for (const int ranks : {1, 2, 3}) {
    for (const int64_t max_batch : {1, 3, 8}) {
      ScriptedDriver together(MixedPrompts());
      together.wait_every = ranks;
      RunDriver(together, ranks, {.max_batch = max_batch, .decode_in_prefill_from = ranks});
      const std::string what = absl::StrCat(ranks, " ranks, max_batch ", max_batch, ", document ");
      ASSERT_EQ(together.results.size(), alone.results.size()) << what;
      EXPECT_LE(together.most_open, max_batch) << what;
      EXPECT_EQ(together.most_open > 1, max_batch > 1) << what << ": nothing decoded together";
      for (const auto& [ticket, want] : alone.results) {
        const auto& got = together.results.at(ticket);
        ASSERT_TRUE(want.ok() && got.ok()) << what << ticket << ": " << got.status();
        EXPECT_EQ(got->token_ids, want->token_ids) << what << ticket;
        EXPECT_EQ(got->text, want->text) << what << ticket;
        EXPECT_EQ(got->finish_reason, want->finish_reason) << what << ticket;
      }
      EXPECT_EQ(together.rows_kept, alone.rows_kept) << what;
    }
  }
}

TEST(EngineBatch, MoreDocumentsThanFitTheCacheBytesWait) {
  std::vector<Prompt> prompts;
  for (int64_t i = 0; i < 6; ++i) prompts.push_back(MakePrompt(i, 200, 30));
  const int64_t bytes =
      runtime::DecodeCacheBytes(SharedModel().config(), DType::kF32, prompts[0].compression, 200, 30);
  // 48 rows and 29 more, 2 layers, 2 KV heads of 8, K and V, 4 bytes each.
  EXPECT_EQ(bytes, (48 + 29) * 2 * 2 * 8 * 2 * 4);
  for (const auto& [limit, most] : std::map<int64_t, int64_t>{
           {bytes - 1, 1}, {bytes, 1}, {2 * bytes - 1, 1}, {2 * bytes, 2}, {3 * bytes + 5, 3}}) {
    ScriptedDriver driver(prompts);
    for (Prompt& prompt : prompts) prompt.generation.ignore_eos = true;
    RunDriver(driver, 1, {.max_batch = 8, .cache_bytes = limit});
    EXPECT_EQ(driver.results.size(), prompts.size());
    EXPECT_EQ(driver.most_open, most) << "limit " << limit << " of " << bytes << " a document";
  }
}

TEST(EngineBatch, AllocatedBytesAreThoseThatAdmissionCounts) {
  for (const auto group : {kernels::GroupMode::kMean, kernels::GroupMode::kNone}) {
    for (const int64_t tokens : {1, 48, 49, 300}) {
      const absl::Status status = OnRanks(SharedModel(), {}, [&](const RankContext& context) -> absl::Status {
        const runtime::CompressionOptions compression{.capacity = 48, .window = 16, .group = group};
        runtime::PrefillOptions options;
        options.compression = compression;
        options.headroom = 11;
        ASSIGN_OR_RETURN(const auto result, Prefill(context, RandomTokens(tokens, 256, 1), options));
        EXPECT_EQ(result.cache->allocated_bytes(),
                  runtime::DecodeCacheBytes(context.model.config(), DType::kF32, compression, tokens, 12))
            << tokens << " tokens";
        return absl::OkStatus();
      });
      ASSERT_TRUE(status.ok()) << status;
    }
  }
}

TEST(EngineBatch, StopsBelongToTheirDocument) {
  Prompt plain = MakePrompt(0, 100, 20);
  ScriptedDriver first({plain});
  RunDriver(first, 1, {});
  const auto& ids = first.results.at(0)->token_ids;
  ASSERT_GE(ids.size(), 6u);
  // The same document again, ended by its own fourth token, by text across tokens 2 and 3, and not at all.
  Prompt by_token = plain, by_text = plain;
  by_token.ticket = 1;
  by_token.generation.stop_token_ids = {ids[3]};
  by_text.ticket = 2;
  const auto text = SharedTokenizer().Decode({ids[2], ids[3]});
  ASSERT_TRUE(text.ok());
  ScriptedDriver driver({plain, by_token, by_text});
  RunDriver(driver, 2, {});
  EXPECT_EQ(driver.results.at(0)->token_ids, ids);
  const auto stop = std::find(ids.begin(), ids.end(), ids[3]);
  EXPECT_EQ(driver.results.at(1)->token_ids, std::vector<int32_t>(ids.begin(), stop + 1));
  EXPECT_EQ(driver.results.at(1)->finish_reason, "stop");
}

TEST(EngineBatch, AnErrorOfOneDocumentLeavesTheOthersAlone) {
  Prompt good = MakePrompt(0, 100, 10), bad = MakePrompt(1, 100, 10), after = MakePrompt(2, 60, 10);
  bad.generation.stops = {""};
  ScriptedDriver driver({good, bad, after});
  RunDriver(driver, 2, {});
  EXPECT_TRUE(driver.results.at(0).ok());
  EXPECT_THAT(std::string(driver.results.at(1).status().message()), HasSubstr("stop"));
  EXPECT_TRUE(driver.results.at(2).ok());
}

TEST(EngineBatch, AbandonedDocumentsAreDropped) {
  std::vector<Prompt> prompts;
  for (int64_t i = 0; i < 50; ++i) {
    prompts.push_back(MakePrompt(i, 64, i == 0 ? 1 : 1000));
    prompts.back().generation.ignore_eos = true;
  }
  for (const int ranks : {1, 3}) {
    ScriptedDriver driver(prompts);
    driver.abandon_after = 1;
    RunDriver(driver, ranks, {});
    EXPECT_EQ(driver.results.size(), 1u);
    EXPECT_LE(driver.started.size(), 2u);
  }
}

// All but the cancelled documents have the results they have without it.
void ExpectOthersUnchanged(const ScriptedDriver& driver, const ScriptedDriver& alone,
                           const std::set<int64_t>& cancelled, const std::string& what) {
  ASSERT_EQ(driver.results.size(), alone.results.size()) << what;
  for (const auto& [ticket, want] : alone.results) {
    const auto& got = driver.results.at(ticket);
    if (cancelled.contains(ticket)) {
      EXPECT_TRUE(absl::IsCancelled(got.status())) << what << ", document " << ticket << ": " << got.status();
      continue;
    }
    ASSERT_TRUE(want.ok() && got.ok()) << what << ", document " << ticket << ": " << got.status();
    EXPECT_EQ(got->token_ids, want->token_ids) << what << ", document " << ticket;
    EXPECT_EQ(got->text, want->text) << what << ", document " << ticket;
  }
}

TEST(EngineBatch, CancelledDocumentsLeaveTheOthersAlone) {
  std::vector<Prompt> prompts = MixedPrompts();
  for (Prompt& prompt : prompts) prompt.generation.ignore_eos = true;
  ScriptedDriver alone(prompts);
  RunDriver(alone, 1, {.max_batch = 1});
  // After so many tokens each; 0 has 3 and is therefore done before.
  const std::map<int64_t, int64_t> after = {{1, 1}, {3, 2}, {4, 4}, {7, 3}, {0, 100}};
  for (const int ranks : {1, 3}) {
    for (const bool abortable : {false, true}) {
      std::map<int64_t, int64_t> tokens, asked_for;
      std::vector<Prompt> counted = prompts;
      for (Prompt& prompt : counted) {
        prompt.generation.on_token = [&tokens, ticket = prompt.ticket](int64_t n) { tokens[ticket] = n; };
      }
      ScriptedDriver driver(counted);
      driver.cancel = [&](int64_t ticket) {
        const auto it = after.find(ticket);
        return it != after.end() && tokens[ticket] >= it->second;
      };
      RunDriver(driver, ranks, {.max_batch = 4, .decode_in_prefill_from = 2, .abortable = abortable});
      const std::string what = absl::StrCat(ranks, " ranks, abortable ", abortable);
      ExpectOthersUnchanged(driver, alone, {1, 3, 4, 7}, what);
      for (const auto& [ticket, most] : after) {
        if (ticket == 0) continue;
        EXPECT_LE(tokens[ticket], most + 1)
            << what << ", document " << ticket << ": went on for more than a step";
      }
    }
  }
}

TEST(EngineBatch, APromptThatIsCancelledInItsPrefillStopsBehindALayer) {
  static const auto* deep = new auto(TinyModel::Create({.layers = 6, .vocab = kVocab}));
  const runtime::Model& model = (**deep)->model();
  for (const int ranks : {1, 2, 3}) {
    for (const int64_t capacity : {48, 1000}) {  // with collectives of a selection in each layer, and without
      std::vector<Prompt> prompts;
      for (int64_t i = 0; i < 4; ++i) {
        prompts.push_back(MakePrompt(i, 150, 9));
        prompts.back().compression.capacity = capacity;
        prompts.back().generation.ignore_eos = true;
      }
      ScriptedDriver driver(prompts), alone(prompts);
      int asked = 0;
      // The first prompt at once, the third in its second layer.
      driver.cancel = [&](int64_t ticket) { return ticket == 0 || (ticket == 2 && ++asked >= 2); };
      for (ScriptedDriver* d : {&alone, &driver}) {
        const absl::Status status = OnRanks(model, {.ranks = ranks}, [&](const RankContext& context) {
          const bool leader = context.rank() == runtime::kDecodeRank;
          const absl::Status run = RunBatch(context, leader ? &SharedTokenizer() : nullptr,
                                            leader ? d : nullptr, {.max_batch = 2, .abortable = true});
          EXPECT_EQ(context.allocator.use(MemoryKind::kKvCompressed).current_bytes, 0) << "a cache is left";
          return run;
        });
        ASSERT_TRUE(status.ok()) << status;
      }
      const std::string what = absl::StrCat(ranks, " ranks, capacity ", capacity);
      ExpectOthersUnchanged(driver, alone, {0, 2}, what);
      EXPECT_EQ(driver.layers_seen[0], 1) << what;
      EXPECT_EQ(driver.layers_seen[2], 2) << what;
      EXPECT_EQ(driver.layers_seen[1], 6) << what;
      EXPECT_EQ(driver.rows_kept.count(0) + driver.rows_kept.count(2), 0u) << what;
    }
  }
}

TEST(EngineBatch, WithoutAbortACancelledPromptIsDroppedAtTheEndOfItsPrefill) {
  std::vector<Prompt> prompts = {MakePrompt(0, 150, 9), MakePrompt(1, 150, 9)};
  ScriptedDriver driver(prompts), alone(prompts);
  RunDriver(alone, 1, {});
  driver.cancel = [&](int64_t ticket) { return ticket == 0; };
  RunDriver(driver, 2, {});
  ExpectOthersUnchanged(driver, alone, {0}, "2 ranks");
  EXPECT_EQ(driver.layers_seen[0], SharedModel().config().layers);
  EXPECT_EQ(driver.rows_kept.count(0), 0u);
}

TEST(EngineBatch, APromptThatWaitsForRoomCanBeCancelled) {
  std::vector<Prompt> prompts = {MakePrompt(0, 200, 30), MakePrompt(1, 200, 30), MakePrompt(2, 200, 30)};
  for (Prompt& prompt : prompts) prompt.generation.ignore_eos = true;
  ScriptedDriver driver(prompts), alone(prompts);
  RunDriver(alone, 1, {.max_batch = 1});
  driver.cancel = [&](int64_t ticket) { return ticket == 1; };
  RunDriver(driver, 2, {.max_batch = 2, .cache_bytes = 1});  // one at a time
  ExpectOthersUnchanged(driver, alone, {1}, "2 ranks");
  EXPECT_THAT(driver.started, ::testing::ElementsAre(0, 2));
}

TEST(EngineBatch, ASignalOnAnyRankReachesTheDriver) {
  std::vector<Prompt> prompts;
  for (int64_t i = 0; i < 50; ++i) prompts.push_back(MakePrompt(i, 64, 4));
  ScriptedDriver driver(prompts);
  const absl::Status status =
      OnRanks(SharedModel(), {.ranks = 3}, [&](const RankContext& context) -> absl::Status {
        const bool leader = context.rank() == runtime::kDecodeRank;
        int exchanges = 0;
        BatchOptions options;
        options.signal = [&] { return context.rank() == 2 && ++exchanges > 5 ? 15 : 0; };
        return RunBatch(context, leader ? &SharedTokenizer() : nullptr, leader ? &driver : nullptr, options);
      });
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(driver.signal, 15);
  EXPECT_LT(driver.started.size(), prompts.size());
  EXPECT_EQ(driver.results.size(), driver.started.size()) << "open documents are finished";
}

}  // namespace
}  // namespace snapkv::testing
