// SPDX-License-Identifier: Apache-2.0
// LineReader: line ends, marks, limits, pipes that deliver bytes one at a time, and being stopped.
#include "launch/input/line_reader.h"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace snapkv::launch {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// "NUMBER:text", or "NUMBER!bytes" of a line that is too long; then "error" if there is one.
std::vector<std::string> Drain(LineReader& reader) {
  std::vector<std::string> lines;
  while (true) {
    const absl::StatusOr<std::optional<Line>> line = reader.Next();
    if (!line.ok()) {
      lines.push_back("error: " + std::string(line.status().message()));
      return lines;
    }
    if (!line->has_value()) return lines;
    const Line& l = **line;
    EXPECT_EQ(l.too_long ? 0 : l.bytes, static_cast<int64_t>(l.text.size()));
    lines.push_back(std::to_string(l.number) +
                    (l.too_long ? "!" + std::to_string(l.bytes) : ":" + std::string(l.text)));
  }
}

// A pipe that delivers `bytes`, `at_once` at a time (0: all).
std::vector<std::string> ReadLines(const std::string& bytes, int64_t max_line_bytes = 100,
                                   size_t at_once = 0) {
  int ends[2];
  EXPECT_EQ(::pipe(ends), 0);
  std::thread writer([&] {
    const size_t step = at_once == 0 ? bytes.size() + 1 : at_once;
    for (size_t at = 0; at < bytes.size(); at += step) {
      const size_t n = std::min(step, bytes.size() - at);
      EXPECT_EQ(::write(ends[1], bytes.data() + at, n), static_cast<ssize_t>(n));
      if (at_once != 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    ::close(ends[1]);
  });
  LineReader reader(ends[0], max_line_bytes);
  std::vector<std::string> lines = Drain(reader);
  writer.join();
  ::close(ends[0]);
  return lines;
}

TEST(LineReader, LineEnds) {
  EXPECT_THAT(ReadLines(""), IsEmpty());
  EXPECT_THAT(ReadLines("a"), ElementsAre("1:a"));
  EXPECT_THAT(ReadLines("a\n"), ElementsAre("1:a"));
  EXPECT_THAT(ReadLines("a\r\nb\n\r\nc\r"), ElementsAre("1:a", "2:b", "4:c"));
  EXPECT_THAT(ReadLines("a\rb\r\r\n"), ElementsAre("1:a\rb\r"));
}

TEST(LineReader, BlankLinesCountOnly) {
  EXPECT_THAT(ReadLines("\n\n a \n \t\r\n\nb\n\n"), ElementsAre("3: a ", "6:b"));
  EXPECT_THAT(ReadLines("\n\r\n \n"), IsEmpty());
}

TEST(LineReader, ByteOrderMark) {
  EXPECT_THAT(ReadLines("\xEF\xBB\xBF"), IsEmpty());
  EXPECT_THAT(ReadLines("\xEF\xBB\xBF\n\xEF\xBB\xBFx"), ElementsAre("2:\xEF\xBB\xBFx"));
  for (const size_t at_once : {0, 1, 2}) {
    EXPECT_THAT(ReadLines("\xEF\xBB\xBFone\ntwo", 100, at_once), ElementsAre("1:one", "2:two")) << at_once;
    EXPECT_THAT(ReadLines("\xEF\xBBone\ntwo", 100, at_once), ElementsAre("1:\xEF\xBBone", "2:two"))
        << at_once;
    EXPECT_THAT(ReadLines("\xEF", 100, at_once), ElementsAre("1:\xEF")) << at_once;
    // It does not count as length.
    EXPECT_THAT(ReadLines("\xEF\xBB\xBF"
                          "12345\n",
                          5, at_once),
                ElementsAre("1:12345"));
    EXPECT_THAT(ReadLines("\xEF\xBB\xBF"
                          "123456\n",
                          5, at_once),
                ElementsAre("1!6"));
  }
}

TEST(LineReader, NulBytesStay) {
  EXPECT_THAT(ReadLines(std::string("a\0b\n\0\nc", 7)),
              ElementsAre("1:" + std::string("a\0b", 3), "2:" + std::string("\0", 1), "3:c"));
}

TEST(LineReader, Limit) {
  for (const size_t at_once : {0, 1, 3}) {
    // The line end does not count, whichever it is.
    EXPECT_THAT(ReadLines("12345\n12345\r\n123456\n123456\r\n1234567\r\n1\n", 5, at_once),
                ElementsAre("1:12345", "2:12345", "3!6", "4!6", "5!7", "6:1"));
    EXPECT_THAT(ReadLines("12345\r", 5, at_once), ElementsAre("1:12345"));
    EXPECT_THAT(ReadLines("123456", 5, at_once), ElementsAre("1!6"));
    EXPECT_THAT(ReadLines("12345\r6\n", 5, at_once), ElementsAre("1!7"));
  }
}

TEST(LineReader, LinesAcrossBuffers) {
  std::string bytes;
  std::vector<std::string> expected;
  for (int i = 1; i <= 400; ++i) {
    const std::string line(static_cast<size_t>(i * 13), static_cast<char>('a' + i % 26));
    bytes += line + (i % 3 == 0 ? "\r\n" : "\n");
    expected.push_back(std::to_string(i) +
                       (line.size() > 4000 ? "!" + std::to_string(line.size()) : ":" + line));
  }
  EXPECT_EQ(ReadLines(bytes, 4000), expected);
  EXPECT_EQ(ReadLines(bytes, 4000, 4095), expected);
}

TEST(LineReader, LongLinesAreWhole) {
  // 3 MiB takes the way by which long lines are reserved.
  const std::string line = std::string(3 << 20, 'x') + "y";
  EXPECT_THAT(ReadLines(line + "\nz\n" + line, 32 << 20), ElementsAre("1:" + line, "2:z", "3:" + line));
}

TEST(LineReader, ReadErrorsEndTheFile) {
  const int folder = ::open("/", O_RDONLY | O_DIRECTORY);
  ASSERT_GE(folder, 0);
  LineReader reader(folder, 100);
  EXPECT_THAT(Drain(reader), ElementsAre("error: cannot be read: Is a directory"));
  EXPECT_THAT(Drain(reader), IsEmpty());
  ::close(folder);
}

TEST(LineReader, NonBlockingPipeIsWaitedFor) {
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_NONBLOCK), 0);
  std::thread writer([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    EXPECT_EQ(::write(ends[1], "a\nb", 3), 3);
    ::close(ends[1]);
  });
  LineReader reader(ends[0], 100);
  EXPECT_THAT(Drain(reader), ElementsAre("1:a", "2:b"));
  writer.join();
  ::close(ends[0]);
}

TEST(LineReader, StopEndsTheWaitAndDropsTheUnfinishedLine) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  ASSERT_EQ(::write(ends[1], "a\nunfinished", 12), 12);
  std::atomic<bool> stop = false;
  std::thread stopper([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    stop = true;
  });
  LineReader reader(ends[0], 100, [&] { return stop.load(); });
  EXPECT_THAT(Drain(reader), ElementsAre("1:a", "error: reading was stopped"));
  EXPECT_TRUE(stop);
  stopper.join();
  ::close(ends[0]);
  ::close(ends[1]);
}

}  // namespace
}  // namespace snapkv::launch
