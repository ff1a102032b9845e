// SPDX-License-Identifier: Apache-2.0
// The short form of a JSONL record, and the choice between the forms.
#include "launch/input/jsonl.h"

#include <filesystem>
#include <utility>

#include "kernels/base/status.h"
#include "launch/input/record_fields.h"

namespace snapkv::launch {
namespace {

struct ShortRecord {
  DocumentParams params = {};
  JsonValue* text = nullptr;
  JsonValue* path = nullptr;
  JsonValue* encoding = nullptr;
};

using V = JsonValue;
using R = ShortRecord;
using Name = std::string;

// Any number of stop strings: kMaxJsonValues is the limit.
constexpr size_t kAnyNumber = SIZE_MAX;

const Field<ShortRecord> kFields[] = {
    {"id", [](const Name&, V&, R&) { return DocumentError(); }},  // has been read
    {"text",
     [](const Name& name, V& v, R& r) {
       r.text = &v;
       return v.is_string() ? DocumentError() : BadField(name, v, "a string");
     }},
    {"path",
     [](const Name& name, V& v, R& r) {
       r.path = &v;
       const bool usable = v.is_string() && !v.text.empty() && v.text.find('\0') == std::string::npos;
       return usable ? DocumentError() : BadField(name, v, "the path of a text file");
     }},
    {"prompt", [](const Name& name, V& v, R& r) { return ReadString(name, v, r.params.prompt); }},
    {"system", [](const Name& name, V& v, R& r) { return ReadString(name, v, r.params.system); }},
    {"max_tokens",
     [](const Name& name, V& v, R& r) { return ReadInteger(name, v, 1, INT32_MAX, r.params.max_tokens); }},
    {"temperature",
     [](const Name& name, V& v, R& r) {
       return ReadReal(name, v, {0, 100}, r.params.temperature);
     }},
    {"top_k",
     [](const Name& name, V& v, R& r) { return ReadInteger(name, v, 0, INT32_MAX, r.params.top_k); }},
    {"top_p",
     [](const Name& name, V& v, R& r) {
       return ReadReal(name, v, {0, 1, true}, r.params.top_p);
     }},
    {"min_p",
     [](const Name& name, V& v, R& r) {
       return ReadReal(name, v, {0, 1, false, true}, r.params.min_p);
     }},
    {"repeat_penalty",
     [](const Name& name, V& v, R& r) {
       return ReadReal(name, v, {0.01, 100}, r.params.repeat_penalty);
     }},
    {"seed", [](const Name& name, V& v, R& r) { return ReadUnsigned(name, v, r.params.seed); }},
    {"stop", [](const Name& name, V& v, R& r) { return ReadStops(name, v, kAnyNumber, r.params.stops); }},
    {"stop_token_ids",
     [](const Name& name, V& v, R& r) { return ReadTokenIds(name, v, r.params.stop_token_ids); }},
    {"encoding",
     [](const Name& name, V& v, R& r) {
       r.encoding = &v;
       const bool known = v.is_string() && (v.text == "utf-8" || v.text == "latin1");
       return known ? DocumentError() : BadField(name, v, "'utf-8' or 'latin1'");
     }},
    {"metadata", [](const Name&, V&, R&) { return DocumentError(); }},
};

// Of a path in a message; the system takes longer ones, but no reader does.
constexpr size_t kShownPathBytes = 300;

DocumentError TooLarge(const char* field, int64_t column, size_t bytes, int64_t most) {
  return RecordError("DOCUMENT_TOO_LARGE", column,
                     absl::StrCat("field '", field, "' has ", bytes, " bytes, more than ", most,
                                  ", the limit of --max-document-bytes; shorten it or raise the limit"));
}

DocumentError ReadContent(const ShortRecord& record, const JsonValue& root, const LineContext& context,
                          std::string& text) {
  if ((record.text == nullptr) == (record.path == nullptr)) {
    const JsonValue& at = record.text == nullptr ? root : *record.path;
    return RecordError("PARAMETER_INVALID", at.column,
                       record.text == nullptr
                           ? "the record has neither 'text' nor 'path'; it needs one of them"
                           : "the record has both 'text' and 'path'; it needs one of them");
  }
  if (record.encoding != nullptr && record.path == nullptr) {
    return RecordError(
        "PARAMETER_INVALID", record.encoding->column,
        "field 'encoding' is that of the file 'path', but the record has 'text', which is UTF-8");
  }
  const JsonValue& content = record.text != nullptr ? *record.text : *record.path;
  DocumentError error;
  if (record.text != nullptr) {
    if (static_cast<int64_t>(record.text->text.size()) > context.read.max_bytes) {
      return TooLarge("text", content.column, record.text->text.size(), context.read.max_bytes);
    }
    error = DecodeText(std::move(record.text->text), "field 'text'", "utf-8", text);
  } else {
    const std::string path = (std::filesystem::path(context.folder) / content.text).string();
    ReadOptions options = context.read;
    if (record.encoding != nullptr) options.encoding = record.encoding->text;
    error = ReadTextFile(path, ShownText(path, kShownPathBytes), options, text);
  }
  error.column = content.column;
  return error;
}

DocumentError ReadShortLine(JsonValue& root, const LineContext& context, Document& document) {
  ShortRecord record = {.params = context.defaults};
  DocumentError error = ReadFields(kFields, "", root, record);
  if (error.ok()) error = ReadContent(record, root, context, document.text);
  if (!error.ok()) return error;
  document.params = std::move(record.params);
  for (const JsonValue& member : root.in) document.given.push_back(member.key);
  return {};
}

// The record's id, or the path that serves as one, even if other fields are at fault.
DocumentError FindId(const JsonValue& root, Document& document, int64_t& column) {
  const bool open_ai = document.form == RecordForm::kOpenAi;
  const char* const name = open_ai ? "custom_id" : "id";
  if (const JsonValue* id = root.Find(name); id != nullptr) {
    column = id->column;
    return ReadId(name, *id, document.id);
  }
  const JsonValue* path = open_ai ? nullptr : root.Find("path");
  if (path != nullptr && path->is_string() && IdFault(path->text) == nullptr) {
    column = path->column;
    document.id = path->text;
  }
  return {};
}

}  // namespace

InputItem ParseRecord(std::string_view line, int64_t number, const LineContext& context, int64_t* id_column) {
  InputItem item;
  int64_t column = 0;
  item.document.source = context.source;
  item.document.line = number;
  JsonValue root;
  DocumentError error = ParseJsonLine(line, "metadata", root);
  if (error.ok()) {
    const bool open_ai = root.Find("custom_id") != nullptr || root.Find("body") != nullptr;
    if (open_ai) item.document.form = RecordForm::kOpenAi;
    error = FindId(root, item.document, column);
    if (error.ok() && open_ai) {
      item.document.params = context.defaults;
      error = ReadOpenAiLine(root, context.read.max_bytes, item.document);
    } else if (error.ok()) {
      error = ReadShortLine(root, context, item.document);
    }
  }
  if (!error.ok()) item.SetError(std::move(error));
  if (id_column != nullptr) *id_column = column;
  return item;
}

}  // namespace snapkv::launch
