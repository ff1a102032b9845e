// SPDX-License-Identifier: Apache-2.0
// TestFolder: a folder of a test's own; and files as strings.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace snapkv::testing {

// A folder of its own, removed at the end with everything in it.
class TestFolder {
 public:
  TestFolder();
  ~TestFolder();
  TestFolder(const TestFolder&) = delete;
  TestFolder& operator=(const TestFolder&) = delete;

  const std::string& path() const { return path_; }
  std::string Path(const std::string& name) const { return path_ + "/" + name; }
  // Both return the new file's path; folders on the way are made.
  std::string Write(const std::string& name, const std::string& bytes) const;
  std::string WriteIds(const std::string& name, const std::vector<int32_t>& ids) const;

 private:
  std::string path_;
};

// The whole file; a failure and "" when it cannot be read.
std::string Slurp(const std::string& path);

}  // namespace snapkv::testing
