// SPDX-License-Identifier: Apache-2.0
// The model cache.
#include "launch/model_store.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "runtime/hash/sha256.h"

namespace snapkv::launch {
namespace {
namespace fs = std::filesystem;
}

std::string ModelFolder() {
  const char* cache = std::getenv("XDG_CACHE_HOME");
  if (cache != nullptr && *cache != '\0') return std::string(cache) + "/snapkv/models";
  const char* home = std::getenv("HOME");
  return std::string(home != nullptr ? home : ".") + "/.cache/snapkv/models";
}

std::vector<CachedModel> ListModels() {
  std::vector<CachedModel> models;
  std::error_code error;
  for (fs::directory_iterator it(ModelFolder(), error), end; !error && it != end; it.increment(error)) {
    std::error_code size_error;
    const auto bytes = it->path().extension() == ".gguf" ? it->file_size(size_error) : 0;
    if (bytes > 0 && !size_error) {
      models.push_back({it->path().stem().string(), it->path().string(), static_cast<int64_t>(bytes)});
    }
  }
  std::sort(models.begin(), models.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  return models;
}

absl::StatusOr<std::string> ResolveModel(const std::string& model) {
  std::error_code error;
  const bool folder = fs::is_directory(model, error);
  if (!folder && fs::exists(model, error)) return model;
  std::string known;
  for (const CachedModel& cached : ListModels()) {
    if (cached.name == model) return cached.path;
    known += (known.empty() ? "" : ", ") + cached.name;
  }
  if (folder) return model;  // opening it names what is wrong
  if (model.find('/') != std::string::npos || model.ends_with(".gguf")) {
    return NotFound("--model ", model, ": there is no such file");
  }
  return NotFound("--model ", model, " is neither a file nor a cached model (",
                  known.empty() ? "none is cached" : known, "); launch/setup.sh fetches smollm2");
}

absl::StatusOr<std::string> ModelFingerprint(const std::string& path) {
  constexpr int64_t kBeginning = 4 << 20, kSample = 4096, kSamples = 256;
  std::error_code error;
  const int64_t bytes = static_cast<int64_t>(fs::file_size(path, error));
  std::ifstream file(path, std::ios::binary);
  std::string seen = std::to_string(bytes) + ":";
  const auto read = [&](int64_t begin, int64_t count) {
    std::string part(static_cast<size_t>(std::min(count, bytes - begin)), '\0');
    file.seekg(begin);
    file.read(part.data(), static_cast<std::streamsize>(part.size()));
    seen += part;
  };
  if (!error) {
    read(0, kBeginning);
    const int64_t rest = std::max<int64_t>(0, bytes - kBeginning);
    for (int64_t i = 0; i < kSamples && rest > 0; ++i) read(kBeginning + rest / kSamples * i, kSample);
  }
  if (error || !file) return DataLoss(path, ": cannot be read again; do not change a model while it is used");
  return runtime::Sha256Hex(seen);
}

}  // namespace snapkv::launch
