// SPDX-License-Identifier: Apache-2.0
// Where results go: checks before any work is done, whole files, and stdout that is not taken for granted.
#pragma once

#include <string>
#include <vector>

#include "kernels/base/status.h"

namespace snapkv::launch {

struct OutputFile {
  std::string flag;       // that names it
  std::string path;       // empty: not wanted
  bool overwrite = true;  // an existing file may be replaced
  bool device_ok = true;  // a pipe or device may be written to
};

// What can be known before the work: each path can be written, and is none of `inputs` (empty ones are
// ignored) and no other output. INVALID_ARGUMENT for the last two, which are mistakes on the command line;
// other codes for places that cannot be written. Messages name flag and path.
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
