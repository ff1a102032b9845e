// SPDX-License-Identifier: Apache-2.0
// Metrics as a scraper sees them; and promtool, Prometheus' own checker, if the machine has it.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "tests/support/run_program.h"

namespace snapkv::service {

using Series = std::map<std::string, double>;

// Series with their labels, e.g. `snapkv_jobs{state="running"}`.
inline Series ParseMetrics(const std::string& text) {
  Series series;
  for (const absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    if (absl::StartsWith(line, "#")) continue;
    const size_t blank = line.rfind(' ');
    double value = 0;
    EXPECT_TRUE(blank != line.npos && absl::SimpleAtod(line.substr(blank + 1), &value)) << line;
    series[std::string(line.substr(0, blank))] = value;
  }
  return series;
}

// GET /metrics; the body.
inline std::string FetchMetrics(int port) {
  const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) {
    ::close(fd);
    return "cannot connect";
  }
  const std::string request = "GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
  EXPECT_EQ(::write(fd, request.data(), request.size()), static_cast<ssize_t>(request.size()));
  std::string answer;
  char buffer[4'096];
  for (ssize_t n; (n = ::read(fd, buffer, sizeof(buffer))) > 0;)
    answer.append(buffer, static_cast<size_t>(n));
  ::close(fd);
  EXPECT_NE(answer.find("200 OK"), answer.npos) << answer;
  const size_t body = answer.find("\r\n\r\n");
  return body == answer.npos ? answer : answer.substr(body + 4);
}

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
