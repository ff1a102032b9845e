// SPDX-License-Identifier: Apache-2.0
// LOG for one line on stderr, CHECK for invariants that only a bug in this program can break.
#pragma once

#include <functional>
#include <sstream>
#include <string>

namespace snapkv {

enum class LogLevel { kDebug, kInfo, kWarning, kError };

// Lines below this level are dropped. Default kInfo. Thread-safe.
void SetLogLevel(LogLevel level);
// Put in front of every line, e.g. "rank 3: ". Set once at start, before threads exist.
void SetLogPrefix(std::string prefix);
// Takes every line, newline included, instead of stderr; nullptr: stderr again. For a progress bar, which
// must be erased before the line and drawn behind it. Calls do not overlap; the writer must not log.
// Thread-safe: when SetLogWriter returns, the writer before is not running and is not called again.
void SetLogWriter(std::function<void(const std::string& line)> writer);
// Writes one whole line to stderr with a single write(2), so that lines of several ranks do not mix.
void LogLine(LogLevel level, const std::string& text);

namespace internal {

class LogMessage {
 public:
  explicit LogMessage(LogLevel level) : level_(level) {}
  ~LogMessage() { LogLine(level_, text_.str()); }
  std::ostream& stream() { return text_; }

 private:
  LogLevel level_;
  std::ostringstream text_;
};

// Prints "FILE:LINE: check failed: CONDITION text" and aborts.
class CheckFailure {
 public:
  CheckFailure(const char* file, int line, const char* condition);
  [[noreturn]] ~CheckFailure();
  std::ostream& stream() { return text_; }

 private:
  std::ostringstream text_;
};

struct Voidify {
  void operator&(std::ostream&) {}
};

}  // namespace internal
}  // namespace snapkv

// LOG(Info) << "text"; levels: Debug, Info, Warning, Error.
#define LOG(level) ::snapkv::internal::LogMessage(::snapkv::LogLevel::k##level).stream()
#define CHECK(condition)                        \
  (condition) ? (void)0                         \
              : ::snapkv::internal::Voidify() & \
                    ::snapkv::internal::CheckFailure(__FILE__, __LINE__, #condition).stream()
