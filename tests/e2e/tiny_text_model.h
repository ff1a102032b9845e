// SPDX-License-Identifier: Apache-2.0
// A tiny model that reads and writes text: random weights, one token per byte, ChatML template.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/base/status.h"
#include "tests/support/tiny_model.h"

namespace snapkv::testing {

// Token b is the byte b; three control tokens follow.
inline constexpr int32_t kEndOfText = 256, kMessageStart = 257, kMessageEnd = 258;
inline constexpr int64_t kByteVocab = 259;

// The tokenizer and the template, for a model of kByteVocab tokens.
void AddByteTokenizer(GgufWriter& writer);

// TinyGguf of `options`, whose vocab must be kByteVocab, with the tokenizer.
GgufWriter TinyTextGguf(const TinyModelOptions& options);

// What byte-level tokens spell, control tokens as in the vocabulary.
std::string SpellTokens(const std::vector<int32_t>& ids);

// The prompt that the template makes of a document and a question.
std::string RenderedPrompt(const std::string& document, const std::string& question,
                           const std::string& system = "");

}  // namespace snapkv::testing
