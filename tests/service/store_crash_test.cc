// SPDX-License-Identifier: Apache-2.0
// kill -9 at random moments, many times: what was answered is there, every document has one result, sequences
// have no gaps.
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <map>
#include <random>
#include <set>
#include <thread>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "runtime/service/store/database.h"
#include "tests/service/store_testing.h"

namespace snapkv::service {
namespace {

constexpr uint64_t kSeed = 20240607;

StoreOptions CrashOptions(const std::string& folder) {
  StoreOptions options;
  options.folder = folder;
  // Short, so that the next process takes over soon; it may be killed with them any number of times.
  options.limits.lease = absl::Milliseconds(50);
  options.limits.max_attempts = 1'000'000;
  return options;
}

// What the process that will be killed has been told. Lines are shorter than PIPE_BUF: whole or not there.
class Journal {
 public:
  explicit Journal(int fd) : fd_(fd) {}
  template <class... Args>
  void Say(const Args&... args) const {
    const std::string line = absl::StrCat(args...) + "\n";
    if (::write(fd_, line.data(), line.size()) != static_cast<ssize_t>(line.size())) ::_exit(3);
  }

 private:
  int fd_;
};

std::string TextOf(const std::string& id) {
  std::string text = "text of " + id + ": ";
  while (text.size() < 3000) text += "word ";
  return text;
}

// Jobs with inline documents; some are cancelled, some deleted.
void CreateJobs(JobStore& store, const Journal& journal, uint64_t seed) {
  std::mt19937_64 random(seed);
  while (true) {
    const int documents = 1 + static_cast<int>(random() % 5);
    auto job = store.CreateJob(kTenant, JobOf(documents));
    if (!job.ok()) ::_exit(4);
    journal.Say("created ", job->name(), " ", documents);
    if (random() % 4 == 0) {
      journal.Say("cancelling ", job->name());
      if (!store.CancelJob(kTenant, job->name(), "a test").ok()) ::_exit(4);
      journal.Say("cancelled ", job->name());
      if (random() % 2 == 0 && store.GetJob(kTenant, job->name())->state() == v1::Job::CANCELLED) {
        journal.Say("deleting ", job->name());
        if (!store.DeleteJob(kTenant, job->name()).ok()) ::_exit(4);
        journal.Say("deleted ", job->name());
      }
    }
  }
}

// Two documents in three chunks each, from wherever they stand; then the seal.
void UploadAll(JobStore& store, const Journal& journal, const std::string& job) {
  for (const std::string id : {"u0", "u1"}) {
    const std::string text = TextOf(id);
    auto status = store.BeginUpload(kTenant, HeaderOf(job, id, text));
    while (status.ok() && !status->complete()) {
      const int64_t at = status->committed_size();
      status = store.Append(kTenant, job, id, ChunkOf(at, text.substr(static_cast<size_t>(at), 1100)));
      if (status.ok()) journal.Say("uploaded ", job, " ", id, " ", status->committed_size());
    }
    if (!status.ok()) ::_exit(5);
  }
  if (!store.SealJob(kTenant, job).ok()) ::_exit(5);
  journal.Say("sealed ", job);
}

// First those that earlier processes have left.
void UploadJobs(JobStore& store, const Journal& journal) {
  v1::ListJobsRequest list;
  list.set_filter("state = UPLOADING");
  auto left = store.ListJobs(kTenant, list);
  if (!left.ok()) ::_exit(5);
  for (const v1::Job& job : left->jobs()) UploadAll(store, journal, job.name());
  while (true) {
    v1::CreateJobRequest request = JobOf(0);
    request.set_open(true);
    auto job = store.CreateJob(kTenant, request);
    if (!job.ok()) ::_exit(5);
    journal.Say("created ", job->name(), " 0");
    UploadAll(store, journal, job->name());
  }
}

// Takes leases, reads what they name, completes or fails them; sometimes drops them. `once`: until nothing is
// queued or leased.
void Work(JobStore& store, const Journal& journal, const std::string& worker, uint64_t seed, bool once) {
  std::mt19937_64 random(seed);
  while (true) {
    auto leases = store.AcquireLease(worker, kModel, 1 + static_cast<int>(random() % 4));
    if (!leases.ok() || !store.Sweep().ok()) ::_exit(6);
    for (const v1::Lease& lease : *leases) {
      if (!once && random() % 10 == 0) continue;
      auto text = store.ReadDocument(lease.name(), lease.attempt(), 0, 1 << 20);
      if (text.ok()) {
        const auto digest = runtime::Sha256(*text);
        if (lease.sha256() != std::string(digest.begin(), digest.end())) ::_exit(7);
      } else if (ReasonOf(text.status()) != Reason::kLeaseLost) {
        ::_exit(8);
      }
      const std::string summary = absl::StrCat("by:", worker, ":", lease.attempt(), ":", random() % 1000);
      auto result = store.CompleteDocument(Complete(lease, summary), worker);
      if (result.ok()) {
        journal.Say("result ", lease.job(), " ", result->sequence(), " ", lease.document_id(), " ", summary);
      } else if (ReasonOf(result.status()) != Reason::kLeaseLost) {
        ::_exit(9);
      }
    }
    if (!leases->empty()) continue;
    const StoreStats stats = *store.Stats();
    if (once && stats.documents_queued == 0 && stats.documents_leased == 0) return;
    absl::SleepFor(absl::Milliseconds(2));
  }
}

// Never returns.
void Child(const std::string& folder, int fd, uint64_t seed) {
  const Journal journal(fd);
  auto store = JobStore::Open(CrashOptions(folder));
  if (!store.ok()) ::_exit(2);
  journal.Say("open");
  std::thread creator([&] { CreateJobs(**store, journal, seed); });
  std::thread uploader([&] { UploadJobs(**store, journal); });
  std::thread first([&] { Work(**store, journal, absl::StrCat("workers/a", seed), seed + 1, false); });
  Work(**store, journal, absl::StrCat("workers/b", seed), seed + 2, false);
}

class CrashTest : public ::testing::Test {
 protected:
  struct Expected {
    int documents = 0;
    bool sealed = false, cancelling = false, cancelled = false, deleting = false, deleted = false;
    std::map<std::string, int64_t> uploads;                          // committed bytes
    std::map<int64_t, std::pair<std::string, std::string>> results;  // document and summary
  };

