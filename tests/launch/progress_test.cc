// SPDX-License-Identifier: Apache-2.0
// Progress with a clock of its own: bar, lines, rates, time left; the closing line and table.
#include "launch/output/progress.h"

#include <gmock/gmock.h>

#include <thread>

#include "kernels/base/log.h"
#include "launch/output/closing.h"
#include "tests/launch/output_testing.h"

namespace snapkv::launch {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// What a terminal of one line shows after `text`: '\r' goes back, '\n' begins a new line.
std::vector<std::string> Screen(const std::string& text) {
  std::vector<std::string> lines(1);
  size_t at = 0;
  for (const char c : text) {
    if (c == '\n') {
      lines.emplace_back();
      at = 0;
    } else if (c == '\r') {
      at = 0;
    } else {
      if (at >= lines.back().size()) lines.back().resize(at + 1, ' ');
      lines.back()[at++] = c;
    }
  }
  for (std::string& line : lines) line.resize(line.find_last_not_of(' ') + 1);
  return lines;
}

class ProgressTest : public ::testing::Test {
 protected:
  ProgressOptions Options(ProgressMode mode) {
    ProgressOptions options;
    options.mode = mode;
    options.clock = [this] { return now_; };
    options.write = [this](const std::string& text) {
      written_ += text;
      ++writes_;
    };
    options.columns = [this] { return columns_; };
    return options;
  }
  std::string Shown() const { return Screen(written_).back(); }
  void Advance(double seconds) { now_ += absl::Seconds(seconds); }

