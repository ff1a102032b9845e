// SPDX-License-Identifier: Apache-2.0
// Models by name: the cache folder that launch/setup.sh fills.
#pragma once

#include <string>
#include <vector>

#include "kernels/base/status.h"

namespace snapkv::launch {

// ${XDG_CACHE_HOME:-~/.cache}/snapkv/models.
std::string ModelFolder();

struct CachedModel {
  std::string name;  // file name without .gguf
  std::string path;
  int64_t bytes;
};
// Sorted by name; empty when the folder is missing.
std::vector<CachedModel> ListModels();

// `model` if it is an existing path, else the cached model of that name (which a folder of that name does not
// hide). NOT_FOUND lists the known names.
absl::StatusOr<std::string> ResolveModel(const std::string& model);

// A hash of the file's size, its beginning, and samples of the rest: equal for all ranks that opened the same
// model.
absl::StatusOr<std::string> ModelFingerprint(const std::string& path);

}  // namespace snapkv::launch
