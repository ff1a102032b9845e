// SPDX-License-Identifier: Apache-2.0
// libFuzzer target: any bytes as a JSONL file give items, each with a unique UTF-8 id and a document or an
// error.
//
//   cmake --preset fuzz && cmake --build --preset fuzz --target jsonl_fuzz
//   build/fuzz/tests/fuzz/jsonl_fuzz -max_total_time=60 -dict=tests/fuzz/jsonl.dict /tmp/jsonl_seeds
//   tests/fuzz/jsonl_seeds
#include <sys/mman.h>
#include <unistd.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <set>
#include <string>

#include "kernels/base/log.h"
#include "launch/input/document_source.h"
#include "launch/input/record_fields.h"
#include "runtime/text/utf8.h"

namespace snapkv::launch {
namespace {

void Require(bool condition, const char* what) {
  if (condition) return;
  std::cerr << "violated: " << what << "\n";
  std::abort();
}

bool IsText(const std::string& text) {
  return !runtime::ValidateUtf8(text).has_value() && text.find('\0') == std::string::npos;
}

void CheckParams(const DocumentParams& p) {
  Require(IsText(p.prompt) && IsText(p.system), "prompt and system are text");
  Require(p.max_tokens >= 1 && p.max_tokens <= INT32_MAX, "max_tokens");
  Require(p.temperature >= 0 && p.temperature <= 100, "temperature");
  Require(p.top_k >= 0 && p.top_k <= INT32_MAX, "top_k");
  Require(p.top_p > 0 && p.top_p <= 1, "top_p");
  Require(p.min_p >= 0 && p.min_p < 1, "min_p");
  Require(p.repeat_penalty >= 0.01 && p.repeat_penalty <= 100, "repeat_penalty");
  for (const std::string& stop : p.stops) Require(!stop.empty() && IsText(stop), "stops");
  for (const int32_t id : p.stop_token_ids) Require(id >= 0, "stop_token_ids");
}

void CheckItem(const InputItem& item, int64_t longest_line) {
  const Document& d = item.document;
  Require(!d.id.empty() && IsText(d.id), "the id is text");
  Require(d.id.size() <= kMaxIdBytes + 8, "the id is short");
  Require(d.line >= 1, "the line is known");
  if (!item.error.ok()) {
    Require(!item.error.reason.empty(), "the reason is set");
    Require(item.error.line == d.line, "the line is that of the document");
    Require(item.error.column >= 0 && item.error.column <= longest_line + 1, "the column lies in the line");
    Require(IsText(std::string(item.error.status.message())), "the message is text");
    Require(d.text.empty() && d.messages.empty(), "an error has no document");
    return;
  }
  Require(item.error.reason.empty(), "no reason without an error");
  Require(d.text.empty() != d.messages.empty(), "text or messages");
  Require(d.messages.empty() == (d.form == RecordForm::kShort), "messages are of OpenAI lines");
  Require(IsText(d.text), "the document is text");
  for (const auto& message : d.messages) Require(IsText(message.role) && IsText(message.content), "messages");
  CheckParams(d.params);
}

// A file without a name, kept for all runs.
int MemoryFile(const uint8_t* data, size_t size) {
  static const int fd = ::memfd_create("in.jsonl", MFD_CLOEXEC);
  Require(fd >= 0 && ::ftruncate(fd, 0) == 0, "a memory file");
  Require(::pwrite(fd, data, size, 0) == static_cast<ssize_t>(size), "writing the memory file");
  return fd;
}

void Fuzz(const uint8_t* data, size_t size) {
  SourceOptions options;
  options.inputs = {"/proc/self/fd/" + std::to_string(MemoryFile(data, size))};
  options.format = InputFormat::kJsonl;
  options.max_document_bytes = 512;
  options.max_line_bytes = 2048;
  const auto source = DocumentSource::Open(options);
  Require(source.ok(), "the file opens");
  std::set<std::string> ids;
  int64_t line = 0;
  while (true) {
    const absl::StatusOr<std::optional<InputItem>> item = (*source)->Next();
    Require(item.ok(), "what is in the file is no error of Next");
    if (!item->has_value()) break;
    CheckItem(**item, options.max_line_bytes);
    Require(ids.insert((*item)->document.id).second, "ids are unique");
    Require((*item)->document.line > line, "lines ascend");
    line = (*item)->document.line;
  }
}

}  // namespace
}  // namespace snapkv::launch

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const bool quiet = [] {
    snapkv::SetLogLevel(snapkv::LogLevel::kError);  // "holds no record"
    return true;
  }();
  (void)quiet;
  snapkv::launch::Fuzz(data, size);
  return 0;
}
