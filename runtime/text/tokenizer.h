// SPDX-License-Identifier: Apache-2.0
// Byte-level BPE tokenizer built from the vocabulary that a model file carries.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/text/bpe.h"
#include "runtime/text/pretokenizer.h"
#include "runtime/text/special_tokens.h"

namespace snapkv::runtime {

// Token types as GGUF's tokenizer.ggml.token_type numbers them.
enum class TokenType : int32_t {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,      // found in text only on request; never shown
  kUserDefined = 4,  // found in text always
  kUnused = 5,
  kByte = 6,
};

// What a model file says about its tokenizer, unchecked. Names as in GGUF's tokenizer.ggml.*.
struct TokenizerData {
  std::string model;  // "gpt2": byte-level BPE
  std::string pre;
  std::vector<std::string> tokens;  // spelled in the byte-level alphabet, special tokens as they are
  std::vector<int32_t> types;       // one per token; empty: all normal
  std::vector<std::string> merges;  // "left right", best first
  std::optional<int32_t> bos, eos, eot, pad, unk;
  bool add_bos = false;
  bool add_eos = false;
  std::string chat_template;  // empty: none
};

// Immutable after Create: any number of threads may call const methods at the same time, without a lock (one
// encodes the next document while another decodes). Move-only.
class Tokenizer {
 public:
  // Errors name the GGUF field: unknown model or pre; no tokens; lengths that differ; an unknown token type;
  // a token given twice; a merge that is not two tokens or whose result is no token (the original tokenizers
  // refuse it as well); a special id outside the vocabulary; a special token longer than
  // SpecialTokens::kMaxTokenBytes.
  static absl::StatusOr<Tokenizer> Create(TokenizerData data);

  Tokenizer(Tokenizer&&) = default;
  Tokenizer& operator=(Tokenizer&&) = default;
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  // Ids of `text` without BOS or EOS; empty for an empty text. Control tokens in the text become their ids
  // only with `parse_special`. Bytes that the vocabulary has no token for are dropped, as the original
  // tokenizers do. O(n log n) whatever the text; at most about 35 bytes of memory per byte of text, freed on
  // return but for the ids. Errors: text that is not UTF-8 (names the byte offset), limits of the
  // pre-tokenizer.
  absl::StatusOr<std::vector<int32_t>> Encode(std::string_view text, bool parse_special) const;

  // The bytes of the tokens, control tokens included; perhaps not UTF-8. Error: an id outside the vocabulary.
  absl::StatusOr<std::string> Decode(const std::vector<int32_t>& ids) const;

  // The bytes of one token: normal tokens through the byte-level alphabet, control, unknown and user-defined
  // ones as spelled, unused ones nothing. `id` must be inside the vocabulary.
  const std::string& TokenBytes(int32_t id) const { return bytes_[id]; }

  // The id of a token spelled as in the vocabulary, e.g. "<|im_end|>"; nullopt when there is none.
  std::optional<int32_t> FindToken(std::string_view spelling) const;

  int32_t vocab_size() const { return static_cast<int32_t>(data_.tokens.size()); }
  bool InVocabulary(int32_t id) const { return id >= 0 && id < vocab_size(); }
  TokenType type(int32_t id) const { return static_cast<TokenType>(data_.types[id]); }
  bool IsControl(int32_t id) const { return type(id) == TokenType::kControl; }

  std::optional<int32_t> bos() const { return data_.bos; }
  std::optional<int32_t> eos() const { return data_.eos; }
  bool add_bos() const { return data_.add_bos; }
  bool add_eos() const { return data_.add_eos; }
  // The spelling of BOS/EOS for the chat template; empty when the model has none.
  std::string bos_text() const { return data_.bos ? data_.tokens[*data_.bos] : ""; }
  std::string eos_text() const { return data_.eos ? data_.tokens[*data_.eos] : ""; }
  const std::string& chat_template() const { return data_.chat_template; }

  // Ids that end a generation, ascending: eos, eot, and the control tokens <|im_end|>, <|endoftext|>,
  // <|eot_id|>,
  // <|end_of_text|>.
  const std::vector<int32_t>& end_of_generation() const { return end_of_generation_; }
  bool EndsGeneration(int32_t id) const;

 private:
  Tokenizer(TokenizerData data, PreTokenizer pretokenizer)
      : data_(std::move(data)), pretokenizer_(std::move(pretokenizer)) {}

  absl::Status IndexTokens();
  absl::Status IndexMerges();
  absl::Status CheckSpecialIds() const;
  void CollectEndOfGeneration();
  absl::Status EncodePlain(std::string_view text, BytePairEncoder::Workspace* workspace,
                           std::vector<int32_t>* ids) const;

  TokenizerData data_;
  PreTokenizer pretokenizer_;
  std::vector<std::string> bytes_;
  absl::flat_hash_map<std::string_view, int32_t> id_of_;  // views into data_.tokens
  SpecialTokens special_;
  BytePairEncoder bpe_;
  std::vector<int32_t> end_of_generation_;
};

}  // namespace snapkv::runtime
