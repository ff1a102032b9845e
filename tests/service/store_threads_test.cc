// SPDX-License-Identifier: Apache-2.0
// Many threads at one store: creating, uploading, working, cancelling, reading, sweeping; afterwards all adds
// up.
#include <array>
#include <random>
#include <set>
#include <thread>

#include "tests/service/store_testing.h"

namespace snapkv::service {
namespace {

constexpr absl::Duration kTime = absl::Seconds(3);

class ThreadsTest : public StoreTest {
 protected:
  bool Running() const { return absl::Now() < end_; }
  // A call that may fail for these reasons only.
  static void Allow(const absl::Status& status, std::initializer_list<Reason> reasons) {
    if (status.ok()) return;
    for (const Reason reason : reasons) {
      if (ReasonOf(status) == reason) return;
    }
    ADD_FAILURE() << status;
  }
  std::string SomeJob(std::mt19937& random) {
    std::lock_guard lock(jobs_mutex_);
    return jobs_.empty() ? "jobs/none" : jobs_[random() % jobs_.size()];
  }
  void Remember(const std::string& job) {
    std::lock_guard lock(jobs_mutex_);
    jobs_.push_back(job);
  }

  void CreateMany(int id) {
    for (int i = 0; Running(); ++i) {
      v1::CreateJobRequest request = JobOf(1 + i % 7);
      request.set_request_id(absl::StrCat("r", i / 2, "-", id));
      request.mutable_job()->set_priority(i % 3);
      auto job = store_->CreateJob(kTenant, request);
      Allow(job.status(), {Reason::kRequestIdReused});
      if (job.ok()) Remember(job->name());
    }
  }
  // Two threads upload each document of a job together; one of them seals it. Another may cancel and delete
  // the job at any moment.
  void UploadMany(int id) {
    for (int i = 0; Running(); ++i) {
      v1::CreateJobRequest request = JobOf(0);
      request.set_open(true);
      request.set_request_id(absl::StrCat("upload-", i));
      auto job = store_->CreateJob(kTenant, request);
      ASSERT_OK(job);
      Remember(job->name());
      UploadOne(job->name());
      if (id == 0) {
        Allow(store_->SealJob(kTenant, job->name()).status(), {Reason::kJobState, Reason::kJobNotFound});
      }
    }
  }
  void UploadOne(const std::string& job) {
    const std::string text = "one two three four";
    auto status = store_->BeginUpload(kTenant, HeaderOf(job, "u", text));
    while (status.ok() && !status->complete()) {
      const int64_t at = status->committed_size();
      const absl::Status appended =
          store_->Append(kTenant, job, "u", ChunkOf(at, text.substr(at, 5))).status();
      Allow(appended, {Reason::kOffsetMismatch, Reason::kJobState, Reason::kJobNotFound});
      if (ReasonOf(appended) == Reason::kJobState) return;  // its uploads can still be asked for
      status = store_->GetUpload(kTenant, job, "u");
    }
    Allow(status.status(), {Reason::kJobState, Reason::kJobNotFound});
  }
  void WorkOn(const std::string& worker, bool forever) {
    std::mt19937 random(std::hash<std::string>()(worker));
    while (forever ? Running() : true) {
      auto leases = store_->AcquireLease(worker, kModel, 3);
      ASSERT_OK(leases);
      if (!forever && leases->empty()) {
        const StoreStats stats = *store_->Stats();
        if (stats.documents_queued + stats.documents_leased == 0) return;
      }
      for (const v1::Lease& lease : *leases) {
        Allow(store_->RenewLease(worker, {RenewalOf(lease)}).status(), {});
        auto text = store_->ReadDocument(lease.name(), lease.attempt(), 0, 100);
        Allow(text.status(), {Reason::kLeaseLost});
        const uint32_t choice = forever ? random() % 10 : 9;
        if (choice == 0) continue;  // forgotten: it expires
        if (choice == 1) {
          Allow(store_->FailDocument(Fail(lease), worker), {Reason::kLeaseLost});
        } else if (choice == 2) {
          Allow(store_->FailDocument(Retry(lease), worker), {Reason::kLeaseLost});
        } else {
          Allow(store_->CompleteDocument(Complete(lease), worker).status(), {Reason::kLeaseLost});
        }
      }
      if (random() % 50 == 0) Allow(store_->ReleaseLeases(worker), {});
      if (leases->empty()) absl::SleepFor(absl::Milliseconds(1));
    }
  }
  void CancelSome() {
    std::mt19937 random(5);
    while (Running()) {
      const std::string job = SomeJob(random);
      Allow(store_->CancelJob(kTenant, job, "a test").status(), {Reason::kJobNotFound});
      if (random() % 2 == 0)
        Allow(store_->DeleteJob(kTenant, job), {Reason::kJobNotFound, Reason::kJobState});
      absl::SleepFor(absl::Milliseconds(5));
    }
  }
  void ReadAround() {
    std::mt19937 random(6);
    while (Running()) {
      const std::string job = SomeJob(random);
      auto now = store_->GetJob(kTenant, job);
      Allow(now.status(), {Reason::kJobNotFound});
      if (now.ok() && now->state() != v1::Job::UPLOADING) {
        const v1::Job::Counts& n = now->counts();
        EXPECT_EQ(n.queued() + n.running() + n.succeeded() + n.failed() + n.cancelled(), n.documents())
            << now->ShortDebugString();
      }
      Allow(store_->Results(kTenant, job, 0, 10).status(), {Reason::kJobNotFound});
      Allow(store_->ListJobs(kTenant, {}).status(), {});
      Allow(store_->Stats().status(), {});
    }
  }
  void SweepAll(bool forever) {
    while (forever ? Running() : !drained_) {
      Allow(store_->Sweep().status(), {});
      absl::SleepFor(absl::Milliseconds(5));
    }
  }

