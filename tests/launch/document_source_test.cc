// SPDX-License-Identifier: Apache-2.0
// DocumentSource: what inputs may be, the order of documents, their ids, and files that cannot be read.
#include "launch/input/document_source.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "tests/launch/input_support.h"

namespace snapkv::launch {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

// A working folder of its own, so that relative paths can be tested.
class DocumentSourceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    before_ = fs::current_path();
    fs::current_path(folder_.path());
  }
  void TearDown() override { fs::current_path(before_); }

  std::vector<std::string> Read(std::vector<std::string> inputs, InputFormat format = InputFormat::kAuto) {
    return ReadAll({.inputs = std::move(inputs), .format = format});
  }
  std::string OpenError(std::vector<std::string> inputs) {
    const auto source = DocumentSource::Open({.inputs = std::move(inputs)});
    return source.ok() ? "no error" : source.status().ToString();
  }

  InputFolder folder_;
  fs::path before_;
};

// Makes stdin something else for as long as it lives.
class Stdin {
 public:
  explicit Stdin(int fd) : saved_(::dup(STDIN_FILENO)) {
    EXPECT_GE(saved_, 0);
    if (fd >= 0) {
      EXPECT_EQ(::dup2(fd, STDIN_FILENO), STDIN_FILENO);
      ::close(fd);
    } else {
      ::close(STDIN_FILENO);
    }
  }
  ~Stdin() {
    EXPECT_EQ(::dup2(saved_, STDIN_FILENO), STDIN_FILENO);
    ::close(saved_);
  }

