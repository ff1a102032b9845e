// SPDX-License-Identifier: Apache-2.0
// The pre-tokenizer: cuts text into the pieces inside which byte-pair merges may happen.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace snapkv::runtime {

class PreTokenizer {
 public:
  // `name` is the GGUF's tokenizer.ggml.pre: "smollm", "gpt-2" (or "gpt2"), "llama-bpe" (or "llama3",
  // "llama-v3"), "qwen2". Every other name, also the empty one and "default", is an error that lists these:
  // llama.cpp guesses there and warns that quality suffers; here a wrong guess would silently be wrong.
  static absl::StatusOr<PreTokenizer> Create(const std::string& name);

  PreTokenizer(PreTokenizer&&) noexcept;
  PreTokenizer& operator=(PreTokenizer&&) noexcept;
  ~PreTokenizer();

  // Calls `piece` for every piece of `text` in order. The pieces are not empty and concatenate to the text,
  // which is normalised first where the model demands it (qwen2: NFC). The views live only during the call.
  // An error of `piece` ends the walk. `text` must be valid UTF-8. Errors: PCRE2's limits (memory).
  // Thread-safe.
  absl::Status Split(std::string_view text,
                     absl::FunctionRef<absl::Status(std::string_view piece)> piece) const;

  // The vocabulary's spelling of a whole piece wins over merges (Llama 3).
  bool whole_piece_first() const;

 private:
  struct Impl;
  explicit PreTokenizer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// What tokenizer.ggml.add_bos_token is when the file does not say: true for Llama 3's names, false for all
// others.
bool AddsBosByDefault(const std::string& pre);

}  // namespace snapkv::runtime
