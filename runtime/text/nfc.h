// SPDX-License-Identifier: Apache-2.0
// Unicode normalisation form C, in time linear (but for sorting) in the text.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace snapkv::runtime {

// True when no code point can change under NFC by a cheap test (all below U+0300); false means "perhaps not".
bool IsCertainlyNfc(std::string_view text);

// `text` must be valid UTF-8. Errors: only running out of memory inside utf8proc, or text of 2 GiB and more.
absl::StatusOr<std::string> NormalizeNfc(std::string_view text);

}  // namespace snapkv::runtime