  // The reading end of a pipe that holds `bytes` (few) and then ends.
  static int Pipe(const std::string& bytes) {
    int ends[2];
    EXPECT_EQ(::pipe(ends), 0);
    EXPECT_EQ(::write(ends[1], bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
    ::close(ends[1]);
    return ends[0];
  }

 private:
  int saved_;
};

// Not root for as long as it lives, whom no permission stops.
class Unprivileged {
 public:
  explicit Unprivileged(const InputFolder& folder) : root_(::geteuid() == 0) {
    fs::permissions(folder.path(), fs::perms::all);
    EXPECT_TRUE(!root_ || ::seteuid(65534) == 0);
  }
  ~Unprivileged() { EXPECT_TRUE(!root_ || ::seteuid(0) == 0); }

 private:
  bool root_;
};

TEST_F(DocumentSourceTest, TextFile) {
  folder_.Write("a/b.txt", "\xEF\xBB\xBFText.\n");
  SourceOptions options = {.inputs = {"./a//b.txt"}};
  options.defaults.max_tokens = 77;
  const auto source = DocumentSource::Open(options);
  ASSERT_TRUE(source.ok()) << source.status();
  EXPECT_TRUE((*source)->single_text());
  EXPECT_FALSE((*source)->has_jsonl());
  EXPECT_EQ((*source)->CountItems().items, 1);
  EXPECT_THAT((*source)->files(), ElementsAre("./a//b.txt"));
  const std::vector<InputItem> items = Drain(**source);
  ASSERT_THAT(Summaries(items), ElementsAre("a/b.txt: Text.\n"));
  EXPECT_EQ(items[0].document.source, "a/b.txt");
  EXPECT_EQ(items[0].document.line, 0);
  EXPECT_EQ(items[0].document.form, RecordForm::kShort);
  EXPECT_EQ(items[0].document.params.max_tokens, 77);
  EXPECT_TRUE((*source)->Next().ok());
  EXPECT_FALSE((*source)->Next()->has_value());  // the end stays the end
}

TEST_F(DocumentSourceTest, IdsOfPathsAreNormalised) {
  folder_.Write("a/b.txt", "1");
  folder_.Write("c.txt", "2");
  EXPECT_THAT(Read({"a/../c.txt"}), ElementsAre("c.txt: 2"));
  EXPECT_THAT(Read({folder_.Path("a/./b.txt")}), ElementsAre(folder_.Path("a/b.txt") + ": 1"));
  fs::current_path(folder_.Path("a"));
  EXPECT_THAT(Read({"../c.txt", "./b.txt"}), ElementsAre("../c.txt: 2", "b.txt: 1"));
}

TEST_F(DocumentSourceTest, EncodingOfTextFiles) {
  folder_.Write("a.txt", "caf\xE9");
  EXPECT_THAT(Read({"a.txt"}), ElementsAre("a.txt: DOCUMENT_NOT_UTF8@0:0"));
  EXPECT_THAT(ReadAll({.inputs = {"a.txt"}, .encoding = "latin1"}), ElementsAre("a.txt: caf\xC3\xA9"));
}

TEST_F(DocumentSourceTest, Folder) {
  folder_.Write("d/z.txt", "z");
  folder_.Write("d/a.md", "a");
  folder_.Write("d/a/b.txt", "ab");
  folder_.Write("d/a.txt/inner.md", "inner");  // a folder with a document's name
  folder_.Write("d/A.txt", "A");
  folder_.Write("d/\xC3\xA9.txt", "e");
  folder_.Write("d/skipped.html", "no");
  folder_.Write("d/skipped.jsonl", "no");
  folder_.Write("d/.hidden.txt", "no");
  folder_.Write("d/.git/x.txt", "no");
  folder_.Write("elsewhere/x.txt", "x");
  fs::create_directory_symlink(folder_.Path("elsewhere"), folder_.Path("d/link"));
  fs::create_symlink(folder_.Path("elsewhere/x.txt"), folder_.Path("d/link.txt"));
  const std::vector<std::string> expected = {"d/A.txt: A",       "d/a.md: a",     "d/a.txt/inner.md: inner",
                                             "d/a/b.txt: ab",    "d/link.txt: x", "d/z.txt: z",
                                             "d/\xC3\xA9.txt: e"};
  EXPECT_EQ(Read({"d"}), expected);
  EXPECT_EQ(Read({"./d//"}), expected);
  const auto source = DocumentSource::Open({.inputs = {"d"}});
  EXPECT_EQ((*source)->CountItems().items, 7);
  EXPECT_TRUE((*source)->CountItems().exact);
  EXPECT_FALSE((*source)->single_text());
  EXPECT_THAT((*source)->files(), ::testing::SizeIs(7));
  fs::current_path(folder_.Path("elsewhere"));
  EXPECT_THAT(Read({"."}), ElementsAre("x.txt: x"));
}

TEST_F(DocumentSourceTest, FolderUnderFormatJsonl) {
  folder_.Write("d/a.jsonl", R"({"text":"1"})");
  folder_.Write("d/b.ndjson", R"({"text":"2"})");
  folder_.Write("d/c.txt", R"({"text":"3"})");
  EXPECT_THAT(Read({"d"}, InputFormat::kJsonl), ElementsAre("d/a.jsonl:line-1: 1", "d/b.ndjson:line-1: 2"));
}

TEST_F(DocumentSourceTest, BadFilesInAFolderAreItems) {
  folder_.Write("d/a.txt", "a");
  folder_.Write("d/empty.txt", "");
  folder_.Write("d/latin.txt", "\xE9");
  folder_.Write("d/nul.txt", std::string("x\0", 2));
  folder_.Write("d/z.txt", "z");
  fs::create_symlink("nowhere", folder_.Path("d/dangling.txt"));
  ASSERT_EQ(::mkfifo(folder_.Path("d/pipe.txt").c_str(), 0600), 0);
  EXPECT_THAT(
      Read({"d"}),
      ElementsAre("d/a.txt: a", "d/dangling.txt: DOCUMENT_NOT_FOUND@0:0", "d/empty.txt: DOCUMENT_EMPTY@0:0",
                  "d/latin.txt: DOCUMENT_NOT_UTF8@0:0", "d/nul.txt: DOCUMENT_NOT_UTF8@0:0",
                  "d/pipe.txt: DOCUMENT_NOT_FOUND@0:0", "d/z.txt: z"));
}

TEST_F(DocumentSourceTest, FoldersThatCannotBeReadAreItems) {
  folder_.Write("d/a.txt", "a");
  folder_.Write("d/closed/b.txt", "b");
  folder_.Write("d/z.txt", "z");
  fs::permissions(folder_.Path("d/closed"), fs::perms::none);
  {
    const Unprivileged nobody(folder_);
    EXPECT_THAT(Read({"d"}), ElementsAre("d/a.txt: a", "d/closed: DOCUMENT_NOT_FOUND@0:0", "d/z.txt: z"));
    EXPECT_THAT(OpenError({"d/closed"}),
                AllOf(StartsWith("NOT_FOUND"), HasSubstr("d/closed"), HasSubstr("denied")));
    EXPECT_THAT(Read({"d/*"}), ElementsAre("d/a.txt: a", "d/closed: DOCUMENT_NOT_FOUND@0:0", "d/z.txt: z"));
  }
  fs::permissions(folder_.Path("d/closed"), fs::perms::owner_all);
}

TEST_F(DocumentSourceTest, Glob) {
  folder_.Write("a1.txt", "a1");
  folder_.Write("a2.txt", "a2");
  folder_.Write("a10.txt", "a10");
  folder_.Write("lines.jsonl", "{\"text\":\"l\"}");
  folder_.Write("sub/x.txt", "x");
  folder_.Write("subtle/y.md", "y");
  folder_.Write("bare/z.png", "z");
  EXPECT_THAT(Read({"a?.txt"}), ElementsAre("a1.txt: a1", "a2.txt: a2"));
  EXPECT_THAT(Read({"a*.txt"}), ElementsAre("a1.txt: a1", "a10.txt: a10", "a2.txt: a2"));
  EXPECT_THAT(Read({"a[2-9].txt"}), ElementsAre("a2.txt: a2"));
  EXPECT_THAT(Read({"./su*"}), ElementsAre("sub/x.txt: x", "subtle/y.md: y"));
  EXPECT_THAT(Read({"*/*.txt"}), ElementsAre("sub/x.txt: x"));
  // One JSONL file, but not the one that --input names: the ids tell the file.
  EXPECT_THAT(Read({"l*"}), ElementsAre("lines.jsonl:line-1: l"));
  EXPECT_THAT(OpenError({"b*.txt"}),
              AllOf(StartsWith("NOT_FOUND"), HasSubstr("b*.txt"), HasSubstr("no file matches")));
  EXPECT_THAT(OpenError({"b*"}), AllOf(StartsWith("NOT_FOUND"), HasSubstr("only folders without documents")));
  EXPECT_FALSE((*DocumentSource::Open({.inputs = {"a1*"}}))->single_text());
  // A file of that name goes first.
  folder_.Write("a[2-9].txt", "literal");
  EXPECT_THAT(Read({"a[2-9].txt"}), ElementsAre("a[2-9].txt: literal"));
}

TEST_F(DocumentSourceTest, Jsonl) {
  folder_.Write(
      "in.jsonl",
      "\xEF\xBB\xBF{\"text\":\"first\"}\r\n"
      "\r\n"
      "  \n"
      "{\"id\":\"b\",\"text\":\"fourth\"}\n"
      "{\"path\":\"sub/t.txt\"}\n"
      "{\"custom_id\":\"o\",\"method\":\"POST\",\"url\":\"/v1/chat/completions\",\"body\":{\"messages\":"
      "[{\"role\":\"user\",\"content\":\"sixth\"}]}}\n"
      "{\"text\":\"last\"}");
  folder_.Write("sub/t.txt", "fifth");
  const auto source = DocumentSource::Open({.inputs = {"in.jsonl"}});
  ASSERT_TRUE(source.ok()) << source.status();
  EXPECT_TRUE((*source)->has_jsonl());
  EXPECT_FALSE((*source)->single_text());
  EXPECT_EQ((*source)->CountItems().items, -1);
  EXPECT_THAT((*source)->files(), ElementsAre("in.jsonl"));
  const std::vector<InputItem> items = Drain(**source);
  EXPECT_THAT(Summaries(items),
              ElementsAre("line-1: first", "b: fourth", "sub/t.txt: fifth", "o: user=sixth", "line-7: last"));
  std::vector<int64_t> lines;
  for (const InputItem& item : items) lines.push_back(item.document.line);
  EXPECT_THAT(lines, ElementsAre(1, 4, 5, 6, 7));
  for (const InputItem& item : items) EXPECT_EQ(item.document.source, "in.jsonl");
}

TEST_F(DocumentSourceTest, PathsAreRelativeToTheJsonlFile) {
  folder_.Write("deep/er/in.jsonl", "{\"path\":\"../t.txt\"}\n{\"path\":\"" + folder_.Path("u.txt") + "\"}");
  folder_.Write("deep/t.txt", "t");
  folder_.Write("t.txt", "wrong");
  folder_.Write("u.txt", "u");
  EXPECT_THAT(Read({"deep/er/in.jsonl"}), ElementsAre("../t.txt: t", folder_.Path("u.txt") + ": u"));
  // On stdin: to the working folder.
  const Stdin in(Stdin::Pipe("{\"path\":\"deep/t.txt\"}\n"));
  EXPECT_THAT(Read({"-"}, InputFormat::kJsonl), ElementsAre("deep/t.txt: t"));
}

TEST_F(DocumentSourceTest, FormatGoesByNameUnlessItIsSet) {
  const std::string line = "{\"text\":\"t\"}";
  for (const char* name : {"a.jsonl", "a.ndjson", "a.json", "a.txt"}) folder_.Write(name, line);
  EXPECT_THAT(Read({"a.jsonl", "a.ndjson", "a.json", "a.txt"}),
              ElementsAre("a.jsonl:line-1: t", "a.ndjson:line-1: t", "a.json: " + line, "a.txt: " + line));
  EXPECT_THAT(Read({"a.jsonl"}, InputFormat::kText), ElementsAre("a.jsonl: " + line));
  EXPECT_THAT(Read({"a.txt"}, InputFormat::kJsonl), ElementsAre("line-1: t"));
  EXPECT_TRUE((*DocumentSource::Open({.inputs = {"a.jsonl"}, .format = InputFormat::kText}))->single_text());
}

TEST_F(DocumentSourceTest, EmptyJsonl) {
  folder_.Write("a.jsonl", "");
  folder_.Write("b.jsonl", "\xEF\xBB\xBF\n\r\n \n");
  EXPECT_THAT(Read({"a.jsonl", "b.jsonl"}), IsEmpty());
}

TEST_F(DocumentSourceTest, BadLinesDoNotEndTheFile) {
  folder_.Write("in.jsonl",
                "{\"text\":\"1\"}\n{oops\n{\"id\":\"c\",\"text\":\"\"}\n{\"id\":\"\",\"text\":\"x\"}\n[]\n"
                "{\"id\":\"f\",\"text\":\"x\",\"top_p\":7}\n{\"path\":\"none\"}\n\xFF\n"
                "{\"id\":\"i\",\"text\":\"a\\u0000\"}\n{\"text\":\"last\"}");
  const auto source = DocumentSource::Open({.inputs = {"in.jsonl"}});
  const std::vector<InputItem> items = Drain(**source);
  EXPECT_THAT(Summaries(items),
              ElementsAre("line-1: 1", "line-2: LINE_INVALID@2:2", "c: DOCUMENT_EMPTY@3:18",
                          "line-4: DOCUMENT_ID_INVALID@4:7", "line-5: LINE_INVALID@5:1",
                          "f: PARAMETER_INVALID@6:30", "none: DOCUMENT_NOT_FOUND@7:9",
                          "line-8: LINE_INVALID@8:1", "i: DOCUMENT_NOT_UTF8@9:18", "line-10: last"));
  // Two files of the same lines: every id tells its file.
  folder_.Write("x/in2.jsonl", "{\"text\":\"1\"}\n{oops\n");
  folder_.Write("x/in3.jsonl", "{\"text\":\"1\"}\n");
  EXPECT_THAT(
      Read({"./x/in2.jsonl", "x/in3.jsonl"}),
      ElementsAre("x/in2.jsonl:line-1: 1", "x/in2.jsonl:line-2: LINE_INVALID@2:2", "x/in3.jsonl:line-1: 1"));
}

TEST_F(DocumentSourceTest, Limits) {
  folder_.Write("in.jsonl",
                "{\"text\":\"123456\"}\n{\"text\":\"1234567\"}\n{\"text\":\"12345678901234567890\"}\n"
                "{\"text\":\"1\"}");
  folder_.Write("a.txt", "1234567");
  SourceOptions options = {.inputs = {"in.jsonl", "a.txt"}, .max_document_bytes = 6, .max_line_bytes = 20};
  const auto source = DocumentSource::Open(options);
  const std::vector<InputItem> items = Drain(**source);
  EXPECT_THAT(Summaries(items),
              ElementsAre("in.jsonl:line-1: 123456", "in.jsonl:line-2: DOCUMENT_TOO_LARGE@2:9",
                          "in.jsonl:line-3: DOCUMENT_TOO_LARGE@3:0", "in.jsonl:line-4: 1",
                          "a.txt: DOCUMENT_TOO_LARGE@0:0"));
  EXPECT_THAT(std::string(items[2].error.status.message()),
              AllOf(HasSubstr("31 bytes"), HasSubstr("more than 20"), HasSubstr("--max-line-bytes")));
  options.max_line_bytes = 0;
  EXPECT_THAT(DocumentSource::Open(options).status().ToString(), HasSubstr("--max-line-bytes"));
  options.max_line_bytes = 1;
  options.max_document_bytes = 0;
  EXPECT_THAT(DocumentSource::Open(options).status().ToString(), HasSubstr("--max-document-bytes"));
  options.max_document_bytes = 1;
  options.encoding = "utf-16";
  EXPECT_THAT(DocumentSource::Open(options).status().ToString(), HasSubstr("--encoding utf-16"));
}

TEST_F(DocumentSourceTest, DuplicateIds) {
  folder_.Write("in.jsonl",
                "{\"id\":\"a\",\"text\":\"1\"}\n{\"id\":\"a\",\"text\":\"2\"}\n{\"id\":\"a\",\"top_k\":-1}\n"
                "{\"custom_id\":\"a\",\"method\":\"POST\",\"url\":\"/v1/chat/completions\",\"body\":"
                "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]}}\n"
                "{\"id\":\"e\",\"top_k\":-1}\n{\"id\":\"e\",\"text\":\"6\"}\n");
  const auto source = DocumentSource::Open({.inputs = {"in.jsonl"}});
  const std::vector<InputItem> items = Drain(**source);
  EXPECT_THAT(Summaries(items),
              ElementsAre("a: 1", "line-2: DOCUMENT_ID_DUPLICATE@2:7", "line-3: DOCUMENT_ID_DUPLICATE@3:7",
                          "line-4: DOCUMENT_ID_DUPLICATE@4:14", "e: PARAMETER_INVALID@5:19",
                          "line-6: DOCUMENT_ID_DUPLICATE@6:7"));
  EXPECT_THAT(std::string(items[1].error.status.message()), HasSubstr("'a'"));
  EXPECT_EQ(items[3].document.form, RecordForm::kOpenAi);  // it is answered in its own form
}

TEST_F(DocumentSourceTest, GeneratedIdsGiveWay) {
  folder_.Write("in.jsonl",
                "{\"id\":\"line-2\",\"text\":\"1\"}\n{\"text\":\"2\"}\n{\"id\":\"line-4\",\"text\":\"3\"}\n"
                "{oops\n{\"id\":\"line-6#2\",\"text\":\"5\"}\n{\"id\":\"line-4\",\"text\":\"6\"}\n"
                "{\"id\":\"line-8\",\"text\":\"7\"}\n{\"id\":\"line-4\",\"text\":\"8\"}\n"
                "{\"id\":\"line-10#2\",\"text\":\"9\"}\n{\"id\":\"line-10\",\"text\":\"10\"}\n"
                "{\"id\":\"line-12\",\"text\":\"11\"}\n{\"id\":\"line-12\",\"text\":\"12\"}\n");
  EXPECT_THAT(
      Read({"in.jsonl"}),
      ElementsAre("line-2: 1", "line-2#2: 2", "line-4: 3", "line-4#2: LINE_INVALID@4:2", "line-6#2: 5",
                  "line-6: DOCUMENT_ID_DUPLICATE@6:7", "line-8: 7", "line-8#2: DOCUMENT_ID_DUPLICATE@8:7",
                  "line-10#2: 9", "line-10: 10", "line-12: 11", "line-12#2: DOCUMENT_ID_DUPLICATE@12:7"));
}

TEST_F(DocumentSourceTest, IdsAreUniqueAcrossInputs) {
  folder_.Write("a.txt", "text");
  folder_.Write("b.txt", "text");
  folder_.Write("one.jsonl", "{\"id\":\"x\",\"text\":\"1\"}\n{\"id\":\"b.txt\",\"text\":\"2\"}\n");
  folder_.Write("two.jsonl", "{\"id\":\"x\",\"text\":\"3\"}\n{\"id\":\"a.txt\",\"text\":\"4\"}\n");
  const auto source = DocumentSource::Open({.inputs = {"a.txt", "one.jsonl", "two.jsonl", "b.txt"}});
  const std::vector<InputItem> items = Drain(**source);
  EXPECT_THAT(
      Summaries(items),
      ElementsAre("a.txt: text", "x: 1", "b.txt: 2", "two.jsonl:line-1: DOCUMENT_ID_DUPLICATE@1:7",
                  "two.jsonl:line-2: DOCUMENT_ID_DUPLICATE@2:7", "b.txt#2: DOCUMENT_ID_DUPLICATE@0:0"));
}

TEST_F(DocumentSourceTest, AFileNamedTwiceIsReadOnce) {
  folder_.Write("d/a.txt", "a");
  folder_.Write("d/b.txt", "b");
  folder_.Write("in.jsonl", "{\"text\":\"1\"}");
  ::testing::internal::CaptureStderr();
  EXPECT_THAT(Read({"d/b.txt", "d", "./d/../d/a.txt", folder_.Path("d/a.txt"), "in.jsonl", "./in.jsonl"}),
              ElementsAre("d/b.txt: b", "d/a.txt: a", "in.jsonl:line-1: 1"));
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(std::count(log.begin(), log.end(), '\n'), 1) << log;
  EXPECT_THAT(log, AllOf(HasSubstr("4 files are named by more than one --input"), HasSubstr("d/b.txt")));
  ::testing::internal::CaptureStderr();
  EXPECT_THAT(Read({"d/a.txt", "d/b.txt"}), ::testing::SizeIs(2));
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
}

TEST_F(DocumentSourceTest, NamesThatAreNotUtf8OrNotPrintable) {
  folder_.Write("d/a\xFF.txt", "1");
  folder_.Write("d/a\xFE.txt", "2");
  folder_.Write("d/b\nc.txt", "3");
  folder_.Write("d/e\xC3\xA9.txt", "4");
  EXPECT_THAT(Read({"d"}), ElementsAre("d/a\xEF\xBF\xBD.txt: 2", "d/a\xEF\xBF\xBD.txt#2: 1",
                                       "d/b\xEF\xBF\xBD"
                                       "c.txt: 3",
                                       "d/e\xC3\xA9.txt: 4"));
  EXPECT_THAT(Read({"d/a\xFF.txt"}), ElementsAre("d/a\xEF\xBF\xBD.txt: 1"));
  folder_.Write("j\xFF.jsonl", "{\"text\":\"5\"}\n{\"path\":\"d/a\xEF\xBF\xBD.txt\"}");
  EXPECT_THAT(Read({"j\xFF.jsonl", "d/a\xFF.txt"}),
              ElementsAre("j\xEF\xBF\xBD.jsonl:line-1: 5", "d/a\xEF\xBF\xBD.txt: DOCUMENT_NOT_FOUND@2:9",
                          "d/a\xEF\xBF\xBD.txt#2: 1"));
}

TEST_F(DocumentSourceTest, OpenErrorsNameTheInput) {
  folder_.Write("a.txt", "a");
  folder_.Write("bare/x.html", "x");
  EXPECT_THAT(OpenError({}), AllOf(StartsWith("INVALID_ARGUMENT"), HasSubstr("--input")));
  EXPECT_THAT(OpenError({"none.txt"}), AllOf(StartsWith("NOT_FOUND"), HasSubstr("--input none.txt"),
                                             HasSubstr("No such file"), HasSubstr("check the path")));
  EXPECT_THAT(OpenError({""}), AllOf(StartsWith("NOT_FOUND"), HasSubstr("No such file")));
  EXPECT_THAT(OpenError({"a.txt/b.txt"}), AllOf(StartsWith("NOT_FOUND"), HasSubstr("Not a directory")));
  EXPECT_THAT(OpenError({"a.txt", "none.txt"}), HasSubstr("none.txt"));
  EXPECT_THAT(OpenError({"none\x1b[31m.txt"}), HasSubstr("none\xEF\xBF\xBD[31m.txt"));
  EXPECT_THAT(OpenError({"bare"}),
              AllOf(StartsWith("NOT_FOUND"), HasSubstr("--input bare"), HasSubstr("*.txt or *.md")));
  EXPECT_THAT(OpenError({std::string(5000, 'x')}), HasSubstr("File name too long"));
}

TEST_F(DocumentSourceTest, FileWithoutPermission) {
  folder_.Write("d/secret.txt", "s");
  fs::permissions(folder_.Path("d/secret.txt"), fs::perms::none);
  const Unprivileged nobody(folder_);
  EXPECT_THAT(OpenError({"d/secret.txt"}),
              AllOf(StartsWith("NOT_FOUND"), HasSubstr("d/secret.txt"), HasSubstr("Permission denied")));
  EXPECT_THAT(Read({"d"}), ElementsAre("d/secret.txt: DOCUMENT_NOT_FOUND@0:0"));
}

TEST_F(DocumentSourceTest, FilesThatVanishAreItems) {
  for (const char* name : {"a.txt", "b.txt", "c.jsonl", "d.txt"}) folder_.Write(name, "{\"text\":\"t\"}");
  const auto source = DocumentSource::Open({.inputs = {"a.txt", "b.txt", "c.jsonl", "d.txt"}});
  ASSERT_TRUE(source.ok()) << source.status();
  fs::remove("b.txt");
  fs::remove("c.jsonl");
  ASSERT_EQ(::mkfifo("c.jsonl", 0600), 0);  // would be waited for if it were opened
  const std::vector<InputItem> items = Drain(**source);
  EXPECT_THAT(Summaries(items), ElementsAre("a.txt: {\"text\":\"t\"}", "b.txt: DOCUMENT_NOT_FOUND@0:0",
                                            "c.jsonl: DOCUMENT_NOT_FOUND@0:0", "d.txt: {\"text\":\"t\"}"));
  EXPECT_THAT(std::string(items[1].error.status.message()),
              AllOf(HasSubstr("b.txt"), HasSubstr("No such file")));
  EXPECT_THAT(std::string(items[2].error.status.message()), HasSubstr("not a regular file"));
}

TEST_F(DocumentSourceTest, ReadErrorsAreItems) {
  // A regular file to stat(2), whose first page cannot be read.
  for (const InputFormat format : {InputFormat::kText, InputFormat::kJsonl}) {
    const auto source = DocumentSource::Open({.inputs = {"/proc/self/mem"}, .format = format});
    ASSERT_TRUE(source.ok()) << source.status();
    const std::vector<InputItem> items = Drain(**source);
    EXPECT_THAT(Summaries(items), ElementsAre("/proc/self/mem: DOCUMENT_NOT_FOUND@0:0"));
    EXPECT_THAT(std::string(items[0].error.status.message()), HasSubstr("Input/output error"));
  }
}

TEST_F(DocumentSourceTest, CountsByBytesUntilItKnows) {
  std::string lines = "\xEF\xBB\xBF";
  for (int i = 0; i < 1000; ++i) lines += "{\"text\":\"" + std::to_string(1000 + i) + "\"}\n";
  folder_.Write("in.jsonl", lines);
  folder_.Write("a.txt", "a");
  const auto source = DocumentSource::Open({.inputs = {"in.jsonl", "a.txt"}});
  ASSERT_TRUE(source.ok()) << source.status();
  EXPECT_EQ((*source)->CountItems().items, -1);
  for (int i = 1; i <= 1001; ++i) {
    ASSERT_TRUE((*source)->Next()->has_value());
    const ItemCount count = (*source)->CountItems();
    ASSERT_FALSE(count.exact);
    // The mark and the file a.txt are a few bytes of 17,000.
    if (i <= 100) continue;
    ASSERT_NEAR(static_cast<double>(count.items), 1001, 5) << "after " << i;
  }
  ASSERT_FALSE((*source)->Next()->has_value());
  EXPECT_EQ((*source)->CountItems().items, 1001);
  EXPECT_TRUE((*source)->CountItems().exact);

  folder_.Write("blank.jsonl", "\n\r\n");
  const auto blank = DocumentSource::Open({.inputs = {"blank.jsonl"}});
  EXPECT_FALSE((*blank)->Next()->has_value());
  EXPECT_EQ((*blank)->CountItems().items, 0);
  EXPECT_TRUE((*blank)->CountItems().exact);

  const Stdin in(Stdin::Pipe("{\"text\":\"1\"}\n{\"text\":\"2\"}\n"));
  const auto pipe = DocumentSource::Open({.inputs = {"-"}, .format = InputFormat::kJsonl});
  EXPECT_TRUE((*pipe)->Next()->has_value());
  EXPECT_EQ((*pipe)->CountItems().items, -1) << "a pipe's size is not known";
}

TEST_F(DocumentSourceTest, WhatTheNextRunWouldFind) {
  folder_.Write("d/a.txt", "a");
  folder_.Write("d/sub/b.md", "b");
  folder_.Write("g/x1.json", "x");
  fs::create_directory_symlink(folder_.Path("d"), folder_.Path("link"));
  const auto source = DocumentSource::Open({.inputs = {"./d", "g/*.json"}});
  ASSERT_TRUE(source.ok()) << source.status();
  for (const char* path : {"d/out.txt", "d/sub/out.md", "d/none/out.txt", "link/out.txt", "g/../d/out.txt"})
    EXPECT_EQ((*source)->WouldFind(path), "./d") << path;
  EXPECT_EQ((*source)->WouldFind(folder_.Path("d/out.txt")), "./d");
  for (const char* path : {"g/out.json", "./g/out.json"}) EXPECT_EQ((*source)->WouldFind(path), "g/*.json");
  for (const char* path : {"out.txt", "d/out.jsonl", "d/.out.txt", "d/.h/out.txt", "d2/out.txt", "g/out.txt",
                           "g/sub/out.json", "g/.out.json", "d"}) {
    EXPECT_EQ((*source)->WouldFind(path), "") << path;
  }
  const auto file = DocumentSource::Open({.inputs = {"d/a.txt"}});
  EXPECT_EQ((*file)->WouldFind("d/out.txt"), "");
  folder_.Write("d/in.jsonl", "{}");
  const auto lines = DocumentSource::Open({.inputs = {"d"}, .format = InputFormat::kJsonl});
  EXPECT_EQ((*lines)->WouldFind("d/out.jsonl"), "d");
  EXPECT_EQ((*lines)->WouldFind("d/out.txt"), "");
}

TEST_F(DocumentSourceTest, StdinIsText) {
  const Stdin in(Stdin::Pipe("From stdin.\n"));
  const auto source = DocumentSource::Open({.inputs = {"-"}});
  ASSERT_TRUE(source.ok()) << source.status();
  EXPECT_TRUE((*source)->single_text());
  EXPECT_EQ((*source)->CountItems().items, 1);
  EXPECT_THAT((*source)->files(), ElementsAre("/dev/stdin")) << "a pipe";
  EXPECT_THAT(Summaries(Drain(**source)), ElementsAre("-: From stdin.\n"));
}

TEST_F(DocumentSourceTest, StdinFromAFileIsAmongTheFiles) {
  folder_.Write("a.txt", "a");
  const Stdin in(::open("a.txt", O_RDONLY));
  const auto source = DocumentSource::Open({.inputs = {"-"}});
  ASSERT_THAT((*source)->files(), ElementsAre("/dev/stdin"));
  EXPECT_TRUE(fs::equivalent((*source)->files()[0], "a.txt"));
  EXPECT_THAT(Summaries(Drain(**source)), ElementsAre("-: a"));
}

TEST_F(DocumentSourceTest, StdinIsJsonlWhenAsked) {
  folder_.Write("a.txt", "a");
  {
    const Stdin in(Stdin::Pipe("{\"text\":\"1\"}\n\n{oops"));
    EXPECT_THAT(Read({"-"}, InputFormat::kJsonl), ElementsAre("line-1: 1", "line-3: LINE_INVALID@3:2"));
  }
  const Stdin in(Stdin::Pipe("{\"text\":\"1\"}\n"));
  folder_.Write("b.jsonl", "{\"text\":\"b\"}");
  EXPECT_THAT(Read({"b.jsonl", "-"}, InputFormat::kJsonl), ElementsAre("b.jsonl:line-1: b", "-:line-1: 1"));
}

TEST_F(DocumentSourceTest, StdinThatCannotBeUsed) {
  EXPECT_THAT(OpenError({"-", "-"}), AllOf(StartsWith("INVALID_ARGUMENT"), HasSubstr("twice")));
  {
    const Stdin in(-1);
    EXPECT_THAT(OpenError({"-"}), AllOf(StartsWith("NOT_FOUND"), HasSubstr("stdin is closed")));
  }
  const Stdin in(::open(".", O_RDONLY | O_DIRECTORY));
  EXPECT_THAT(OpenError({"-"}), AllOf(StartsWith("NOT_FOUND"), HasSubstr("directory")));
}

TEST_F(DocumentSourceTest, NamedPipe) {
  ASSERT_EQ(::mkfifo("pipe", 0600), 0);
  const auto source = DocumentSource::Open({.inputs = {"pipe"}});  // does not wait for the writer
  ASSERT_TRUE(source.ok()) << source.status();
  EXPECT_THAT((*source)->files(), ElementsAre("pipe"));
  std::thread writer([] { std::ofstream("pipe") << "Through a pipe."; });
  EXPECT_THAT(Summaries(Drain(**source)), ElementsAre("pipe: Through a pipe."));
  writer.join();
}

TEST_F(DocumentSourceTest, EndlessDeviceEnds) {
  EXPECT_THAT(ReadAll({.inputs = {"/dev/zero"}, .max_document_bytes = 1 << 20}),
              ElementsAre("/dev/zero: DOCUMENT_TOO_LARGE@0:0"));
}

TEST_F(DocumentSourceTest, NothingIsReadAhead) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const Stdin in(ends[0]);
  const auto source = DocumentSource::Open({.inputs = {"-"}, .format = InputFormat::kJsonl});
  for (int i = 0; i < 3; ++i) {
    // A second line would be waited for in vain.
    const std::string line = absl::StrCat("{\"text\":\"", i, "\"}\n");
    ASSERT_EQ(::write(ends[1], line.data(), line.size()), static_cast<ssize_t>(line.size()));
    const auto item = (*source)->Next();
    ASSERT_TRUE(item.ok() && item->has_value());
    EXPECT_EQ(Summary(**item), absl::StrCat("line-", i + 1, ": ", i));
  }
  ::close(ends[1]);
  EXPECT_FALSE((*source)->Next()->has_value());
}

TEST_F(DocumentSourceTest, StopEndsTheInput) {
  folder_.Write("a.txt", "a");
  for (const InputFormat format : {InputFormat::kText, InputFormat::kJsonl}) {
    int ends[2];
    ASSERT_EQ(::pipe(ends), 0);
    const Stdin in(ends[0]);
    const std::string bytes = "{\"text\":\"1\"}\n{\"text\":\"unfin";
    ASSERT_EQ(::write(ends[1], bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
    std::atomic<bool> stop = false;
    const auto source = DocumentSource::Open(
        {.inputs = {"-", "a.txt"}, .format = format, .stop = [&] { return stop.load(); }});
    std::thread stopper([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(300));
      stop = true;
    });
    // What is unfinished is no document, and nothing comes after it.
    const std::vector<std::string> expected =
        format == InputFormat::kJsonl ? std::vector<std::string>{"-:line-1: 1"} : std::vector<std::string>{};
    EXPECT_EQ(Summaries(Drain(**source)), expected);
    EXPECT_TRUE(stop);
    stopper.join();
    ::close(ends[1]);
  }
}

TEST_F(DocumentSourceTest, ManyInputsOfEveryKindInTheirOrder) {
  folder_.Write("z.txt", "z");
  folder_.Write("d/a.md", "a");
  folder_.Write("in.jsonl", "{\"text\":\"1\"}\n{\"id\":\"two\",\"text\":\"2\"}");
  folder_.Write("g1.txt", "g1");
  folder_.Write("g2.txt", "g2");
  const Stdin in(Stdin::Pipe("s"));
  const auto source = DocumentSource::Open({.inputs = {"z.txt", "-", "in.jsonl", "d", "g?.txt"}});
  ASSERT_TRUE(source.ok()) << source.status();
  EXPECT_THAT((*source)->files(),
              ElementsAre("z.txt", "/dev/stdin", "in.jsonl", "d/a.md", "g1.txt", "g2.txt"));
  EXPECT_THAT(Summaries(Drain(**source)), ElementsAre("z.txt: z", "-: s", "in.jsonl:line-1: 1", "two: 2",
                                                      "d/a.md: a", "g1.txt: g1", "g2.txt: g2"));
}

}  // namespace
}  // namespace snapkv::launch
