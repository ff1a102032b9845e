// SPDX-License-Identifier: Apache-2.0
// Document: one unit of work, whatever input it came from; and the error that takes its place.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "kernels/base/status.h"
#include "runtime/text/chat_template.h"

namespace snapkv::launch {

// What may differ between the documents of one run. Precedence: record field, flag, model default.
struct DocumentParams {
  std::string prompt = "Summarize the document above in one short paragraph.";
  std::string system;  // empty: the model's own
  int64_t max_tokens = 256;
  double temperature = 0;     // 0 takes the likeliest token
  int64_t top_k = 0;          // 0: off
  double top_p = 1;           // 1: off
  double min_p = 0;           // 0: off
  double repeat_penalty = 1;  // 1: off
  uint64_t seed = 0;          // the draw of a document depends on seed and id, not on its place in the run
  std::vector<std::string> stops;
  std::vector<int32_t> stop_token_ids;  // beside the model's own end tokens
};

// How a line was written, which is how its record will be written.
enum class RecordForm : uint8_t { kShort, kOpenAi };

struct Document {
  std::string id;
  RecordForm form = RecordForm::kShort;
  std::string text;  // UTF-8, without byte-order mark, not blank
  // OpenAI lines: the whole conversation, used instead of text, prompt and system.
  std::vector<runtime::ChatMessage> messages;
  DocumentParams params;
  // Names of the fields that the record itself has (OpenAI: of its body, without nulls); empty for text
  // files.
  std::vector<std::string> given = {};
  std::string source;  // file it came from, for messages
  int64_t line = 0;    // of a JSONL file, from 1; 0 for other inputs
};

// An error of one document, with the reason that goes into its record.
struct DocumentError {
  absl::Status status;
  std::string reason;  // machine-readable, e.g. DOCUMENT_EMPTY; docs/batch.md lists them
  int64_t line = 0;    // of a JSONL file, from 1; 0 where there is none
  int64_t column = 0;  // byte in that line, from 1; 0 where it is not known
  bool ok() const { return status.ok(); }
};

// What --overflow middle has left out of a document.
struct Truncation {
  int64_t tokens_full = 0;     // of the whole prompt, as it was
  int64_t tokens_removed = 0;  // from it
  int64_t bytes_removed = 0;   // of text
};

// What an input yields next: a document, or an error in its place (then only id, form, source and line of the
// document are set).
struct InputItem {
  Document document;
  DocumentError error;

  // Makes the item an error: what the document must not have then is dropped, and the error gets its line.
  void SetError(DocumentError fault) {
    document.text = {};
    document.messages = {};
    document.params = {};
    document.given = {};
    error = std::move(fault);
    error.line = document.line;
  }
};

}  // namespace snapkv::launch