  // One life of the store. Returns what it has said; `status` is that of the process.
  std::string LiveAndDie(uint64_t seed, absl::Duration life, int& status) {
    int fds[2];
    EXPECT_EQ(::pipe(fds), 0);
    const pid_t pid = ::fork();
    if (pid == 0) {
      ::close(fds[0]);
      Child(folder_.path(), fds[1], seed);
    }
    ::close(fds[1]);
    std::string said;
    absl::Time deadline = absl::Now() + absl::Seconds(30);
    bool open = false;
    while (true) {
      pollfd poll_fd = {fds[0], POLLIN, 0};
      const int ms = static_cast<int>(absl::ToInt64Milliseconds(deadline - absl::Now()));
      if (ms <= 0 || ::poll(&poll_fd, 1, ms) == 0) break;
      char buffer[65536];
      const ssize_t n = ::read(fds[0], buffer, sizeof(buffer));
      if (n <= 0) break;
      said.append(buffer, static_cast<size_t>(n));
      // Its life begins when the store is open.
      if (!std::exchange(open, true)) deadline = absl::Now() + life;
    }
    ::kill(pid, SIGKILL);
    ::waitpid(pid, &status, 0);
    while (true) {
      char buffer[65536];
      const ssize_t n = ::read(fds[0], buffer, sizeof(buffer));
      if (n <= 0) break;
      said.append(buffer, static_cast<size_t>(n));
    }
    ::close(fds[0]);
    return said;
  }

