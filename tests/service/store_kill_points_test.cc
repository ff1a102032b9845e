// SPDX-License-Identifier: Apache-2.0
// One client's and one worker's day, killed at every change of the file system in turn, and finished by
// another process.
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <map>
#include <set>

#include "absl/strings/str_split.h"
#include "runtime/service/store/database.h"
#include "tests/service/kill_points.h"
#include "tests/service/store_testing.h"

namespace snapkv::service {
namespace {

const std::map<std::string, std::string> kUploads = {{"u0", "the first uploaded text"},
                                                     {"u1", "the second uploaded text"}};
constexpr size_t kChunk = 10;

v1::CreateJobRequest Named(const std::string& request_id, int documents) {
  v1::CreateJobRequest request = JobOf(documents);
  request.set_request_id(request_id);
  request.set_open(documents == 0);
  return request;
}

// What has been acknowledged: "job r1" -> its name, "upload u0" -> bytes, "result NAME" -> text, ...
using Acknowledged = std::map<std::string, std::string>;

class KillPointsTest : public StoreTest {
 protected:
  static void SetUpTestSuite() { UseMemory(); }
  void SetUp() override {}  // each round opens its own

  // In the process that will be killed. Everything that returns is told at once.
  void Day(int fd) {
    const auto say = [fd](const std::string& what, const std::string& value) {
      const std::string line = what + "=" + value + "\n";
      if (::write(fd, line.data(), line.size()) < 0) ::_exit(3);
    };
    const auto check = [](const absl::Status& status) {
      if (status.ok()) return;
      std::fprintf(stderr, "%s\n", status.ToString().c_str());
      ::_exit(4);
    };
    auto opened = JobStore::Open(Options());
    check(opened.status());
    store_ = *std::move(opened);
    auto inline_job = store_->CreateJob(kTenant, Named("r1", 2));
    check(inline_job.status());
    say("job r1", inline_job->name());
    auto job = store_->CreateJob(kTenant, Named("r2", 0));
    check(job.status());
    say("job r2", job->name());
    for (const auto& [id, text] : kUploads) {
      check(store_->BeginUpload(kTenant, HeaderOf(job->name(), id, text)).status());
      for (size_t at = 0; at < text.size(); at += kChunk) {
        check(store_->Append(kTenant, job->name(), id, ChunkOf(at, text.substr(at, kChunk))).status());
        say("upload " + id, absl::StrCat(std::min(at + kChunk, text.size())));
      }
    }
    check(store_->SealJob(kTenant, job->name()).status());
    say("sealed", "yes");
    auto leases = store_->AcquireLease(kWorker, kModel, 4);
    check(leases.status());
    for (const v1::Lease& lease : *leases) {
      if (lease.document_id() == "d1") {
        check(store_->FailDocument(Retry(lease), kWorker));
      } else if (lease.document_id() != "u1") {
        check(store_->CompleteDocument(Complete(lease, "of the first"), kWorker).status());
        say("result " + lease.document_id(), "of the first");
      }
    }
    auto third = store_->CreateJob(kTenant, Named("r3", 3));
    check(third.status());
    say("job r3", third->name());
    check(store_->CancelJob(kTenant, third->name(), "").status());
    say("cancelled", "yes");
    check(store_->DeleteJob(kTenant, third->name()));
    say("deleted", "yes");
    check(store_->Sweep().status());
    store_.reset();
    ::_exit(0);
  }