  absl::Time now_ = absl::FromUnixSeconds(1'700'000'000);
  int columns_ = 100;
  std::string written_;
  int writes_ = 0;
};

TEST_F(ProgressTest, AutoIsABarOnATerminalOnly) {
  unsetenv("TERM");
  EXPECT_EQ(ResolveProgressMode(ProgressMode::kAuto, true), ProgressMode::kBar);
  EXPECT_EQ(ResolveProgressMode(ProgressMode::kAuto, false), ProgressMode::kLines);
  setenv("TERM", "dumb", 1);
  EXPECT_EQ(ResolveProgressMode(ProgressMode::kAuto, true), ProgressMode::kLines);
  for (const auto mode : {ProgressMode::kBar, ProgressMode::kLines, ProgressMode::kNone})
    EXPECT_EQ(ResolveProgressMode(mode, false), mode);
  ProgressOptions options = Options(ProgressMode::kAuto);
  options.terminal = false;
  EXPECT_EQ(Progress(options).mode(), ProgressMode::kLines);
}

TEST_F(ProgressTest, TheBarSaysHowFar) {
  Progress progress(Options(ProgressMode::kBar));
  progress.Update({.total = 60});
  EXPECT_EQ(Shown(), "[..............................]   0% 0/60 documents, 0 s so far");
  Advance(10);
  progress.Update({.total = 60,
                   .done = 9,
                   .failed = 1,
                   .skipped = 20,
                   .active = 3,
                   .prompt_tokens = 1000,
                   .generated_tokens = 50,
                   .open_tokens = 400,
                   .open_layers = 15,
                   .layers = 30});
  // 1000 tokens and half of 400 in 10 s; 30 of 60 documents left and 10 done in 10 s.
  EXPECT_THAT(
      Shown(),
      HasSubstr(" 50% 30/60 documents, 1 failed, about 30 s left, 10 s so far, 5.0 tok/s out, 120 tok/s in"));
  columns_ = 150;
  Advance(1);
  progress.Update({.total = 60,
                   .total_exact = false,
                   .done = 10,
                   .active = 3,
                   .prompt_tokens = 1000,
                   .generated_tokens = 50});
  EXPECT_THAT(Shown(), HasSubstr(" 16% 10/~60 documents, about 55 s left, 11 s so far, "));
  EXPECT_THAT(Shown(), HasSubstr(", 1000 + 50 tokens"));
  progress.Finish();
  EXPECT_EQ(Shown(), "") << "erased at the end";
}

TEST_F(ProgressTest, TheBarOfAnUnknownTotal) {
  Progress progress(Options(ProgressMode::kBar));
  progress.Update({.done = 3, .active = 1});
  EXPECT_EQ(Shown(), "3 documents, 0 s so far, 1 active");
}

TEST_F(ProgressTest, NeverLongerThanTheLine) {
  const ProgressState state{.total = 123456,
                            .done = 4567,
                            .failed = 89,
                            .skipped = 1000,
                            .active = 8,
                            .prompt_tokens = 123456789,
                            .generated_tokens = 9876543,
                            .open_tokens = 262144,
                            .open_layers = 7,
                            .layers = 80};
  for (int columns = 1; columns <= 200; ++columns) {
    columns_ = columns;
    written_.clear();
    Progress progress(Options(ProgressMode::kBar));
    Advance(1.5);
    progress.Update(state);
    const auto most = [this] { return static_cast<size_t>(std::max(1, columns_ - 1)); };
    ASSERT_LE(Shown().size(), most()) << "at " << columns << " columns: " << Shown();
    // A window that becomes narrower.
    columns_ = std::max(1, columns / 2);
    written_.clear();
    Advance(1);
    progress.Update({.total = 3});
    ASSERT_EQ(written_[0], '\r');
    ASSERT_LE(written_.size() - 1, most()) << "at " << columns_ << " columns: " << written_;
  }
}

TEST_F(ProgressTest, RedrawnFiveTimesASecondAtMost) {
  Progress progress(Options(ProgressMode::kBar));
  for (int i = 0; i < 10'000; ++i) {
    progress.Update({.total = 10'000, .done = i});
    Advance(0.001);
  }
  EXPECT_GE(writes_, 45);
  EXPECT_LE(writes_, 50);
}

TEST_F(ProgressTest, AShorterBarLeavesNothingBehind) {
  Progress progress(Options(ProgressMode::kBar));
  progress.Update({.done = 100'000, .active = 8});
  Advance(0.5);
  progress.Update({.done = 5});
  EXPECT_EQ(Shown(), "5 documents, 0 s so far");
}

TEST_F(ProgressTest, LogLinesStandAboveTheBar) {
  {
    Progress progress(Options(ProgressMode::kBar));
    progress.Update({.total = 4, .done = 1});
    LOG(Info) << "short";
    EXPECT_EQ(Screen(written_).size(), 2U);
    EXPECT_EQ(Screen(written_)[0], "short") << "nothing of the bar is left in its line";
    EXPECT_EQ(Shown(), "") << "until the next update";
    Advance(0.2);
    progress.Update({.total = 4, .done = 2});
    EXPECT_THAT(Shown(), HasSubstr("2/4"));
    progress.Clear();
    EXPECT_EQ(Shown(), "");
    written_.clear();
    LOG(Info) << "without a bar";
    EXPECT_EQ(written_, "without a bar\n");
  }
  const std::string before = written_;
  LOG(Debug) << "to stderr again";
  EXPECT_EQ(written_, before);
}

TEST_F(ProgressTest, LogLinesOfOtherThreads) {
  Progress progress(Options(ProgressMode::kBar));
  constexpr int kThreads = 4, kLines = 200;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([t] {
      for (int i = 0; i < kLines; ++i) LOG(Info) << "thread " << t << " line " << i << ".";
    });
  }
  for (int i = 0; i < 1000; ++i) {
    Advance(0.2);
    progress.Update({.total = 1000, .done = i});
  }
  for (std::thread& thread : threads) thread.join();
  const std::vector<std::string> lines = Screen(written_);
  ASSERT_EQ(lines.size(), static_cast<size_t>(kThreads * kLines + 1));
  for (size_t i = 0; i + 1 < lines.size(); ++i) {
    ASSERT_TRUE(lines[i].starts_with("thread ") && lines[i].ends_with(".") && lines[i].size() < 25)
        << lines[i];
  }
}

// Log lines of what `work` does.
template <class Work>
std::vector<std::string> Logged(const Work& work) {
  std::vector<std::string> lines;
  SetLogWriter([&](const std::string& line) { lines.push_back(line); });
  work();
  SetLogWriter(nullptr);
  return lines;
}

TEST_F(ProgressTest, LinesComeEveryThirtySeconds) {
  const auto lines = Logged([&] {
    Progress progress(Options(ProgressMode::kLines));
    for (int second = 0; second < 100; ++second) {
      progress.Update({.total = 200,
                       .done = second,
                       .failed = 2,
                       .skipped = 7,
                       .active = 3,
                       .prompt_tokens = 1000 * second,
                       .generated_tokens = 20 * second,
                       .open_tokens = 500,
                       .open_layers = 0,
                       .layers = 30});
      Advance(1);
    }
  });
  ASSERT_EQ(lines.size(), 3U);
  EXPECT_EQ(
      lines[0],
      "39 of 200 documents, 7 of them before, 2 failed, 3 active, layer 0 of 30 of 500 prompt tokens, prompt "
      "1000 tokens/s, generated 20.0 tokens/s, 30 s so far, about 2 min 30 s left\n");
  EXPECT_EQ(written_, "") << "lines go through LOG";
}

TEST_F(ProgressTest, NoneIsSilent) {
  EXPECT_THAT(Logged([&] {
                Progress progress(Options(ProgressMode::kNone));
                for (int i = 0; i < 100; ++i) {
                  progress.Update({.total = 100, .done = i});
                  Advance(10);
                }
              }),
              ElementsAre());
  EXPECT_EQ(written_, "");
}

TEST_F(ProgressTest, RatesAreThoseOfTheLastHalfMinute) {
  Progress progress(Options(ProgressMode::kNone));
  EXPECT_THAT(progress.Line(), Not(HasSubstr("tokens/s"))) << "too early to tell";
  Progress fast_then_slow(Options(ProgressMode::kLines));
  ProgressState state;
  const auto run = [&](int seconds, int64_t per_second) {
    for (int i = 0; i < seconds; ++i) {
      Advance(1);
      state.prompt_tokens += per_second;
      state.generated_tokens += per_second / 10;
      fast_then_slow.Update(state);
    }
  };
  run(100, 1000);
  EXPECT_THAT(fast_then_slow.Line(), HasSubstr("prompt 1000 tokens/s, generated 100 tokens/s"));
  run(15, 100);
  EXPECT_THAT(fast_then_slow.Line(), HasSubstr("prompt 550 tokens/s, generated 55.0 tokens/s"));
  run(15, 100);
  EXPECT_THAT(fast_then_slow.Line(), HasSubstr("prompt 100 tokens/s, generated 10.0 tokens/s"));
}

TEST_F(ProgressTest, APartOfALongPromptCounts) {
  Progress progress(Options(ProgressMode::kLines));
  for (int layer = 0; layer <= 20; ++layer) {
    progress.Update({.total = 1, .active = 1, .open_tokens = 100'000, .open_layers = layer, .layers = 100});
    Advance(1);
  }
  EXPECT_THAT(progress.Line(), HasSubstr("layer 20 of 100 of 100000 prompt tokens, prompt 1000 tokens/s"));
  progress.Update({.total = 1, .failed = 1});  // given up
  Advance(1);
  progress.Update({.total = 1, .failed = 1});
  EXPECT_THAT(progress.Line(), HasSubstr("prompt 0.0 tokens/s"));
}

TEST(ShowDuration, Forms) {
  EXPECT_EQ(ShowDuration(absl::Milliseconds(850)), "850 ms");
  EXPECT_EQ(ShowDuration(absl::Microseconds(999'900)), "1.0 s");
  EXPECT_EQ(ShowDuration(absl::Seconds(12.34)), "12.3 s");
  EXPECT_EQ(ShowDuration(absl::Seconds(59.97)), "1 min 00 s");
  EXPECT_EQ(ShowDuration(absl::Seconds(185)), "3 min 05 s");
  EXPECT_EQ(ShowDuration(absl::Seconds(3599.6)), "1 h 00 min");
  EXPECT_EQ(ShowDuration(absl::Minutes(127)), "2 h 07 min");
  EXPECT_EQ(ShowDuration(absl::Seconds(-1)), "0 ms");
}

TEST(ShowEstimate, IsNoFinerThanAGuess) {
  for (const auto& [seconds, text] :
       {std::pair(0.0, "1 s"), std::pair(8.2, "8 s"), std::pair(10.0, "10 s"), std::pair(33.4, "35 s"),
        std::pair(58.0, "1 min 00 s"), std::pair(151.0, "2 min 30 s"), std::pair(599.0, "10 min"),
        std::pair(725.0, "12 min"), std::pair(3590.0, "1 h 00 min"), std::pair(7700.0, "2 h 10 min"),
        std::pair(111'000.0, "31 h"), std::pair(-3.0, "1 s")}) {
    EXPECT_EQ(ShowEstimate(absl::Seconds(seconds)), text) << seconds;
  }
}

TEST(Closing, Line) {
  EXPECT_EQ(ClosingLine({.done = 58,
                         .failed = 2,
                         .skipped = 40,
                         .prompt_tokens = 120'000,
                         .generated_tokens = 2458,
                         .seconds = 12.5,
                         .prefill_seconds = 8,
                         .decode_seconds = 4}),
            "100 documents: 58 summarised, 2 failed, 40 from before; 120000 prompt tokens, 2458 generated in "
            "12.5 s (9797 tokens/s); prefill 15000 tokens/s for 8.0 s, decode 600 tokens/s for 4.0 s");
  // The only token comes from prefill.
  EXPECT_EQ(
      ClosingLine(
          {.done = 1, .prompt_tokens = 1000, .generated_tokens = 1, .seconds = 3, .prefill_seconds = 2}),
      "1 document: 1 summarised, 0 failed; 1000 prompt tokens, 1 generated in 3.0 s (334 tokens/s); prefill "
      "500 tokens/s for 2.0 s");
  EXPECT_EQ(ClosingLine({.failed = 3, .seconds = 1}), "3 documents: 0 summarised, 3 failed");
}

TEST(Closing, NothingToDo) {
  EXPECT_EQ(NothingToDoLine(60, 2),
            "nothing to do: 60 documents have records, 2 of them failed; --retry-errors does those again");
  EXPECT_EQ(NothingToDoLine(1, 0), "nothing to do: 1 document has a record");
}

TEST(Closing, ListOfTheFailed) {
  const std::vector<ClosingRow> rows = {ToClosingRow(Failed("long-id.txt")), ToClosingRow(Summarised("good")),
                                        ToClosingRow(Failed("b"))};
  EXPECT_EQ(FailedList(rows, 2), "failed:\n  long-id.txt  DOCUMENT_EMPTY\n  b            DOCUMENT_EMPTY\n");
  EXPECT_THAT(FailedList(rows, 32), HasSubstr("DOCUMENT_EMPTY\n  and 30 more\n"));
  EXPECT_EQ(FailedList({ToClosingRow(Summarised("good"))}, 0), "");
}

TEST(Closing, Table) {
  DocumentResult big = Summarised("docs/samples/a-very-long-name-of-a-document-\xC3\xA9t\xC3\xA9.txt");
  big.rows_full = 12345;
  big.rows_kept = 1024;
  big.bytes_full = 100 << 20;
  big.bytes_kept = 9 << 20;
  const std::vector<ClosingRow> rows = {ToClosingRow(Summarised("caf\xC3\xA9\t.txt")),
                                        ToClosingRow(Failed("bad.txt")), ToClosingRow(big)};
  EXPECT_EQ(
      ClosingTable(rows, {{0, 300 << 20}, {11, 25 << 20}}),
      "document                                  prompt tokens      rows kept     cache MiB  prefill tokens/s"
      "  decode tokens/s\n"
      "caf\xC3\xA9?.txt                                           100      64 of 100    0.0 -> 0.0"
      "              50.0              8.0\n"
      "bad.txt                                   failed: DOCUMENT_EMPTY\n"
      "docs/samples/a-very...a-document-\xC3\xA9t\xC3\xA9.txt            100  1024 of 12345  100.0 -> 9.0"
      "              50.0              8.0\n"
      "\n"
      "rank  peak memory MiB\n"
      "0               300.0\n"
      "11               25.0\n");
  EXPECT_EQ(ClosingTable({}, {}), "");
  EXPECT_EQ(ClosingTable({}, {{0, 1 << 20}}), "rank  peak memory MiB\n0                 1.0\n");
}

}  // namespace
}  // namespace snapkv::launch