  void Learn(const std::string& said) {
    const std::vector<std::string> lines = absl::StrSplit(said, '\n', absl::SkipEmpty());
    for (const std::string& line : lines) {
      const std::vector<std::string> words = absl::StrSplit(line, ' ');
      if (words.size() < 2) continue;
      Expected& job = jobs_[words[1]];
      int64_t number = 0;
      if (words[0] == "created") {
        ASSERT_TRUE(absl::SimpleAtoi(words[2], &job.documents));
      } else if (words[0] == "sealed") {
        job.sealed = true;
      } else if (words[0] == "cancelling") {
        job.cancelling = true;
      } else if (words[0] == "cancelled") {
        job.cancelled = true;
      } else if (words[0] == "deleting") {
        job.deleting = true;
      } else if (words[0] == "deleted") {
        job.deleted = true;
      } else if (words[0] == "uploaded") {
        ASSERT_TRUE(absl::SimpleAtoi(words[3], &job.uploads[words[2]]));
      } else if (words[0] == "result") {
        ASSERT_TRUE(absl::SimpleAtoi(words[2], &number));
        EXPECT_TRUE(job.results.emplace(number, std::make_pair(words[3], words[4])).second)
            << words[1] << ": sequence " << number << " was given twice";
      } else {
        FAIL() << line;
      }
    }
  }

  void CheckJob(JobStore& store, const std::string& name, const Expected& expected) {
    auto job = store.GetJob(kTenant, name);
    if (expected.deleted || (expected.deleting && !job.ok())) {
      EXPECT_REASON(job, Reason::kJobNotFound, name);
      return;
    }
    ASSERT_TRUE(job.ok()) << name << " was acknowledged and is lost: " << job.status();
    const v1::Job::Counts& n = job->counts();
    if (expected.documents > 0) {
      EXPECT_EQ(n.documents(), expected.documents) << name;
    }
    if (expected.sealed) {
      EXPECT_NE(job->state(), v1::Job::UPLOADING) << name;
    }
    if (expected.cancelled) {
      EXPECT_TRUE(job->state() == v1::Job::CANCELLED || job->state() == v1::Job::CANCELLING ||
                  job->state() == v1::Job::SUCCEEDED)
          << name << " is " << job->state();
    }
    if (job->state() != v1::Job::UPLOADING) {
      EXPECT_EQ(n.queued() + n.running() + n.succeeded() + n.failed() + n.cancelled(), n.documents())
          << name << ": " << job->ShortDebugString();
    }
    for (const auto& [id, committed] : expected.uploads) {
      auto status = store.GetUpload(kTenant, name, id);
      ASSERT_TRUE(status.ok()) << name << " " << id << ": " << status.status();
      EXPECT_GE(status->committed_size(), committed) << name << " " << id;
    }
    CheckResults(store, *job, expected);
  }

  void CheckResults(JobStore& store, const v1::Job& job, const Expected& expected) {
    std::map<int64_t, std::pair<std::string, std::string>> found;
    std::set<std::string> documents;
    for (int64_t after = 0;;) {
      auto results = store.Results(kTenant, job.name(), after, 1000);
      ASSERT_TRUE(results.ok()) << results.status();
      if (results->empty()) break;
      for (const v1::Result& result : *results) {
        EXPECT_EQ(result.sequence(), ++after) << job.name() << ": a gap";
        found[result.sequence()] = {result.document_id(), result.summary()};
        EXPECT_TRUE(documents.insert(result.document_id()).second)
            << job.name() << " " << result.document_id();
      }
    }
    EXPECT_EQ(static_cast<int64_t>(found.size()), job.results()) << job.name();
    EXPECT_EQ(job.results(), job.counts().succeeded() + job.counts().failed()) << job.name();
    for (const auto& [sequence, result] : expected.results) {
      ASSERT_TRUE(found.contains(sequence))
          << job.name() << ": acknowledged result " << sequence << " is lost";
      EXPECT_EQ(found[sequence], result) << job.name() << " " << sequence;
    }
    results_ += static_cast<int64_t>(found.size());
  }

