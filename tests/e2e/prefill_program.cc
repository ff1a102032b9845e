// SPDX-License-Identifier: Apache-2.0
// Running snapkv-prefill and reading what it writes.
#include "tests/e2e/prefill_program.h"

#include <csignal>
#include <iostream>
#include <sstream>

#include "gtest/gtest.h"
#include "kernels/base/log.h"

namespace snapkv::testing {
namespace {

Strings Lines(const std::string& text) {
  Strings lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

// Now and then Open MPI 4.1.4 dies of a null pointer while it forwards stdin to ranks that are starting.
bool MpirunCrashedForwardingStdin(const ProgramResult& result) {
  return result.signal == SIGSEGV && result.err.find("orte_iof_hnp_read_local_handler") != std::string::npos;
}

}  // namespace

Strings Join(Strings a, const Strings& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

std::string PrefillPath() { return SNAPKV_PREFILL; }

Strings PrefillCommand(const Strings& flags, int ranks) {
  Strings command;
  if (ranks > 0) {
    std::istringstream words(SNAPKV_MPIRUN);
    for (std::string word; words >> word;) command.push_back(word);
    command.insert(command.end(), {"-np", std::to_string(ranks)});
  }
  command.push_back(PrefillPath());
  return Join(command, flags);
}

ProgramResult RunPrefill(const Strings& flags, int ranks, ProgramOptions options) {
  options.argv = PrefillCommand(flags, ranks);
  auto result = RunProgram(options);
  CHECK(result.ok()) << result.status();
  if (ranks > 0 && MpirunCrashedForwardingStdin(*result)) {
    std::cout << "mpirun crashed while it forwarded stdin; once more\n";
    result = RunProgram(std::move(options));
    CHECK(result.ok()) << result.status();
  }
  EXPECT_FALSE(result->timed_out) << result->ToString();
  EXPECT_EQ(result->signal, 0) << result->ToString();
  EXPECT_FALSE(result->left_running) << result->ToString();
  return *result;
}

TinyModelOptions SmallOptions() {
  TinyModelOptions options;
  options.vocab = kByteVocab;
  options.context = 4096;
  options.tied = false;  // with the embedding as its head a random model repeats its last token for ever
  return options;
}

const std::string& SmallModel() {
  static const TestFolder folder;
  static const std::string path = [] {
    const std::string file = folder.Path("small.gguf");
    CHECK(TinyTextGguf(SmallOptions()).Write(file)) << file;
    return file;
  }();
  return path;
}

Strings WithSmallModel(const Strings& flags) {
  return Join({"--model", SmallModel(), "--dtype", "f32", "--threads", "1"}, flags);
}

nlohmann::ordered_json ParseRecord(const std::string& text) {
  EXPECT_EQ(Lines(text).size(), 1u) << "expected one record, got:\n" << text;
  EXPECT_TRUE(text.ends_with("\n")) << text;
  auto record = nlohmann::ordered_json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!record.is_object()) {
    ADD_FAILURE() << "not a record:\n" << text;
    return nullptr;
  }
  return record;
}

std::vector<int32_t> TokenIds(const nlohmann::ordered_json& record) {
  if (!record.is_object() || !record.contains("token_ids")) {
    ADD_FAILURE() << "no token_ids in " << record.dump();
    return {};
  }
  return record["token_ids"].get<std::vector<int32_t>>();
}

std::vector<std::string> Keys(const nlohmann::ordered_json& object) {
  std::vector<std::string> keys;
  for (const auto& item : object.items()) keys.push_back(item.key());
  return keys;
}

std::vector<std::vector<std::vector<int32_t>>> ReadSelection(const std::string& path) {
  const auto file = runtime::SafetensorsFile::Open(path);
  if (!file.ok()) {
    ADD_FAILURE() << file.status();
    return {};
  }
  std::vector<std::vector<std::vector<int32_t>>> layers;
  for (size_t l = 0; l < file->names().size(); ++l) {
    const auto view = file->tensor("layer." + std::to_string(l) + ".positions");
    if (!view.ok() || view->dtype != DType::kI32 || view->rank != 2) {
      ADD_FAILURE() << path << " layer " << l << ": "
                    << (view.ok() ? view->ToString() : view.status().ToString());
      return {};
    }
    layers.emplace_back();
    for (int64_t h = 0; h < view->dim(0); ++h) {
      const int32_t* row = view->at<int32_t>(h);
      layers.back().emplace_back(row, row + view->dim(1));
    }
  }
  return layers;
}

std::vector<float> ReadLogits(const std::string& path) {
  const auto file = runtime::SafetensorsFile::Open(path);
  const auto view = file.ok() ? file->tensor("logits") : absl::StatusOr<TensorView>(file.status());
  if (!view.ok() || view->dtype != DType::kF32 || view->rank != 1 || file->names().size() != 1) {
    ADD_FAILURE() << path << ": " << (view.ok() ? view->ToString() : view.status().ToString());
    return {};
  }
  return {view->as<float>(), view->as<float>() + view->elements()};
}

Strings ErrorLines(const ProgramResult& result) {
  Strings lines;
  for (const std::string& line : Lines(result.err)) {
    if (line.starts_with("snapkv-prefill: error: ")) lines.push_back(line);
  }
  return lines;
}

}  // namespace snapkv::testing
