// SPDX-License-Identifier: Apache-2.0
// The JSON record of a document, and the hash of what its result depends on.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "launch/document_input.h"
#include "launch/flags.h"
#include "runtime/engine/generate.h"
#include "runtime/engine/prefill.h"

namespace snapkv::launch {

// SHA-256 (hex) of the parameters that decide a summary: model, prompt, generation and compression flags.
std::string ParamsSha256(const Flags& flags, const std::string& model_name, int64_t model_bytes,
                         const char* dtype);

struct DocumentTimes {
  double prefill_s = 0;
  double decode_s = 0;
};

// {id, summary, finish_reason, usage, timings, cache, params_sha256, error: null}, with token_ids when asked
// for.
nlohmann::ordered_json SuccessRecord(const Flags& flags, const std::string& id,
                                     const std::string& params_sha256, int64_t prompt_tokens,
                                     const runtime::PrefillResult& prefill,
                                     const runtime::Generation& generation, const DocumentTimes& times);

// The same keys with error {code, reason, message, line, column}.
nlohmann::ordered_json ErrorRecord(const std::string& id, const std::string& params_sha256,
                                   const DocumentError& error);

// One line of JSON; text that is not UTF-8 cannot occur in it.
std::string ToLine(const nlohmann::ordered_json& record);

}  // namespace snapkv::launch
