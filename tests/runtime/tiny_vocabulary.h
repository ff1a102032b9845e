// SPDX-License-Identifier: Apache-2.0
// A hand-made byte-level vocabulary for the tokenizer's tests.
#pragma once

#include <string>
#include <vector>

#include "runtime/text/byte_level.h"
#include "runtime/text/tokenizer.h"

namespace snapkv::runtime {

// Ids: byte b is token b; then the merges' results in order, from kFirstMerge; then the special tokens.
inline constexpr int32_t kFirstMerge = 256;
inline const std::vector<std::pair<std::string, std::string>> kTinyMerges = {
    {"h", "e"}, {"l", "l"},   {"he", "ll"}, {"hell", "o"}, {" ", "w"},
    {"a", "a"}, {"aa", "aa"}, {"a", "b"},   {"1", "2"},
};
inline constexpr int32_t kHe = 256, kLl = 257, kHell = 258, kHello = 259, kSpaceW = 260, kAa = 261,
                         kAaaa = 262, kAb = 263, k12 = 264, kStart = 265, kEnd = 266, kEndMore = 267,
                         kTool = 268, kUnused = 269;

inline TokenizerData TinyVocabulary(const std::string& pre = "gpt-2") {
  TokenizerData data;
  data.model = "gpt2";
  data.pre = pre;
  for (int byte = 0; byte < 256; ++byte) {
    data.tokens.push_back(BytesToSymbols(std::string(1, static_cast<char>(byte))));
  }
  for (const auto& [left, right] : kTinyMerges) {
    data.tokens.push_back(BytesToSymbols(left + right));
    data.merges.push_back(BytesToSymbols(left) + " " + BytesToSymbols(right));
  }
  data.types.assign(data.tokens.size(), static_cast<int32_t>(TokenType::kNormal));
  const std::pair<const char*, TokenType> specials[] = {{"<|im_start|>", TokenType::kControl},
                                                        {"<|im_end|>", TokenType::kControl},
                                                        {"<|im_end|>more", TokenType::kControl},
                                                        {"<tool>", TokenType::kUserDefined},
                                                        {"[PAD]", TokenType::kUnused}};
  for (const auto& [spelling, type] : specials) {
    data.tokens.push_back(spelling);
    data.types.push_back(static_cast<int32_t>(type));
  }
  data.bos = kStart;
  data.eos = kEnd;
  return data;
}

}  // namespace snapkv::runtime
