// SPDX-License-Identifier: Apache-2.0
// PromptBuilder: from a document to the tokens of its prompt, through the model's chat template; and what is
// done with documents that are too long.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "launch/input/document.h"
#include "runtime/text/tokenizer.h"

namespace snapkv::launch {

enum class Overflow : uint8_t {
  kError,   // CONTEXT_EXCEEDED
  kMiddle,  // the middle of the document is left out
};

struct PromptOptions {
  bool raw = false;     // the text is the whole prompt: special tokens are parsed, BOS as the model says
  int64_t context = 0;  // prompt plus generated tokens must fit
  Overflow overflow = Overflow::kError;
};

// A document with its tokens, or the error in its place.
struct PreparedDocument {
  Document document;  // without its text
  std::vector<int32_t> tokens;
  std::optional<Truncation> truncated;
  absl::Time read = absl::Now();
  DocumentError error;
};

// Immutable; any thread may call it.
class PromptBuilder {
 public:
  PromptBuilder(std::shared_ptr<const runtime::Tokenizer> tokenizer, const PromptOptions& options);

  // Errors: a template that is missing or fails (PARAMETER_INVALID), no token (DOCUMENT_EMPTY), prompt and
  // max_tokens over the context (CONTEXT_EXCEEDED, with both numbers), stop tokens outside the vocabulary.
  PreparedDocument Build(Document document) const;

  // Prompt plus generated tokens fit the context, or an error that says how much they are over it.
  DocumentError CheckContext(int64_t prompt_tokens, int64_t max_tokens) const;

 private:
  absl::StatusOr<std::vector<int32_t>> Encode(const Document& document) const;
  // Fills `prepared.tokens` (and `truncated`) from its document.
  DocumentError Tokenize(PreparedDocument& prepared) const;
  // Shortens `part`, a string of `document`, until the prompt fits.
  DocumentError CutMiddle(std::string& part, PreparedDocument& prepared) const;

  std::shared_ptr<const runtime::Tokenizer> tokenizer_;
  PromptOptions options_;
  absl::StatusOr<runtime::ChatTemplate> template_;
};

}  // namespace snapkv::launch
