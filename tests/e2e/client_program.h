// SPDX-License-Identifier: Apache-2.0
// The program snapkv as tests run it, against a FakeServer.
#pragma once

#include <string>
#include <vector>

#include "nlohmann/json.hpp"
#include "tests/e2e/fake_server.h"
#include "tests/support/run_program.h"
#include "tests/support/test_folder.h"

namespace snapkv::testing {

using Strings = std::vector<std::string>;

// `snapkv FLAGS...`
ProgramOptions ClientProgram(const Strings& flags, ProgramOptions options = {});
// `flags` with --server behind the command.
Strings At(const FakeServer& server, Strings flags);

// Runs it to its end. A program that cannot be started, hangs or dies of a signal is a test failure.
ProgramResult RunClientProgram(const Strings& flags, ProgramOptions options = {});

// Lines of text, each a JSON value; a failure for one that is not.
std::vector<nlohmann::ordered_json> JsonLines(const std::string& text);
// `id` (or custom_id) of each record, sorted.
Strings SortedIds(const std::vector<nlohmann::ordered_json>& records);
// The lines of stderr that report an error.
Strings ClientErrors(const ProgramResult& result);

// A JSONL line {"id", "text"}.
std::string TextLine(const std::string& id, const std::string& text);

}  // namespace snapkv::testing
