// SPDX-License-Identifier: Apache-2.0
// Templates, tokens, and the cut in the middle.
#include "launch/prompt_builder.h"

#include <algorithm>
#include <utility>

#include "runtime/text/utf8.h"

namespace snapkv::launch {
namespace {

absl::StatusOr<runtime::ChatTemplate> ParseTemplate(const runtime::Tokenizer& tokenizer) {
  if (tokenizer.chat_template().empty()) {
    return InvalidArgument(
        "the model has no chat template; use --raw and write the whole prompt into the input");
  }
  auto parsed = runtime::ChatTemplate::Parse(tokenizer.chat_template());
  if (!parsed.ok()) return Annotate(parsed.status(), "the model's chat template");
  return parsed;
}

bool IsContinuation(char byte) { return (static_cast<uint8_t>(byte) & 0xC0) == 0x80; }

// The text of the first `head` and the last `tail` tokens, whole characters only.
absl::StatusOr<std::string> Ends(const runtime::Tokenizer& tokenizer, const std::vector<int32_t>& ids,
                                 int64_t head, int64_t tail) {
  ASSIGN_OR_RETURN(std::string begin, tokenizer.Decode({ids.begin(), ids.begin() + head}));
  ASSIGN_OR_RETURN(std::string end, tokenizer.Decode({ids.end() - tail, ids.end()}));
  if (const auto bad = runtime::ValidateUtf8(begin)) begin.resize(*bad);
  const auto first = std::find_if_not(end.begin(), end.end(), IsContinuation);
  return begin.append(first, end.end());
}

// The part of a document that may be shortened: its text, or the longest message.
std::string& LongestPart(Document& document) {
  if (document.messages.empty()) return document.text;
  return std::max_element(document.messages.begin(), document.messages.end(),
                          [](const auto& a, const auto& b) { return a.content.size() < b.content.size(); })
      ->content;
}

}  // namespace

PromptBuilder::PromptBuilder(std::shared_ptr<const runtime::Tokenizer> tokenizer,
                             const PromptOptions& options)
    : tokenizer_(std::move(tokenizer)), options_(options), template_(ParseTemplate(*tokenizer_)) {}

absl::StatusOr<std::vector<int32_t>> PromptBuilder::Encode(const Document& document) const {
  if (options_.raw && document.messages.empty()) {
    ASSIGN_OR_RETURN(std::vector<int32_t> ids, tokenizer_->Encode(document.text, /*parse_special=*/true));
    if (tokenizer_->add_bos() && tokenizer_->bos().has_value()) ids.insert(ids.begin(), *tokenizer_->bos());
    return ids;
  }
  RETURN_IF_ERROR(template_.status());
  std::vector<runtime::ChatMessage> messages = document.messages;
  if (messages.empty()) {
    const DocumentParams& params = document.params;
    if (!params.system.empty()) messages.push_back({"system", params.system});
    messages.push_back(
        {"user", params.prompt.empty() ? document.text : document.text + "\n\n" + params.prompt});
  }
  ASSIGN_OR_RETURN(const std::string rendered,
                   template_->Render(messages, true, tokenizer_->bos_text(), tokenizer_->eos_text()));
  return tokenizer_->Encode(rendered, /*parse_special=*/true);
}

PreparedDocument PromptBuilder::Build(Document document) const {
  PreparedDocument prepared;
  prepared.document = std::move(document);
  prepared.error = Tokenize(prepared);
  prepared.error.line = prepared.document.line;
  prepared.document.text = std::string();
  prepared.document.messages.clear();
  return prepared;
}

DocumentError PromptBuilder::Tokenize(PreparedDocument& prepared) const {
  Document& document = prepared.document;
  auto tokens = Encode(document);
  if (!tokens.ok()) return {tokens.status(), "PARAMETER_INVALID"};
  if (tokens->empty()) return {InvalidArgument("no token is left of the document"), "DOCUMENT_EMPTY"};
  prepared.tokens = *std::move(tokens);
  DocumentError error =
      CheckContext(static_cast<int64_t>(prepared.tokens.size()), document.params.max_tokens);
  if (!error.ok() && options_.overflow == Overflow::kMiddle)
    error = CutMiddle(LongestPart(document), prepared);
  if (!error.ok()) return error;
  for (const int32_t id : document.params.stop_token_ids) {
    if (tokenizer_->InVocabulary(id)) continue;
    return {InvalidArgument("stop_token_ids: ", id, " is outside the vocabulary of ",
                            tokenizer_->vocab_size(), " tokens"),
            "PARAMETER_INVALID"};
  }
  return {};
}

DocumentError PromptBuilder::CheckContext(int64_t prompt_tokens, int64_t max_tokens) const {
  if (prompt_tokens + max_tokens <= options_.context) return {};
  return {
      InvalidArgument("the prompt has ", prompt_tokens, " tokens and --max-tokens is ", max_tokens,
                      ", together ", prompt_tokens + max_tokens, ", but the context holds ", options_.context,
                      "; shorten the document, let --overflow middle cut it, or use a model with a "
                      "longer context"),
      "CONTEXT_EXCEEDED"};
}

DocumentError PromptBuilder::CutMiddle(std::string& part, PreparedDocument& prepared) const {
  const int64_t max_tokens = prepared.document.params.max_tokens;
  const std::string whole = std::exchange(part, "");
  const auto ids = tokenizer_->Encode(whole, /*parse_special=*/true);  // as in the prompt
  if (!ids.ok()) return {ids.status(), "PARAMETER_INVALID"};
  const auto around = Encode(prepared.document);
  if (!around.ok()) return {around.status(), "PARAMETER_INVALID"};
  const int64_t full = static_cast<int64_t>(prepared.tokens.size());
  const int64_t empty = static_cast<int64_t>(around->size());  // without the document
  int64_t keep = std::min(options_.context - max_tokens - empty, static_cast<int64_t>(ids->size()));
  // Tokens merge differently at the cut and around the document, so a few more may have to go.
  constexpr int kTries = 16;
  for (int i = 0; i < kTries && keep > 0; ++i) {
    auto shortened = Ends(*tokenizer_, *ids, (keep + 1) / 2, keep / 2);
    if (!shortened.ok()) return {shortened.status(), "INTERNAL"};
    part = *std::move(shortened);
    auto tokens = Encode(prepared.document);
    if (!tokens.ok()) return {tokens.status(), "PARAMETER_INVALID"};
    const int64_t n = static_cast<int64_t>(tokens->size());
    if (n + max_tokens <= options_.context) {
      prepared.tokens = *std::move(tokens);
      prepared.truncated = Truncation{full, full - n, static_cast<int64_t>(whole.size() - part.size())};
      return {};
    }
    keep -= n + max_tokens - options_.context;
  }
  return {InvalidArgument("the prompt has ", empty, " tokens without the document and --max-tokens is ",
                          max_tokens, ", but the context holds ", options_.context,
                          ": nothing of the document would be left; shorten the prompt or --max-tokens"),
          "CONTEXT_EXCEEDED"};
}

}  // namespace snapkv::launch
