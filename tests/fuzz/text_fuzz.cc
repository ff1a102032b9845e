// SPDX-License-Identifier: Apache-2.0
// Fuzzes the text layer: the first byte chooses the chat template, a tokenizer's text, or a tokenizer's
// vocabulary.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/text/chat_template.h"
#include "runtime/text/stream_decoder.h"
#include "runtime/text/tokenizer.h"
#include "runtime/text/utf8.h"
#include "tests/runtime/tiny_vocabulary.h"

namespace snapkv::runtime {
namespace {

constexpr const char* kPre[] = {"smollm", "gpt-2", "llama-bpe", "qwen2"};

void FuzzTemplate(std::string_view source) {
  const absl::StatusOr<ChatTemplate> chat = ChatTemplate::Parse(source);
  if (!chat.ok()) return;
  (void)chat->Render({{"system", "Be brief."}, {"user", " h\xC3\xA9llo\nworld "}, {"assistant", "ok"}}, true,
                     "<s>", "</s>");
}

// What is encoded decodes to the text again (the tiny vocabulary has every byte), at once and as a stream.
void FuzzText(uint8_t choice, std::string_view text) {
  static const auto* tokenizers = [] {
    auto* all = new std::vector<Tokenizer>;
    for (const char* pre : kPre) all->push_back(Tokenizer::Create(TinyVocabulary(pre)).value());
    return all;
  }();
  const Tokenizer& tokenizer = (*tokenizers)[choice % 4];
  const auto ids = tokenizer.Encode(text, (choice & 4) != 0);
  if (ids.ok() == ValidateUtf8(text).has_value()) std::abort();
  if (!ids.ok()) return;
  const bool normalises = choice % 4 == 3;
  if (!normalises && tokenizer.Decode(*ids).value() != text) std::abort();
  StreamDecoder decoder(&tokenizer);
  StopMatcher matcher = StopMatcher::Create({"ab", "\n\n"}).value();
  for (const int32_t id : *ids) (void)matcher.Append(decoder.Append(id).value());
  (void)matcher.Append(decoder.Flush());
  (void)matcher.Flush();
}

// One token per line; a line "=left right" is a merge, and the first byte of a token is its type.
void FuzzVocabulary(uint8_t choice, std::string_view lines) {
  TokenizerData data;
  data.model = "gpt2";
  data.pre = kPre[choice % 4];
  while (!lines.empty()) {
    const std::string_view line = lines.substr(0, lines.find('\n'));
    lines.remove_prefix(std::min(lines.size(), line.size() + 1));
    if (!line.empty() && line[0] == '=') {
      data.merges.emplace_back(line.substr(1));
    } else if (!line.empty()) {
      data.types.push_back(line[0] - '0');
      data.tokens.emplace_back(line.substr(1));
    }
  }
  data.bos = choice;
  const absl::StatusOr<Tokenizer> tokenizer = Tokenizer::Create(std::move(data));
  if (!tokenizer.ok()) return;
  const auto ids = tokenizer->Encode("hello aaaa <|im_end|> 12\xC3\xA9", true);
  if (ids.ok()) (void)tokenizer->Decode(*ids);
}

}  // namespace
}  // namespace snapkv::runtime

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view rest(reinterpret_cast<const char*>(data + 1), size - 1);
  const uint8_t choice = data[0] / 4;
  switch (data[0] % 4) {
    case 0:
    case 1:
      snapkv::runtime::FuzzTemplate(rest);
      break;
    case 2:
      snapkv::runtime::FuzzText(choice, rest);
      break;
    default:
      snapkv::runtime::FuzzVocabulary(choice, rest);
  }
  return 0;
}
