// SPDX-License-Identifier: Apache-2.0
// Lines and records.
#include "tests/e2e/batch_support.h"

#include <sstream>

#include "gtest/gtest.h"
#include "kernels/base/log.h"
#include "runtime/model/gguf.h"

namespace snapkv::testing {

std::string BatchLine(const std::string& id, const std::string& text, const Json& more) {
  Json line = {{"id", id}, {"text", text}};
  line.update(more);
  return line.dump() + "\n";
}

std::string BatchLines(int count) {
  std::string lines;
  for (int i = 0; i < count; ++i) {
    std::string text = "Report " + std::to_string(i) + ".";
    for (int word = 0; word < i * 7 % 40; ++word) text += " Word" + std::to_string(word * i % 13);
    lines += BatchLine("d" + std::to_string(i), text);
  }
  return lines;
}

std::vector<Json> ParseRecords(const std::string& text) {
  std::vector<Json> records;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    Json record = Json::parse(line, nullptr, /*allow_exceptions=*/false);
    EXPECT_TRUE(record.is_object()) << "no record: " << line;
    if (record.is_object()) records.push_back(std::move(record));
  }
  EXPECT_TRUE(text.empty() || text.ends_with("\n")) << "a torn last line: " << text;
  return records;
}

std::map<std::string, Json> RecordsById(const std::string& text) {
  std::map<std::string, Json> by_id;
  for (Json& record : ParseRecords(text)) {
    const std::string id = record.value("custom_id", record.value("id", "?"));
    EXPECT_TRUE(by_id.emplace(id, std::move(record)).second) << id << " has two records";
  }
  return by_id;
}

std::string ReasonOf(const Json& record) {
  if (!record.contains("error") || record["error"].is_null()) return "";
  const Json& error = record["error"];
  return error.contains("reason") ? error["reason"] : error["code"];
}

ProgramResult RunBatchProgram(const Strings& flags, int ranks, ProgramOptions options) {
  return RunPrefill(WithSmallModel(Join({"--max-tokens", "8", "--capacity", "64"}, flags)), ranks, options);
}

std::string ModelWithoutZ(const TestFolder& folder) {
  std::string bytes = Slurp(SmallModel());
  const auto file = runtime::GgufFile::Open(SmallModel());
  CHECK(file.ok()) << file.status();
  const auto embedding = file->tensor("token_embd.weight");
  CHECK(embedding.ok()) << embedding.status();
  const size_t row = static_cast<size_t>(SmallOptions().hidden) * sizeof(float);
  const std::string z(embedding->view.as<char>() + 'Z' * row, row);
  const size_t at = bytes.find(z);
  CHECK(at != std::string::npos) << "no row of 'Z' in the file";
  for (size_t i = 0; i < row; i += 4) bytes.replace(at + i, 4, "\x00\x00\xc0\x7f", 4);
  return folder.Write("nan.gguf", bytes);
}

}  // namespace snapkv::testing
