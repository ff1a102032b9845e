// SPDX-License-Identifier: Apache-2.0
// Batches for tests: JSONL lines, records by id.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "tests/e2e/prefill_program.h"

namespace snapkv::testing {

using Json = nlohmann::ordered_json;

// A line of the short form.
std::string BatchLine(const std::string& id, const std::string& text, const Json& more = Json::object());
// `count` documents "d0", "d1", ... of different lengths.
std::string BatchLines(int count);

// The records of JSONL output, in order; a failure for a line that is none.
std::vector<Json> ParseRecords(const std::string& text);
// By id (custom_id of the OpenAI form); a failure for an id that occurs twice.
std::map<std::string, Json> RecordsById(const std::string& text);

// A record's error reason, "" without an error.
std::string ReasonOf(const Json& record);

// The file, in `folder`, of a model that makes numbers of every text but those with a 'Z' in them.
std::string ModelWithoutZ(const TestFolder& folder);

// A program run from here, flags that every test wants first.
ProgramResult RunBatchProgram(const Strings& flags, int ranks = 0, ProgramOptions options = {});

}  // namespace snapkv::testing
