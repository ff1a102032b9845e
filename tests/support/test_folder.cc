// SPDX-License-Identifier: Apache-2.0
// Folders below the test framework's own.
#include "tests/support/test_folder.h"

#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "gtest/gtest.h"
#include "kernels/base/log.h"
#include "nlohmann/json.hpp"

namespace snapkv::testing {

namespace fs = std::filesystem;

TestFolder::TestFolder() {
  static std::atomic<int> folders{0};
  path_ = ::testing::TempDir() + "snapkv_test_" + std::to_string(getpid()) + "_" + std::to_string(folders++);
  fs::create_directories(path_);
}

TestFolder::~TestFolder() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

std::string TestFolder::Write(const std::string& name, const std::string& bytes) const {
  const std::string path = Path(name);
  fs::create_directories(fs::path(path).parent_path());
  std::ofstream file(path, std::ios::binary);
  file << bytes;
  file.close();
  CHECK(!file.fail()) << path;
  return path;
}

std::string TestFolder::WriteIds(const std::string& name, const std::vector<int32_t>& ids) const {
  return Write(name, nlohmann::json(ids).dump());
}

std::string Slurp(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file.good()) << path << " cannot be read";
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace snapkv::testing
