// SPDX-License-Identifier: Apache-2.0
// snapkv-prefill on four ranks finds a key that was planted in a long prompt, by a model made for it.
#include <chrono>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/op/params.h"
#include "runtime/plan/plan.h"
#include "tests/e2e/prefill_program.h"
#include "tests/support/induction_model.h"

namespace snapkv::testing {
namespace {

using ::testing::Contains;
using ::testing::ElementsAreArray;
using ::testing::Not;
using ::testing::SizeIs;
using namespace std::chrono_literals;  // NOLINT(google-build-using-namespace): 120s

constexpr int kRanks = 4, kCapacity = 256, kWindow = 32;
static_assert(InductionShape::kVocab == kByteVocab);

struct Outcome {
  std::vector<int32_t> token_ids;
  std::vector<int32_t> kept;  // by layer 1
};

// `planted` < 0: not at all.
Outcome RunInduction(int64_t tokens, int64_t planted, std::chrono::seconds timeout) {
  const TestFolder folder;
  GgufWriter model = InductionGguf();
  AddByteTokenizer(model);
  EXPECT_TRUE(model.Write(folder.Path("induction.gguf")));
  const ProgramResult result =
      RunPrefill({"--model", folder.Path("induction.gguf"), "--dtype", "f32", "--threads", "1", "--token-ids",
                  folder.WriteIds("ids.json", InductionPrompt(tokens, planted, 11)), "--capacity",
                  std::to_string(kCapacity), "--window", std::to_string(kWindow), "--kernel", "7",
                  "--max-tokens", "4", "--ignore-eos", "--dump-selection", folder.Path("kept")},
                 kRanks, {.timeout = timeout});
  EXPECT_EQ(result.exit_code, 0) << result.ToString();
  if (result.exit_code != 0) return {};
  const auto layers = ReadSelection(folder.Path("kept"));
  EXPECT_THAT(layers, SizeIs(2));
  return {TokenIds(ParseRecord(result.out)), layers.size() == 2 ? layers[1][0] : std::vector<int32_t>()};
}

void ExpectFound(int64_t tokens, std::chrono::seconds timeout) {
  // Key and first value in one chunk, the others in the next, which another rank owns.
  const auto plan = runtime::Plan::Create(tokens, kRanks, kWindow, kernels::kKeyBlock);
  ASSERT_TRUE(plan.ok()) << plan.status();
  const int64_t planted = plan->Chunk(1).begin - 2;
  const Outcome outcome = RunInduction(tokens, planted, timeout);
  EXPECT_THAT(outcome.token_ids, ElementsAreArray(kInductionValues));
  EXPECT_THAT(outcome.kept, SizeIs(kCapacity));
  for (int64_t i = 1; i <= 4; ++i) EXPECT_THAT(outcome.kept, Contains(planted + i));
}

TEST(RetrievalProgram, FindsThePlantedKey) { ExpectFound(8192, 120s); }

TEST(RetrievalProgram, WithoutTheKeyThereIsNoAnswer) {
  const Outcome outcome = RunInduction(8192, -1, 120s);
  EXPECT_THAT(outcome.token_ids, SizeIs(4));
  for (const int32_t value : kInductionValues) EXPECT_THAT(outcome.token_ids, Not(Contains(value)));
}

TEST(RetrievalProgramLong, FindsThePlantedKeyInAQuarterOfAMillionTokens) {
  ExpectFound(int64_t{1} << 18, 2500s);
}

}  // namespace
}  // namespace snapkv::testing
