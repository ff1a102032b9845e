// SPDX-License-Identifier: Apache-2.0
// The tokenizer: checks the model file's vocabulary, then encodes by special tokens, pieces and merges.
#include "runtime/text/tokenizer.h"

#include <algorithm>
#include <array>
#include <limits>

#include "absl/strings/escaping.h"
#include "kernels/base/status.h"
#include "runtime/text/byte_level.h"
#include "runtime/text/utf8.h"

namespace snapkv::runtime {
namespace {

constexpr std::array<std::string_view, 4> kEndNames = {"<|im_end|>", "<|endoftext|>", "<|eot_id|>",
                                                       "<|end_of_text|>"};

// A token or merge for an error message: printable and not too long.
std::string Quoted(std::string_view text) {
  constexpr size_t kMaxShown = 60;
  const bool cut = text.size() > kMaxShown;
  return absl::StrCat("'", absl::CHexEscape(std::string(text.substr(0, kMaxShown))), cut ? "..." : "", "'");
}

// "<0x0A>" -> the byte 0A; nullopt for anything else.
std::optional<std::string> ByteTokenValue(std::string_view spelling) {
  if (spelling.size() != 6 || spelling.substr(0, 3) != "<0x" || spelling.back() != '>') return std::nullopt;
  int value = 0;
  for (const char c : spelling.substr(3, 2)) {
    if (c >= '0' && c <= '9') {
      value = value * 16 + (c - '0');
    } else if (c >= 'A' && c <= 'F') {
      value = value * 16 + (c - 'A' + 10);
    } else {
      return std::nullopt;
    }
  }
  return std::string(1, static_cast<char>(value));
}

absl::StatusOr<std::string> BytesOfToken(const std::string& spelling, TokenType type, size_t id) {
  switch (type) {
    case TokenType::kNormal:
      // A spelling outside the byte-level alphabet stands for itself, as in the original tokenizers.
      return SymbolsToBytes(spelling).value_or(spelling);
    case TokenType::kUnknown:
    case TokenType::kControl:
    case TokenType::kUserDefined:
      return spelling;
    case TokenType::kUnused:
      return std::string();
    case TokenType::kByte:
      if (auto value = ByteTokenValue(spelling)) return *value;
      return InvalidArgument("tokenizer.ggml.tokens[", id, "] is a byte token but spelled ", Quoted(spelling),
                             " instead of <0xNN>; the model file is damaged");
  }
  return InvalidArgument("tokenizer.ggml.token_type[", id, "] is ", static_cast<int32_t>(type),
                         "; known types are 1 to 6; the model file is damaged");
}

}  // namespace

absl::StatusOr<Tokenizer> Tokenizer::Create(TokenizerData data) {
  if (data.model != "gpt2") {
    return InvalidArgument("tokenizer.ggml.model ", Quoted(data.model),
                           " is not supported; known: gpt2 (byte-level BPE)");
  }
  ASSIGN_OR_RETURN(PreTokenizer pretokenizer, PreTokenizer::Create(data.pre));
  const size_t size = data.tokens.size();
  if (size == 0) return InvalidArgument("tokenizer.ggml.tokens is empty; the model file has no vocabulary");
  constexpr size_t kMax = std::numeric_limits<int32_t>::max();
  if (size > kMax || data.merges.size() > kMax) {
    return InvalidArgument("the vocabulary has ", size, " tokens and ", data.merges.size(),
                           " merges; at most ", kMax, " each are supported");
  }
  if (data.types.empty()) data.types.assign(size, static_cast<int32_t>(TokenType::kNormal));
  if (data.types.size() != size) {
    return InvalidArgument("tokenizer.ggml.token_type has ", data.types.size(),
                           " entries but tokenizer.ggml.tokens has ", size, "; the model file is damaged");
  }
  Tokenizer tokenizer(std::move(data), std::move(pretokenizer));
  RETURN_IF_ERROR(tokenizer.CheckSpecialIds());
  RETURN_IF_ERROR(tokenizer.IndexTokens());
  RETURN_IF_ERROR(tokenizer.IndexMerges());
  tokenizer.CollectEndOfGeneration();
  return tokenizer;
}

absl::Status Tokenizer::CheckSpecialIds() const {
  const std::pair<const char*, std::optional<int32_t>> fields[] = {
      {"bos", data_.bos},     {"eos", data_.eos},     {"eot", data_.eot},
      {"padding", data_.pad}, {"unknown", data_.unk},
  };
  for (const auto& [name, id] : fields) {
    if (id.has_value() && !InVocabulary(*id)) {
      return InvalidArgument("tokenizer.ggml.", name, "_token_id is ", *id, " but the vocabulary has ",
                             vocab_size(), " tokens; the model file is damaged");
    }
  }
  if (data_.add_bos && !data_.bos) {
    return InvalidArgument("tokenizer.ggml.add_bos_token is set but there is no tokenizer.ggml.bos_token_id");
  }
  if (data_.add_eos && !data_.eos) {
    return InvalidArgument("tokenizer.ggml.add_eos_token is set but there is no tokenizer.ggml.eos_token_id");
  }
  return absl::OkStatus();
}

absl::Status Tokenizer::IndexTokens() {
  bytes_.reserve(data_.tokens.size());
  id_of_.reserve(data_.tokens.size());
  for (size_t id = 0; id < data_.tokens.size(); ++id) {
    const std::string& spelling = data_.tokens[id];
    const auto type = static_cast<TokenType>(data_.types[id]);
    ASSIGN_OR_RETURN(std::string bytes, BytesOfToken(spelling, type, id));
    bytes_.push_back(std::move(bytes));
    if (spelling.empty()) continue;  // a hole in the vocabulary: nothing in a text can become it
    const auto [entry, added] = id_of_.try_emplace(spelling, static_cast<int32_t>(id));
    if (!added) {
      return InvalidArgument("tokenizer.ggml.tokens[", id, "] ", Quoted(spelling), " is also token ",
                             entry->second, "; the model file is damaged");
    }
    if (type != TokenType::kControl && type != TokenType::kUserDefined) continue;
    if (spelling.size() > SpecialTokens::kMaxTokenBytes) {
      return InvalidArgument("special token ", id, " ", Quoted(spelling), " has ", spelling.size(),
                             " bytes; at most ", SpecialTokens::kMaxTokenBytes, " are supported");
    }
    special_.Add(spelling, static_cast<int32_t>(id), type == TokenType::kUserDefined);
  }
  for (int byte = 0; byte < 256; ++byte) {
    const auto token = FindToken(BytesToSymbols(std::string(1, static_cast<char>(byte))));
    bpe_.SetByteToken(static_cast<uint8_t>(byte), token.value_or(-1));
  }
  return absl::OkStatus();
}

absl::Status Tokenizer::IndexMerges() {
  for (size_t i = 0; i < data_.merges.size(); ++i) {
    const std::string_view merge = data_.merges[i];
    const size_t space = merge.find(' ');
    if (space == std::string_view::npos || space == 0 || space + 1 == merge.size() ||
        merge.find(' ', space + 1) != std::string_view::npos) {
      return InvalidArgument("tokenizer.ggml.merges[", i, "] ", Quoted(merge),
                             " is not two tokens with one space between; the model file is damaged");
    }
    const std::string_view left = merge.substr(0, space);
    const std::string_view right = merge.substr(space + 1);
    const std::string joined = std::string(left).append(right);
    for (const std::string_view part : {left, right, std::string_view(joined)}) {
      if (!FindToken(part)) {
        return InvalidArgument("tokenizer.ggml.merges[", i, "] ", Quoted(merge), " needs the token ",
                               Quoted(part), ", which is not in the vocabulary; the model file is damaged");
      }
    }
    bpe_.AddMerge(*FindToken(left), *FindToken(right), *FindToken(joined));
  }
  // Only the encoder needs them from here on; the spellings of large vocabularies take several MB.
  data_.merges.clear();
  data_.merges.shrink_to_fit();
  return absl::OkStatus();
}

void Tokenizer::CollectEndOfGeneration() {
  auto& ids = end_of_generation_;
  if (data_.eos) ids.push_back(*data_.eos);
  if (data_.eot) ids.push_back(*data_.eot);
  for (const std::string_view name : kEndNames) {
    const auto id = FindToken(name);
    if (id && IsControl(*id)) ids.push_back(*id);
  }
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
}

bool Tokenizer::EndsGeneration(int32_t id) const {
  return std::binary_search(end_of_generation_.begin(), end_of_generation_.end(), id);
}

std::optional<int32_t> Tokenizer::FindToken(std::string_view spelling) const {
  const auto it = id_of_.find(spelling);
  if (it == id_of_.end()) return std::nullopt;
  return it->second;
}

absl::Status Tokenizer::EncodePlain(std::string_view text, BytePairEncoder::Workspace* workspace,
                                    std::vector<int32_t>* ids) const {
  return pretokenizer_.Split(text, [&](std::string_view piece) -> absl::Status {
    if (pretokenizer_.whole_piece_first()) {
      if (const auto id = FindToken(BytesToSymbols(piece))) {
        ids->push_back(*id);
        return absl::OkStatus();
      }
    }
    return bpe_.Encode(piece, workspace, ids);
  });
}

absl::StatusOr<std::vector<int32_t>> Tokenizer::Encode(std::string_view text, bool parse_special) const {
  if (const auto bad = ValidateUtf8(text)) {
    return InvalidArgument("the text is not UTF-8: bad byte 0x",
                           absl::Hex(static_cast<uint8_t>(text[*bad]), absl::kZeroPad2), " at offset ", *bad,
                           "; convert it to UTF-8 first (for ISO 8859-1: --encoding latin1)");
  }
  std::vector<int32_t> ids;
  BytePairEncoder::Workspace workspace;
  for (size_t pos = 0; pos < text.size();) {
    const SpecialTokens::Match match = special_.Find(text, pos, parse_special);
    if (match.begin > pos) {
      RETURN_IF_ERROR(EncodePlain(text.substr(pos, match.begin - pos), &workspace, &ids));
    }
    if (match.token >= 0) ids.push_back(match.token);
    pos = match.end;
  }
  return ids;
}

absl::StatusOr<std::string> Tokenizer::Decode(const std::vector<int32_t>& ids) const {
  std::string out;
  for (size_t i = 0; i < ids.size(); ++i) {
    if (!InVocabulary(ids[i])) {
      return InvalidArgument("token id ", ids[i], " at position ", i, " is outside the vocabulary of ",
                             vocab_size(), " tokens");
    }
    out += bytes_[ids[i]];
  }
  return out;
}

}  // namespace snapkv::runtime