  // The columns that are counted incrementally, counted.
  void CheckDatabase() {
    auto database = Database::Open(folder_.path() + "/jobs.db", true);
    ASSERT_TRUE(database.ok()) << database.status();
    const std::string count = "(SELECT count(*) FROM documents WHERE job = jobs.id AND state = ";
    for (const std::string& sql :
         {std::string("SELECT integrity_check FROM pragma_integrity_check WHERE integrity_check <> 'ok'"),
          std::string("SELECT \"table\" FROM pragma_foreign_key_check"),
          "SELECT name FROM jobs WHERE state IN (2, 3) AND queued <> " + count + "1)",
          "SELECT name FROM jobs WHERE running <> " + count + "2)",
          "SELECT name FROM jobs WHERE deleted = 0 AND results <> " + count + "3)",
          std::string("SELECT name FROM jobs WHERE deleted = 0 AND results <> (SELECT count(*) FROM results "
                      "WHERE job = jobs.id)"),
          std::string(
              "SELECT name FROM jobs WHERE deleted = 0 AND documents <> (SELECT count(*) FROM documents "
              "WHERE job = jobs.id)")}) {
      auto rows = (*database)->Query(sql);
      ASSERT_TRUE(rows.ok()) << sql << ": " << rows.status();
      auto bad = rows->Next();
      ASSERT_TRUE(bad.ok()) << bad.status();
      EXPECT_FALSE(*bad) << sql << ": " << rows->Text(0);
    }
  }

  TempFolder folder_;
  std::map<std::string, Expected> jobs_;
  int64_t results_ = 0;
};

TEST_F(CrashTest, KilledAtRandomMoments) {
  std::mt19937_64 random(kSeed);
  const absl::Time end = absl::Now() + absl::Seconds(10);
  int kills = 0;
  size_t acknowledged = 0;
  while (absl::Now() < end || kills < 20) {
    int status = 0;
    const std::string said = LiveAndDie(random(), absl::Microseconds(random() % 120'000), status);
    ASSERT_TRUE(WIFSIGNALED(status)) << "the store failed by itself, with status " << WEXITSTATUS(status);
    ++kills;
    acknowledged += std::count(said.begin(), said.end(), '\n');
    ASSERT_NO_FATAL_FAILURE(Learn(said));
    ASSERT_NO_FATAL_FAILURE(CheckDatabase());
    if (kills % 10 != 0) continue;
    auto store = JobStore::Open(CrashOptions(folder_.path()));
    ASSERT_TRUE(store.ok()) << store.status();
    for (const auto& [name, job] : jobs_) ASSERT_NO_FATAL_FAILURE(CheckJob(**store, name, job));
  }
  // The last process lives: everything that is sealed comes to its end.
  auto store = JobStore::Open(CrashOptions(folder_.path()));
  ASSERT_TRUE(store.ok()) << store.status();
  int fds[2];
  ASSERT_EQ(::pipe(fds), 0);
  std::string said;
  std::thread reader([&] {
    char buffer[65536];
    for (ssize_t n = 0; (n = ::read(fds[0], buffer, sizeof(buffer))) > 0;) said.append(buffer, n);
  });
  Work(**store, Journal(fds[1]), "workers/last", kSeed, true);
  ::close(fds[1]);
  reader.join();
  ::close(fds[0]);
  ASSERT_NO_FATAL_FAILURE(Learn(said));
  results_ = 0;
  int64_t ended = 0, uploading = 0;
  for (const auto& [name, job] : jobs_) {
    ASSERT_NO_FATAL_FAILURE(CheckJob(**store, name, job));
    auto now = (*store)->GetJob(kTenant, name);
    if (!now.ok()) continue;
    if (now->state() == v1::Job::UPLOADING) {
      ++uploading;
      continue;
    }
    ++ended;
    EXPECT_TRUE(now->state() == v1::Job::SUCCEEDED || (job.cancelling && now->state() == v1::Job::CANCELLED))
        << now->ShortDebugString();
    if (now->state() == v1::Job::SUCCEEDED) {
      EXPECT_EQ(now->counts().documents(), now->counts().succeeded()) << name;
    }
  }
  EXPECT_GT(ended, 20);
  EXPECT_GT(results_, 20);
  std::cout << kills << " kills (seed " << kSeed << "), " << acknowledged << " acknowledged steps, " << ended
            << " jobs ended, " << uploading << " still uploading, " << results_ << " results\n";
}

}  // namespace
}  // namespace snapkv::service
