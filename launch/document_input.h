// SPDX-License-Identifier: Apache-2.0
// From a file to prompt tokens: reading, encoding, chat template, limits.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "launch/flags.h"
#include "launch/input/document.h"
#include "runtime/text/tokenizer.h"

namespace snapkv::launch {

// The bytes of a file or of stdin ("-"), at most kMostInputBytes. Errors name the path and the reason.
inline constexpr size_t kMostInputBytes = size_t{256} << 20;
absl::StatusOr<std::string> ReadInput(const std::string& path);

// A JSON array of token ids, each checked against the vocabulary.
absl::StatusOr<std::vector<int32_t>> ParseTokenIds(const std::string& json, const std::string& path,
                                                   int64_t vocab);

// UTF-8 text of a document: a byte-order mark is dropped, Latin-1 converted. Empty (or blank) documents,
// ill-formed UTF-8 (with its byte offset) and NUL bytes are errors.
DocumentError DecodeDocument(const std::string& bytes, const Flags& flags, std::string& text);

// Prompt tokens of a document: through the model's chat template, the prompt after the document, or as it is
// with --raw.
absl::StatusOr<std::vector<int32_t>> BuildPrompt(const runtime::Tokenizer& tokenizer, const std::string& text,
                                                 const Flags& flags);

// Prompt plus generated tokens must fit the context.
DocumentError CheckContext(int64_t prompt_tokens, int64_t max_tokens, int64_t context);

}  // namespace snapkv::launch
