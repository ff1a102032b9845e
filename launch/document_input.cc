// SPDX-License-Identifier: Apache-2.0
// Reading and tokenizing one document.
#include "launch/document_input.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>

#include "runtime/text/chat_template.h"
#include "runtime/text/utf8.h"

namespace snapkv::launch {

absl::StatusOr<std::string> ReadInput(const std::string& path) {
  const bool standard = path == "-";
  std::FILE* file = standard ? stdin : std::fopen(path.c_str(), "rb");
  if (file == nullptr) return NotFound(path, ": cannot be read: ", std::strerror(errno));
  const std::unique_ptr<std::FILE, void (*)(std::FILE*)> closer(file, [](std::FILE* f) {
    if (f != stdin) std::fclose(f);
  });
  std::string bytes;
  char chunk[1 << 16];
  size_t n;
  while ((n = std::fread(chunk, 1, sizeof(chunk), file)) > 0) {
    bytes.append(chunk, n);
    if (bytes.size() <= kMostInputBytes) continue;
    return InvalidArgument(path, ": is longer than ", kMostInputBytes >> 20,
                           " MiB, which no context holds; is this the right file?");
  }
  if (std::ferror(file) != 0) return NotFound(path, ": cannot be read: ", std::strerror(errno));
  return bytes;
}

namespace {

// A JSON value for a message: short, whatever it is.
std::string Shown(const nlohmann::json& value) {
  return value.is_structured() || value.is_string() ? absl::StrCat("of type ", value.type_name())
                                                    : value.dump();
}

}  // namespace

absl::StatusOr<std::vector<int32_t>> ParseTokenIds(const std::string& json, const std::string& path,
                                                   int64_t vocab) {
  const auto parsed = nlohmann::json::parse(json, nullptr, /*allow_exceptions=*/false);
  if (!parsed.is_array() || parsed.empty())
    return InvalidArgument(path, ": expected a JSON array with at least one token id");
  std::vector<int32_t> ids;
  for (size_t i = 0; i < parsed.size(); ++i) {
    const auto& id = parsed[i];
    if (!id.is_number_integer() || id < 0 || id >= vocab) {
      return InvalidArgument(path, ": element ", i, " is ", Shown(id), ", expected a token id from 0 to ",
                             vocab - 1);
    }
    ids.push_back(id.get<int32_t>());
  }
  return ids;
}

DocumentError DecodeDocument(const std::string& bytes, const Flags& flags, std::string& text) {
  text = flags.encoding == "latin1" ? runtime::Latin1ToUtf8(bytes) : bytes;
  if (text.starts_with("\xEF\xBB\xBF")) text.erase(0, 3);
  if (text.find_first_not_of(" \t\r\n\v\f") == std::string::npos) {
    return {InvalidArgument(flags.input, ": the document is empty"), "DOCUMENT_EMPTY"};
  }
  const bool utf16 = bytes.starts_with("\xFF\xFE") || bytes.starts_with("\xFE\xFF");
  if (utf16 && flags.encoding != "latin1") {
    return {InvalidArgument(flags.input,
                            ": not UTF-8 at byte offset 0: it begins like UTF-16; convert it, e.g. with ",
                            "iconv -f utf-16 -t utf-8"),
            "DOCUMENT_NOT_UTF8"};
  }
  if (const size_t nul = bytes.find('\0'); nul != std::string::npos) {
    return {InvalidArgument(flags.input, ": NUL byte at offset ", nul, ": this is not a text file"),
            "DOCUMENT_NOT_UTF8"};
  }
  if (const auto bad = runtime::ValidateUtf8(text); bad.has_value()) {
    const size_t shift = bytes.size() - text.size();  // of a dropped byte-order mark
    return {InvalidArgument(flags.input, ": not UTF-8 at byte offset ", *bad + shift,
                            "; convert the file, or use --encoding latin1 if it is Latin-1"),
            "DOCUMENT_NOT_UTF8"};
  }
  return {};
}

absl::StatusOr<std::vector<int32_t>> BuildPrompt(const runtime::Tokenizer& tokenizer, const std::string& text,
                                                 const Flags& flags) {
  if (flags.raw) {
    ASSIGN_OR_RETURN(std::vector<int32_t> ids, tokenizer.Encode(text, /*parse_special=*/true));
    if (tokenizer.add_bos() && tokenizer.bos().has_value()) ids.insert(ids.begin(), *tokenizer.bos());
    return ids;
  }
  if (tokenizer.chat_template().empty()) {
    return InvalidArgument(
        "the model has no chat template; use --raw and write the whole prompt into the input");
  }
  ASSIGN_OR_RETURN(const runtime::ChatTemplate chat, runtime::ChatTemplate::Parse(tokenizer.chat_template()));
  std::vector<runtime::ChatMessage> messages;
  if (!flags.system.empty()) messages.push_back({"system", flags.system});
  messages.push_back({"user", flags.prompt.empty() ? text : text + "\n\n" + flags.prompt});
  ASSIGN_OR_RETURN(const std::string rendered,
                   chat.Render(messages, true, tokenizer.bos_text(), tokenizer.eos_text()));
  return tokenizer.Encode(rendered, /*parse_special=*/true);
}

DocumentError CheckContext(int64_t prompt_tokens, int64_t max_tokens, int64_t context) {
  if (prompt_tokens + max_tokens <= context) return {};
  return {InvalidArgument("the prompt has ", prompt_tokens, " tokens and --max-tokens is ", max_tokens,
                          ", together ", prompt_tokens + max_tokens, ", but the context holds ", context,
                          "; shorten the document or use a model with a longer context"),
          "CONTEXT_EXCEEDED"};
}

}  // namespace snapkv::launch
