// SPDX-License-Identifier: Apache-2.0
// Structured logs: one event, one line on stderr, as text for people or as JSON for programs.
#pragma once

#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "kernels/base/log.h"

namespace snapkv::service {

enum class EventFormat : uint8_t { kText, kJson };

// What all later lines look like, those of LOG included. With kJson it takes SetLogWriter for itself; kText
// gives stderr back to LOG. Default kText. Thread-safe, but meant to be called once, at start.
void SetEventFormat(EventFormat format);

// The value of a field. Durations and times are given as numbers whose unit is in the field's name (_ms,
// _seconds).
class EventValue {
 public:
  EventValue(const char* text) : value_(std::string(text)) {}
  EventValue(std::string text) : value_(std::move(text)) {}
  EventValue(std::string_view text) : value_(std::string(text)) {}
  EventValue(bool flag) : value_(flag) {}
  EventValue(std::floating_point auto number) : value_(static_cast<double>(number)) {}
  template <std::integral T>
  requires(!std::same_as<T, bool>) EventValue(T number) {
    if constexpr (std::is_signed_v<T>) {
      value_ = static_cast<int64_t>(number);
    } else {
      value_ = static_cast<uint64_t>(number);
    }
  }

  using Variant = std::variant<std::string, int64_t, uint64_t, double, bool>;
  const Variant& get() const { return value_; }

 private:
  Variant value_;
};

// snake_case name and value. Names: job, document, worker, lease, tenant, model, attempt, code, reason, ...
struct EventField {
  std::string name;
  EventValue value;
};

// Writes one line.
//   text  job created job=jobs/x documents=12            in front of it the prefix and the level as with LOG;
//                                                        values that hold blanks, '"', '=' or
//                                                        anything that is not printable are in double quotes,
//                                                        with \n, \" and \xNN inside
//   JSON  {"time":"2026-01-31T23:59:59.123Z","level":"info","event":"job
//   created","job":"jobs/x","documents":12}
//                                                        UTC; ASCII only, the rest as \uXXXX; then "program",
//                                                        when the prefix of LOG is "snapkv-server: " or the
//                                                        like
// Whatever the texts hold (control characters, terminal sequences, bytes that are not UTF-8, line ends), it
// stays one line and valid JSON; texts over 2,000 bytes are cut and end in "..."; fields whose text is empty
// are left out. A field called time, level, event or program, or one whose name came before, gets an
// underscore behind its name. Lines below the level of SetLogLevel are dropped. Never give it text of
// documents, summaries or tokens of users. Thread-safe; lines do not mix.
void Event(LogLevel level, const std::string& event, const std::vector<EventField>& fields = {});

// The line without prefix, level name (text) and line end; for tests.
std::string EventText(const std::string& event, const std::vector<EventField>& fields);

}  // namespace snapkv::service
