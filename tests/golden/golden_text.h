// SPDX-License-Identifier: Apache-2.0
// What the golden tests of tokenizer and chat template share: the models' vocabularies and the first
// difference.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/text/tokenizer.h"

namespace snapkv::testing {

// The tokenizer of the default model. NOT_FOUND says how to get it.
absl::StatusOr<runtime::Tokenizer> SmolLm2Tokenizer();

// The tokenizer of the model that SNAPKV_QWEN_GGUF names; UNAVAILABLE when it is not set, and the test may
// skip itself with that message.
absl::StatusOr<runtime::Tokenizer> Qwen2Tokenizer();

// "" when equal, else the first position that differs and both values there.
std::string FirstDifference(const std::vector<int32_t>& got, const std::vector<int32_t>& want);

}  // namespace snapkv::testing
