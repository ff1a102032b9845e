// SPDX-License-Identifier: Apache-2.0
// The store at its limits: 10,000 queued jobs, jobs of 50,000 documents. Prints how long calls take; asserts
// only that they do what they must.
#include <algorithm>
#include <cstdio>

#include "tests/service/store_testing.h"

namespace snapkv::service {
namespace {

class ScaleTest : public StoreTest {
 protected:
  // The figures are the store's, without the disk's fsync.
  static void SetUpTestSuite() { UseMemory(); }

  template <class Call>
  void Time(const std::string& what, int times, const Call& call) {
    std::vector<double> ms;
    for (int i = 0; i < times; ++i) {
      const absl::Time begin = absl::Now();
      call();
      ms.push_back(absl::ToDoubleMilliseconds(absl::Now() - begin));
    }
    std::sort(ms.begin(), ms.end());
    std::printf("%-52s median %8.3f ms  p99 %8.3f ms  max %8.3f ms  (%d calls)\n", what.c_str(),
                ms[times / 2], ms[times * 99 / 100], ms.back(), times);
  }
};

TEST_F(ScaleTest, TenThousandQueuedJobs) {
  constexpr int kJobs = 10'000;
  int made = 0;
  Time("CreateJob, 2 documents", kJobs, [&] {
    v1::CreateJobRequest request = JobOf(2);
    request.mutable_job()->set_priority(made % 7 - 3);
    Create(request, absl::StrCat("tenant", made++ % 100));
  });
  EXPECT_REASON(store_->CreateJob(kTenant, JobOf(1)), Reason::kQueueFull, "10000 jobs");
  std::vector<v1::Lease> leases;
  Time("AcquireLease of 1, 10,000 jobs queued", 1000, [&] {
    for (v1::Lease& lease : Acquire(1)) leases.push_back(std::move(lease));
  });
  Time("AcquireLease of 64, 10,000 jobs queued", 50, [&] {
    for (v1::Lease& lease : Acquire(64)) leases.push_back(std::move(lease));
  });
  ASSERT_EQ(leases.size(), 1000u + 50 * 64);
  size_t next = 0;
  Time("CompleteDocument", 1000,
       [&] { EXPECT_OK(store_->CompleteDocument(Complete(leases[next++]), kWorker)); });
  Time("RenewLease of 64", 40, [&] {
    std::vector<v1::LeaseRenewal> renewals;
    for (int i = 0; i < 64; ++i) renewals.push_back(RenewalOf(leases[1000 + i]));
    EXPECT_EQ(store_->RenewLease(kWorker, renewals)->events_size(), 0);
  });
  const v1::Job some = Create(JobOf(1));
  Time("GetJob", 1000, [&] { Get(some.name()); });
  v1::ListJobsRequest list;
  list.set_page_size(1000);
  Time("ListJobs, a page of a tenant's 100", 50,
       [&] { EXPECT_EQ(store_->ListJobs("tenant7", list)->jobs_size(), 100); });
  Time("Stats", 1000, [&] { EXPECT_EQ(store_->Stats()->documents_leased, 3200); });
  clock_.Advance(absl::Minutes(1));
  Time("Sweep, 256 expired leases", 12, [&] { EXPECT_EQ(Sweep(), 256); });
  Time("Open", 3, [&] { Open(); });
  EXPECT_EQ(store_->Stats()->documents_queued, 2 * kJobs + 1 - 1000 - (3200 - 12 * 256));
}

TEST_F(ScaleTest, FiftyThousandDocuments) {
  constexpr int kDocuments = 50'000;
  v1::Job job, second;
  const v1::CreateJobRequest request = JobOf(kDocuments);
  Time("CreateJob, 50,000 documents", 1, [&] { job = Create(request); });
  EXPECT_EQ(job.counts().documents(), kDocuments);
  int64_t done = 0;
  std::vector<v1::Lease> leases;
  Time("AcquireLease of 64, of 50,000 documents", 400, [&] {
    leases = Acquire(64);
    ASSERT_EQ(leases.size(), 64u);
    for (const v1::Lease& lease : leases) {
      if (lease.document_id() != absl::StrCat("d", done))
        ADD_FAILURE() << lease.document_id() << " at " << done;
      ++done;
    }
  });
  size_t next = 0;
  Time("CompleteDocument, of 50,000 documents", 64,
       [&] { EXPECT_OK(store_->CompleteDocument(Complete(leases[next++]), kWorker)); });
  Time("Results, a page of 64", 100,
       [&] { EXPECT_EQ(store_->Results(kTenant, job.name(), 0, 64)->size(), 64u); });
  Time("GetJob, 50,000 documents", 100, [&] { Get(job.name()); });
  clock_.Advance(absl::Minutes(1));
  Time("Sweep, 256 expired leases", 20, [&] { EXPECT_EQ(Sweep(), 256); });
  Time("CancelJob, 20,000 leases", 1, [&] { EXPECT_OK(store_->CancelJob(kTenant, job.name(), "")); });
  while (Get(job.name()).state() == v1::Job::CANCELLING) Sweep();
  EXPECT_EQ(Get(job.name()).counts().cancelled(), kDocuments - 64);
  ASSERT_OK(store_->DeleteJob(kTenant, job.name()));
  Time("Sweep, 8 steps of deleting", 30, [&] { Sweep(); });
}

}  // namespace
}  // namespace snapkv::service
