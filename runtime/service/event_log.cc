// SPDX-License-Identifier: Apache-2.0
// Lines of events, and the writer that turns plain log lines into JSON.
#include "runtime/service/event_log.h"

#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <mutex>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "nlohmann/json.hpp"

namespace snapkv::service {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMaxTextBytes = 2'000;

std::atomic<EventFormat> format{EventFormat::kText};

// What Event hands to the writer, which LogLine calls on the same thread.
struct Pending {
  const std::string& event;
  const std::vector<EventField>& fields;
};
thread_local const Pending* pending = nullptr;

struct Character {
  size_t bytes;      // 1 when it is not UTF-8
  bool valid;        // UTF-8
  char32_t unicode;  // when valid
};

// The character at the start of `text`, which is not empty.
Character NextCharacter(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  if (first < 0x80) return {1, true, first};
  const size_t bytes = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  if (first < 0xC2 || first > 0xF4 || text.size() < bytes) return {1, false, 0};
  char32_t unicode = first & (0xFF >> (bytes + 1));
  for (size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return {1, false, 0};
    unicode = unicode << 6 | (byte(i) & 0x3F);
  }
  constexpr char32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};
  const bool surrogate = unicode >= 0xD800 && unicode <= 0xDFFF;
  if (unicode < kLeast[bytes] || unicode > 0x10FFFF || surrogate) return {1, false, 0};
  return {bytes, true, unicode};
}

// Characters that a terminal acts on, or that hide what follows: controls, line and paragraph ends, marks of
// direction.
bool IsHarmful(char32_t c) {
  return c < 0x20 || (c >= 0x7F && c <= 0x9F) || c == 0x061C || (c >= 0x200B && c <= 0x200F) ||
         (c >= 0x2028 && c <= 0x202E) || (c >= 0x2060 && c <= 0x206F) || c == 0xFEFF ||
         (c >= 0xFFF9 && c <= 0xFFFB);
}

std::string Escaped(char32_t c) {
  switch (c) {
    case '\n':
      return "\\n";
    case '\r':
      return "\\r";
    case '\t':
      return "\\t";
    case '"':
      return "\\\"";
    case '\\':
      return "\\\\";
    default:
      return c < 0x80 ? absl::StrFormat("\\x%02x", static_cast<int>(c))
                      : absl::StrFormat("\\u%04x", static_cast<int>(c));
  }
}

