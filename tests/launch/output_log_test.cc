// SPDX-License-Identifier: Apache-2.0
// OutputLog: opening, the lock, whole records on every failure, devices, and what is left behind.
#include "launch/output/output_log.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <atomic>
#include <thread>

#include "absl/strings/match.h"
#include "tests/launch/output_testing.h"

namespace snapkv::launch {
namespace {

using ::testing::HasSubstr;
namespace fs = std::filesystem;

std::string Message(const absl::StatusOr<std::unique_ptr<OutputLog>>& log) {
  return std::string(log.status().message());
}

TEST(OutputLog, WritesRecordsOneByOne) {
  const TemporaryFolder folder;
  const std::string path = folder / "out.jsonl";
  auto log = OutputLog::Open(Fresh(path));
  ASSERT_TRUE(log.ok()) << log.status();
  EXPECT_EQ((*log)->name(), path);
  std::string all;
  for (int i = 0; i < 5; ++i) {
    const std::string line = Line(Summarised("d" + std::to_string(i)));
    ASSERT_TRUE((*log)->Append(line).ok());
    all += line;
    EXPECT_EQ(ReadFile(path), all) << "not there before the next one: record " << i;
  }
  EXPECT_EQ((*log)->appended(), 5);
  EXPECT_FALSE((*log)->Has("d0")) << "only what an earlier run left counts";
  EXPECT_TRUE((*log)->Close(true).ok());
  EXPECT_TRUE((*log)->Close(true).ok()) << "twice";
  EXPECT_FALSE((*log)->Append(Line(Summarised("late"))).ok());
  EXPECT_EQ(ReadFile(path), all);
}

TEST(OutputLog, AnExistingFileIsRefusedUnlessForced) {
  const TemporaryFolder folder;
  const std::string path = folder / "out.jsonl";
  WriteBytes(path, "precious\n");
  const auto refused = OutputLog::Open(Fresh(path));
  EXPECT_TRUE(absl::IsFailedPrecondition(refused.status()));
  EXPECT_EQ(Message(refused), path + " exists; use --resume to go on with it or --force to overwrite it");
  EXPECT_EQ(ReadFile(path), "precious\n");

  OutputLogOptions both = Resuming(path);
  both.force = true;
  EXPECT_TRUE(absl::IsInvalidArgument(OutputLog::Open(both).status()));
  EXPECT_EQ(ReadFile(path), "precious\n");

  OutputLogOptions force = Fresh(path);
  force.force = true;
  {
    const auto log = OutputLog::Open(force);
    ASSERT_TRUE(log.ok()) << log.status();
    EXPECT_EQ(ReadFile(path), "");
    ASSERT_TRUE((*log)->Append(Line(Summarised("a"))).ok());
  }
  EXPECT_EQ(ReadFile(path), Line(Summarised("a")));
  WriteBytes(path, "");
  EXPECT_TRUE(OutputLog::Open(Fresh(path)).ok()) << "an empty file is as good as none";
}

TEST(OutputLog, PlacesThatCannotBeWritten) {
  const TemporaryFolder folder;
  const auto none = OutputLog::Open(Fresh(folder / "no/out.jsonl"));
  EXPECT_TRUE(absl::IsNotFound(none.status())) << none.status();
  EXPECT_THAT(Message(none), HasSubstr("no/out.jsonl: its folder does not exist"));
  const auto is_folder = OutputLog::Open(Fresh(folder.path()));
  EXPECT_TRUE(absl::IsFailedPrecondition(is_folder.status()));
  EXPECT_THAT(Message(is_folder), HasSubstr(folder.path() + ": cannot be written: Is a directory"));
}

// As a user who may not write there, also when the tests run as root.
TEST(OutputLog, AReadOnlyFolderAndFile) {
  const TemporaryFolder folder;
  WriteBytes(folder / "old.jsonl", Line(Failed("a")));
  chmod((folder / "old.jsonl").c_str(), 0444);
  WriteBytes(folder / "mine.jsonl", Line(Failed("a")));
  chmod((folder / "mine.jsonl").c_str(), 0666);
  chmod(folder.path().c_str(), 0555);
  const bool root = geteuid() == 0;
  if (root && seteuid(65534) != 0) GTEST_SKIP() << "cannot become another user";
  const auto fresh = OutputLog::Open(Fresh(folder / "new.jsonl"));
  const auto resumed = OutputLog::Open(Resuming(folder / "old.jsonl"));
  const auto rewritten = OutputLog::Open(Resuming(folder / "mine.jsonl", true));
  ASSERT_TRUE(!root || seteuid(0) == 0);
  chmod(folder.path().c_str(), 0755);
  EXPECT_TRUE(absl::IsFailedPrecondition(fresh.status()));
  EXPECT_THAT(Message(fresh), HasSubstr("new.jsonl: cannot be written: Permission denied"));
  EXPECT_THAT(Message(resumed), HasSubstr(": cannot be written: Permission denied"));
  EXPECT_THAT(Message(rewritten), HasSubstr("mine.jsonl: is not changed: "));
  EXPECT_EQ(ReadFile(folder / "mine.jsonl"), Line(Failed("a")));
  EXPECT_FALSE(fs::exists(folder / "new.jsonl"));
}

TEST(OutputLog, SymbolicLinksAreFollowed) {
  const TemporaryFolder folder;
  fs::create_directory(folder / "far");
  fs::create_symlink("far/target.jsonl", folder / "link");
  {
    const auto log = OutputLog::Open(Fresh(folder / "link"));
    ASSERT_TRUE(log.ok()) << log.status();
    EXPECT_TRUE((*log)->Close(true).ok());
  }
  EXPECT_FALSE(fs::exists(folder / "far/target.jsonl")) << "created here, empty: removed";
  EXPECT_TRUE(fs::is_symlink(folder / "link"));
  const auto log = OutputLog::Open(Fresh(folder / "link"));
  ASSERT_TRUE(log.ok());
  ASSERT_TRUE((*log)->Append(Line(Summarised("a"))).ok());
  EXPECT_TRUE(fs::is_symlink(folder / "link"));
  EXPECT_EQ(ReadFile(folder / "far/target.jsonl"), Line(Summarised("a")));
  EXPECT_FALSE(OutputLog::Open(Resuming(folder / "far/target.jsonl")).ok()) << "the lock is the file's";
}

TEST(OutputLog, AnEmptyFileIsDiscardedOnlyIfItWasCreatedHere) {
  const TemporaryFolder folder;
  const std::string path = folder / "out.jsonl";
  ASSERT_TRUE((*OutputLog::Open(Fresh(path)))->Close(false).ok());
  EXPECT_TRUE(fs::exists(path));
  ASSERT_TRUE((*OutputLog::Open(Fresh(path)))->Close(true).ok());
  EXPECT_TRUE(fs::exists(path)) << "it was there before";
  fs::remove(path);
  ASSERT_TRUE((*OutputLog::Open(Fresh(path)))->Close(true).ok());
  EXPECT_FALSE(fs::exists(path));
  {
    const auto log = OutputLog::Open(Fresh(path));
    ASSERT_TRUE((*log)->Append(Line(Summarised("a"))).ok());
    ASSERT_TRUE((*log)->Close(true).ok());
  }
  EXPECT_EQ(ReadFile(path), Line(Summarised("a")));
  fs::remove(path);
  {
    const auto log = OutputLog::Open(Fresh(path));
    fs::remove(path);
    WriteBytes(path, "");
    ASSERT_TRUE((*log)->Close(true).ok());
  }
  EXPECT_TRUE(fs::exists(path)) << "another file has the name by now";
}

TEST(OutputLog, ASecondRunIsRefusedAndNamesTheFirst) {
  const TemporaryFolder folder;
  const std::string path = folder / "out.jsonl";
  const auto first = OutputLog::Open(Fresh(path));
  ASSERT_TRUE(first.ok());
  ASSERT_TRUE((*first)->Append(Line(Failed("a"))).ok());
  OutputLogOptions force = Fresh(path);
  force.force = true;
  for (const OutputLogOptions& options : {Fresh(path), force, Resuming(path), Resuming(path, true)}) {
    const auto second = OutputLog::Open(options);
    EXPECT_TRUE(absl::IsFailedPrecondition(second.status()));
    EXPECT_THAT(Message(second), HasSubstr(path + ": another run"));
    EXPECT_THAT(Message(second), HasSubstr("(process " + std::to_string(getpid()) + ") is writing it"));
    EXPECT_EQ(ReadFile(path), Line(Failed("a")));
  }
  ASSERT_TRUE((*first)->Close(false).ok());
  EXPECT_TRUE(OutputLog::Open(Resuming(path)).ok());
}

// Runs `children` processes that open the file at the same moment and keep it open until all have tried. How
// many of them got it.
int Race(const OutputLogOptions& options, int children) {
  int go[2], tried[2], end[2];
  CHECK(pipe(go) == 0 && pipe(tried) == 0 && pipe(end) == 0) << "pipe";
  std::vector<pid_t> pids;
  for (int i = 0; i < children; ++i) {
    const pid_t pid = fork();
    CHECK(pid >= 0) << "fork";
    if (pid == 0) {
      close(go[1]);
      close(end[1]);
      char byte;
      (void)!read(go[0], &byte, 1);  // until the parent closes it
      const auto log = OutputLog::Open(options);
      const bool won = log.ok();
      const bool refused = absl::IsFailedPrecondition(log.status());
      (void)!write(tried[1], "x", 1);
      (void)!read(end[0], &byte, 1);
      _exit(won ? 0 : refused ? 1 : 2);
    }
    pids.push_back(pid);
  }
  close(go[1]);
  char byte;
  for (int i = 0; i < children; ++i) CHECK(read(tried[0], &byte, 1) == 1) << "a child died";
  close(end[1]);
  int winners = 0;
  for (const pid_t pid : pids) {
    int status = 0;
    waitpid(pid, &status, 0);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) <= 1) << "wait status " << status;
    winners += WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 1 : 0;
  }
  for (const int fd : {go[0], tried[0], tried[1], end[0]}) close(fd);
  return winners;
}

