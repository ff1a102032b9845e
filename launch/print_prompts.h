// SPDX-License-Identifier: Apache-2.0
// --dry-run and --print-tokens: what would be computed, without loading weights.
#pragma once

#include <string>

#include "launch/document_queue.h"
#include "launch/flags.h"
#include "runtime/model/config.h"

namespace snapkv::launch {

struct PrintContext {
  const Flags& flags;
  const std::string& model_path;
  const runtime::ModelConfig& config;
  const runtime::Tokenizer& tokenizer;
  int ranks;
  bool one;  // the input is one text: its whole plan is shown
};

// Prints every prompt of `next` on stdout, errors on stderr. The exit code.
int PrintPrompts(const DocumentQueue::Next& next, const PrintContext& context);

}  // namespace snapkv::launch
