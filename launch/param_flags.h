// SPDX-License-Identifier: Apache-2.0
// Flags of how documents are read and summarised that snapkv-prefill and snapkv have in common.
#pragma once

#include <string>

#include "CLI/CLI.hpp"
#include "launch/input/document.h"
#include "launch/input/input_files.h"

namespace snapkv::launch {

// --max-tokens, --temperature, --top-k, --top-p, --min-p, --repeat-penalty, --seed. With `show_defaults` the
// help names those of `params`; without, somebody else decides what holds without the flag.
void AddSamplingFlags(CLI::App& app, const std::string& group, DocumentParams& params, bool show_defaults);

// --stop and --stop-token-id. Read --stop as app.get_option("--stop")->results(), see AddTexts.
void AddStopFlags(CLI::App& app, const std::string& group, DocumentParams& params);

// --input-format, --encoding, --max-document-bytes, --max-line-bytes.
void AddInputFormatFlag(CLI::App& app, const std::string& group, InputFormat& format);
void AddEncodingFlag(CLI::App& app, const std::string& group, std::string& encoding);
void AddInputLimitFlags(CLI::App& app, const std::string& group, int64_t& max_document_bytes,
                        int64_t& max_line_bytes);

}  // namespace snapkv::launch
