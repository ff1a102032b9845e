// SPDX-License-Identifier: Apache-2.0
// Reads what a GGUF file says about its tokenizer and chat template.
#pragma once

#include "absl/status/statusor.h"
#include "runtime/model/gguf.h"
#include "runtime/text/tokenizer.h"

namespace snapkv::runtime {

// The keys tokenizer.ggml.* and tokenizer.chat_template, as Tokenizer::Create takes them; it also checks
// their content. Without add_bos_token, BOS is added where the pre-tokenizer's models do (AddsBosByDefault)
// and there is one. Errors name the file and the key: model, tokens or merges missing, a value of the wrong
// type.
absl::StatusOr<TokenizerData> TokenizerDataFromGguf(const GgufFile& file);

// TokenizerDataFromGguf and Tokenizer::Create; every error names the file.
absl::StatusOr<Tokenizer> TokenizerFromGguf(const GgufFile& file);

}  // namespace snapkv::runtime
