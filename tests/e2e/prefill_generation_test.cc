// SPDX-License-Identifier: Apache-2.0
// How snapkv-prefill ends, draws and repeats text; and the files of --dump-selection and --dump-logits.
#include <algorithm>
#include <set>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/e2e/prefill_program.h"
#include "tests/support/tensors.h"

namespace snapkv::testing {
namespace {

using ::testing::SizeIs;
using Json = nlohmann::ordered_json;

class Generation : public ::testing::Test {
 protected:
  Json Run(const Strings& flags, int ranks = 0) {
    const ProgramResult result = RunPrefill(
        WithSmallModel(Join({"--input", "report.txt", "--format", "jsonl", "--return-token-ids"}, flags)),
        ranks, Here());
    EXPECT_EQ(result.exit_code, 0) << result.ToString();
    return ParseRecord(result.out);
  }

  // Draws depend on the id, which is the path as given.
  ProgramOptions Here() const {
    ProgramOptions options;
    options.folder = folder_.path();
    return options;
  }

  const TestFolder folder_;
  const std::string document_ = folder_.Write("report.txt", "Sales rose in March. Nobody knows why.");
};

// At this temperature all tokens are about equally likely, the two that end a text among them.
const Strings kHot = {"--temperature", "100", "--max-tokens", "1500"};

TEST_F(Generation, EndTokenEndsTheTextUnlessIgnored) {
  const Json stopped = Run(Join(kHot, {"--seed", "3"}));
  EXPECT_EQ(stopped["finish_reason"], "stop");
  const std::vector<int32_t> ids = TokenIds(stopped);
  ASSERT_LT(ids.size(), 1500u) << "choose another seed";
  EXPECT_TRUE(ids.back() == kEndOfText || ids.back() == kMessageEnd) << ids.back();
  for (size_t i = 0; i + 1 < ids.size(); ++i)
    EXPECT_TRUE(ids[i] != kEndOfText && ids[i] != kMessageEnd) << "token " << i;
  const std::string text = stopped["summary"];
  EXPECT_EQ(text.find("<|im_end|>"), std::string::npos);

  const Json ignored = Run(Join(kHot, {"--seed", "3", "--ignore-eos"}));
  EXPECT_EQ(ignored["finish_reason"], "length");
  EXPECT_EQ(ignored["usage"]["completion_tokens"], 1500);
  const std::vector<int32_t> longer = TokenIds(ignored);
  ASSERT_THAT(longer, SizeIs(1500));
  EXPECT_TRUE(std::equal(ids.begin(), ids.end(), longer.begin())) << "the same draws up to the end token";
  EXPECT_TRUE(ignored["summary"].get<std::string>().starts_with(text));
}

TEST_F(Generation, MaxTokens) {
  const std::vector<int32_t> many = TokenIds(Run({"--ignore-eos", "--max-tokens", "20"}));
  ASSERT_THAT(many, SizeIs(20));
  EXPECT_GT(std::set<int32_t>(many.begin(), many.end()).size(), 5u)
      << "a text of one token would prove little";
  for (const size_t n : {1u, 2u, 19u}) {
    const Json record = Run({"--ignore-eos", "--max-tokens", std::to_string(n)});
    EXPECT_EQ(TokenIds(record), std::vector<int32_t>(many.begin(), many.begin() + static_cast<int64_t>(n)));
    EXPECT_EQ(record["finish_reason"], "length");
    EXPECT_GE(record["timings"]["decode_tokens_per_s"].get<double>(), 0);
  }
}

// Stop strings are searched in the text, across token borders; the text ends before the first of them.
TEST_F(Generation, StopStrings) {
  const Strings flags = {"--ignore-eos", "--max-tokens", "200", "--temperature", "1", "--seed", "5"};
  const Json whole = Run(flags);
  const std::string text = whole["summary"];
  // Characters of the text that can be shown, so that strings are cut between characters.
  std::vector<std::string> characters;
  for (size_t i = 0; i < text.size(); ++i) {
    if ((text[i] & 0xC0) == 0x80) {
      characters.back() += text[i];
    } else {
      characters.emplace_back(1, text[i]);
    }
  }
  ASSERT_GT(characters.size(), 60u);
  const auto piece = [&](size_t at, size_t n) {
    std::string joined;
    for (size_t i = at; i < at + n; ++i) joined += characters[i];
    return joined;
  };
  for (const size_t length : {1u, 2u, 5u}) {
    const std::string stop = piece(40, length);
    const Json record = Run(Join(flags, {"--stop", stop}));
    EXPECT_EQ(record["summary"], text.substr(0, text.find(stop))) << "stop '" << stop << "'";
    EXPECT_EQ(record["finish_reason"], "stop");
    EXPECT_LT(TokenIds(record).size(), 200u);
    // Two: whichever comes first.
    const std::string earlier = piece(20, 3);
    const Json two = Run(Join(flags, {"--stop", stop, "--stop", earlier}));
    EXPECT_EQ(two["summary"], text.substr(0, std::min(text.find(stop), text.find(earlier))));
  }
  const Json never = Run(Join(flags, {"--stop", "this does not occur in random bytes"}));
  EXPECT_EQ(never["summary"], text);
  EXPECT_EQ(never["finish_reason"], "length");
  // As text, the same; nothing of the stop string is streamed.
  const std::string stop = piece(40, 3);
  Strings as_text = Join(flags, {"--input", "report.txt", "--stop", stop});
  EXPECT_EQ(RunPrefill(WithSmallModel(as_text), 0, Here()).out, text.substr(0, text.find(stop)) + "\n");
}

// CLI libraries take "[a,b]" for two values and "{}" for none.
TEST_F(Generation, StopStringsAreTakenAsTheyAre) {
  const std::string ids = folder_.WriteIds("ids.json", {1});
  for (const std::string& stop : Strings{"[END]", "[a,b]", "{}", "%%", "a,b", "a b"}) {
    const Strings flags = {"--token-ids", ids, "--max-tokens", "2", "--dry-run"};
    const ProgramResult result = RunPrefill(WithSmallModel(Join(flags, {"--stop", stop})));
    EXPECT_EQ(result.exit_code, 0) << stop << result.ToString();
  }
  // The hash sees the strings: what is split or dropped would collide.
  const auto hash = [&](const Strings& stops) {
    return Run(Join({"--max-tokens", "2"}, stops))["params_sha256"].get<std::string>();
  };
  EXPECT_NE(hash({"--stop", "[END]"}), hash({"--stop", "END"}));
  EXPECT_NE(hash({"--stop", "[a,b]"}), hash({"--stop", "a", "--stop", "b"}));
  EXPECT_NE(hash({"--stop", "{}"}), hash({}));
}

TEST_F(Generation, SeedMakesDrawsReproducible) {
  const Strings warm = {"--ignore-eos", "--max-tokens", "40", "--temperature", "1"};
  const auto ids = [&](const Strings& flags, int ranks = 0) {
    return TokenIds(Run(Join(warm, flags), ranks));
  };
  const std::vector<int32_t> one = ids({"--seed", "1"});
  EXPECT_EQ(ids({"--seed", "1"}), one);
  EXPECT_EQ(ids({"--seed", "1"}, 2), one) << "on two ranks";
  EXPECT_NE(ids({"--seed", "2"}), one);
  EXPECT_EQ(ids({}), ids({"--seed", "0"})) << "0 is the default";
  // Greedy text does not depend on the seed.
  const Strings greedy = {"--ignore-eos", "--max-tokens", "40"};
  EXPECT_EQ(TokenIds(Run(Join(greedy, {"--seed", "1"}))), TokenIds(Run(Join(greedy, {"--seed", "2"}))));
  EXPECT_NE(TokenIds(Run(greedy)), one);
}

TEST_F(Generation, RepeatPenaltyChangesTheText) {
  const auto repeats = [&](const char* penalty) {
    std::vector<int32_t> ids =
        TokenIds(Run({"--ignore-eos", "--max-tokens", "200", "--repeat-penalty", penalty}));
    std::sort(ids.begin(), ids.end());
    return ids.end() - std::unique(ids.begin(), ids.end());
  };
  EXPECT_EQ(repeats("1"), repeats("1"));
  EXPECT_LT(repeats("100"), repeats("1")) << "tokens seen before are unlikely";
}

TEST_F(Generation, ThreadsDoNotChangeTheText) {
  const Json one = Run({"--ignore-eos", "--max-tokens", "30"});
  const ProgramResult three =
      RunPrefill({"--model", SmallModel(), "--dtype", "f32", "--threads", "3", "--input", document_,
                  "--format", "jsonl", "--return-token-ids", "--ignore-eos", "--max-tokens", "30"});
  EXPECT_EQ(TokenIds(ParseRecord(three.out)), TokenIds(one));
}

struct Shape {
  Strings flags;
  size_t heads, rows;
};

TEST(Dumps, SelectionShapes) {
  const TestFolder folder;
  const int64_t tokens = 300;
  const std::string ids = folder.WriteIds("ids.json", RandomTokens(tokens, 256, 11));
  const Shape shapes[] = {
      {{"--capacity", "100", "--window", "16"}, 2, 100},
      {{"--capacity", "100", "--window", "16", "--group", "max"}, 2, 100},
      {{"--capacity", "100", "--window", "16", "--group", "none"}, 6, 100},
      {{"--capacity", "16", "--window", "16"}, 2, 16},  // the window alone
      {{"--capacity", "299", "--window", "1", "--pool", "none"}, 2, 299},
      {{"--capacity", "300", "--window", "16", "--group", "none"}, 2, 300},  // T <= C keeps everything
      {{"--capacity", "100", "--policy", "full"}, 2, 300},
      {{}, 2, 300}};
  for (const int ranks : {0, 2}) {
    for (const Shape& shape : shapes) {
      const std::string path = folder.Path("selection.safetensors");
      const ProgramResult result =
          RunPrefill(WithSmallModel(Join({"--token-ids", ids, "--max-tokens", "1", "--dump-selection", path},
                                         shape.flags)),
                     ranks);
      ASSERT_EQ(result.exit_code, 0) << result.ToString();
      const auto layers = ReadSelection(path);
      ASSERT_THAT(layers, SizeIs(2));
      const int64_t window =
          shape.flags.size() > 3 && shape.flags[2] == "--window" ? std::stol(shape.flags[3]) : 0;
      for (const auto& heads : layers) {
        ASSERT_THAT(heads, SizeIs(shape.heads));
        for (const auto& rows : heads) {
          ASSERT_THAT(rows, SizeIs(shape.rows));
          EXPECT_TRUE(std::is_sorted(rows.begin(), rows.end()));
          EXPECT_TRUE(std::adjacent_find(rows.begin(), rows.end()) == rows.end());
          EXPECT_GE(rows.front(), 0);
          for (int64_t i = 0; i < window; ++i)
            EXPECT_EQ(rows[rows.size() - 1 - static_cast<size_t>(i)], tokens - 1 - i) << "window row";
        }
      }
    }
  }
}

TEST(Dumps, LogitsChooseTheFirstToken) {
  const TestFolder folder;
  const std::string ids = folder.WriteIds("ids.json", RandomTokens(300, 256, 11));
  std::vector<float> first;
  for (const int ranks : {0, 2, 3}) {
    for (const Strings& flags : std::vector<Strings>{{}, {"--capacity", "50", "--window", "8"}}) {
      const std::string path = folder.Path("logits.safetensors");
      const ProgramResult result = RunPrefill(
          WithSmallModel(
              Join({"--token-ids", ids, "--max-tokens", "1", "--ignore-eos", "--dump-logits", path}, flags)),
          ranks);
      ASSERT_EQ(result.exit_code, 0) << result.ToString();
      const std::vector<float> logits = ReadLogits(path);
      ASSERT_THAT(logits, SizeIs(kByteVocab));
      const auto best = std::max_element(logits.begin(), logits.end()) - logits.begin();
      EXPECT_EQ(TokenIds(ParseRecord(result.out)), std::vector<int32_t>{static_cast<int32_t>(best)});
      if (first.empty()) first = logits;
      // From full attention whatever is kept, and the same on any number of ranks.
      ExpectClose(logits, first, {kByteVocab}, 1e-5, 0, std::to_string(ranks) + " ranks");
    }
  }
}

}  // namespace
}  // namespace snapkv::testing