TEST(OutputLog, OfRunsThatRaceExactlyOneGetsTheFile) {
  const TemporaryFolder folder;
  const std::string path = folder / "out.jsonl";
  const std::string records = Line(Summarised("a")) + Line(Failed("b")) + Line(Summarised("c"));
  for (int round = 0; round < 30; ++round) {
    fs::remove(path);
    EXPECT_EQ(Race(Fresh(path), 2), 1) << "no file, round " << round;
    WriteBytes(path, records);
    EXPECT_EQ(Race(Resuming(path), 4), 1) << "resume, round " << round;
    EXPECT_EQ(ReadFile(path), records);
    // The file is replaced while the others try to lock it.
    EXPECT_EQ(Race(Resuming(path, true), 4), 1) << "rewrite, round " << round;
    EXPECT_EQ(ReadFile(path), Line(Summarised("a")) + Line(Summarised("c")));
  }
}

// Every Open replaces the file, so that others hold or lock the one it replaced.
TEST(OutputLog, TheLockHoldsWhileTheFileIsReplaced) {
  const TemporaryFolder folder(/*many_syncs=*/true);
  const std::string path = folder / "out.jsonl";
  const std::string kept = Line(Summarised("a")), retried = Line(Failed("b"));
  WriteBytes(path, kept + retried);
  std::atomic<int> holders = 0, won = 0, refused = 0, bad = 0;
  const auto run = [&] {
    while (won < 2000 && bad == 0) {
      const auto log = OutputLog::Open(Resuming(path, true));
      if (!log.ok()) {
        ++refused;
        if (!absl::StrContains(log.status().message(), "another run")) ++bad;
        continue;
      }
      ++won;
      if (++holders != 1) ++bad;
      if (ReadFile(path) != kept || !(*log)->Append(retried).ok()) ++bad;
      --holders;
    }
  };
  std::thread other(run), third(run);
  run();
  other.join();
  third.join();
  EXPECT_EQ(bad, 0) << "after " << won << " times; refused " << refused << " times";
  EXPECT_GT(refused, 0) << "they never met";
}

