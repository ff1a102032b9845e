// SPDX-License-Identifier: Apache-2.0
// A line of an OpenAI batch file: a chat completion request, of which only what can be honoured is accepted.
#include <utility>

#include "kernels/base/status.h"
#include "launch/input/jsonl.h"
#include "launch/input/record_fields.h"

namespace snapkv::launch {
namespace {

constexpr size_t kMaxStops = 4;  // of the OpenAI interface

struct BatchLine {
  Document* document;
  int64_t max_document_bytes;
  JsonValue* method = nullptr;
  JsonValue* url = nullptr;
  JsonValue* body = nullptr;
};

struct Body {
  Document* document;
  int64_t max_document_bytes;
  JsonValue* messages = nullptr;
  JsonValue* max_tokens = nullptr;
};

struct Message {
  runtime::ChatMessage message;
  JsonValue* role = nullptr;
  JsonValue* content = nullptr;
};

struct Part {
  JsonValue* type = nullptr;
  JsonValue* text = nullptr;
};

using V = JsonValue;
using Name = std::string;

DocumentError ReadExactly(const Name& name, const V& value, const std::string& text) {
  return value.is_string() && value.text == text ? DocumentError() : BadField(name, value, "'" + text + "'");
}

const Field<Part> kPartFields[] = {
    {"type",
     [](const Name& name, V& v, Part& p) {
       p.type = &v;
       return ReadExactly(name, v, "text");
     }},
    {"text",
     [](const Name& name, V& v, Part& p) {
       p.text = &v;
       return v.is_string() ? DocumentError() : BadField(name, v, "a string");
     }},
};

DocumentError ReadPart(const Name& name, V& value, std::string& out) {
  if (!value.is_object()) return BadField(name, value, "an object {\"type\": \"text\", \"text\": \"...\"}");
  Part part;
  // An image would otherwise be reported by whichever of its members comes first.
  if (const JsonValue* type = value.Find("type"); type != nullptr) {
    DocumentError error = ReadExactly(name + ".type", *type, "text");
    if (!error.ok()) return error;
  }
  DocumentError error = ReadFields(kPartFields, name + ".", value, part);
  if (!error.ok()) return error;
  if (part.type == nullptr) return MissingField(name + ".type", value, "'text'");
  if (part.text == nullptr) return MissingField(name + ".text", value, "a string");
  out = std::move(part.text->text);
  return {};
}

// A string, or text parts, which are joined by line ends.
DocumentError ReadContent(const Name& name, V& value, std::string& out) {
  if (value.is_string()) {
    out = std::move(value.text);
    return {};
  }
  if (!value.is_array()) return BadField(name, value, "a string or an array of text parts");
  for (size_t i = 0; i < value.in.size(); ++i) {
    std::string part;
    DocumentError error = ReadPart(absl::StrCat(name, "[", i, "]"), value.in[i], part);
    if (!error.ok()) return error;
    if (i > 0) out += '\n';
    out += part;
  }
  return {};
}

const Field<Message> kMessageFields[] = {
    {"role",
     [](const Name& name, V& v, Message& m) {
       m.role = &v;
       const bool known = v.is_string() && (v.text == "system" || v.text == "user" || v.text == "assistant");
       m.message.role = v.text;
       return known ? DocumentError() : BadField(name, v, "'system', 'user' or 'assistant'");
     }},
    {"content",
     [](const Name& name, V& v, Message& m) {
       m.content = &v;
       return ReadContent(name, v, m.message.content);
     }},
};

DocumentError ReadMessages(const Name& name, V& value, const Body& body) {
  if (!value.is_array() || value.in.empty()) {
    return BadField(name, value, "an array of at least one message {\"role\": ..., \"content\": ...}");
  }
  int64_t bytes = 0;
  bool blank = true;
  for (size_t i = 0; i < value.in.size(); ++i) {
    const Name element = absl::StrCat(name, "[", i, "]");
    V& object = value.in[i];
    if (!object.is_object()) return BadField(element, object, "an object {\"role\": ..., \"content\": ...}");
    Message read;
    DocumentError error = ReadFields(kMessageFields, element + ".", object, read);
    if (!error.ok()) return error;
    if (read.role == nullptr) {
      return MissingField(element + ".role", object, "'system', 'user' or 'assistant'");
    }
    if (read.content == nullptr) return MissingField(element + ".content", object, "a string");
    const std::string& content = read.message.content;
    if (content.find('\0') != std::string::npos) {
      return RecordError("DOCUMENT_NOT_UTF8", read.content->column,
                         absl::StrCat("field '", element, ".content' holds \\u0000: this is not text"));
    }
    blank = blank && content.find_first_not_of(" \t\r\n\v\f") == std::string::npos;
    bytes += static_cast<int64_t>(content.size());
    body.document->messages.push_back(std::move(read.message));
  }
  if (blank) {
    return RecordError("DOCUMENT_EMPTY", value.column, "the document is empty: no message has any text");
  }
  if (bytes > body.max_document_bytes) {
    return RecordError(
        "DOCUMENT_TOO_LARGE", value.column,
        absl::StrCat("the messages have ", bytes, " bytes, more than ", body.max_document_bytes,
                     ", the limit of --max-document-bytes; shorten them or raise the limit"));
  }
  return {};
}

DocumentError ReadMaxTokens(const Name& name, V& value, Body& body) {
  if (value.is_null()) return {};
  if (body.max_tokens != nullptr) {
    return BadField(name, value, "only one of max_tokens and max_completion_tokens");
  }
  body.max_tokens = &value;
  return ReadInteger(name, value, 1, INT32_MAX, body.document->params.max_tokens);
}

const Field<Body> kBodyFields[] = {
    {"model",
     [](const Name& name, V& v, Body&) {
       return v.is_string() ? DocumentError() : BadField(name, v, "a string (it is not compared)");
     }},
    {"messages",
     [](const Name& name, V& v, Body& b) {
       b.messages = &v;
       return ReadMessages(name, v, b);
     }},
    {"max_tokens", ReadMaxTokens},
    {"max_completion_tokens", ReadMaxTokens},
    {"temperature",
     [](const Name& name, V& v, Body& b) {
       return v.is_null() ? DocumentError() : ReadReal(name, v, {0, 100}, b.document->params.temperature);
     }},
    {"top_p",
     [](const Name& name, V& v, Body& b) {
       return v.is_null() ? DocumentError() : ReadReal(name, v, {0, 1, true}, b.document->params.top_p);
     }},
    {"stop",
     [](const Name& name, V& v, Body& b) {
       return v.is_null() ? DocumentError() : ReadStops(name, v, kMaxStops, b.document->params.stops);
     }},
    {"seed",
     [](const Name& name, V& v, Body& b) {
       return v.is_null() ? DocumentError() : ReadUnsigned(name, v, b.document->params.seed);
     }},
    {"n",
     [](const Name& name, V& v, Body&) {
       const bool one = v.kind == JsonValue::Kind::kUnsigned && v.natural == 1;
       return one || v.is_null() ? DocumentError()
                                 : BadField(name, v, "1: there is one answer to a document");
     }},
    {"stream",
     [](const Name& name, V& v, Body&) {
       const bool off = v.kind == JsonValue::Kind::kBool && !v.boolean;
       return off || v.is_null() ? DocumentError() : BadField(name, v, "false: answers are not streamed");
     }},
};

const Field<BatchLine> kLineFields[] = {
    {"custom_id", [](const Name&, V&, BatchLine&) { return DocumentError(); }},  // has been read
    {"method",
     [](const Name& name, V& v, BatchLine& l) {
       l.method = &v;
       return ReadExactly(name, v, "POST");
     }},
    {"url",
     [](const Name& name, V& v, BatchLine& l) {
       l.url = &v;
       return ReadExactly(name, v, "/v1/chat/completions");
     }},
    {"body",
     [](const Name& name, V& v, BatchLine& l) {
       l.body = &v;
       if (!v.is_object()) return BadField(name, v, "an object with messages");
       Body body = {.document = l.document, .max_document_bytes = l.max_document_bytes};
       DocumentError error = ReadFields(kBodyFields, name + ".", v, body);
       if (!error.ok()) return error;
       if (body.messages == nullptr) return MissingField(name + ".messages", v, "an array of messages");
       return DocumentError();
     }},
};

}  // namespace

DocumentError ReadOpenAiLine(JsonValue& root, int64_t max_document_bytes, Document& document) {
  BatchLine line = {.document = &document, .max_document_bytes = max_document_bytes};
  DocumentError error = ReadFields(kLineFields, "", root, line);
  if (!error.ok()) return error;
  if (line.method == nullptr) return MissingField("method", root, "'POST'");
  if (line.url == nullptr) return MissingField("url", root, "'/v1/chat/completions'");
  if (line.body == nullptr) return MissingField("body", root, "an object with messages");
  for (const V& member : line.body->in) {
    if (!member.is_null()) document.given.push_back(member.key);
  }
  return {};
}

}  // namespace snapkv::launch
