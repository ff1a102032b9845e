// SPDX-License-Identifier: Apache-2.0
// The program snapkv-prefill as tests run it: where it is, its models, folders for its files, its results.
#pragma once

#include <string>
#include <vector>

#include "nlohmann/json.hpp"
#include "runtime/model/safetensors.h"
#include "tests/e2e/tiny_text_model.h"
#include "tests/support/run_program.h"
#include "tests/support/test_folder.h"

namespace snapkv::testing {

using Strings = std::vector<std::string>;
Strings Join(Strings a, const Strings& b);

// The program's path.
std::string PrefillPath();
// Its command line: with mpirun on `ranks` ranks, without it for 0.
Strings PrefillCommand(const Strings& flags, int ranks = 0);

// Runs it to its end. A program that cannot be started, hangs, dies of a signal, or leaves a process behind
// is a test failure.
ProgramResult RunPrefill(const Strings& flags, int ranks = 0, ProgramOptions options = {});

// Shape of the model that most tests run with.
TinyModelOptions SmallOptions();
// Its file, made at the first call and removed at the end of the process.
const std::string& SmallModel();
// `--model SMALL --dtype f32 --threads 1` and `flags`.
Strings WithSmallModel(const Strings& flags);

// The one record on stdout or in `text`; a failure and null when it is not one line of JSON.
nlohmann::ordered_json ParseRecord(const std::string& text);
std::vector<int32_t> TokenIds(const nlohmann::ordered_json& record);
std::vector<std::string> Keys(const nlohmann::ordered_json& object);

// Positions of --dump-selection: [layer][head][row].
std::vector<std::vector<std::vector<int32_t>>> ReadSelection(const std::string& path);
std::vector<float> ReadLogits(const std::string& path);
// Lines of stderr that report an error of the program.
Strings ErrorLines(const ProgramResult& result);

}  // namespace snapkv::testing
