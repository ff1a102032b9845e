// SPDX-License-Identifier: Apache-2.0
// The byte vocabulary and the chat template as GGUF metadata.
#include "tests/e2e/tiny_text_model.h"

#include "kernels/base/log.h"
#include "runtime/text/byte_level.h"

namespace snapkv::testing {
namespace {

const std::vector<std::string>& ControlTokens() {
  static const std::vector<std::string> tokens = {"<|endoftext|>", "<|im_start|>", "<|im_end|>"};
  return tokens;
}

constexpr const char* kTemplate =
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + "
    "'<|im_end|>\\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";

}  // namespace

void AddByteTokenizer(GgufWriter& writer) {
  std::vector<std::string> tokens;
  std::vector<int32_t> types;
  for (int byte = 0; byte < 256; ++byte) {
    tokens.push_back(runtime::BytesToSymbols(std::string(1, static_cast<char>(byte))));
    types.push_back(1);
  }
  for (const std::string& token : ControlTokens()) {
    tokens.push_back(token);
    types.push_back(3);
  }
  writer.Add("tokenizer.ggml.model", "gpt2");
  writer.Add("tokenizer.ggml.pre", "gpt-2");
  writer.Add("tokenizer.ggml.tokens", tokens);
  writer.Add("tokenizer.ggml.token_type", types);
  writer.Add("tokenizer.ggml.merges", std::vector<std::string>());
  writer.Add("tokenizer.ggml.bos_token_id", static_cast<uint32_t>(kMessageStart));
  writer.Add("tokenizer.ggml.eos_token_id", static_cast<uint32_t>(kMessageEnd));
  writer.Add("tokenizer.chat_template", kTemplate);
}

GgufWriter TinyTextGguf(const TinyModelOptions& options) {
  CHECK(options.vocab == kByteVocab) << options.vocab;
  GgufWriter writer = TinyGguf(options);
  AddByteTokenizer(writer);
  return writer;
}

std::string SpellTokens(const std::vector<int32_t>& ids) {
  std::string text;
  for (const int32_t id : ids) {
    if (id < 256) {
      text += static_cast<char>(id);
    } else {
      text += ControlTokens().at(static_cast<size_t>(id - 256));
    }
  }
  return text;
}

std::string RenderedPrompt(const std::string& document, const std::string& question,
                           const std::string& system) {
  std::string text;
  if (!system.empty()) text = "<|im_start|>system\n" + system + "<|im_end|>\n";
  text += "<|im_start|>user\n" + document;
  if (!question.empty()) text += "\n\n" + question;
  return text + "<|im_end|>\n<|im_start|>assistant\n";
}

}  // namespace snapkv::testing
