// SPDX-License-Identifier: Apache-2.0
// Event: one line of the worker's log, with what it is about. Never text or tokens of a document.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "kernels/base/log.h"

namespace snapkv::launch {

using EventFields = std::vector<std::pair<std::string, std::string>>;

// "message name=value ..."; fields without a value are left out.
inline void Event(LogLevel level, const std::string& message, const EventFields& fields) {
  std::string line = message;
  for (const auto& [name, value] : fields) {
    if (!value.empty()) line += " " + name + "=" + value;
  }
  LogLine(level, line);
}

}  // namespace snapkv::launch
