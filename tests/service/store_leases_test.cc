// SPDX-License-Identifier: Apache-2.0
// Leases: who gets which document next, the fence of (lease, attempt), expiry, attempts, restarts.
#include <set>

#include "tests/service/store_testing.h"

namespace snapkv::service {
namespace {

using ::testing::ElementsAre;

class LeaseTest : public StoreTest {
 protected:
  std::string CreateFor(const std::string& tenant, int documents, int priority = 0) {
    v1::CreateJobRequest request = JobOf(documents);
    request.mutable_job()->set_priority(priority);
    return Create(request, tenant).name();
  }
  // Jobs of the next leases, one by one.
  std::vector<std::string> NextJobs(int count) {
    std::vector<std::string> jobs;
    for (int i = 0; i < count; ++i) {
      for (const v1::Lease& lease : Acquire(1)) jobs.push_back(lease.job());
    }
    return jobs;
  }
  static std::vector<std::string> JobsOf(const std::vector<v1::Lease>& leases) {
    std::vector<std::string> jobs;
    for (const v1::Lease& lease : leases) jobs.push_back(lease.job());
    return jobs;
  }
};

TEST_F(LeaseTest, DocumentsInTheirOrder) {
  const v1::Job job = Create(JobOf(5));
  std::vector<std::string> ids;
  for (const v1::Lease& lease : Acquire(3)) ids.push_back(lease.document_id());
  EXPECT_THAT(ids, ElementsAre("d0", "d1", "d2"));
  EXPECT_EQ(Acquire(3).size(), 2u);
  EXPECT_TRUE(Acquire(3).empty());
  EXPECT_TRUE(Acquire(0).empty());
  EXPECT_EQ(Get(job.name()).counts().running(), 5);
}

TEST_F(LeaseTest, OnlyOfTheModel) {
  Create(JobOf(1, "models/a"));
  EXPECT_TRUE(Acquire().empty());
  auto leases = store_->AcquireLease(kWorker, "models/a", 2);
  ASSERT_OK(leases);
  EXPECT_EQ(leases->size(), 1u);
}

TEST_F(LeaseTest, TenantsTakeTurns) {
  const std::string a = CreateFor("a", 6), b = CreateFor("b", 2), c = CreateFor("c", 3);
  EXPECT_THAT(NextJobs(4), ElementsAre(a, b, c, a));
  EXPECT_THAT(JobsOf(Acquire(5)), ElementsAre(b, c, a, c, a))
      << "turns go on over calls, and past who has nothing";
  EXPECT_THAT(JobsOf(Acquire(5)), ElementsAre(a, a));
}

TEST_F(LeaseTest, ATenantsJobsByPriorityThenAge) {
  const std::string low = CreateFor("a", 1, -5);
  clock_.Advance(absl::Seconds(1));
  const std::string first = CreateFor("a", 1), second = CreateFor("a", 1);
  clock_.Advance(absl::Seconds(1));
  const std::string high = CreateFor("a", 2, 7);
  EXPECT_THAT(NextJobs(5), ElementsAre(high, high, first, second, low));
}

TEST_F(LeaseTest, WaitingRaisesThePriority) {
  const std::string old = CreateFor("a", 2, 0);
  clock_.Advance(absl::Seconds(119));
  const std::string urgent = CreateFor("a", 1, 2);
  clock_.Advance(absl::Seconds(2));
  const std::string late = CreateFor("a", 1, 2);
  EXPECT_THAT(NextJobs(4), ElementsAre(urgent, old, old, late));
}

TEST_F(LeaseTest, WithoutAgingPriorityIsAllThatCounts) {
  limits_.aging = absl::InfiniteDuration();
  Open();
  const std::string old = CreateFor("a", 1, -100);
  clock_.Advance(absl::Hours(1000));
  const std::string middle = CreateFor("a", 1, 0), high = CreateFor("a", 1, 1);
  EXPECT_THAT(NextJobs(3), ElementsAre(high, middle, old));
}

TEST_F(LeaseTest, OrderSurvivesARestart) {
  const std::string a = CreateFor("a", 3), b = CreateFor("b", 2, 4), c = CreateFor("b", 1, 9);
  EXPECT_THAT(NextJobs(1), ElementsAre(a));
  Open();
  EXPECT_THAT(NextJobs(5), ElementsAre(a, c, a, b, b));
}

TEST_F(LeaseTest, CompletingTwiceIsOneResult) {
  const v1::Job job = Create(JobOf(2));
  const v1::Lease lease = Acquire(1).at(0);
  auto first = store_->CompleteDocument(Complete(lease, "once"), kWorker);
  ASSERT_OK(first);
  auto second = store_->CompleteDocument(Complete(lease, "twice"), kWorker);
  ASSERT_OK(second);
  EXPECT_EQ(first->SerializeAsString(), second->SerializeAsString());
  EXPECT_OK(store_->FailDocument(Fail(lease), kWorker));
  EXPECT_REASON(store_->FailDocument(Retry(lease), kWorker), Reason::kLeaseLost, lease.name());
  ASSERT_EQ(AllResults(job.name()).size(), 1u);
  EXPECT_EQ(AllResults(job.name())[0].summary(), "once");
  EXPECT_EQ(Get(job.name()).counts().succeeded(), 1);
}

TEST_F(LeaseTest, NamesThatAreNoLease) {
  Create(JobOf(1));
  const v1::Lease lease = Acquire(1).at(0);
  std::vector<std::string> names = {"",
                                    "leases/",
                                    "leases/1",
                                    "leases/1-",
                                    "leases/1-zz",
                                    "leases/99-0123456789abcdef",
                                    "leases/-1-0123456789abcdef",
                                    "workers/w",
                                    lease.name() + "0",
                                    lease.name() + " "};
  std::string forged = lease.name();
  forged.back() = forged.back() == '0' ? '1' : '0';
  names.push_back(forged);
  for (const std::string& name : names) {
    v1::Lease other = lease;
    other.set_name(name);
    EXPECT_REASON(store_->CompleteDocument(Complete(other), kWorker), Reason::kLeaseLost, "'" + name + "'");
    EXPECT_REASON(store_->FailDocument(Fail(other), kWorker), Reason::kLeaseLost, name);
    EXPECT_REASON(store_->FailDocument(Retry(other), kWorker), Reason::kLeaseLost, name);
    EXPECT_REASON(store_->ReadDocument(name, 1, 0, 10), Reason::kLeaseLost, name);
    auto renewed = store_->RenewLease(kWorker, {RenewalOf(other)});
    ASSERT_OK(renewed);
    ASSERT_EQ(renewed->events_size(), 1);
    EXPECT_EQ(renewed->events(0).kind(), v1::LeaseEvent::LOST);
    EXPECT_EQ(renewed->events(0).lease(), name);
  }
  for (const int attempt : {0, 2, -1}) {
    v1::Lease other = lease;
    other.set_attempt(attempt);
    EXPECT_REASON(store_->CompleteDocument(Complete(other), kWorker), Reason::kLeaseLost, lease.name());
    EXPECT_REASON(store_->ReadDocument(lease.name(), attempt, 0, 10), Reason::kLeaseLost, lease.name());
  }
  EXPECT_OK(store_->CompleteDocument(Complete(lease), kWorker));
}

TEST_F(LeaseTest, RenewalMovesTheDeadline) {
  Create(JobOf(2));
  const auto leases = Acquire(2);
  for (int i = 0; i < 5; ++i) {
    clock_.Advance(absl::Seconds(20));
    auto renewed = store_->RenewLease(kWorker, {RenewalOf(leases[0])});
    ASSERT_OK(renewed);
    EXPECT_EQ(renewed->events_size(), 0);
    EXPECT_EQ(absl::FromUnixSeconds(renewed->deadline().seconds()), clock_.Now() + absl::Seconds(30));
    EXPECT_EQ(Sweep(), i == 1 ? 1 : 0) << "the other one is not renewed";
  }
  EXPECT_OK(store_->CompleteDocument(Complete(leases[0]), kWorker));
}

TEST_F(LeaseTest, AnExpiredLeaseIsPresentUntilItIsSwept) {
  const v1::Job job = Create(JobOf(3));
  const auto leases = Acquire(3);
  clock_.Advance(absl::Minutes(1));
  EXPECT_OK(store_->CompleteDocument(Complete(leases[0]), kWorker));
  auto renewed = store_->RenewLease(kWorker, {RenewalOf(leases[1])});
  ASSERT_OK(renewed);
  EXPECT_EQ(renewed->events_size(), 0);
  EXPECT_OK(store_->ReadDocument(leases[2].name(), 1, 0, 10));
  EXPECT_EQ(Sweep(), 1);
  EXPECT_REASON(store_->CompleteDocument(Complete(leases[2]), kWorker), Reason::kLeaseLost, leases[2].name());
  EXPECT_REASON(store_->ReadDocument(leases[2].name(), 1, 0, 10), Reason::kLeaseLost, leases[2].name());
  EXPECT_EQ(Get(job.name()).counts().queued(), 1);

  const auto again = Acquire(3, "workers/second");
  ASSERT_EQ(again.size(), 1u);
  EXPECT_EQ(again[0].document_id(), "d2");
  EXPECT_EQ(again[0].attempt(), 2);
  EXPECT_NE(again[0].name(), leases[2].name());
  renewed = store_->RenewLease(kWorker, {RenewalOf(leases[2])});
  ASSERT_OK(renewed);
  ASSERT_EQ(renewed->events_size(), 1);
  EXPECT_EQ(renewed->events(0).kind(), v1::LeaseEvent::LOST);
  EXPECT_REASON(store_->FailDocument(Fail(leases[2]), kWorker), Reason::kLeaseLost, leases[2].name());
  EXPECT_REASON(store_->FailDocument(Retry(leases[2]), kWorker), Reason::kLeaseLost, leases[2].name());
  ASSERT_OK(store_->CompleteDocument(Complete(again[0], "of the second"), "workers/second"));
  EXPECT_REASON(store_->CompleteDocument(Complete(leases[2], "late"), kWorker), Reason::kLeaseLost,
                leases[2].name());
  ASSERT_OK(store_->CompleteDocument(Complete(leases[1]), kWorker));
  const auto results = AllResults(job.name());
  ASSERT_EQ(results.size(), 3u);
  EXPECT_EQ(results[1].summary(), "of the second");
  EXPECT_EQ(results[1].attempt(), 2);
  EXPECT_EQ(results[1].worker(), "workers/second");
  EXPECT_EQ(Get(job.name()).state(), v1::Job::SUCCEEDED);
}

TEST_F(LeaseTest, ASweepTellsWhoseLeaseIsGone) {
  Create(JobOf(1));
  const v1::Lease lease = Acquire(1).at(0);
  TakeEvents();
  clock_.Advance(absl::Minutes(1));
  Sweep();
  int gone = 0;
  for (const StoreEvent& event : TakeEvents()) {
    if (event.kind != StoreEvent::Kind::kLeaseGone) continue;
    ++gone;
    EXPECT_EQ(event.worker, kWorker);
    EXPECT_EQ(event.lease.kind(), v1::LeaseEvent::LOST);
    EXPECT_EQ(event.lease.lease(), lease.name());
    EXPECT_EQ(event.lease.attempt(), 1);
  }
  EXPECT_EQ(gone, 1);
}

TEST_F(LeaseTest, AttemptsEnd) {
  const v1::Job job = Create(JobOf(2));
  std::vector<v1::Lease> taken;
  for (int attempt = 1; attempt <= 3; ++attempt) {
    taken = Acquire(2);
    ASSERT_EQ(taken.size(), 2u);
    EXPECT_EQ(taken[0].attempt(), attempt);
    clock_.Advance(absl::Minutes(1));
    if (attempt == 3) ASSERT_OK(store_->CompleteDocument(Complete(taken[1]), kWorker));
    EXPECT_EQ(Sweep(), attempt == 3 ? 1 : 2);
  }
  EXPECT_TRUE(Acquire(2).empty());
  const auto results = AllResults(job.name());
  ASSERT_EQ(results.size(), 2u);
  EXPECT_EQ(results[1].document_id(), "d0");
  EXPECT_EQ(results[1].status().code(), static_cast<int>(absl::StatusCode::kAborted));
  EXPECT_EQ(results[1].status().reason(), "ATTEMPTS_EXHAUSTED");
  EXPECT_EQ(results[1].attempt(), 3);
  EXPECT_EQ(results[1].worker(), "");
  EXPECT_EQ(results[1].finish_reason(), v1::FINISH_REASON_ERROR);
  EXPECT_EQ(Get(job.name()).state(), v1::Job::SUCCEEDED);
  EXPECT_EQ(Get(job.name()).counts().failed(), 1);
  // The last worker comes back after all.
  EXPECT_REASON(store_->CompleteDocument(Complete(taken[0]), kWorker), Reason::kLeaseLost, taken[0].name());
}

TEST_F(LeaseTest, ARetryDoesNotCount) {
  const v1::Job job = Create(JobOf(1));
  std::set<std::string> names;
  for (int i = 0; i < 10; ++i) {
    const v1::Lease lease = Acquire(1).at(0);
    EXPECT_EQ(lease.attempt(), 1);
    EXPECT_TRUE(names.insert(lease.name()).second) << "a lease is never given twice";
    ASSERT_OK(store_->FailDocument(Retry(lease), kWorker));
    EXPECT_OK(store_->FailDocument(Retry(lease), kWorker)) << "repeated";
    EXPECT_REASON(store_->CompleteDocument(Complete(lease), kWorker), Reason::kLeaseLost, lease.name());
    EXPECT_EQ(Get(job.name()).counts().queued(), 1);
    EXPECT_EQ(Get(job.name()).state(), v1::Job::RUNNING);
  }
  EXPECT_EQ(Acquire(1).size(), 1u);
}

TEST_F(LeaseTest, GoodbyeHandsBack) {
  const v1::Job job = Create(JobOf(4));
  const auto kept = Acquire(1, "workers/stays");
  const auto leases = Acquire(3);
  ASSERT_OK(store_->CompleteDocument(Complete(leases[0]), kWorker));
  TakeEvents();
  ASSERT_OK(store_->ReleaseLeases(kWorker));
  EXPECT_EQ(Get(job.name()).counts().queued(), 2);
  EXPECT_EQ(Get(job.name()).counts().running(), 1);
  EXPECT_REASON(store_->CompleteDocument(Complete(leases[1]), kWorker), Reason::kLeaseLost, leases[1].name());
  const auto again = Acquire(3, "workers/other");
  ASSERT_EQ(again.size(), 2u);
  EXPECT_EQ(again[0].attempt(), 1);
  EXPECT_OK(store_->CompleteDocument(Complete(kept[0]), "workers/stays"));
  EXPECT_OK(store_->ReleaseLeases("workers/unknown"));
}

TEST_F(LeaseTest, LeasesGoOnOverARestart) {
  const v1::Job job = Create(JobOf(3));
  const auto leases = Acquire(3);
  Open();
  clock_.Advance(absl::Seconds(20));
  EXPECT_EQ(Sweep(), 0);
  // The worker has registered again and has another name.
  ASSERT_OK(store_->RenewLease("workers/new", {RenewalOf(leases[0]), RenewalOf(leases[1])}));
  EXPECT_OK(store_->CompleteDocument(Complete(leases[0]), "workers/new"));
  clock_.Advance(absl::Seconds(20));
  TakeEvents();
  EXPECT_EQ(Sweep(), 1) << "the one that nobody has renewed";
  ASSERT_OK(store_->CancelJob(kTenant, job.name(), ""));
  std::vector<std::string> told;
  for (const StoreEvent& event : TakeEvents()) {
    if (event.kind == StoreEvent::Kind::kLeaseGone) told.push_back(event.worker + " " + event.lease.lease());
  }
  EXPECT_THAT(told, ElementsAre("workers/w " + leases[2].name(), "workers/new " + leases[1].name()));
}

TEST_F(LeaseTest, WithoutAWorkersNameTheOwnersIsTaken) {
  const v1::Job job = Create(JobOf(1));
  ASSERT_OK(store_->CompleteDocument(Complete(Acquire(1).at(0)), ""));
  EXPECT_EQ(AllResults(job.name()).at(0).worker(), kWorker);
}

TEST_F(LeaseTest, ReadingADocument) {
  Create(JobOf(1));
  const v1::Lease lease = Acquire(1).at(0);
  const auto read = [&](int64_t offset, int64_t bytes) {
    return store_->ReadDocument(lease.name(), lease.attempt(), offset, bytes);
  };
  EXPECT_EQ(*read(0, 100), "text of d0");
  EXPECT_EQ(*read(5, 2), "of");
  EXPECT_EQ(*read(10, 5), "");
  EXPECT_EQ(*read(0, 0), "");
  EXPECT_EQ(*read(0, -1), "");
  EXPECT_REASON(read(11, 1), Reason::kOffsetMismatch, "offset 11 lies outside its 10 bytes");
  EXPECT_REASON(read(-1, 1), Reason::kOffsetMismatch, "offset -1");
  ASSERT_OK(store_->CompleteDocument(Complete(lease), kWorker));
  EXPECT_REASON(read(0, 1), Reason::kLeaseLost, lease.name());
}

TEST_F(LeaseTest, AFailureWithoutAReasonHasOne) {
  const v1::Job job = Create(JobOf(1));
  v1::FailDocumentRequest request = Fail(Acquire(1).at(0));
  request.clear_status();
  request.mutable_result()->set_summary("must not be seen");
  request.mutable_result()->mutable_usage()->set_prompt_tokens(11);
  ASSERT_OK(store_->FailDocument(request, kWorker));
  const v1::Result result = AllResults(job.name()).at(0);
  EXPECT_EQ(result.status().code(), 13);
  EXPECT_EQ(result.status().reason(), "INTERNAL");
  EXPECT_EQ(result.summary(), "");
  EXPECT_EQ(Get(job.name()).counts().prompt_tokens(), 11);
}

TEST_F(LeaseTest, ResultsInPages) {
  const v1::Job job = Create(JobOf(5));
  const auto leases = Acquire(5);
  for (int i = 0; i < 4; ++i) {
    ASSERT_OK(store_->CompleteDocument(Complete(leases[i], std::string(400'000, 'x')), kWorker));
  }
  const auto sequences = [&](int64_t after, int count) {
    std::vector<int64_t> all;
    auto results = store_->Results(kTenant, job.name(), after, count);
    EXPECT_TRUE(results.ok()) << results.status();
    for (const v1::Result& result : *results) all.push_back(result.sequence());
    return all;
  };
  EXPECT_THAT(sequences(0, 100), ElementsAre(1, 2)) << "about 1 MiB";
  EXPECT_THAT(sequences(2, 100), ElementsAre(3, 4));
  EXPECT_THAT(sequences(1, 1), ElementsAre(2));
  EXPECT_THAT(sequences(4, 100), ElementsAre());
  EXPECT_THAT(sequences(0, 0), ElementsAre());
  EXPECT_THAT(sequences(-5, 1), ElementsAre(1));
  ASSERT_OK(store_->CompleteDocument(Complete(leases[4], std::string(2'000'000, 'y')), kWorker));
  EXPECT_THAT(sequences(4, 100), ElementsAre(5)) << "at least one, however large";
}

TEST_F(LeaseTest, Figures) {
  const auto check = [this](int64_t waiting, int64_t running, int64_t queued, int64_t leased,
                            absl::Duration age) {
    auto stats = store_->Stats();
    ASSERT_OK(stats);
    EXPECT_EQ(stats->jobs_waiting, waiting);
    EXPECT_EQ(stats->jobs_running, running);
    EXPECT_EQ(stats->documents_queued, queued);
    EXPECT_EQ(stats->documents_leased, leased);
    EXPECT_EQ(stats->oldest_queued, age);
  };
  check(0, 0, 0, 0, absl::ZeroDuration());
  const v1::Job open = CreateOpen();
  ASSERT_OK(Upload(open.name(), "a", "text"));
  check(1, 0, 0, 0, absl::ZeroDuration());
  Create(JobOf(2));
  clock_.Advance(absl::Seconds(5));
  Create(JobOf(3), "bob");
  clock_.Advance(absl::Seconds(5));
  check(3, 0, 5, 0, absl::Seconds(10));
  const auto leases = Acquire(4);
  check(1, 2, 1, 4, absl::Seconds(5));
  Open();
  check(1, 2, 1, 4, absl::Seconds(5));
  for (const v1::Lease& lease : leases) ASSERT_OK(store_->CompleteDocument(Complete(lease), kWorker));
  check(1, 1, 1, 0, absl::Seconds(5));
  ASSERT_OK(store_->CompleteDocument(Complete(Acquire(4).at(0)), kWorker));
  ASSERT_OK(store_->CancelJob(kTenant, open.name(), ""));
  check(0, 0, 0, 0, absl::ZeroDuration());
}

}  // namespace
}  // namespace snapkv::service
