// SPDX-License-Identifier: Apache-2.0
// Where results go: checks before any work is done, whole files, and stdout that is not taken for granted.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "kernels/base/status.h"

namespace snapkv::launch {

// Files by device and inode, for thousands of inputs: however a file is spelled or linked to, it is one.
class FileSet {
 public:
  FileSet() = default;
  explicit FileSet(const std::vector<std::string>& paths) {
    for (const std::string& path : paths) Add(path);
  }
  // Paths that name no file or pipe (empty, missing, "-") are ignored, and so are folders and devices.
  void Add(const std::string& path);
  // The path under which the file that `path` names was added first.
  std::optional<std::string> Find(const std::string& path) const;

 private:
  absl::flat_hash_map<std::pair<dev_t, ino_t>, std::string> files_;
};

struct OutputFile {
  std::string flag;       // that names it
  std::string path;       // empty: not wanted
  bool overwrite = true;  // an existing file may be replaced
  bool device_ok = true;  // a pipe or device may be written to
};

// What can be known before the work: each path can be written, and is none of `inputs` and no other output.
// INVALID_ARGUMENT for the last two, which are mistakes on the command line; other codes for places that
// cannot be written. Messages name flag and path.
absl::Status CheckOutputs(const std::vector<OutputFile>& outputs, const FileSet& inputs);
absl::Status CheckOutputs(const std::vector<OutputFile>& outputs, const std::vector<std::string>& inputs);

// Replaces the file `path` (or what it links to) as a whole: temporary file, then rename. Devices and pipes
// are written to. Errors name the path.
absl::Status WriteFile(const std::string& path, const std::string& text);

// Writes and flushes. An error also when any earlier write to stdout failed.
absl::Status WriteStdout(const std::string& text);

// Makes sure that no file opened later becomes stdin, stdout or stderr because its number was free: closed
// ones stay unusable.
void ReserveStandardStreams();

}  // namespace snapkv::launch
