// SPDX-License-Identifier: Apache-2.0
// Running snapkv.
#include "tests/e2e/client_program.h"

#include <algorithm>
#include <sstream>

#include "gmock/gmock.h"

namespace snapkv::testing {

ProgramOptions ClientProgram(const Strings& flags, ProgramOptions options) {
  options.argv = {SNAPKV_CLIENT};
  options.argv.insert(options.argv.end(), flags.begin(), flags.end());
  for (const char* name : {"SNAPKV_SERVER", "SNAPKV_TOKEN", "http_proxy", "https_proxy"}) {
    if (!options.environment.contains(name)) options.unset.emplace_back(name);
  }
  return options;
}

Strings At(const FakeServer& server, Strings flags) {
  flags.insert(flags.begin() + 1, {"--server", server.address()});
  return flags;
}

ProgramResult RunClientProgram(const Strings& flags, ProgramOptions options) {
  auto result = RunProgram(ClientProgram(flags, std::move(options)));
  if (!result.ok()) {
    ADD_FAILURE() << result.status();
    return {};
  }
  EXPECT_EQ(result->signal, 0) << result->ToString();
  EXPECT_FALSE(result->timed_out) << result->ToString();
  return *std::move(result);
}

std::vector<nlohmann::ordered_json> JsonLines(const std::string& text) {
  std::vector<nlohmann::ordered_json> values;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    values.push_back(nlohmann::ordered_json::parse(line, nullptr, /*allow_exceptions=*/false));
    EXPECT_FALSE(values.back().is_discarded()) << "not JSON: " << line;
  }
  return values;
}

Strings SortedIds(const std::vector<nlohmann::ordered_json>& records) {
  Strings ids;
  for (const auto& record : records) {
    const char* const key = record.contains("custom_id") ? "custom_id" : "id";
    ids.push_back(record.contains(key) && record[key].is_string() ? record[key].get<std::string>()
                                                                  : "(none)");
  }
  std::sort(ids.begin(), ids.end());
  return ids;
}

Strings ClientErrors(const ProgramResult& result) {
  Strings errors;
  std::istringstream lines(result.err);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("snapkv: error: ")) errors.push_back(line.substr(15));
  }
  return errors;
}

std::string TextLine(const std::string& id, const std::string& text) {
  return nlohmann::ordered_json({{"id", id}, {"text", text}}).dump() + "\n";
}

}  // namespace snapkv::testing
