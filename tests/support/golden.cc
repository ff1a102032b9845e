// SPDX-License-Identifier: Apache-2.0
// Looks up golden folders and models in the environment and the source tree.
#include "tests/support/golden.h"

#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>

namespace snapkv::testing {
namespace {

std::string Environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

bool IsReadableFolder(const std::string& path) {
  std::error_code error;
  return std::filesystem::is_directory(path, error) && ::access(path.c_str(), R_OK | X_OK) == 0;
}

}  // namespace

std::string SourceFolder() { return SNAPKV_SOURCE_DIR; }

absl::StatusOr<std::string> GoldenFolder() {
  if (const char* folder = std::getenv("SNAPKV_GOLDEN"); folder != nullptr) {
    if (IsReadableFolder(folder)) return std::string(folder);
    return FailedPrecondition("SNAPKV_GOLDEN is '", folder,
                              "', which is not a readable folder: correct it or unset it");
  }
  for (const char* relative : {"/../shared/golden", "/tests/golden"}) {
    const std::string folder = SourceFolder() + relative;
    if (IsReadableFolder(folder)) return folder;
  }
  return NotFound("no golden data: neither ", SourceFolder(), "/../shared/golden nor ", SourceFolder(),
                  "/tests/golden is a readable folder; set SNAPKV_GOLDEN");
}

bool UsesSmallGolden() {
  const absl::StatusOr<std::string> folder = GoldenFolder();
  return folder.ok() && *folder == SourceFolder() + "/tests/golden";
}

absl::StatusOr<std::string> GoldenFile(const std::string& name) {
  ASSIGN_OR_RETURN(const std::string folder, GoldenFolder());
  std::string path = folder + "/" + name;
  if (::access(path.c_str(), R_OK) == 0) return path;
  if (UsesSmallGolden()) {
    return absl::UnavailableError(absl::StrCat("golden data '", name, "' is not among the small files of '",
                                               folder, "': set SNAPKV_GOLDEN to a complete folder"));
  }
  return NotFound("golden data '", path, "' is missing or unreadable");
}

absl::StatusOr<std::string> ModelPath() {
  std::string path = Environment("SNAPKV_MODEL");
  std::string source = "SNAPKV_MODEL";
  if (path.empty()) {
    std::string cache = Environment("XDG_CACHE_HOME");
    if (cache.empty()) cache = Environment("HOME") + "/.cache";
    path = cache + "/snapkv/models/smollm2.gguf";
    source = "the model cache";
  }
  if (::access(path.c_str(), R_OK) == 0) return path;
  return NotFound("no readable model at '", path, "' (from ", source,
                  "): run launch/setup.sh, which fetches it");
}

absl::StatusOr<std::string> ReadFile(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) return absl::ErrnoToStatus(errno, "cannot open '" + path + "'");
  std::string bytes(std::istreambuf_iterator<char>(in), {});
  if (in.bad()) return DataLoss("cannot read '", path, "'");
  return bytes;
}

absl::StatusOr<nlohmann::json> LoadJson(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  try {
    return nlohmann::json::parse(text);
  } catch (const nlohmann::json::exception& e) {
    return DataLoss("'", path, "' is not JSON: ", e.what());
  }
}

absl::StatusOr<std::vector<nlohmann::json>> LoadJsonLines(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  std::istringstream lines(text);
  std::vector<nlohmann::json> documents;
  std::string line;
  for (int number = 1; std::getline(lines, line); ++number) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    try {
      documents.push_back(nlohmann::json::parse(line));
    } catch (const nlohmann::json::exception& e) {
      return DataLoss("'", path, "' line ", number, " is not JSON: ", e.what());
    }
  }
  return documents;
}

}  // namespace snapkv::testing
