// SPDX-License-Identifier: Apache-2.0
// A model that looks things up by construction, whatever the distance: an induction head (Olsson et al.,
// arXiv 2209.11895) written down as weights. Where a token stood before, the token that followed it is the
// answer.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "tests/support/gguf_writer.h"

namespace snapkv::testing {

// Two layers of one head each, and no MLP. Residual columns: a constant one, the token's code, its spelling,
// the code of the token before, the answer. Layer 0 attends to the position before, by the rotary angles
// alone, and copies that token's code; layer 1 attends to where the copied code is the current token's, and
// copies that position's spelling into the answer, which the head reads.
struct InductionShape {
  static constexpr int64_t kVocab = 259;  // token b is the byte b; three control tokens
  static constexpr int64_t kHidden = 48;
  static constexpr int64_t kHeadDim = 16;
  static constexpr int64_t kCodeDim = 4;  // of a token's code
  static constexpr int64_t kOne = 0, kCode = 1, kSpelling = 5, kBefore = 21, kAnswer = 25;  // first columns
  // Pairs of dimensions whose angle tells positions apart. The others turn by less than 0.05 over kContext
  // positions and hold the codes.
  static constexpr int64_t kPositionPairs = 6;
  static constexpr int64_t kContext = (int64_t{1} << 18) + 64;
  static constexpr double kRopeBase = 1e9;
  // The score of the position before is larger than any other's by kPositionGap times the sum of 1 - cos over
  // kPositionPairs angles, at least 0.13 for all distances; that of a match by kMatchGap.
  static constexpr double kPositionGap = 100;
  static constexpr double kMatchGap = 40;
  // The logit of an answer that is all one token's spelling; those of the others are 0 then.
  static constexpr double kCertain = 3.098;  // sqrt(48 / 5): what RMSNorm makes of one of five equal parts
};

// What is looked up, and what follows it where it is planted. All other tokens are filler.
inline constexpr int32_t kInductionKey = '#';
inline constexpr std::array<int32_t, 4> kInductionValues = {'W', 'X', 'Y', 'Z'};

// The file's tensors and settings, f32, without a tokenizer.
GgufWriter InductionGguf();

// A token's code, of length 1. Those of key and values are at right angles to each other (of the last value:
// opposite the key's) and no less far from all filler.
std::array<double, InductionShape::kCodeDim> InductionCode(int32_t token);

// `tokens` tokens: lower-case filler from a seed, the key and its values at [planted, planted + 5) unless
// that is negative, the key again at the end. 1 <= planted, planted + 5 < tokens: position 0 has none before
// it and would take itself for that.
std::vector<int32_t> InductionPrompt(int64_t tokens, int64_t planted, uint64_t seed);

}  // namespace snapkv::testing