TEST(OutputLog, AKilledRunLeavesNoLock) {
  const TemporaryFolder folder;
  const std::string path = folder / "out.jsonl";
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t pid = fork();
  if (pid == 0) {
    const auto log = OutputLog::Open(Fresh(path));
    if (log.ok() && (*log)->Append(Line(Summarised("a"))).ok()) (void)!write(ready[1], "x", 1);
    close(ready[1]);
    pause();
  }
  close(ready[1]);
  char byte;
  ASSERT_EQ(read(ready[0], &byte, 1), 1);
  close(ready[0]);
  EXPECT_FALSE(OutputLog::Open(Resuming(path)).ok());
  kill(pid, SIGKILL);
  waitpid(pid, nullptr, 0);
  const auto log = OutputLog::Open(Resuming(path));
  ASSERT_TRUE(log.ok()) << log.status();
  EXPECT_TRUE((*log)->Has("a"));
}

// Files of this process may be `bytes` long; a longer write is cut there and then fails.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(size_t bytes) {
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &old_);
    const rlimit limit{bytes, old_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() { setrlimit(RLIMIT_FSIZE, &old_); }

 private:
  rlimit old_{};
};

TEST(OutputLog, AFailedWriteLeavesWholeRecords) {
  const TemporaryFolder folder;
  const std::string path = folder / "out.jsonl";
  const std::string a = Line(Summarised("a")), b = Line(Summarised("b")), c = Line(Summarised("c"));
  for (size_t room = 0; room < b.size(); room += 7) {
    WriteBytes(path, "");
    const auto log = OutputLog::Open(Fresh(path));
    ASSERT_TRUE(log.ok()) << log.status();
    ASSERT_TRUE((*log)->Append(a).ok());
    absl::Status failed;
    {
      const FileSizeLimit limit(a.size() + room);
      failed = (*log)->Append(b);
    }
    EXPECT_TRUE(absl::IsFailedPrecondition(failed)) << failed;
    EXPECT_THAT(std::string(failed.message()), HasSubstr(path + ": cannot be written: File too large"));
    EXPECT_THAT(std::string(failed.message()), HasSubstr("it holds 1 record, each whole"));
    ASSERT_EQ(ReadFile(path), a) << "with room for " << room << " bytes";
    ASSERT_TRUE((*log)->Append(c).ok()) << "room was made meanwhile";
    ASSERT_EQ(ReadFile(path), a + c);
  }
}

