// SPDX-License-Identifier: Apache-2.0
// Chat templates on the Jinja subset.
#include "runtime/text/chat_template.h"

#include <ctime>
#include <utility>

#include "kernels/base/status.h"
#include "runtime/text/jinja/parser.h"
#include "runtime/text/jinja/renderer.h"
#include "runtime/text/jinja/value.h"
#include "runtime/text/utf8.h"

namespace snapkv::runtime {
namespace {

// A template may walk over or copy the messages this often, beside a constant; the templates of today's
// models stay below 20.
constexpr uint64_t kPassesOverMessages = 128;
constexpr uint64_t kStepsPerMessage = 4096;

absl::StatusOr<jinja::Value> MessageValue(const ChatMessage& message, size_t index) {
  for (const auto& [name, text] : {std::pair<const char*, const std::string&>{"role", message.role},
                                   std::pair<const char*, const std::string&>{"content", message.content}}) {
    if (const auto bad = ValidateUtf8(text)) {
      return InvalidArgument("message ", index, ": its ", name, " is not UTF-8 at byte offset ", *bad);
    }
  }
  return jinja::Value::Dict({{jinja::Value::String("role"), jinja::Value::String(message.role)},
                             {jinja::Value::String("content"), jinja::Value::String(message.content)}});
}

}  // namespace

struct ChatTemplate::Program {
  std::vector<jinja::Stmt> body;
};

ChatTemplate::ChatTemplate(std::shared_ptr<const Program> program) : program_(std::move(program)) {}

absl::StatusOr<ChatTemplate> ChatTemplate::Parse(std::string_view source) {
  auto program = std::make_shared<Program>();
  ASSIGN_OR_RETURN(program->body, jinja::Parse(source));
  return ChatTemplate(std::move(program));
}

absl::StatusOr<std::string> ChatTemplate::Render(const std::vector<ChatMessage>& messages,
                                                 bool add_generation_prompt, const std::string& bos_token,
                                                 const std::string& eos_token) const {
  jinja::ValueList list;
  for (size_t i = 0; i < messages.size(); ++i) {
    ASSIGN_OR_RETURN(jinja::Value message, MessageValue(messages[i], i));
    list.push_back(std::move(message));
  }
  ASSIGN_OR_RETURN(const jinja::Value message_list, jinja::Value::List(std::move(list)));
  jinja::RenderOptions options;
  options.max_work += kPassesOverMessages * message_list.weight() + kStepsPerMessage * messages.size();
  options.now = std::time(nullptr);
  return jinja::Render(program_->body,
                       {{"messages", message_list},
                        {"add_generation_prompt", jinja::Value::Bool(add_generation_prompt)},
                        {"bos_token", jinja::Value::String(bos_token)},
                        {"eos_token", jinja::Value::String(eos_token)},
                        {"tools", jinja::Value::None()},
                        {"documents", jinja::Value::None()}},
                       options);
}

}  // namespace snapkv::runtime
