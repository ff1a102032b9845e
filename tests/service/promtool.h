// SPDX-License-Identifier: Apache-2.0
// Runs promtool, Prometheus' own checker, if the machine has it.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "tests/support/run_program.h"

namespace snapkv::service {

// Whether CMake has found it; a test that needs it is skipped otherwise.
inline bool HasPromtool() {
  const char* path = std::getenv("SNAPKV_PROMTOOL");
  return path != nullptr && absl::EndsWith(path, "/promtool");
}
constexpr char kNoPromtool[] = "promtool is not installed: apt-get install prometheus, then run cmake again";

inline snapkv::testing::ProgramResult Promtool(std::vector<std::string> arguments, std::string input = "") {
  snapkv::testing::ProgramOptions options;
  options.argv = {std::getenv("SNAPKV_PROMTOOL")};
  options.argv.insert(options.argv.end(), arguments.begin(), arguments.end());
  options.input = std::move(input);
  const auto result = snapkv::testing::RunProgram(std::move(options));
  EXPECT_TRUE(result.ok()) << result.status();
  return result.ok() ? *result : snapkv::testing::ProgramResult();
}

}  // namespace snapkv::service
