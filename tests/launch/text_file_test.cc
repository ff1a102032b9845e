// SPDX-License-Identifier: Apache-2.0
// The text of a document: encodings, marks, blanks, NUL bytes, and limits.
#include "launch/input/text_file.h"

#include <string>
#include <vector>

#include "tests/launch/input_support.h"

namespace snapkv::launch {
namespace {

using ::testing::HasSubstr;

std::string Decode(const std::string& bytes, const std::string& encoding = "utf-8") {
  std::string text = "untouched";
  const DocumentError error = DecodeText(bytes, "a.txt", encoding, text);
  if (error.ok()) return text;
  EXPECT_EQ(text, "untouched");
  EXPECT_TRUE(absl::IsInvalidArgument(error.status)) << error.status;
  EXPECT_TRUE(error.status.message().substr(0, 7) == "a.txt: ") << error.status;
  return error.reason + ": " + std::string(error.status.message());
}

TEST(DecodeText, Good) {
  EXPECT_EQ(Decode("abc"), "abc");
  EXPECT_EQ(Decode(" a\r\nb "), " a\r\nb ");
  EXPECT_EQ(Decode("\xEF\xBB\xBF"
                   "abc"),
            "abc");
  EXPECT_EQ(Decode("caf\xE9 \xFF", "latin1"), "caf\xC3\xA9 \xC3\xBF");
  EXPECT_EQ(Decode("\xFF\xFEx", "latin1"), "\xC3\xBF\xC3\xBEx");
}

TEST(DecodeText, Empty) {
  for (const char* bytes : {"", "\n", " \t\r\n \n", "\xEF\xBB\xBF", "\xEF\xBB\xBF \n", "\v\f"}) {
    EXPECT_EQ(Decode(bytes), "DOCUMENT_EMPTY: a.txt: the document is empty");
  }
}

TEST(DecodeText, NotText) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"caf\xE9 au lait", "offset 3"},
      {"ab\xC3", "offset 2"},
      {"ab\xC0\xAF", "offset 2"},
      {"ab\xED\xA0\x80", "offset 2"},
      {"a\xF4\x90\x80\x80", "offset 1"},
      {"\xEF\xBB\xBF"
       "abc\xE9",
       "offset 6"},
      {std::string(70'000, 'x') + "\x80", "offset 70000"},
      {std::string("abc\0def", 7), "NUL byte at offset 3"},
      {std::string("\xEF\xBB\xBF"
                   "ab\0",
                   6),
       "NUL byte at offset 5"},
      {std::string("\0", 1), "NUL byte at offset 0"},
      {"\xFF\xFE"
       "ab",
       "begins like UTF-16"},
      {"\xFE\xFF"
       "ab",
       "iconv"}};
  for (const auto& [bytes, part] : cases) {
    EXPECT_THAT(Decode(bytes), HasSubstr("DOCUMENT_NOT_UTF8")) << part;
    EXPECT_THAT(Decode(bytes), HasSubstr(part));
  }
  EXPECT_THAT(Decode(std::string("\xE9\0", 2), "latin1"), HasSubstr("NUL byte at offset 1"));
}

TEST(ReadTextFile, LimitIsOfTheFile) {
  const InputFolder folder;
  for (const int64_t bytes : {1, 65'535, 65'536, 65'537, 200'000}) {
    const std::string path = folder.Write("a.txt", std::string(static_cast<size_t>(bytes), 'x'));
    std::string text;
    EXPECT_TRUE(ReadTextFile(path, "a.txt", {.max_bytes = bytes}, text).ok()) << bytes;
    EXPECT_EQ(text, std::string(static_cast<size_t>(bytes), 'x'));
    if (bytes == 1) continue;
    const DocumentError error = ReadTextFile(path, "a.txt", {.max_bytes = bytes - 1}, text);
    EXPECT_EQ(error.reason, "DOCUMENT_TOO_LARGE") << bytes;
    EXPECT_THAT(std::string(error.status.message()), HasSubstr("--max-document-bytes"));
  }
}

}  // namespace
}  // namespace snapkv::launch
