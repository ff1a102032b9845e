// SPDX-License-Identifier: Apache-2.0
// For the tests of launch/input: a folder of files, and items that print themselves.
#pragma once

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "launch/input/document_source.h"
#include "tests/support/test_folder.h"

namespace snapkv::launch {

using InputFolder = snapkv::testing::TestFolder;

// "ID: REASON@LINE:COLUMN" of an error, "ID: text" of a document (OpenAI: "ID: role=content|...").
inline std::string Summary(const InputItem& item) {
  const Document& d = item.document;
  if (!item.error.ok()) {
    return d.id + ": " + item.error.reason + "@" + std::to_string(item.error.line) + ":" +
           std::to_string(item.error.column);
  }
  std::string messages;
  for (const auto& m : d.messages) messages += (messages.empty() ? "" : "|") + m.role + "=" + m.content;
  return d.id + ": " + d.text + messages;
}

// All items; what holds for each of them, whatever the input, is checked.
inline std::vector<InputItem> Drain(DocumentSource& source) {
  std::vector<InputItem> items;
  while (true) {
    absl::StatusOr<std::optional<InputItem>> item = source.Next();
    EXPECT_TRUE(item.ok()) << item.status();
    if (!item.ok() || !item->has_value()) break;
    items.push_back(**std::move(item));
    const InputItem& last = items.back();
    EXPECT_FALSE(last.document.id.empty());
    EXPECT_FALSE(last.document.source.empty());
    EXPECT_EQ(last.error.ok(), last.error.reason.empty());
    if (!last.error.ok()) {
      EXPECT_EQ(last.document.text + std::to_string(last.document.messages.size()), "0");
      EXPECT_EQ(last.error.line, last.document.line);
      EXPECT_EQ(absl::IsNotFound(last.error.status), last.error.reason == "DOCUMENT_NOT_FOUND");
      EXPECT_TRUE(absl::IsNotFound(last.error.status) || absl::IsInvalidArgument(last.error.status));
    }
  }
  return items;
}

inline std::vector<std::string> Summaries(const std::vector<InputItem>& items) {
  std::vector<std::string> all;
  for (const InputItem& item : items) all.push_back(Summary(item));
  return all;
}

// Opens and reads everything; an error of Open gives one line "Open: CODE message".
inline std::vector<std::string> ReadAll(const SourceOptions& options) {
  const auto source = DocumentSource::Open(options);
  if (!source.ok()) return {"Open: " + source.status().ToString()};
  return Summaries(Drain(**source));
}

}  // namespace snapkv::launch
