// SPDX-License-Identifier: Apache-2.0
// The pre-tokenizer: cuts text into the pieces inside which byte-pair merges may happen.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace snapkv::runtime {

// PCRE2's bounds on one match; what is 0 stays as it is. With today's patterns none is ever met: they give
// characters back one at a time, without recursion. Tests set them low.
struct PreTokenizerLimits {
  uint32_t match = 0;          // steps; by default in proportion to the text
  uint32_t heap_kib = 0;       // backtracking memory of the interpreter, in units of 1024 bytes
  size_t jit_stack_bytes = 0;  // of compiled patterns; where it ends, the interpreter takes over
  bool interpret = false;      // do not compile the pattern
};

class PreTokenizer {
 public:
  // `name` is the GGUF's tokenizer.ggml.pre: "smollm", "gpt-2" (or "gpt2"), "llama-bpe" (or "llama3",
  // "llama-v3"), "qwen2". Every other name, also the empty one and "default", is an error that lists these:
  // llama.cpp guesses there and warns that quality suffers; here a wrong guess would silently be wrong.
  static absl::StatusOr<PreTokenizer> Create(const std::string& name);

  // Other limits, and instead of the named pattern `pattern` unless it is empty.
  static absl::StatusOr<PreTokenizer> CreateForTest(const std::string& name, const PreTokenizerLimits& limits,
                                                    const std::string& pattern = "");

  PreTokenizer(PreTokenizer&&) noexcept;
  PreTokenizer& operator=(PreTokenizer&&) noexcept;
  ~PreTokenizer();

  // Calls `piece` for every piece of `text` in order. The pieces are not empty and concatenate to the text,
  // which is normalised first where the model demands it (qwen2: NFC). The views live only during the call.
  // An error of `piece` ends the walk. `text` must be valid UTF-8. RESOURCE_EXHAUSTED names the byte where
  // one of PCRE2's limits was met. Any number of threads may call it at the same time.
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
