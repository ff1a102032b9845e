// SPDX-License-Identifier: Apache-2.0
// Memory of the input: it follows the longest line that is allowed, not the file.
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <functional>
#include <string>

#include "launch/input/json_line.h"
#include "tests/launch/input_support.h"

namespace snapkv::launch {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;

// By how many bytes `work` raises the peak of a process of its own; -1 when work returns false or dies.
int64_t PeakGrowth(const std::function<bool()>& work) {
  int ends[2];
  EXPECT_EQ(::pipe(ends), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    // The peak of a new process starts at what is resident now (only exec inherits the old one).
    const auto peak = [] {
      rusage usage = {};
      ::getrusage(RUSAGE_SELF, &usage);
      return static_cast<int64_t>(usage.ru_maxrss) * 1024;
    };
    const int64_t before = peak();
    const bool good = work();
    const int64_t growth = good ? peak() - before : -1;
    const bool written = ::write(ends[1], &growth, sizeof(growth)) == sizeof(growth);
    ::_exit(written ? 0 : 1);
  }
  ::close(ends[1]);
  int64_t growth = -1;
  const bool read = ::read(ends[0], &growth, sizeof(growth)) == sizeof(growth);
  ::close(ends[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  return read && WIFEXITED(status) ? growth : -1;
}

// A peak that is not reached again would hide growth; this shows that it does not.
TEST(InputMemory, TheMeasurementSeesGrowth) {
  const int64_t growth = PeakGrowth([] {
    const std::string block(64 * kMiB, 'x');
    return block[static_cast<size_t>(::getpid()) % block.size()] == 'x';
  });
  EXPECT_GT(growth, 60 * kMiB);
  EXPECT_LT(growth, 80 * kMiB);
}

// Reads a JSONL file and checks the first and last items and their number.
bool Reads(const std::string& path, int64_t items, const std::string& first, const std::string& last) {
  const auto source = DocumentSource::Open({.inputs = {path}});
  if (!source.ok()) return false;
  int64_t count = 0;
  std::string summary;
  while (true) {
    const auto item = (*source)->Next();
    if (!item.ok()) return false;
    if (!item->has_value()) break;
    summary = Summary(**item);
    if (++count == 1 && summary != first) return false;
  }
  return count == items && summary == last;
}

TEST(InputMemory, LineOf200MegabytesFromAFile) {
  const InputFolder folder;
  const std::string path = folder.Path("in.jsonl");
  {
    std::ofstream file(path, std::ios::binary);
    const std::string block(kMiB, 'x');
    file << "{\"text\":\"1\"}\n{\"text\":\"";
    for (int i = 0; i < 200; ++i) file << block;
    file << "\"}\r\n{\"text\":\"3\"}\n";
    ASSERT_TRUE(file.good());
  }
  const int64_t growth = PeakGrowth([&] { return Reads(path, 3, "line-1: 1", "line-3: 3"); });
  ASSERT_GE(growth, 0);
  EXPECT_LT(growth, 64 * kMiB);
  std::printf("a line of 200 MiB: %.1f MiB\n", static_cast<double>(growth) / kMiB);
}

TEST(InputMemory, LineOf200MegabytesThroughAPipe) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const pid_t writer = ::fork();
  if (writer == 0) {
    const std::string block(kMiB, '[');
    bool good = true;
    const auto put = [&](const char* data, size_t n) {
      for (size_t at = 0; good && at < n;) {
        const ssize_t done = ::write(ends[1], data + at, n - at);
        good = done > 0;
        at += good ? static_cast<size_t>(done) : 0;
      }
    };
    for (int i = 0; i < 200; ++i) put(block.data(), block.size());
    put("\n{}", 3);
    ::_exit(good ? 0 : 1);
  }
  ::close(ends[1]);
  const int64_t growth = PeakGrowth([&] {
    LineReader reader(ends[0], 32 * kMiB);
    const auto first = reader.Next();
    const auto second = reader.Next();
    return first.ok() && first->has_value() && (*first)->too_long && (*first)->bytes == 200 * kMiB &&
           second.ok() && second->has_value() && (*second)->text == "{}" && (*second)->number == 2;
  });
  ::close(ends[0]);
  int status = 0;
  ASSERT_EQ(::waitpid(writer, &status, 0), writer);
  EXPECT_EQ(status, 0);
  ASSERT_GE(growth, 0);
  EXPECT_LT(growth, 64 * kMiB);
}

TEST(InputMemory, ManyLines) {
  const InputFolder folder;
  const auto write = [&](const std::string& name, int64_t lines) {
    std::ofstream file(folder.Path(name), std::ios::binary);
    for (int64_t i = 1; i <= lines; ++i) {
      file << "{\"id\":\"document-with-a-long-name-" << i << "\",\"text\":\"" << std::string(300, 'x')
           << "\"}\n";
    }
    EXPECT_TRUE(file.good());
    return folder.Path(name);
  };
  const auto growth = [&](const std::string& path, int64_t lines) {
    const std::string text = ": " + std::string(300, 'x');
    return PeakGrowth([&] {
      return Reads(path, lines, "document-with-a-long-name-1" + text,
                   absl::StrCat("document-with-a-long-name-", lines, text));
    });
  };
  const int64_t few = growth(write("few.jsonl", 1000), 1000);
  const int64_t many = growth(write("many.jsonl", 100'000), 100'000);
  ASSERT_GE(few, 0);
  ASSERT_GE(many, 0);
  // 37 MB of lines; 100,000 ids of 16 bytes, in a table that is at least 7/16 full and grows by copying.
  EXPECT_LT(many - few, 8 * kMiB);
  std::printf("1,000 lines: %.1f MiB, 100,000 lines: %.1f MiB\n", static_cast<double>(few) / kMiB,
              static_cast<double>(many) / kMiB);
}

// Lines of 8 MiB built to cost a parser the most.
TEST(InputMemory, HostileLines) {
  const auto repeated = [](const std::string& begin, const std::string& part, const std::string& end) {
    std::string line = begin;
    while (static_cast<int64_t>(line.size()) < 8 * kMiB) line += part;
    return line + end;
  };
  struct Case {
    const char* what;
    std::string line;
    bool good;
  };
  const Case cases[] = {
      {"numbers", repeated("{\"stop_token_ids\":[1", ",1", "]}"), false},
      {"empty arrays", repeated("{\"x\":[[]", ",[]", "]}"), false},
      {"empty objects", repeated("{\"x\":[{}", ",{}", "]}"), false},
      {"members", repeated("{\"x\":1", ",\"x\":1", "}"), false},
      {"metadata", repeated("{\"metadata\":[{}", ",{\"a\":[]}", "]}"), true},
      {"text", repeated("{\"text\":\"", "x", "\"}"), true},
      {"escapes", repeated("{\"text\":\"", "\\u0041", "\"}"), true},
      {"torn text", repeated("{\"text\":\"", "x", ""), false},
  };
  for (const Case& c : cases) {
    const int64_t growth = PeakGrowth([&] {
      JsonValue value;
      return ParseJsonLine(c.line, "metadata", value).ok() == c.good;
    });
    ASSERT_GE(growth, 0) << c.what;
    EXPECT_LT(growth, 20 * 8 * kMiB) << c.what;
    std::printf("%s: %.1f times the line\n", c.what,
                static_cast<double>(growth) / static_cast<double>(c.line.size()));
  }
}

}  // namespace
}  // namespace snapkv::launch
