// SPDX-License-Identifier: Apache-2.0
// From results and errors of documents to the messages that hand them in.
#pragma once

#include <string>

#include "launch/input/document.h"
#include "launch/output/record.h"
#include "snapkv/v1/common.pb.h"

namespace snapkv::launch {

v1::Status ToStatus(const DocumentError& error);

// The reason of a service's error, else the name of its code.
std::string ReasonText(const absl::Status& status);

// All that the result of a document has: text, figures, token ids. An error is not in it (see ToStatus).
v1::Result ToResult(const DocumentResult& result, const std::string& params_sha256);

}  // namespace snapkv::launch