// At most kMaxTextBytes, cut between characters.
std::string Shortened(const std::string& text) {
  if (text.size() <= kMaxTextBytes) return text;
  size_t end = kMaxTextBytes - 3;
  const size_t hard = end;
  while (end > hard - 3 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  return text.substr(0, end) + "...";
}

// Text for a person. Quoted when `quotable` and it would not read as one word.
std::string Readable(const std::string& full, bool quotable) {
  const std::string text = Shortened(full);
  std::string out;
  bool quote = false;
  for (size_t i = 0; i < text.size();) {
    const Character c = NextCharacter(std::string_view(text).substr(i));
    if (!c.valid) {
      absl::StrAppendFormat(&out, "\\x%02x", static_cast<unsigned char>(text[i]));
      quote = true;
    } else if (IsHarmful(c.unicode) || (quotable && (c.unicode == '"' || c.unicode == '\\'))) {
      out += Escaped(c.unicode);
      quote = true;
    } else {
      out.append(text, i, c.bytes);
      quote = quote || c.unicode == ' ' || c.unicode == '=' || c.unicode == 0xA0 || c.unicode == 0x3000;
    }
    i += c.bytes;
  }
  return quotable && quote ? absl::StrCat("\"", out, "\"") : out;
}

std::string NumberText(double number) {
  if (std::isnan(number)) return "nan";
  if (std::isinf(number)) return number < 0 ? "-inf" : "inf";
  char buffer[32];
  return std::string(buffer, std::to_chars(buffer, buffer + sizeof(buffer), number).ptr);
}

bool IsEmpty(const EventField& field) {
  const auto* text = std::get_if<std::string>(&field.value.get());
  return text != nullptr && text->empty();
}

std::string ValueText(const EventValue::Variant& value) {
  if (const auto* text = std::get_if<std::string>(&value)) return Readable(*text, true);
  if (const auto* number = std::get_if<int64_t>(&value)) return absl::StrCat(*number);
  if (const auto* number = std::get_if<uint64_t>(&value)) return absl::StrCat(*number);
  if (const auto* number = std::get_if<double>(&value)) return NumberText(*number);
  return std::get<bool>(value) ? "true" : "false";
}

Json ValueJson(const EventValue::Variant& value) {
  if (const auto* text = std::get_if<std::string>(&value)) return Shortened(*text);
  if (const auto* number = std::get_if<int64_t>(&value)) return *number;
  if (const auto* number = std::get_if<uint64_t>(&value)) return *number;
  if (const auto* number = std::get_if<double>(&value)) {
    // JSON has no such numbers, and null would hide which of them it was.
    return std::isfinite(*number) ? Json(*number) : Json(NumberText(*number));
  }
  return std::get<bool>(value);
}

// Prefix and level, taken off the front of a line that LogLine has put together.
struct LineHead {
  std::string program;  // empty: no prefix
  const char* level = "info";
};

bool TakePrefix(std::string_view& text, std::string_view prefix) {
  if (text.substr(0, prefix.size()) != prefix) return false;
  text.remove_prefix(prefix.size());
  return true;
}

LineHead TakeHead(std::string_view& line) {
  LineHead head;
  const size_t word = line.find_first_not_of("abcdefghijklmnopqrstuvwxyz-");
  if (word != line.npos && line.substr(0, 6) == "snapkv" && line.substr(word, 2) == ": ") {
    head.program = std::string(line.substr(0, word));
    line.remove_prefix(word + 2);
  }
  if (TakePrefix(line, "error: ")) {
    head.level = "error";
  } else if (TakePrefix(line, "warning: ")) {
    head.level = "warning";
  }
  return head;
}

std::string JsonLine(const LineHead& head, const std::string& event, const std::vector<EventField>& fields) {
  Json json;
  json["time"] = absl::FormatTime("%Y-%m-%d%ET%H:%M:%E3SZ", absl::Now(), absl::UTCTimeZone());
  json["level"] = head.level;
  json["event"] = Shortened(event);
  if (!head.program.empty()) json["program"] = head.program;
  for (const EventField& field : fields) {
    if (IsEmpty(field)) continue;
    std::string name = Shortened(field.name);
    while (json.contains(name) || name == "program") name += '_';
    json[name] = ValueJson(field.value.get());
  }
  return json.dump(-1, ' ', /*ensure_ascii=*/true, Json::error_handler_t::replace) + "\n";
}

void WriteAll(const std::string& line) {
  size_t done = 0;
  while (done < line.size()) {
    const ssize_t n = ::write(STDERR_FILENO, line.data() + done, line.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return;
    done += static_cast<size_t>(n);
  }
}

// The writer of the JSON format. LogLine's calls do not overlap.
void WriteJson(const std::string& line) {
  std::string_view text = line;
  if (!text.empty() && text.back() == '\n') text.remove_suffix(1);
  const LineHead head = TakeHead(text);
  WriteAll(pending != nullptr ? JsonLine(head, pending->event, pending->fields)
                              : JsonLine(head, std::string(text), {}));
}

}  // namespace

void SetEventFormat(EventFormat wanted) {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  if (format.exchange(wanted) == wanted) return;
  if (wanted == EventFormat::kJson) {
    SetLogWriter(WriteJson);
  } else {
    SetLogWriter(nullptr);
  }
}

std::string EventText(const std::string& event, const std::vector<EventField>& fields) {
  std::string line = Readable(event, false);
  for (const EventField& field : fields) {
    if (IsEmpty(field)) continue;
    absl::StrAppend(&line, " ", Readable(field.name, false), "=", ValueText(field.value.get()));
  }
  return line;
}

void Event(LogLevel level, const std::string& event, const std::vector<EventField>& fields) {
  if (format.load() == EventFormat::kText) {
    LogLine(level, EventText(event, fields));
    return;
  }
  const Pending now{event, fields};
  pending = &now;
  // The text is what a writer set by somebody else would show.
  LogLine(level, EventText(event, fields));
  pending = nullptr;
}

}  // namespace snapkv::service
