// SPDX-License-Identifier: Apache-2.0
// Byte-pair merging against its definition, written down as a quadratic search.
#include "runtime/text/bpe.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace snapkv::runtime {
namespace {

using Tokens = std::vector<int32_t>;

struct Rule {
  int32_t left, right, result;
};

// The lowest-ranked adjacent pair is merged, leftmost first, until none is left.
Tokens MergeSlowly(Tokens tokens, const std::vector<Rule>& rules) {
  std::map<std::pair<int32_t, int32_t>, size_t> rank_of;
  for (size_t i = 0; i < rules.size(); ++i) rank_of.try_emplace({rules[i].left, rules[i].right}, i);
  for (;;) {
    size_t best = rules.size(), at = 0;
    for (size_t i = 0; i + 1 < tokens.size(); ++i) {
      const auto found = rank_of.find({tokens[i], tokens[i + 1]});
      if (found == rank_of.end() || found->second >= best) continue;
      best = found->second;
      at = i;
    }
    if (best == rules.size()) return tokens;
    tokens[at] = rules[best].result;
    tokens.erase(tokens.begin() + static_cast<std::ptrdiff_t>(at) + 1);
  }
}

// Bytes 'a' .. are tokens 0 .. letters-1.
BytePairEncoder Encoder(int letters, const std::vector<Rule>& rules) {
  BytePairEncoder encoder;
  for (int i = 0; i < letters; ++i) encoder.SetByteToken(static_cast<uint8_t>('a' + i), i);
  for (const Rule& rule : rules) encoder.AddMerge(rule.left, rule.right, rule.result);
  return encoder;
}

std::string RandomPiece(int letters, size_t size, std::mt19937_64& rng) {
  std::string piece;
  const bool periodic = rng() % 3 == 0;
  const size_t period = 1 + rng() % 7;
  while (piece.size() < size) {
    const bool repeats = periodic && piece.size() >= period && rng() % 50 != 0;
    piece += repeats ? piece[piece.size() - period]
                     : static_cast<char>('a' + rng() % static_cast<uint64_t>(letters));
  }
  return piece;
}

// Rules as training makes them: each result is new. `wild`: results are any tokens, so that merges of lower
// rank appear while others wait, pairs come back, and a token may have several rules.
std::vector<Rule> RandomRules(int letters, size_t count, bool wild, std::mt19937_64& rng) {
  std::vector<Rule> rules;
  int32_t tokens = letters;
  // Most often a token that occurs often.
  const auto any = [&] { return static_cast<int32_t>(rng() % (1 + rng() % static_cast<uint64_t>(tokens))); };
  for (size_t i = 0; i < count; ++i) {
    const Rule rule = {any(), any(), wild && rng() % 2 == 0 ? any() : tokens};
    if (rule.result == tokens) ++tokens;
    rules.push_back(rule);
  }
  if (wild) std::shuffle(rules.begin(), rules.end(), rng);
  return rules;
}

TEST(BytePairEncoder, MergesAsDefined) {
  std::mt19937_64 rng(19);
  BytePairEncoder::Workspace workspace;
  size_t merged = 0, pieces = 0;
  for (int round = 0; round < 1500; ++round) {
    const int letters = 1 + static_cast<int>(rng() % 5);
    const std::vector<Rule> rules = RandomRules(letters, 1 + rng() % 60, round % 2 == 0, rng);
    const BytePairEncoder encoder = Encoder(letters, rules);
    // Beyond 4096 bytes the queue for long pieces takes over; the definition takes seconds there.
    const size_t size = round % 75 == 7 ? 4090 + rng() % 2000 : rng() % 200;
    const std::string piece = RandomPiece(letters, size, rng);
    Tokens got, letter_tokens;
    ASSERT_TRUE(encoder.Encode(piece, &workspace, &got).ok());
    for (const char c : piece) letter_tokens.push_back(c - 'a');
    const Tokens want = MergeSlowly(letter_tokens, rules);
    size_t at = 0;
    while (at < std::min(got.size(), want.size()) && got[at] == want[at]) ++at;
    ASSERT_TRUE(got == want) << "round " << round << ", " << size << " bytes, token " << at << ": "
                             << (at < got.size() ? got[at] : -1) << ", should be "
                             << (at < want.size() ? want[at] : -1) << " (" << got.size()
                             << " tokens, should be " << want.size() << ")";
    merged += piece.size() - want.size();
    ++pieces;
  }
  EXPECT_EQ(pieces, 1500u);
  EXPECT_GT(merged, 100000u);
}

// Both queues in the same order, also with pushes in between, equal candidates and positions that go back.
TEST(MergeQueues, PopTheLowestRankThenTheLeftmost) {
  std::mt19937_64 rng(3);
  BucketMergeQueue buckets;  // empty after every round, and used again
  for (int round = 0; round < 200; ++round) {
    HeapMergeQueue heap;
    const uint64_t ranks = 1 + rng() % 20, positions = 1 + rng() % 1000;
    int32_t sweep = 0;
    const auto push = [&] {
      sweep = rng() % 4 == 0 ? static_cast<int32_t>(rng() % positions) : sweep + 1;
      const MergeCandidate candidate = {static_cast<int32_t>(rng() % ranks), sweep};
      heap.Push(candidate);
      buckets.Push(candidate);
    };
    const auto pop = [&] {
      const auto a = heap.Pop(), b = buckets.Pop();
      EXPECT_EQ(a.has_value(), b.has_value());
      if (!a || !b) return false;
      EXPECT_EQ(a->rank, b->rank);
      EXPECT_EQ(a->left, b->left);
      return true;
    };
    for (int i = 0; i < 500; ++i) push();
    for (int i = 0; i < 1000; ++i) rng() % 2 == 0 ? push() : void(pop());
    int left = 0;
    for (; pop(); ++left) ASSERT_FALSE(::testing::Test::HasFailure()) << "round " << round;
    EXPECT_GT(left, 0);
  }
}

}  // namespace
}  // namespace snapkv::runtime
