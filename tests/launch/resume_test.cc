// SPDX-License-Identifier: Apache-2.0
// Going on with an output file: torn ends at every byte, foreign files, other parameters, errors done again.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <map>

#include "launch/output/output_log.h"
#include "launch/output/record_scan.h"
#include "tests/launch/output_testing.h"

namespace snapkv::launch {
namespace {

using ::testing::HasSubstr;
namespace fs = std::filesystem;

struct Sample {
  std::string id;
  bool failed;
  std::string line;
};

// Both forms, summaries and errors, and text that looks like the end of a record.
std::vector<Sample> Samples() {
  return {{"a.txt", false, Line(Summarised("a.txt", "Zürich \xF0\x9F\x92\xA7 \"}\n{\"id\":\"x\"}"))},
          {"line-2", true, Line(Failed("line-2"))},
          {"c-3", false, Line(Summarised("c-3", "short", RecordForm::kOpenAi))},
          {"c-4", true, Line(Failed("c-4", RecordForm::kOpenAi))},
          {"e", false, Line(Summarised("e"))}};
}

std::string All(const std::vector<Sample>& samples) {
  std::string text;
  for (const Sample& sample : samples) text += sample.line;
  return text;
}

// Resumes on `bytes`, of which the first `whole` records must be found, and finishes the batch.
void ResumeAndFinish(const std::string& path, const std::string& bytes, size_t whole,
                     const std::string& what) {
  const std::vector<Sample> samples = Samples();
  WriteBytes(path, bytes);
  {
    const auto log = OutputLog::Open(Resuming(path));
    ASSERT_TRUE(log.ok()) << what << ": " << log.status();
    std::string expected;
    for (size_t i = 0; i < samples.size(); ++i) {
      ASSERT_EQ((*log)->Has(samples[i].id), i < whole) << what << ": record " << i;
      if (i < whole) expected += samples[i].line;
    }
    ASSERT_EQ(ReadFile(path), expected) << what;
    ASSERT_EQ((*log)->kept_ok() + (*log)->kept_errors(), static_cast<int64_t>(whole)) << what;
    for (size_t i = whole; i < samples.size(); ++i) ASSERT_TRUE((*log)->Append(samples[i].line).ok());
    ASSERT_TRUE((*log)->Close(true).ok());
  }
  ASSERT_EQ(ReadFile(path), All(samples)) << what << ": each record once, in whole";
}

TEST(Resume, AfterACutAtEveryByte) {
  const TemporaryFolder folder(/*many_syncs=*/true);
  const std::string path = folder / "out.jsonl";
  const std::string all = All(Samples());
  size_t whole = 0, next_end = Samples()[0].line.size();
  for (size_t cut = 0; cut <= all.size(); ++cut) {
    if (cut == next_end) next_end += ++whole < Samples().size() ? Samples()[whole].line.size() : 1;
    ResumeAndFinish(path, all.substr(0, cut), whole, "cut at " + std::to_string(cut));
    if (HasFatalFailure()) return;
  }
  EXPECT_EQ(whole, Samples().size());
}

// Whole JSON without a newline is no torn record.
TEST(Resume, ALineOfSomebodyElseStays) {
  const TemporaryFolder folder;
  const std::string path = folder / "out.jsonl", precious = "{\"id\":\"a\",\"text\":\"precious\"}";
  WriteBytes(path, precious);
  EXPECT_FALSE(OutputLog::Open(Resuming(path)).ok());
  EXPECT_EQ(ReadFile(path), precious);
}

// After a power loss a file may have its new length but not its new data.
TEST(Resume, AfterATailOfNulBytesFromEveryByte) {
  const TemporaryFolder folder(/*many_syncs=*/true);
  const std::string path = folder / "out.jsonl";
  const std::string all = All(Samples());
  size_t whole = 0, next_end = Samples()[0].line.size();
  for (size_t cut = 0; cut <= all.size(); ++cut) {
    if (cut == next_end) next_end += ++whole < Samples().size() ? Samples()[whole].line.size() : 1;
    for (const size_t nuls : {size_t{1}, size_t{5000}}) {
      const std::string bytes = all.substr(0, cut) + std::string(nuls, '\0');
      ResumeAndFinish(path, bytes, whole, std::to_string(nuls) + " NULs at " + std::to_string(cut));
      if (HasFatalFailure()) return;
    }
  }
}

TEST(Resume, ALastLineThatIsWholeButNoJsonIsDropped) {
  const TemporaryFolder folder;
  const std::string path = folder / "out.jsonl";
  const std::string a = Samples()[0].line;
  for (const std::string& tail :
       {std::string("{\"id\":\"b\", \0\0\0\n", 15), std::string(70'000, '\0') + "\n",
        std::string("garbage\n"), std::string("\n\n{\"id\""), std::string(" \n")}) {
    ResumeAndFinish(path, a + tail, 1, "tail of " + std::to_string(tail.size()) + " bytes");
    if (HasFatalFailure()) return;
  }
}

std::string RefusedAs(const std::string& path, const OutputLogOptions& options) {
  const std::string before = ReadFile(path);
  const auto log = OutputLog::Open(options);
  EXPECT_TRUE(absl::IsFailedPrecondition(log.status())) << log.status();
  EXPECT_EQ(ReadFile(path), before) << "a refused file was changed";
  EXPECT_FALSE(fs::exists(path + ".rewrite.tmp"));
  return std::string(log.status().message());
}

TEST(Resume, AForeignFileIsRefusedAndStaysAsItIs) {
  const TemporaryFolder folder;
  const std::string path = folder / "out.jsonl";
  const std::string a = Samples()[0].line, b = Samples()[1].line;
  const std::map<std::string, int> files = {
      {"A text of one line without an end", 1},
      {"A text of one line\n", 1},
      {"one\ntwo\n", 1},
      {std::string("\x7F"
                   "ELF\0\0\0\n",
                   8),
       1},
      {"{\"id\":\"a\",\"text\":\"an input file\"}\n", 1},
      {"{\"text\": \"torn", 1},
      {"[]\n", 1},
      {"7\n", 1},
      {a + "{\"id\":\"a\",\"text\":\"an input line\"}\n", 2},
      {a + "not a record\n" + b, 2},
      {a + "\n" + std::string(40, '\0') + "\n" + b, 3},
      {a + a.substr(0, 30) + b + b, 2},
      {a + "{\"custom_id\":\"x\",\"params_sha256\":\"y\",\"error\":null}\n", 2},
      {a + "{\"id\":7,\"params_sha256\":\"y\",\"error\":null}\n", 2},
  };
  for (const auto& [bytes, line] : files) {
    WriteBytes(path, bytes);
    for (const bool retry : {false, true}) {
      EXPECT_THAT(RefusedAs(path, Resuming(path, retry)),
                  HasSubstr("out.jsonl line " + std::to_string(line) + ": is not a record of this program"))
          << bytes.substr(0, 60);
    }
  }
}

TEST(Resume, OtherParametersAreRefused) {
  const TemporaryFolder folder;
  const std::string path = folder / "out.jsonl";
  const std::string other = "fedcba987654" + std::string(52, '0');
  for (const RecordForm form : {RecordForm::kShort, RecordForm::kOpenAi}) {
    for (const auto& result : {Summarised("b", "text", form), Failed("b", form)}) {
      WriteBytes(path, Samples()[0].line + Line(result, other) + "{\"id\":\"torn");
      const std::string message = RefusedAs(path, Resuming(path, true));
      EXPECT_THAT(message, HasSubstr("out.jsonl line 2: was made with other parameters (params_sha256 "
                                     "fedcba987654, of this run aaaaaaaaaaaa)"));
      EXPECT_THAT(message, HasSubstr("--force"));
    }
  }
}

TEST(Resume, AnEmptyOrMissingFileBeginsAFreshOne) {
  const TemporaryFolder folder;
  const std::string path = folder / "out.jsonl";
  for (int i = 0; i < 2; ++i) {
    const auto log = OutputLog::Open(Resuming(path, true));
    ASSERT_TRUE(log.ok()) << log.status();
    EXPECT_EQ((*log)->kept_ok() + (*log)->kept_errors(), 0);
    ASSERT_TRUE((*log)->Close(false).ok());
    EXPECT_EQ(ReadFile(path), "");
  }
}

TEST(Resume, BlankLinesAndReturnsAreAccepted) {
  const TemporaryFolder folder;
  const std::string path = folder / "out.jsonl";
  std::string crlf;
  for (const Sample& sample : Samples()) crlf += sample.line.substr(0, sample.line.size() - 1) + "\r\n\r\n";
  WriteBytes(path, crlf);
  const auto log = OutputLog::Open(Resuming(path));
  ASSERT_TRUE(log.ok()) << log.status();
  for (const Sample& sample : Samples()) EXPECT_TRUE((*log)->Has(sample.id)) << sample.id;
}

TEST(Resume, ErrorsAreKeptOrDoneAgain) {
  const TemporaryFolder folder;
  const std::string path = folder / "out.jsonl";
  WriteBytes(path, All(Samples()));
  {
    const auto log = OutputLog::Open(Resuming(path));
    ASSERT_TRUE(log.ok()) << log.status();
    EXPECT_EQ((*log)->kept_ok(), 3);
    EXPECT_EQ((*log)->kept_errors(), 2);
  }
  EXPECT_EQ(ReadFile(path), All(Samples()));
  chmod(path.c_str(), 0640);
  WriteBytes(path + ".rewrite.tmp", "left by a run that was killed between writing and renaming");
  const auto log = OutputLog::Open(Resuming(path, true));
  ASSERT_TRUE(log.ok()) << log.status();
  EXPECT_EQ((*log)->kept_ok(), 3);
  EXPECT_EQ((*log)->kept_errors(), 0);
  EXPECT_EQ((*log)->dropped_errors(), 2);
  std::string kept;
  for (const Sample& sample : Samples()) {
    EXPECT_EQ((*log)->Has(sample.id), !sample.failed) << sample.id;
    if (!sample.failed) kept += sample.line;
  }
  EXPECT_EQ(ReadFile(path), kept);
  struct stat file {};
  ASSERT_EQ(stat(path.c_str(), &file), 0);
  EXPECT_EQ(file.st_mode & 07777, 0640U);
  EXPECT_FALSE(fs::exists(path + ".rewrite.tmp"));
  EXPECT_FALSE(OutputLog::Open(Resuming(path)).ok()) << "the new file is locked too";
  ASSERT_TRUE((*log)->Append(Samples()[1].line).ok());
  EXPECT_EQ(ReadFile(path), kept + Samples()[1].line);
}

TEST(Resume, AnOpenAiStatusOtherThan200IsAnErrorToo) {
  const TemporaryFolder folder;
  const std::string path = folder / "out.jsonl";
  std::string line = Line(Summarised("c", "text", RecordForm::kOpenAi));
  const std::string ok = "\"status_code\":200";
  line.replace(line.find(ok), ok.size(), "\"status_code\":503");
  WriteBytes(path, line);
  const auto log = OutputLog::Open(Resuming(path, true));
  ASSERT_TRUE(log.ok()) << log.status();
  EXPECT_FALSE((*log)->Has("c"));
  EXPECT_EQ(ReadFile(path), "");
}

TEST(Resume, WithNothingToDoAgainTheFileIsNotRewritten) {
  const TemporaryFolder folder;
  const std::string path = folder / "out.jsonl";
  WriteBytes(path, Samples()[0].line + Samples()[2].line);
  struct stat before {
  }, after{};
  stat(path.c_str(), &before);
  ASSERT_TRUE(OutputLog::Open(Resuming(path, true)).ok());
  stat(path.c_str(), &after);
  EXPECT_EQ(before.st_ino, after.st_ino);
}

TEST(Resume, ARewriteAlsoDropsATornLine) {
  const TemporaryFolder folder;
  const std::string path = folder / "out.jsonl";
  WriteBytes(path, Samples()[1].line + Samples()[0].line + Samples()[4].line.substr(0, 20));
  const auto log = OutputLog::Open(Resuming(path, true));
  ASSERT_TRUE(log.ok()) << log.status();
  EXPECT_EQ(ReadFile(path), Samples()[0].line);
  EXPECT_FALSE((*log)->Has("e"));
}

// The output may live elsewhere: the link stays one, the file it names is replaced.
TEST(Resume, ARewriteThroughASymbolicLink) {
  const TemporaryFolder folder;
  fs::create_directory(folder / "far");
  WriteBytes(folder / "far/target.jsonl", All(Samples()));
  fs::create_symlink("far/target.jsonl", folder / "link");
  const auto log = OutputLog::Open(Resuming(folder / "link", true));
  ASSERT_TRUE(log.ok()) << log.status();
  EXPECT_TRUE(fs::is_symlink(folder / "link"));
  EXPECT_EQ(Lines(ReadFile(folder / "far/target.jsonl")).size(), 3U);
  EXPECT_EQ(std::distance(fs::directory_iterator(folder / "far"), {}), 1) << "something is left beside it";
}

TEST(Resume, OfTwoRecordsOfOneIdTheFirstStays) {
  const TemporaryFolder folder;
  const std::string path = folder / "out.jsonl";
  const std::string first = Line(Summarised("a", "first")), second = Line(Summarised("a", "second"));
  const std::string other = Line(Summarised("b")), error = Line(Failed("a"));
  WriteBytes(path, first + other + second + error);
  {
    const auto log = OutputLog::Open(Resuming(path));
    ASSERT_TRUE(log.ok()) << log.status();
    EXPECT_EQ((*log)->kept_ok(), 2);
    EXPECT_EQ((*log)->kept_errors(), 0);
  }
  EXPECT_EQ(ReadFile(path), first + other);
  WriteBytes(path, error + first + second);
  ASSERT_TRUE(OutputLog::Open(Resuming(path, true)).ok());
  EXPECT_EQ(ReadFile(path), first) << "the error is done away with before";
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;  // which keeps freed memory for a while
#else
constexpr bool kSanitized = false;
#endif

TEST(Resume, MemoryDoesNotGrowWithTheFile) {
  const TemporaryFolder folder;
  const std::string path = folder / "out.jsonl";
  constexpr int kRecords = 50'000;
  {
    std::ofstream file(path, std::ios::binary);
    for (int i = 0; i < kRecords; ++i)
      file << Line(Summarised("document-" + std::to_string(i), std::string(1000, 's')));
    file << Line(Failed("last"));
  }
  const auto peak = [] {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_maxrss >> 10;
  };
  const int64_t before = peak(), megabytes = static_cast<int64_t>(fs::file_size(path) >> 20);
  const auto log = OutputLog::Open(Resuming(path, true));
  ASSERT_TRUE(log.ok()) << log.status();
  EXPECT_EQ((*log)->kept_ok(), kRecords);
  EXPECT_TRUE((*log)->Has("document-0"));
  EXPECT_TRUE((*log)->Has("document-49999"));
  EXPECT_FALSE((*log)->Has("document-50000"));
  EXPECT_GT(megabytes, 60);
  EXPECT_LT(peak() - before, kSanitized ? 400 : 16) << "MiB more for a file of " << megabytes;
}

TEST(RecordScan, ALineOverTheLimitIsNoRecord) {
  const TemporaryFolder folder;
  const std::string path = folder / "out.jsonl";
  const std::string a = Samples()[0].line;
  const std::string huge =
      "{\"id\":\"h\",\"params_sha256\":\"" + std::string(RecordFile::kMostRecordBytes, 'x') + "\"}\n";
  WriteBytes(path, a + huge + a);
  EXPECT_THAT(RefusedAs(path, Resuming(path)), HasSubstr("line 2: is not a record"));
  ResumeAndFinish(path, a + huge, 1, "a huge last line");
}

TEST(RecordScan, LinesLongerThanTheBuffer) {
  const TemporaryFolder folder;
  const std::string path = folder / "lines";
  // Ends before, at and behind the borders of blocks of 256 KiB.
  std::vector<std::string> lines;
  for (const size_t n : {0, 1, 262'142, 262'143, 262'144, 524'287, 524'288, 3})
    lines.push_back(std::string(n, 'q') + "\n");
  lines.push_back("no newline");
  std::string text;
  for (const std::string& line : lines) text += line;
  WriteBytes(path, text);
  const int fd = open(path.c_str(), O_RDONLY);
  RecordFile reader(fd, static_cast<int64_t>(text.size()));
  int64_t begin = 0;
  for (size_t i = 0; i < lines.size(); ++i) {
    const auto line = reader.Next();
    ASSERT_TRUE(line.ok() && line->has_value()) << i;
    const bool complete = i + 1 < lines.size();
    ASSERT_EQ((*line)->text.size(), lines[i].size() - (complete ? 1 : 0)) << "line " << i;
    ASSERT_EQ((*line)->begin, begin) << "line " << i;
    ASSERT_EQ((*line)->number, static_cast<int64_t>(i) + 1);
    ASSERT_EQ((*line)->complete, complete);
    ASSERT_FALSE((*line)->cut);
    begin += static_cast<int64_t>(lines[i].size());
  }
  EXPECT_FALSE(reader.Next()->has_value());
  EXPECT_FALSE(reader.Next()->has_value());
  close(fd);
}

}  // namespace
}  // namespace snapkv::launch
