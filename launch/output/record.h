// SPDX-License-Identifier: Apache-2.0
// The record of a document, as JSON or as readable text, and the hash of what results depend on.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "launch/input/document.h"

namespace snapkv::launch {

// What decides the results of a run, beside its documents. Every field goes into the hash.
struct RunParams {
  std::string model_name{};  // of the file, without its folder: it may lie elsewhere on another machine
  int64_t model_bytes = 0;
  std::string model_fingerprint{};  // of its content; may be ""
  std::string dtype{};              // "f32" or "bf16"
  DocumentParams defaults{};        // what a record may override
  std::string policy{};             // "snapkv" or "full"
  int64_t capacity = 0, window = 0, kernel = 0;
  std::string pool{}, group{};
  bool raw = false;
  std::string encoding{};
  int64_t context = 0;     // as used, in tokens
  std::string overflow{};  // "error" or "middle"
  bool ignore_eos = false;
};

// SHA-256 (64 hexadecimal digits). Flags that do not change a document's result, such as the number of ranks
// in f32, the batch size or the output's form, are not in it.
std::string ParamsSha256(const RunParams& params);

// What became of a document: an error, or a text and figures.
struct DocumentResult {
  std::string id{};
  RecordForm form = RecordForm::kShort;
  DocumentError error{};  // set: nothing below is used
  std::string text{};
  std::vector<int32_t> token_ids{};  // generated, with the one that ended them
  int64_t completion_tokens = -1;    // their number where token_ids are not known; -1: they are
  std::string finish_reason{};       // "stop" or "length"
  int64_t prompt_tokens = 0;
  std::string policy{};                  // "snapkv" or "full"
  int64_t rows_full = 0, rows_kept = 0;  // as in runtime::PrefillResult
  int64_t bytes_full = 0, bytes_kept = 0;
  double queue_s = 0;    // from read and tokenized to the start of its prefill
  double prefill_s = 0;  // as in runtime::DocumentTimes
  double decode_s = 0;
  std::optional<Truncation> truncated{};
};

// What all records of a run share.
struct RecordContext {
  std::string params_sha256{};
  std::string model{};         // OpenAI form
  int64_t created_unix_s = 0;  // OpenAI form
  bool token_ids = false;      // --return-token-ids
};

// Short form: {id, summary, finish_reason, usage, timings, cache, params_sha256, error}, with truncated and
// token_ids where there are any. On an error summary, usage, timings and cache are null and finish_reason is
// "error". OpenAI form: {id, custom_id, response {status_code, request_id, body}, error, cache, timings,
// params_sha256}; the ids derive from custom_id alone.
nlohmann::ordered_json Record(const DocumentResult& result, const RecordContext& context);

// Record as one line with its newline; text that is not UTF-8 cannot occur in it.
std::string RecordLine(const DocumentResult& result, const RecordContext& context);

// --format text. Without header, for the only document of a run: the text, or "error: MESSAGE", and a
// newline. With: a line "== ID ==" before and an empty line behind.
std::string TextRecord(const DocumentResult& result, bool with_header);

// The HTTP status an OpenAI record carries for an error; never 200.
int HttpStatus(const DocumentError& error);

}  // namespace snapkv::launch
