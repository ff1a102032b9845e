// SPDX-License-Identifier: Apache-2.0
// What the tests of the output share: a folder of their own, files as strings, and sample records.
#pragma once

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "kernels/base/log.h"
#include "launch/output/output_log.h"
#include "launch/output/record.h"

namespace snapkv::launch {

// A new folder, removed with all it holds at the end. In memory where that exists if `many_syncs`: thousands
// of fdatasync(2) on a disk take minutes.
class TemporaryFolder {
 public:
  explicit TemporaryFolder(bool many_syncs = false) {
    const std::filesystem::path memory = "/dev/shm";
    const bool in_memory = many_syncs && access(memory.c_str(), W_OK) == 0;
    const auto parent = in_memory ? memory : std::filesystem::temp_directory_path();
    std::string name = (parent / "snapkv-output-XXXXXX").string();
    CHECK(mkdtemp(name.data()) != nullptr) << name;
    path_ = name;
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  std::string path() const { return path_; }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

inline std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

inline void WriteBytes(const std::string& path, const std::string& bytes) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << bytes;
  file.close();
  CHECK(file.good()) << path;
}

inline std::vector<std::string> Lines(const std::string& text) {
  std::vector<std::string> lines;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = text.find('\n', begin);
    lines.push_back(text.substr(begin, end == std::string::npos ? end : end + 1 - begin));
    begin += lines.back().size();
  }
  return lines;
}

inline std::string Params() { return std::string(60, 'a') + "0123"; }

inline DocumentResult Summarised(const std::string& id, const std::string& text = "A summary.",
                                 RecordForm form = RecordForm::kShort) {
  return {.id = id,
          .form = form,
          .text = text,
          .token_ids = {5, 6, 7},
          .finish_reason = "stop",
          .prompt_tokens = 100,
          .policy = "snapkv",
          .rows_full = 100,
          .rows_kept = 64,
          .bytes_full = 1000,
          .bytes_kept = 640,
          .queue_s = 0.5,
          .prefill_s = 2,
          .decode_s = 0.25};
}

inline DocumentResult Failed(const std::string& id, RecordForm form = RecordForm::kShort) {
  return {.id = id,
          .form = form,
          .error = {InvalidArgument("d.jsonl line 7: the document is empty"), "DOCUMENT_EMPTY", 7, 3}};
}

inline std::string Line(const DocumentResult& result, const std::string& params = Params()) {
  return RecordLine(result, {.params_sha256 = params, .model = "tiny", .created_unix_s = 1'700'000'000});
}

inline OutputLogOptions Fresh(const std::string& path) {
  return {.path = path, .params_sha256 = Params(), .sync_interval = absl::ZeroDuration()};
}

inline OutputLogOptions Resuming(const std::string& path, bool retry_errors = false) {
  OutputLogOptions options = Fresh(path);
  options.resume = true;
  options.retry_errors = retry_errors;
  return options;
}

}  // namespace snapkv::launch
