// SPDX-License-Identifier: Apache-2.0
// Reading and checking a JSON array.
#include "launch/input/token_ids.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>

namespace snapkv::launch {
namespace {

constexpr size_t kMostBytes = size_t{256} << 20;

absl::StatusOr<std::string> ReadFile(const std::string& path) {
  const bool standard = path == "-";
  std::FILE* file = standard ? stdin : std::fopen(path.c_str(), "rb");
  if (file == nullptr) return NotFound(path, ": cannot be read: ", std::strerror(errno));
  const std::unique_ptr<std::FILE, void (*)(std::FILE*)> closer(file, [](std::FILE* f) {
    if (f != stdin) std::fclose(f);
  });
  std::string bytes;
  char chunk[1 << 16];
  size_t n;
  while ((n = std::fread(chunk, 1, sizeof(chunk), file)) > 0) {
    bytes.append(chunk, n);
    if (bytes.size() <= kMostBytes) continue;
    return InvalidArgument(path, ": is longer than ", kMostBytes >> 20,
                           " MiB, which no context holds; is this the right file?");
  }
  if (std::ferror(file) != 0) return NotFound(path, ": cannot be read: ", std::strerror(errno));
  return bytes;
}

// A JSON value for a message: short, whatever it is.
std::string Shown(const nlohmann::json& value) {
  return value.is_structured() || value.is_string() ? absl::StrCat("of type ", value.type_name())
                                                    : value.dump();
}

}  // namespace

absl::StatusOr<std::vector<int32_t>> ReadTokenIds(const std::string& path, int64_t vocab) {
  ASSIGN_OR_RETURN(const std::string json, ReadFile(path));
  const auto parsed = nlohmann::json::parse(json, nullptr, /*allow_exceptions=*/false);
  if (!parsed.is_array() || parsed.empty())
    return InvalidArgument(path, ": expected a JSON array with at least one token id");
  std::vector<int32_t> ids;
  for (size_t i = 0; i < parsed.size(); ++i) {
    const auto& id = parsed[i];
    if (!id.is_number_integer() || id < 0 || id >= vocab) {
      return InvalidArgument(path, ": element ", i, " is ", Shown(id), ", expected a token id from 0 to ",
                             vocab - 1);
    }
    ids.push_back(id.get<int32_t>());
  }
  return ids;
}

}  // namespace snapkv::launch
