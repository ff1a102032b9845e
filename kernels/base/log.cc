// SPDX-License-Identifier: Apache-2.0
// Log lines and check failures: one write(2) per line.
#include "kernels/base/log.h"

#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <mutex>
#include <utility>

namespace snapkv {
namespace {

std::atomic<LogLevel> minimum_level{LogLevel::kInfo};
std::string& Prefix() {
  static std::string prefix;
  return prefix;
}

using LogWriter = std::function<void(const std::string&)>;

// Never destroyed: a line may be logged while the program ends.
LogWriter& Writer() {
  static auto* writer = new LogWriter();
  return *writer;
}
std::mutex& WriterMutex() {
  static auto* mutex = new std::mutex();
  return *mutex;
}

void WriteLine(const std::string& line) {
  const char* data = line.data();
  size_t left = line.size();
  while (left > 0) {
    const ssize_t n = ::write(STDERR_FILENO, data, left);
    if (n <= 0) return;
    data += n;
    left -= static_cast<size_t>(n);
  }
}

}  // namespace

void SetLogLevel(LogLevel level) { minimum_level = level; }
void SetLogPrefix(std::string prefix) { Prefix() = std::move(prefix); }

void LogLine(LogLevel level, const std::string& text) {
  if (level < minimum_level.load()) return;
  const char* name = level == LogLevel::kError ? "error: " : level == LogLevel::kWarning ? "warning: " : "";
  const std::string line = Prefix() + name + text + "\n";
  const std::lock_guard lock(WriterMutex());
  Writer() ? Writer()(line) : WriteLine(line);
}

void SetLogWriter(LogWriter writer) {
  const std::lock_guard lock(WriterMutex());
  Writer() = std::move(writer);
}

namespace internal {

CheckFailure::CheckFailure(const char* file, int line, const char* condition) {
  text_ << file << ":" << line << ": check failed: " << condition << " ";
}

CheckFailure::~CheckFailure() {
  WriteLine(Prefix() + text_.str() + "\n");
  std::abort();
}

}  // namespace internal
}  // namespace snapkv