  // Another process finishes it: the client repeats its calls, other workers take over.
  void Finish(Acknowledged& known) {
    Open();
    ASSERT_NE(store_, nullptr);
    const bool sealed = known.contains("sealed");
    const std::string first = Create(Named("r1", 2)).name(), second = Create(Named("r2", 0)).name();
    for (const auto& [key, name] : Acknowledged{{"job r1", first}, {"job r2", second}}) {
      EXPECT_TRUE(!known.contains(key) || known[key] == name)
          << key << " was " << known[key] << ", is " << name;
    }
    const bool uploading = Get(second).state() == v1::Job::UPLOADING;
    EXPECT_FALSE(sealed && uploading);
    for (const auto& [id, text] : kUploads) {
      if (!uploading) continue;
      auto status = store_->BeginUpload(kTenant, HeaderOf(second, id, text));
      ASSERT_TRUE(status.ok()) << status.status();
      int64_t at = status->committed_size();
      if (known.contains("upload " + id)) {
        EXPECT_GE(at, std::stoll(known["upload " + id])) << id;
      }
      while (at < static_cast<int64_t>(text.size())) {
        ASSERT_OK(store_->Append(kTenant, second, id, ChunkOf(at, text.substr(at, kChunk))));
        at = store_->GetUpload(kTenant, second, id)->committed_size();
      }
    }
    if (uploading) ASSERT_OK(store_->SealJob(kTenant, second));
    while (Get(first).state() != v1::Job::SUCCEEDED || Get(second).state() != v1::Job::SUCCEEDED) {
      clock_.Advance(absl::Minutes(1));
      Sweep();
      const auto leases = Acquire(8, "workers/second");
      ASSERT_LE(leases.size(), 7u);
      for (const v1::Lease& lease : leases) {
        const std::string& id = lease.document_id();
        EXPECT_EQ(ReadAll(lease, 8), kUploads.contains(id) ? kUploads.at(id) : "text of " + id);
        EXPECT_OK(store_->CompleteDocument(Complete(lease, "of the second"), "workers/second"));
      }
      ASSERT_LT(clock_.Now(), absl::FromUnixSeconds(1'700'000'000) + absl::Hours(10'000)) << "it never ends";
    }
    std::map<std::string, std::string> found;
    for (const std::string& job : {first, second}) {
      EXPECT_EQ(Get(job).counts().succeeded(), 2);
      for (const v1::Result& result : AllResults(job)) {
        EXPECT_TRUE(found.emplace(result.document_id(), result.summary()).second) << result.document_id();
      }
    }
    EXPECT_EQ(found.size(), 4u);
    for (const auto& [id, summary] : found) {
      EXPECT_TRUE(!known.contains("result " + id) || known["result " + id] == summary) << id;
    }
    CheckThird(known);
    Sweep();
    Open();
    EXPECT_EQ(Files("uploads") + Files("blobs"), 0u);
  }

  void CheckThird(Acknowledged& known) {
    auto list = store_->ListJobs(kTenant, {});
    ASSERT_OK(list);
    for (const v1::Job& job : list->jobs()) {
      if (job.counts().documents() != 3) continue;
      EXPECT_FALSE(known.contains("deleted"));
      EXPECT_TRUE(!known.contains("cancelled") || job.state() == v1::Job::CANCELLED);
      EXPECT_TRUE(!known.contains("job r3") || job.name() == known["job r3"]);
      if (job.state() == v1::Job::CANCELLED) {
        EXPECT_OK(store_->DeleteJob(kTenant, job.name()));
      }
      return;
    }
    EXPECT_TRUE(!known.contains("job r3") || known.contains("cancelled")) << "an acknowledged job is lost";
  }

  // The state of the process that was killed; `known` is what it has said.
  int Round(int64_t change, Acknowledged& known) {
    int fds[2];
    EXPECT_EQ(::pipe(fds), 0);
    const pid_t pid = ::fork();
    if (pid == 0) {
      ::close(fds[0]);
      KillAt(change);
      Day(fds[1]);
    }
    ::close(fds[1]);
    std::string said;
    char buffer[4096];
    for (ssize_t n = 0; (n = ::read(fds[0], buffer, sizeof(buffer))) > 0;) said.append(buffer, n);
    ::close(fds[0]);
    int status = 0;
    ::waitpid(pid, &status, 0);
    const std::vector<std::string> lines = absl::StrSplit(said, '\n', absl::SkipEmpty());
    for (const std::string& line : lines) {
      const std::pair<std::string, std::string> parts = absl::StrSplit(line, absl::MaxSplits('=', 1));
      known[parts.first] = parts.second;
    }
    return status;
  }
};

TEST_F(KillPointsTest, EveryChange) {
  const int64_t before = ChangesSoFar();
  int64_t change = 0;
  for (;; ++change) {
    SCOPED_TRACE(absl::StrCat("killed at change ", change));
    ASSERT_LT(change, 5000);
    Close();
    std::filesystem::remove_all(folder_.path() + "/state");
    Acknowledged known;
    const int status = Round(change, known);
    ASSERT_NO_FATAL_FAILURE(Finish(known));
    ASSERT_FALSE(HasFailure());
    if (WIFEXITED(status)) {
      ASSERT_EQ(WEXITSTATUS(status), 0);
      EXPECT_EQ(known.count("deleted"), 1u);
      break;
    }
  }
  EXPECT_GT(ChangesSoFar(), before) << "the changes of files are not seen";
  EXPECT_GT(change, 50);
  std::cout << change << " changes, killed at each\n";
}

}  // namespace
}  // namespace snapkv::service
