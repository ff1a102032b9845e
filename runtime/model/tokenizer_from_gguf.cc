// SPDX-License-Identifier: Apache-2.0
// Tokenizer metadata of a GGUF file.
#include "runtime/model/tokenizer_from_gguf.h"

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "kernels/base/status.h"
#include "runtime/text/pretokenizer.h"

namespace snapkv::runtime {

absl::StatusOr<TokenizerData> TokenizerDataFromGguf(const GgufFile& file) {
  const std::string prefix = "tokenizer.ggml.";
  TokenizerData data;
  ASSIGN_OR_RETURN(data.model, file.Get<std::string>(prefix + "model"));
  ASSIGN_OR_RETURN(data.pre, file.GetOr<std::string>(prefix + "pre", ""));
  ASSIGN_OR_RETURN(data.tokens, file.Get<std::vector<std::string>>(prefix + "tokens"));
  ASSIGN_OR_RETURN(data.types, file.GetOr<std::vector<int32_t>>(prefix + "token_type", {}));
  // Other models than byte-level BPE have none; Tokenizer::Create names the model then.
  if (data.model == "gpt2" || file.has(prefix + "merges")) {
    ASSIGN_OR_RETURN(data.merges, file.Get<std::vector<std::string>>(prefix + "merges"));
  }
  const std::pair<const char*, std::optional<int32_t>*> ids[] = {{"bos_token_id", &data.bos},
                                                                 {"eos_token_id", &data.eos},
                                                                 {"eot_token_id", &data.eot},
                                                                 {"padding_token_id", &data.pad},
                                                                 {"unknown_token_id", &data.unk}};
  for (const auto& [name, id] : ids) {
    ASSIGN_OR_RETURN(*id, file.Find<int32_t>(prefix + name));
  }
  const bool adds_bos = AddsBosByDefault(data.pre) && data.bos.has_value();
  ASSIGN_OR_RETURN(data.add_bos, file.GetOr<bool>(prefix + "add_bos_token", adds_bos));
  ASSIGN_OR_RETURN(data.add_eos, file.GetOr<bool>(prefix + "add_eos_token", false));
  ASSIGN_OR_RETURN(data.chat_template, file.GetOr<std::string>("tokenizer.chat_template", ""));
  return data;
}

absl::StatusOr<Tokenizer> TokenizerFromGguf(const GgufFile& file) {
  ASSIGN_OR_RETURN(TokenizerData data, TokenizerDataFromGguf(file));
  absl::StatusOr<Tokenizer> tokenizer = Tokenizer::Create(std::move(data));
  if (!tokenizer.ok()) return Annotate(tokenizer.status(), "'" + file.path() + "'");
  return tokenizer;
}

}  // namespace snapkv::runtime
