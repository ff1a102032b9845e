// SPDX-License-Identifier: Apache-2.0
// Events: one line each on stderr, as text for people or as JSON for collectors. Never document text or
// tokens.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>

#include "kernels/base/log.h"

namespace snapkv::service {

enum class EventFormat : uint8_t {
  kText,  // "PREFIX: job created job=jobs/1 documents=12"; values with blanks are quoted
  kJson,  // {"time": "2030-01-02T03:04:05.678Z", "level": "info", "event": "job created", "job": "jobs/1",
          // ...}
};

// Set once at start, before threads exist. With kJson the lines of LOG become JSON as well ("event" is their
// text).
void SetEventFormat(EventFormat format);

// A name and a value; bytes that are not UTF-8 and control characters are escaped.
struct EventField {
  EventField(const char* name, std::string value) : name(name), value(std::move(value)) {}
  EventField(const char* name, const char* value) : name(name), value(std::string(value)) {}
  EventField(const char* name, bool value) : name(name), value(value) {}
  EventField(const char* name, double value) : name(name), value(value) {}
  template <class Integer>
  requires std::is_integral_v<Integer> EventField(const char* name, Integer value)
      : name(name), value(static_cast<int64_t>(value)) {}

  const char* name;
  std::variant<std::string, bool, double, int64_t> value;
};

// Thread-safe. Empty strings are left out.
void Event(LogLevel level, const std::string& event, std::initializer_list<EventField> fields = {});

// The line of an event without its newline, for tests. `time_ms`: Unix time.
std::string EventJson(LogLevel level, const std::string& event, std::initializer_list<EventField> fields,
                      int64_t time_ms);
std::string EventText(const std::string& event, std::initializer_list<EventField> fields);

}  // namespace snapkv::service
