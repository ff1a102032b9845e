// SPDX-License-Identifier: Apache-2.0
// Event: one line of the worker's log, with what it is about. Never text or tokens of a document.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "kernels/base/log.h"
#include "runtime/service/event_log.h"

namespace snapkv::launch {

using EventFields = std::vector<std::pair<std::string, std::string>>;

// As service::Event: text or JSON, whatever ids hold; fields without a value are left out.
inline void Event(LogLevel level, const std::string& message, const EventFields& fields) {
  std::vector<service::EventField> event_fields;
  for (const auto& [name, value] : fields) event_fields.push_back({name, value});
  service::Event(level, message, event_fields);
}

}  // namespace snapkv::launch