TEST(OutputLog, AFileDeletedMeanwhileIsAnError) {
  const TemporaryFolder folder;
  const std::string path = folder / "out.jsonl";
  const auto log = OutputLog::Open(Fresh(path));
  ASSERT_TRUE((*log)->Append(Line(Summarised("a"))).ok());
  fs::remove(path);
  const absl::Status status = (*log)->Append(Line(Summarised("b")));
  EXPECT_THAT(std::string(status.message()), HasSubstr("out.jsonl: was deleted while this run wrote it"));
}

TEST(OutputLog, AFullDevice) {
  const auto log = OutputLog::Open(Fresh("/dev/full"));
  ASSERT_TRUE(log.ok()) << log.status();
  const absl::Status status = (*log)->Append(Line(Summarised("a")));
  EXPECT_EQ(std::string(status.message()),
            "/dev/full: cannot be written: No space left on device; 0 records written before");
  EXPECT_TRUE((*log)->Close(true).ok());
  EXPECT_TRUE(fs::exists("/dev/full"));
  const auto second = OutputLog::Open(Fresh("/dev/null"));
  ASSERT_TRUE(second.ok());
  EXPECT_TRUE(OutputLog::Open(Fresh("/dev/null")).ok()) << "a device has no lock";
  EXPECT_TRUE((*second)->Append(Line(Summarised("a"))).ok());
}

