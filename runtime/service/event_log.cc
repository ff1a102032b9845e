// SPDX-License-Identifier: Apache-2.0
// Lines of text and of JSON.
#include "runtime/service/event_log.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace snapkv::service {
namespace {

std::atomic<EventFormat> g_format{EventFormat::kText};

const char* LevelName(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return "debug";
    case LogLevel::kInfo:
      return "info";
    case LogLevel::kWarning:
      return "warning";
    default:
      return "error";
  }
}

std::string Dump(const nlohmann::ordered_json& json) {
  return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

nlohmann::ordered_json ToJson(const EventField& field) {
  return std::visit([](const auto& value) { return nlohmann::ordered_json(value); }, field.value);
}

bool IsEmpty(const EventField& field) {
  const auto* text = std::get_if<std::string>(&field.value);
  return text != nullptr && text->empty();
}

// Bare where that cannot be misread, else as JSON writes it.
std::string TextValue(const EventField& field) {
  const auto* text = std::get_if<std::string>(&field.value);
  if (text == nullptr) return Dump(ToJson(field));
  const bool bare = std::all_of(text->begin(), text->end(), [](unsigned char c) {
    return c > ' ' && c < 0x7f && c != '"' && c != '\\' && c != '=';
  });
  return bare ? *text : Dump(*text);
}

void WriteStderr(const std::string& line) {
  size_t done = 0;
  while (done < line.size()) {
    const ssize_t wrote = write(STDERR_FILENO, line.data() + done, line.size() - done);
    if (wrote <= 0) return;  // nobody reads the log
    done += static_cast<size_t>(wrote);
  }
}

// A line of LOG as an event.
void WriteLogLine(const std::string& line) {
  std::string text = line;
  while (!text.empty() && text.back() == '\n') text.pop_back();
  const bool error = text.find("error: ") != std::string::npos;
  const bool warning = text.find("warning: ") != std::string::npos;
  const LogLevel level = error ? LogLevel::kError : warning ? LogLevel::kWarning : LogLevel::kInfo;
  WriteStderr(EventJson(level, text, {}, absl::ToUnixMillis(absl::Now())) + "\n");
}

}  // namespace

void SetEventFormat(EventFormat format) {
  g_format = format;
  SetLogWriter(format == EventFormat::kJson ? WriteLogLine : std::function<void(const std::string&)>());
}

void Event(LogLevel level, const std::string& event, std::initializer_list<EventField> fields) {
  if (g_format == EventFormat::kJson) {
    WriteStderr(EventJson(level, event, fields, absl::ToUnixMillis(absl::Now())) + "\n");
  } else {
    LogLine(level, EventText(event, fields));
  }
}

std::string EventJson(LogLevel level, const std::string& event, std::initializer_list<EventField> fields,
                      int64_t time_ms) {
  nlohmann::ordered_json json;
  json["time"] = absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ", absl::FromUnixMillis(time_ms), absl::UTCTimeZone());
  json["level"] = LevelName(level);
  json["event"] = event;
  for (const EventField& field : fields) {
    if (!IsEmpty(field)) json[field.name] = ToJson(field);
  }
  return Dump(json);
}

std::string EventText(const std::string& event, std::initializer_list<EventField> fields) {
  std::string text = event;
  for (const EventField& field : fields) {
    if (!IsEmpty(field)) absl::StrAppend(&text, " ", field.name, "=", TextValue(field));
  }
  return text;
}

}  // namespace snapkv::service
