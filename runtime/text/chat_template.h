// SPDX-License-Identifier: Apache-2.0
// The chat template of a model: turns messages into the prompt text the model was trained on.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace snapkv::runtime {

struct ChatMessage {
  std::string role;     // "system", "user", "assistant"
  std::string content;  // UTF-8
};

// Immutable and cheap to copy; Render may be called from any thread.
class ChatTemplate {
 public:
  // `source`: tokenizer.chat_template, a subset of Jinja (runtime/text/jinja/). Errors name the line and what
  // is not understood; filters, tests, methods and functions that are unknown are found when Render reaches
  // them.
  static absl::StatusOr<ChatTemplate> Parse(std::string_view source);

  // The prompt. Message text is not escaped: a control token's spelling inside it becomes that token when the
  // prompt is encoded with special tokens. The template sees messages, add_generation_prompt, bos_token,
  // eos_token, and none as tools and documents. Errors: what the template raises (its message is quoted),
  // what it does wrong (with the line), text that is not UTF-8, work out of proportion to the messages.
  absl::StatusOr<std::string> Render(const std::vector<ChatMessage>& messages, bool add_generation_prompt,
                                     const std::string& bos_token, const std::string& eos_token) const;

 private:
  struct Program;
  explicit ChatTemplate(std::shared_ptr<const Program> program);
  std::shared_ptr<const Program> program_;
};

}  // namespace snapkv::runtime