TEST(OutputLog, ResumeNeedsAFile) {
  for (const char* path : {"", "-", "/dev/stdout", "/dev/null"}) {
    const auto log = OutputLog::Open(Resuming(path));
    EXPECT_TRUE(absl::IsInvalidArgument(log.status())) << path;
    EXPECT_THAT(Message(log), HasSubstr("--resume needs a file"));
  }
}

TEST(OutputLog, APipeGetsTheRecords) {
  const TemporaryFolder folder;
  const std::string path = folder / "pipe";
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  std::string read_back;
  std::thread reader([&] { read_back = ReadFile(path); });
  const auto log = OutputLog::Open(Fresh(path));
  // Long enough to fill the pipe: the write comes back in pieces.
  const std::string line = Line(Summarised("a", std::string(300'000, 'x')));
  EXPECT_TRUE(log.ok() && (*log)->Append(line).ok() && (*log)->Close(true).ok());
  reader.join();
  EXPECT_TRUE(read_back == line) << read_back.size() << " bytes of " << line.size();
  EXPECT_TRUE(fs::exists(path));
}

TEST(OutputLog, WaitingForAReaderOrTheLockCanBeEnded) {
  const TemporaryFolder folder;
  const std::string pipe = folder / "pipe", file = folder / "out.jsonl";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  const auto holder = OutputLog::Open(Fresh(file));
  ASSERT_TRUE(holder.ok()) << holder.status();
  std::vector<std::string> lines;
  SetLogWriter([&](const std::string& line) { lines.push_back(line); });
  for (const std::string& path : {pipe, file}) {
    OutputLogOptions options = Fresh(path);
    options.lock_wait = absl::Seconds(300);
    const absl::Time start = absl::Now();
    options.stop = [start] { return absl::Now() - start > absl::Milliseconds(700); };
    const auto log = OutputLog::Open(options);
    EXPECT_TRUE(absl::IsCancelled(log.status())) << path << ": " << log.status();
  }
  SetLogWriter(nullptr);
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_THAT(lines[0], HasSubstr("pipe: waiting for somebody to read this pipe"));
  EXPECT_THAT(lines[1], HasSubstr("out.jsonl: another run (process " + std::to_string(getpid()) +
                                  ") is writing it; waiting up to 5m for its end"));
}

// The records of `path` written by a forked process whose stdout is a pipe that does not block.
std::string ThroughStdout(const std::string& path, const std::string& line) {
  int ends[2];
  CHECK(pipe2(ends, O_CLOEXEC) == 0) << "pipe";
  fcntl(ends[1], F_SETFL, O_NONBLOCK);
  const pid_t pid = fork();
  if (pid == 0) {
    dup2(ends[1], STDOUT_FILENO);
    close(ends[1]);
    close(ends[0]);
    const auto log = OutputLog::Open(Fresh(path));
    _exit(log.ok() && (*log)->Append(line).ok() && (*log)->Close(true).ok() ? 0 : 1);
  }
  close(ends[1]);
  std::string text;
  char block[4096];
  ssize_t n;
  while ((n = read(ends[0], block, sizeof(block))) > 0) text.append(block, static_cast<size_t>(n));
  close(ends[0]);
  int status = 0;
  waitpid(pid, &status, 0);
  EXPECT_EQ(status, 0);
  return text;
}

TEST(OutputLog, StdoutByAnyOfItsNames) {
  const std::string line = Line(Summarised("a", std::string(200'000, 'y')));
  for (const char* path : {"", "-", "/dev/stdout"}) {
    EXPECT_TRUE(ThroughStdout(path, line) == line) << "'" << path << "'";
  }
}

}  // namespace
}  // namespace snapkv::launch
