// SPDX-License-Identifier: Apache-2.0
// Where the tests find golden data and the model, and readers for JSON and JSON Lines.
#pragma once

#include <string>
#include <vector>

#include "kernels/base/status.h"
#include "nlohmann/json.hpp"

namespace snapkv::testing {

// The root of the source tree, without a trailing slash.
std::string SourceFolder();

// The folder of golden data: SNAPKV_GOLDEN if that is set (an error if it is no readable folder), else
// <source>/../shared/golden, else <source>/tests/golden.
absl::StatusOr<std::string> GoldenFolder();

// True when GoldenFolder() is <source>/tests/golden, which holds the small files only.
bool UsesSmallGolden();

// The path of `name` (which may contain slashes) inside GoldenFolder(). When it is not there: UNAVAILABLE if
// UsesSmallGolden(), and the test may skip itself with that message; otherwise NOT_FOUND, and the test fails.
absl::StatusOr<std::string> GoldenFile(const std::string& name);

// The GGUF of the default model: SNAPKV_MODEL if set, else smollm2.gguf in the cache folder. NOT_FOUND says
// how to get it.
absl::StatusOr<std::string> ModelPath();

absl::StatusOr<std::string> ReadFile(const std::string& path);
// The document in a JSON file, or one document per non-empty line. Errors name the file and the line.
absl::StatusOr<nlohmann::json> LoadJson(const std::string& path);
absl::StatusOr<std::vector<nlohmann::json>> LoadJsonLines(const std::string& path);

}  // namespace snapkv::testing
