// SPDX-License-Identifier: Apache-2.0
// Documents of media type application/json: a conversation for the model's chat template.
#pragma once

#include <string_view>
#include <vector>

#include "kernels/base/status.h"
#include "runtime/text/chat_template.h"

namespace snapkv::service {

// [{"role": "system" | "user" | "assistant", "content": "..."}, ...] with at least one message and no other
// members; content may also be text parts, [{"type": "text", "text": "..."}, ...], which are joined by line
// ends. Strict JSON (RFC 8259). `text` is valid UTF-8; a byte-order mark is skipped. Errors name the byte:
// PARAMETER_INVALID (malformed, or another form), DOCUMENT_NOT_UTF8 (an escape for NUL or half a surrogate
// pair), DOCUMENT_EMPTY (no message has any text).
absl::StatusOr<std::vector<runtime::ChatMessage>> ParseConversation(std::string_view text);

}  // namespace snapkv::service
