// SPDX-License-Identifier: Apache-2.0
// Vocabularies for the golden tests of tokenizer and chat template.
#include "tests/golden/golden_text.h"

#include <algorithm>
#include <cstdlib>

#include "kernels/base/status.h"
#include "runtime/model/gguf.h"
#include "runtime/model/tokenizer_from_gguf.h"
#include "tests/support/golden.h"

namespace snapkv::testing {
namespace {

absl::StatusOr<runtime::Tokenizer> TokenizerOf(const std::string& path) {
  ASSIGN_OR_RETURN(const runtime::GgufFile file, runtime::GgufFile::Open(path));
  return runtime::TokenizerFromGguf(file);
}

std::string At(const std::vector<int32_t>& ids, size_t i) {
  return i < ids.size() ? std::to_string(ids[i]) : "nothing";
}

}  // namespace

absl::StatusOr<runtime::Tokenizer> SmolLm2Tokenizer() {
  ASSIGN_OR_RETURN(const std::string path, ModelPath());
  return TokenizerOf(path);
}

absl::StatusOr<runtime::Tokenizer> Qwen2Tokenizer() {
  const char* path = std::getenv("SNAPKV_QWEN_GGUF");
  if (path == nullptr || *path == '\0') {
    return absl::UnavailableError("SNAPKV_QWEN_GGUF is not set: no Qwen2 vocabulary to compare with");
  }
  return TokenizerOf(path);
}

std::string FirstDifference(const std::vector<int32_t>& got, const std::vector<int32_t>& want) {
  if (got == want) return "";
  size_t i = 0;
  while (i < std::min(got.size(), want.size()) && got[i] == want[i]) ++i;
  return absl::StrCat("id ", i, " is ", At(got, i), ", should be ", At(want, i), " (", got.size(),
                      " ids, should be ", want.size(), ")");
}

}  // namespace snapkv::testing