  absl::Time end_;
  std::atomic<bool> drained_{false};
  std::mutex jobs_mutex_;
  std::vector<std::string> jobs_;
};

TEST_F(ThreadsTest, AllAddsUp) {
  Close();
  StoreOptions options = Options();
  options.clock = absl::Now;
  options.limits.lease = absl::Milliseconds(300);
  options.limits.max_attempts = 1000;
  auto store = JobStore::Open(options);
  ASSERT_OK(store);
  store_ = *std::move(store);
  std::atomic<int64_t> events{0}, commits{0};
  // The listener calls back into the store: no lock is held.
  store_->SetListener([&](const StoreEvent& event) {
    if (++events % 64 == 0) (void)store_->GetJob(kTenant, event.job);
  });
  store_->SetCommitObserver([&](absl::Duration duration) {
    EXPECT_GE(duration, absl::ZeroDuration());
    ++commits;
  });
  end_ = absl::Now() + kTime;
  std::vector<std::thread> threads;
  for (int i = 0; i < 2; ++i) {
    threads.emplace_back([this, i] { CreateMany(i); });
    threads.emplace_back([this, i] { UploadMany(i); });
    threads.emplace_back([this, i] { WorkOn(absl::StrCat("workers/w", i), true); });
    threads.emplace_back([this] { ReadAround(); });
  }
  threads.emplace_back([this] { CancelSome(); });
  threads.emplace_back([this] { SweepAll(true); });
  for (std::thread& thread : threads) thread.join();
  // What is left is worked off.
  std::thread sweeper([this] { SweepAll(false); });
  std::array<std::thread, 2> workers;
  for (int i = 0; i < 2; ++i)
    workers[i] = std::thread([this, i] { WorkOn(absl::StrCat("workers/l", i), false); });
  for (std::thread& thread : workers) thread.join();
  drained_ = true;
  sweeper.join();

  const std::set<std::string> jobs(jobs_.begin(), jobs_.end());
  int64_t results = 0, ended = 0;
  for (const std::string& name : jobs) {
    auto job = store_->GetJob(kTenant, name);
    if (!job.ok() || job->state() == v1::Job::UPLOADING) continue;
    ++ended;
    EXPECT_GT(job->state(), v1::Job::CANCELLING) << job->ShortDebugString();
    std::set<std::string> documents;
    for (const v1::Result& result : AllResults(name)) {
      EXPECT_TRUE(documents.insert(result.document_id()).second) << name << " " << result.document_id();
    }
    EXPECT_EQ(static_cast<int64_t>(documents.size()), job->results()) << name;
    EXPECT_EQ(job->counts().succeeded() + job->counts().failed() + job->counts().cancelled(),
              job->counts().documents())
        << job->ShortDebugString();
    results += job->results();
  }
  EXPECT_GT(ended, 5);
  EXPECT_GT(events, 10);
  EXPECT_GT(commits, 10);
  std::cout << jobs.size() << " jobs, " << results << " results, " << commits << " commits, " << events
            << " events\n";
}

}  // namespace
}  // namespace snapkv::service
