// SPDX-License-Identifier: Apache-2.0
// JSONL records: one line becomes one document, in either of two forms.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "launch/input/document.h"
#include "launch/input/json_line.h"
#include "launch/input/text_file.h"

namespace snapkv::launch {

// The short form:
//   {"id"?, "text" | "path", "prompt"?, "system"?, "max_tokens"?, "temperature"?, "top_k"?, "top_p"?,
//   "min_p"?,
//    "repeat_penalty"?, "seed"?, "stop"? (string or array), "stop_token_ids"?, "encoding"? (of path),
//    "metadata"?}
// An OpenAI batch line (it has "custom_id" or "body"):
//   {"custom_id"?, "method": "POST", "url": "/v1/chat/completions", "body": {"model"?, "messages",
//   "max_tokens" or
//    "max_completion_tokens"?, "temperature"?, "top_p"?, "stop"? (string or at most 4), "seed"?, "n"? (1),
//    "stream"? (false)}}
// `model` is not compared, null is the same as leaving an optional member of the body out, and text parts of
// a message are joined by "\n". Next to the fields of either form, `metadata` holds anything and is ignored;
// every other name is an error.

// What the lines of one file have in common.
struct LineContext {
  DocumentParams defaults;
  ReadOptions read;    // of "path": encoding unless the record has one; its limit also holds for "text"
  std::string source;  // the JSONL file as messages name it
  std::string folder;  // which a relative "path" is relative to; empty: the working folder
};

// A line (number from 1) as a document or the error in its place. document.id is what the record names: id or
// custom_id, else path as it is written, else (also when the id is at fault) "": the caller finds one.
// Source, line and form are always set. A message names the field but not the file and line, which stand
// beside it. Reads the file of "path". error.status is CANCELLED, without a reason, when reading was stopped.
// `id_column`, unless it is null: where the value stands that became the id, 0 if there is none.
InputItem ParseRecord(std::string_view line, int64_t number, const LineContext& context,
                      int64_t* id_column = nullptr);

// An OpenAI batch line; `root` is an object whose values may be moved out. The id has been read.
DocumentError ReadOpenAiLine(JsonValue& root, int64_t max_document_bytes, Document& document);

}  // namespace snapkv::launch
