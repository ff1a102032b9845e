// SPDX-License-Identifier: Apache-2.0
// A reader for the one JSON form that documents may have.
#include "runtime/service/conversation.h"

#include <string>
#include <utility>

#include "absl/functional/function_ref.h"
#include "runtime/service/reason.h"
#include "runtime/text/utf8.h"

namespace snapkv::service {
namespace {

using runtime::ChatMessage;

class Reader {
 public:
  explicit Reader(std::string_view text) : text_(text) {
    if (text_.substr(0, 3) == "\xEF\xBB\xBF") at_ = 3;
  }

  absl::StatusOr<std::vector<ChatMessage>> Read() {
    std::vector<ChatMessage> messages;
    RETURN_IF_ERROR(Array([&]() -> absl::Status {
      ASSIGN_OR_RETURN(messages.emplace_back(), Message());
      return absl::OkStatus();
    }));
    SkipSpace();
    if (at_ != text_.size()) return Error("the end of the document");
    return messages;
  }

 private:
  absl::StatusOr<ChatMessage> Message() {
    ChatMessage message;
    bool has_role = false, has_content = false;
    SkipSpace();
    const size_t begin = at_;
    RETURN_IF_ERROR(Object([&](const std::string& key) -> absl::Status {
      if (key == "role" && !std::exchange(has_role, true)) {
        SkipSpace();
        const size_t role = at_;
        ASSIGN_OR_RETURN(message.role, String());
        if (message.role == "system" || message.role == "user" || message.role == "assistant") {
          return absl::OkStatus();
        }
        at_ = role;
        return Error("\"system\", \"user\" or \"assistant\"");
      }
      if (key == "content" && !std::exchange(has_content, true)) {
        ASSIGN_OR_RETURN(message.content, Content());
        return absl::OkStatus();
      }
      return Error("the members \"role\" and \"content\", each once");
    }));
    if (has_role && has_content) return message;
    at_ = begin;
    return Error("a message with \"role\" and \"content\"");
  }

  absl::StatusOr<std::string> Content() {
    SkipSpace();
    if (at_ == text_.size() || text_[at_] != '[') return String();
    std::string content;
    bool first = true;
    RETURN_IF_ERROR(Array([&]() -> absl::Status {
      ASSIGN_OR_RETURN(const std::string part, Part());
      if (!std::exchange(first, false)) content += '\n';
      content += part;
      return absl::OkStatus();
    }));
    return content;
  }

  absl::StatusOr<std::string> Part() {
    std::string type, text;
    bool has_type = false, has_text = false;
    SkipSpace();
    const size_t begin = at_;
    RETURN_IF_ERROR(Object([&](const std::string& key) -> absl::Status {
      if (key == "type" && !std::exchange(has_type, true)) {
        ASSIGN_OR_RETURN(type, String());
      } else if (key == "text" && !std::exchange(has_text, true)) {
        ASSIGN_OR_RETURN(text, String());
      } else {
        return Error("the members \"type\" and \"text\", each once");
      }
      return absl::OkStatus();
    }));
    if (type == "text" && has_text) return text;
    at_ = begin;
    return Error("a part {\"type\": \"text\", \"text\": \"...\"}");
  }

  // At least one element.
  absl::Status Array(absl::FunctionRef<absl::Status()> element) {
    if (!Take('[')) return Error("'[' and at least one element");
    do {
      RETURN_IF_ERROR(element());
    } while (Take(','));
    return Take(']') ? absl::OkStatus() : Error("',' or ']'");
  }

  absl::Status Object(absl::FunctionRef<absl::Status(const std::string& key)> member) {
    if (!Take('{')) return Error("'{'");
    do {
      ASSIGN_OR_RETURN(const std::string key, String());
      if (!Take(':')) return Error("':'");
      RETURN_IF_ERROR(member(key));
    } while (Take(','));
    return Take('}') ? absl::OkStatus() : Error("',' or '}'");
  }

  absl::StatusOr<std::string> String() {
    if (!Take('"')) return Error("a string");
    std::string value;
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (static_cast<unsigned char>(c) < 0x20) return Error("no control character in a string");
      ++at_;
      if (c == '"') return value;
      if (c != '\\') {
        value += c;
        continue;
      }
      RETURN_IF_ERROR(Escape(value));
    }
    return Error("'\"' at the end of a string");
  }

  // Behind the backslash.
  absl::Status Escape(std::string& value) {
    static constexpr std::string_view kNames = "\"\\/bfnrt";
    static constexpr std::string_view kValues = "\"\\/\b\f\n\r\t";
    if (at_ == text_.size()) return Error("an escape");
    const char c = text_[at_];
    const size_t known = kNames.find(c);
    if (known == std::string_view::npos && c != 'u') return Error("an escape");
    ++at_;
    if (known != std::string_view::npos) {
      value += kValues[known];
      return absl::OkStatus();
    }
    const size_t begin = at_ - 2;
    ASSIGN_OR_RETURN(char32_t code, Hex4());
    const bool high = code >= 0xD800 && code < 0xDC00;
    if (high && text_.substr(at_, 2) == "\\u") {
      at_ += 2;
      ASSIGN_OR_RETURN(const char32_t low, Hex4());
      // A wrong second half leaves `code` a surrogate.
      if (low >= 0xDC00 && low < 0xE000) code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
    }
    if (code == 0 || (code >= 0xD800 && code < 0xE000)) {
      return ServiceError(
          Reason::kDocumentNotUtf8, "byte offset ", begin, ": ", std::string(text_.substr(begin, 6)),
          code == 0 ? " is a NUL: this is not text" : " is half a surrogate pair: this is not text");
    }
    runtime::AppendUtf8(code, &value);
    return absl::OkStatus();
  }

  absl::StatusOr<char32_t> Hex4() {
    char32_t code = 0;
    for (int i = 0; i < 4; ++i, ++at_) {
      const char c = at_ < text_.size() ? text_[at_] : '\0';
      const char lower = static_cast<char>(c | 0x20);
      if (c >= '0' && c <= '9') {
        code = code * 16 + (c - '0');
      } else if (lower >= 'a' && lower <= 'f') {
        code = code * 16 + (lower - 'a' + 10);
      } else {
        return Error("four hexadecimal digits");
      }
    }
    return code;
  }

  bool Take(char c) {
    SkipSpace();
    if (at_ == text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  void SkipSpace() {
    while (at_ < text_.size() && std::string_view(" \t\r\n").find(text_[at_]) != std::string_view::npos)
      ++at_;
  }
  absl::Status Error(const std::string& expected) const {
    return ServiceError(Reason::kParameterInvalid, "byte offset ", at_, ": expected ", expected,
                        "; application/json documents are [{\"role\": ..., \"content\": ...}, ...]");
  }

  std::string_view text_;
  size_t at_ = 0;
};

}  // namespace

absl::StatusOr<std::vector<ChatMessage>> ParseConversation(std::string_view text) {
  ASSIGN_OR_RETURN(std::vector<ChatMessage> messages, Reader(text).Read());
  for (const ChatMessage& message : messages) {
    if (message.content.find_first_not_of(" \t\r\n\v\f") != std::string::npos) return messages;
  }
  return ServiceError(Reason::kDocumentEmpty, "no message has any text");
}

}  // namespace snapkv::service
