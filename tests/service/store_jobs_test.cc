// SPDX-License-Identifier: Apache-2.0
// The life of jobs: create, repeat, seal, cancel, delete, expire, and what the database says about it.
#include <algorithm>

#include "tests/service/store_testing.h"

namespace snapkv::service {
namespace {

using ::testing::HasSubstr;

TEST_F(StoreTest, AJobFromBeginningToEnd) {
  v1::CreateJobRequest request = JobOf(2);
  request.mutable_job()->set_display_name("mine");
  request.mutable_job()->set_priority(3);
  (*request.mutable_job()->mutable_labels())["team"] = "a";
  request.mutable_job()->mutable_parameters()->set_max_tokens(5);
  request.mutable_job()->mutable_parameters()->add_stop("END");
  request.mutable_documents(1)->mutable_parameters()->set_max_tokens(9);
  request.mutable_documents(1)->mutable_parameters()->add_stop("FIN");
  const v1::Job created = Create(request);
  EXPECT_THAT(created.name(), ::testing::MatchesRegex("jobs/[0-9a-f]{16}"));
  EXPECT_EQ(created.state(), v1::Job::QUEUED);
  EXPECT_EQ(created.version(), 1);
  EXPECT_EQ(created.tenant(), kTenant);
  EXPECT_EQ(created.display_name(), "mine");
  EXPECT_EQ(created.priority(), 3);
  EXPECT_EQ(created.labels().at("team"), "a");
  EXPECT_EQ(created.counts().documents(), 2);
  EXPECT_EQ(created.counts().queued(), 2);
  EXPECT_EQ(created.counts().bytes(), 20);
  EXPECT_EQ(created.expire_time().seconds() - created.create_time().seconds(), 7 * 24 * 3600);
  EXPECT_EQ(Get(created.name()).SerializeAsString(), created.SerializeAsString());

  clock_.Advance(absl::Seconds(2));
  const std::vector<v1::Lease> leases = Acquire();
  ASSERT_EQ(leases.size(), 2u);
  EXPECT_EQ(leases[0].document_id(), "d0");
  EXPECT_EQ(leases[0].attempt(), 1);
  EXPECT_EQ(leases[0].job(), created.name());
  EXPECT_EQ(leases[0].size_bytes(), 10);
  EXPECT_EQ(leases[0].media_type(), "text/plain");
  EXPECT_EQ(leases[0].parameters().max_tokens(), 5);
  EXPECT_EQ(leases[0].parameters().stop(0), "END");
  EXPECT_EQ(leases[0].deadline().seconds() - leases[0].queue_time().seconds(), 32);
  EXPECT_EQ(leases[1].parameters().max_tokens(), 9);
  ASSERT_EQ(leases[1].parameters().stop_size(), 1);
  EXPECT_EQ(leases[1].parameters().stop(0), "FIN");
  EXPECT_EQ(ReadAll(leases[1], 4), "text of d1");
  const auto digest = runtime::Sha256("text of d1");
  EXPECT_EQ(leases[1].sha256(), std::string(digest.begin(), digest.end()));

  v1::Job running = Get(created.name());
  EXPECT_EQ(running.state(), v1::Job::RUNNING);
  EXPECT_EQ(running.counts().queued(), 0);
  EXPECT_EQ(running.counts().running(), 2);
  EXPECT_GT(running.version(), created.version());
  EXPECT_FALSE(running.has_expire_time());
  EXPECT_TRUE(running.has_start_time());

  ASSERT_OK(store_->CompleteDocument(Complete(leases[1], "second"), kWorker));
  ASSERT_OK(store_->FailDocument(Fail(leases[0]), kWorker));
  const v1::Job ended = Get(created.name());
  EXPECT_EQ(ended.state(), v1::Job::SUCCEEDED);
  EXPECT_EQ(ended.counts().running(), 0);
  EXPECT_EQ(ended.counts().succeeded(), 1);
  EXPECT_EQ(ended.counts().failed(), 1);
  EXPECT_EQ(ended.counts().prompt_tokens(), 100);
  EXPECT_EQ(ended.counts().completion_tokens(), 7);
  EXPECT_EQ(ended.results(), 2);
  EXPECT_EQ(ended.expire_time().seconds() - ended.end_time().seconds(), 30 * 24 * 3600);

  const std::vector<v1::Result> results = AllResults(created.name());
  ASSERT_EQ(results.size(), 2u);
  EXPECT_EQ(results[0].document_id(), "d1");
  EXPECT_EQ(results[0].summary(), "second");
  EXPECT_EQ(results[0].worker(), kWorker);
  EXPECT_EQ(results[0].attempt(), 1);
  EXPECT_EQ(results[0].timings().queue_ms(), 2000);
  EXPECT_FALSE(results[0].has_status());
  EXPECT_EQ(results[1].document_id(), "d0");
  EXPECT_EQ(results[1].status().reason(), "CONTEXT_EXCEEDED");
  EXPECT_EQ(results[1].finish_reason(), v1::FINISH_REASON_ERROR);
}

TEST_F(StoreTest, ARequestIdMakesOneJob) {
  v1::CreateJobRequest request = JobOf(1);
  request.set_request_id("r1");
  const v1::Job first = Create(request);
  Acquire();
  // Output-only fields and validate_only are no content.
  request.mutable_job()->set_tenant("ignored");
  EXPECT_EQ(Create(request).name(), first.name());
  EXPECT_EQ(Create(request).state(), v1::Job::RUNNING);
  request.set_validate_only(true);
  EXPECT_EQ(Create(request).name(), first.name());
  request.set_validate_only(false);
  EXPECT_NE(Create(request, "bob").name(), first.name());

  v1::CreateJobRequest other = request;
  other.mutable_documents(0)->set_content("other text");
  EXPECT_REASON(store_->CreateJob(kTenant, other), Reason::kRequestIdReused, "'r1'");
  Open();
  EXPECT_EQ(Create(request).name(), first.name());
  EXPECT_REASON(store_->CreateJob(kTenant, other), Reason::kRequestIdReused, "'r1'");

  clock_.Advance(absl::Hours(24));
  const v1::Job second = Create(other);
  EXPECT_NE(second.name(), first.name());
  EXPECT_EQ(Create(other).name(), second.name());
}

TEST_F(StoreTest, ADeletedJobFreesItsRequestId) {
  v1::CreateJobRequest request = JobOf(1);
  request.set_request_id("r1");
  const v1::Job first = Create(request);
  ASSERT_OK(store_->CancelJob(kTenant, first.name(), ""));
  ASSERT_OK(store_->DeleteJob(kTenant, first.name()));
  EXPECT_NE(Create(request).name(), first.name());
}

TEST_F(StoreTest, ValidateOnlyCreatesNothing) {
  v1::CreateJobRequest request = JobOf(3);
  request.set_validate_only(true);
  request.set_request_id("r1");
  const v1::Job job = Create(request);
  EXPECT_EQ(job.name(), "");
  EXPECT_EQ(job.state(), v1::Job::QUEUED);
  EXPECT_EQ(job.counts().documents(), 3);
  EXPECT_EQ(store_->ListJobs(kTenant, {})->jobs_size(), 0);
  EXPECT_TRUE(Acquire().empty());
  request.set_validate_only(false);
  EXPECT_NE(Create(request).name(), "");
}

TEST_F(StoreTest, OtherTenantsSeeNothing) {
  const v1::Job job = Create(JobOf(1));
  const v1::Job open = CreateOpen();
  EXPECT_REASON(store_->GetJob("bob", job.name()), Reason::kJobNotFound, job.name());
  EXPECT_REASON(store_->CancelJob("bob", job.name(), ""), Reason::kJobNotFound, job.name());
  EXPECT_REASON(store_->DeleteJob("bob", job.name()), Reason::kJobNotFound, job.name());
  EXPECT_REASON(store_->SealJob("bob", open.name()), Reason::kJobNotFound, open.name());
  EXPECT_REASON(store_->Results("bob", job.name(), 0, 1), Reason::kJobNotFound, job.name());
  EXPECT_REASON(store_->BeginUpload("bob", HeaderOf(open.name(), "a", "x")), Reason::kJobNotFound,
                open.name());
  EXPECT_REASON(store_->Append("bob", open.name(), "a", ChunkOf(0, "x")), Reason::kJobNotFound, open.name());
  EXPECT_REASON(store_->GetUpload("bob", open.name(), "a"), Reason::kJobNotFound, open.name());
  EXPECT_EQ(store_->ListJobs("bob", {})->jobs_size(), 0);
  EXPECT_REASON(store_->GetJob(kTenant, "jobs/none"), Reason::kJobNotFound, "jobs/none");
}

TEST_F(StoreTest, LimitsOfAJob) {
  limits_.max_job_documents = 2;
  limits_.max_job_bytes = 25;
  Open();
  EXPECT_REASON(store_->CreateJob(kTenant, JobOf(3)), Reason::kJobTooLarge, "3 documents, more than 2");
  v1::CreateJobRequest large = JobOf(2);
  large.mutable_documents(0)->set_content("text of d0, longer");
  EXPECT_REASON(store_->CreateJob(kTenant, large), Reason::kJobTooLarge, "28 bytes, more than 25");
  EXPECT_EQ(store_->ListJobs(kTenant, {})->jobs_size(), 0);
  v1::CreateJobRequest twice = JobOf(2);
  twice.mutable_documents(1)->set_document_id("d0");
  EXPECT_REASON(store_->CreateJob(kTenant, twice), Reason::kDocumentIdDuplicate, "'d0'");
  EXPECT_EQ(store_->ListJobs(kTenant, {})->jobs_size(), 0);
  EXPECT_TRUE(Acquire().empty());
  Create(JobOf(2));
}

TEST_F(StoreTest, QueueAndQuota) {
  limits_.max_queued_jobs = 3;
  limits_.max_tenant_jobs = 2;
  Open();
  const v1::Job first = Create(JobOf(1));
  CreateOpen();
  const absl::Status quota = store_->CreateJob(kTenant, JobOf(1)).status();
  EXPECT_REASON(quota, Reason::kQuotaExceeded, "tenant 'alice' has 2 jobs");
  EXPECT_TRUE(RetryDelayOf(quota).has_value());
  Create(JobOf(1), "bob");
  const absl::Status full = store_->CreateJob("carol", JobOf(1)).status();
  EXPECT_REASON(full, Reason::kQueueFull, "3 jobs have not ended");
  EXPECT_TRUE(RetryDelayOf(full).has_value());
  v1::CreateJobRequest check = JobOf(1);
  check.set_validate_only(true);
  EXPECT_REASON(store_->CreateJob("carol", check), Reason::kQueueFull, "3 jobs");
  // The same after a restart: it is counted again.
  Open();
  EXPECT_REASON(store_->CreateJob("carol", JobOf(1)), Reason::kQueueFull, "3 jobs have not ended");
  const auto leases = Acquire(1);
  ASSERT_EQ(leases.size(), 1u);
  EXPECT_EQ(leases[0].job(), first.name());
  ASSERT_OK(store_->CompleteDocument(Complete(leases[0]), kWorker));
  Create(JobOf(1));
}

TEST_F(StoreTest, SealNamesWhatIsMissing) {
  const v1::Job job = CreateOpen();
  EXPECT_EQ(job.state(), v1::Job::UPLOADING);
  EXPECT_REASON(store_->SealJob(kTenant, job.name()), Reason::kJobState, "no documents");
  ASSERT_OK(Upload(job.name(), "whole", "some text"));
  ASSERT_OK(store_->BeginUpload(kTenant, HeaderOf(job.name(), "torn", "abc")));
  ASSERT_OK(store_->Append(kTenant, job.name(), "torn", ChunkOf(0, "a")));
  const absl::Status missing = store_->SealJob(kTenant, job.name()).status();
  EXPECT_REASON(missing, Reason::kJobState, "1 document is not complete: 'torn'");
  EXPECT_EQ(FiguresOf(missing), (std::vector<std::pair<std::string, std::string>>{{"state", "UPLOADING"}}));
  EXPECT_TRUE(Acquire().empty()) << "a job that is UPLOADING is not worked on";
  ASSERT_OK(store_->Append(kTenant, job.name(), "torn", ChunkOf(1, "bc")));
  clock_.Advance(absl::Seconds(5));
  auto sealed = store_->SealJob(kTenant, job.name());
  ASSERT_OK(sealed);
  EXPECT_EQ(sealed->state(), v1::Job::QUEUED);
  EXPECT_EQ(sealed->counts().queued(), 2);
  EXPECT_REASON(store_->SealJob(kTenant, job.name()), Reason::kJobState, "is QUEUED");
  const auto leases = Acquire();
  ASSERT_EQ(leases.size(), 2u);
  EXPECT_EQ(leases[0].document_id(), "whole");
  EXPECT_EQ(leases[0].queue_time().seconds() - job.create_time().seconds(), 5);
}

TEST_F(StoreTest, CancelWithoutLeases) {
  const v1::Job job = Create(JobOf(3));
  auto cancelled = store_->CancelJob(kTenant, job.name(), "a mistake");
  ASSERT_OK(cancelled);
  EXPECT_EQ(cancelled->state(), v1::Job::CANCELLED);
  EXPECT_EQ(cancelled->counts().cancelled(), 3);
  EXPECT_EQ(cancelled->counts().queued(), 0);
  EXPECT_EQ(cancelled->status().code(), 1);
  EXPECT_EQ(cancelled->status().reason(), "CANCELLED");
  EXPECT_EQ(cancelled->status().message(), "a mistake");
  EXPECT_TRUE(cancelled->has_end_time());
  EXPECT_TRUE(Acquire().empty());
  auto again = store_->CancelJob(kTenant, job.name(), "other");
  ASSERT_OK(again);
  EXPECT_EQ(again->SerializeAsString(), cancelled->SerializeAsString());
  Sweep();
  EXPECT_EQ(Get(job.name()).SerializeAsString(), cancelled->SerializeAsString());
}

TEST_F(StoreTest, CancelWithLeases) {
  const v1::Job job = Create(JobOf(4));
  const auto leases = Acquire(3);
  ASSERT_OK(store_->CompleteDocument(Complete(leases[0]), kWorker));
  TakeEvents();
  auto cancelled = store_->CancelJob(kTenant, job.name(), "");
  ASSERT_OK(cancelled);
  EXPECT_EQ(cancelled->state(), v1::Job::CANCELLING);
  EXPECT_EQ(cancelled->counts().running(), 2);
  EXPECT_EQ(cancelled->counts().cancelled(), 1);
  EXPECT_FALSE(cancelled->has_end_time());
  std::vector<std::string> gone;
  for (const StoreEvent& event : TakeEvents()) {
    if (event.kind != StoreEvent::Kind::kLeaseGone) continue;
    EXPECT_EQ(event.worker, kWorker);
    EXPECT_EQ(event.lease.kind(), v1::LeaseEvent::CANCELLED);
    EXPECT_EQ(event.lease.attempt(), 1);
    gone.push_back(event.lease.lease());
  }
  EXPECT_THAT(gone, ::testing::UnorderedElementsAre(leases[1].name(), leases[2].name()));
  EXPECT_REASON(store_->ReadDocument(leases[1].name(), 1, 0, 10), Reason::kLeaseLost, leases[1].name());

  auto renewed = store_->RenewLease(kWorker, {RenewalOf(leases[1])});
  ASSERT_OK(renewed);
  ASSERT_EQ(renewed->events_size(), 1);
  EXPECT_EQ(renewed->events(0).kind(), v1::LeaseEvent::CANCELLED);
  EXPECT_EQ(renewed->events(0).lease(), leases[1].name());
  EXPECT_FALSE(renewed->has_deadline());
  EXPECT_EQ(Get(job.name()).state(), v1::Job::CANCELLING);
  EXPECT_EQ(Get(job.name()).counts().running(), 1);
  // The answer may have been lost.
  renewed = store_->RenewLease(kWorker, {RenewalOf(leases[1])});
  ASSERT_OK(renewed);
  EXPECT_EQ(renewed->events(0).kind(), v1::LeaseEvent::CANCELLED);
  EXPECT_EQ(Get(job.name()).counts().running(), 1);

  EXPECT_REASON(store_->CompleteDocument(Complete(leases[2]), kWorker), Reason::kLeaseLost, leases[2].name());
  const v1::Job ended = Get(job.name());
  EXPECT_EQ(ended.state(), v1::Job::CANCELLED);
  EXPECT_EQ(ended.counts().running(), 0);
  EXPECT_EQ(ended.counts().cancelled(), 3);
  EXPECT_EQ(ended.counts().succeeded(), 1);
  EXPECT_TRUE(ended.has_end_time());
  EXPECT_EQ(AllResults(job.name()).size(), 1u) << "results that are there stay readable";
  EXPECT_REASON(store_->FailDocument(Fail(leases[2]), kWorker), Reason::kLeaseLost, leases[2].name());
}

TEST_F(StoreTest, CancelledLeasesEndInEveryWay) {
  const v1::Job job = Create(JobOf(4));
  const auto leases = Acquire(4);
  ASSERT_OK(store_->CancelJob(kTenant, job.name(), ""));
  EXPECT_OK(store_->FailDocument(Retry(leases[0]), kWorker));
  EXPECT_REASON(store_->FailDocument(Fail(leases[1]), kWorker), Reason::kLeaseLost, leases[1].name());
  EXPECT_EQ(Get(job.name()).counts().running(), 2);
  ASSERT_OK(store_->RenewLease("workers/other", {RenewalOf(leases[2])}));
  EXPECT_EQ(Get(job.name()).state(), v1::Job::CANCELLING);
  clock_.Advance(absl::Seconds(31));
  EXPECT_EQ(Sweep(), 1);
  EXPECT_EQ(Get(job.name()).state(), v1::Job::CANCELLED);
  EXPECT_EQ(Get(job.name()).counts().cancelled(), 4);

  const v1::Job second = Create(JobOf(2));
  Acquire(2, "workers/leaves");
  ASSERT_OK(store_->CancelJob(kTenant, second.name(), ""));
  ASSERT_OK(store_->ReleaseLeases("workers/leaves"));
  EXPECT_EQ(Get(second.name()).state(), v1::Job::CANCELLED);
}

TEST_F(StoreTest, CancelOfAnEndedJobChangesNothing) {
  const v1::Job job = Create(JobOf(1));
  ASSERT_OK(store_->CompleteDocument(Complete(Acquire().at(0)), kWorker));
  auto cancelled = store_->CancelJob(kTenant, job.name(), "late");
  ASSERT_OK(cancelled);
  EXPECT_EQ(cancelled->state(), v1::Job::SUCCEEDED);
  EXPECT_FALSE(cancelled->has_status());
}

TEST_F(StoreTest, CancelWhileUploading) {
  const v1::Job job = CreateOpen();
  ASSERT_OK(Upload(job.name(), "whole", "some text"));
  ASSERT_OK(store_->BeginUpload(kTenant, HeaderOf(job.name(), "torn", "abc")));
  ASSERT_OK(store_->Append(kTenant, job.name(), "torn", ChunkOf(0, "a")));
  EXPECT_EQ(Files("blobs"), 1u);
  EXPECT_EQ(Files("uploads"), 1u);
  auto cancelled = store_->CancelJob(kTenant, job.name(), "");
  ASSERT_OK(cancelled);
  EXPECT_EQ(cancelled->state(), v1::Job::CANCELLED);
  EXPECT_EQ(cancelled->counts().cancelled(), 2);
  EXPECT_REASON(store_->Append(kTenant, job.name(), "torn", ChunkOf(1, "bc")), Reason::kJobState,
                "CANCELLED");
  Sweep();
  EXPECT_EQ(Files("blobs"), 0u);
  EXPECT_EQ(Files("uploads"), 0u);
  EXPECT_EQ(Get(job.name()).counts().documents(), 2);
}

TEST_F(StoreTest, DeleteRemovesEverything) {
  const v1::Job job = CreateOpen();
  for (int i = 0; i < 300; ++i) ASSERT_OK(Upload(job.name(), absl::StrCat("d", i), "some text"));
  EXPECT_REASON(store_->DeleteJob(kTenant, job.name()), Reason::kJobState, "UPLOADING");
  ASSERT_OK(store_->SealJob(kTenant, job.name()));
  EXPECT_REASON(store_->DeleteJob(kTenant, job.name()), Reason::kJobState, "QUEUED");
  const auto leases = Acquire(2);
  EXPECT_REASON(store_->DeleteJob(kTenant, job.name()), Reason::kJobState, "RUNNING");
  ASSERT_OK(store_->CompleteDocument(Complete(leases[0]), kWorker));
  EXPECT_EQ(Files("blobs"), 299u) << "the text of a finished document is not needed";
  ASSERT_OK(store_->CancelJob(kTenant, job.name(), ""));
  EXPECT_REASON(store_->DeleteJob(kTenant, job.name()), Reason::kJobState, "CANCELLING");
  ASSERT_OK(store_->FailDocument(Retry(leases[1]), kWorker));
  ASSERT_OK(store_->DeleteJob(kTenant, job.name()));
  EXPECT_REASON(store_->GetJob(kTenant, job.name()), Reason::kJobNotFound, job.name());
  EXPECT_REASON(store_->Results(kTenant, job.name(), 0, 1), Reason::kJobNotFound, job.name());
  EXPECT_REASON(store_->DeleteJob(kTenant, job.name()), Reason::kJobNotFound, job.name());
  EXPECT_REASON(store_->CompleteDocument(Complete(leases[1]), kWorker), Reason::kLeaseLost, leases[1].name());
  EXPECT_EQ(store_->ListJobs(kTenant, {})->jobs_size(), 0);
  Sweep();
  EXPECT_EQ(Files("blobs"), 0u);
}

TEST_F(StoreTest, JobsExpireAndAreDeletedInTime) {
  limits_.job_ttl = absl::Hours(1);
  limits_.retention = absl::Hours(10);
  Open();
  const v1::Job open = CreateOpen();
  const v1::Job queued = Create(JobOf(2, "models/nobody"));
  const v1::Job begun = Create(JobOf(1));
  const auto leases = Acquire();
  ASSERT_EQ(leases.size(), 1u);
  clock_.Advance(absl::Minutes(59));
  Sweep();
  EXPECT_EQ(Get(open.name()).state(), v1::Job::UPLOADING);
  clock_.Advance(absl::Minutes(1));
  Sweep();
  const v1::Job expired = Get(queued.name());
  EXPECT_EQ(expired.state(), v1::Job::EXPIRED);
  EXPECT_EQ(expired.counts().cancelled(), 2);
  EXPECT_EQ(expired.status().code(), 4);
  EXPECT_THAT(expired.status().message(), HasSubstr("not begun within 1h"));
  EXPECT_EQ(Get(open.name()).state(), v1::Job::EXPIRED);
  EXPECT_THAT(Get(open.name()).status().message(), HasSubstr("not sealed"));
  EXPECT_EQ(Get(begun.name()).state(), v1::Job::RUNNING) << "begun jobs do not expire";
  EXPECT_TRUE(store_->AcquireLease(kWorker, "models/nobody", 1)->empty());
  clock_.Advance(absl::Hours(9));
  Sweep();
  EXPECT_OK(store_->GetJob(kTenant, open.name()));
  clock_.Advance(absl::Hours(1));
  Sweep();
  EXPECT_REASON(store_->GetJob(kTenant, open.name()), Reason::kJobNotFound, open.name());
  EXPECT_REASON(store_->GetJob(kTenant, queued.name()), Reason::kJobNotFound, queued.name());
  EXPECT_OK(store_->GetJob(kTenant, begun.name()));
}

TEST_F(StoreTest, EventsFollowEveryChange) {
  const auto kinds = [this](const std::string& job) {
    std::vector<StoreEvent::Kind> kinds;
    for (const StoreEvent& event : TakeEvents()) {
      EXPECT_EQ(event.job, job);
      EXPECT_EQ(event.model, kModel);
      kinds.push_back(event.kind);
    }
    return kinds;
  };
  using Kind = StoreEvent::Kind;
  using ::testing::ElementsAre;
  using ::testing::UnorderedElementsAre;
  const v1::Job job = Create(JobOf(2));
  EXPECT_THAT(kinds(job.name()), UnorderedElementsAre(Kind::kJob, Kind::kQueued));
  const auto leases = Acquire();
  EXPECT_THAT(kinds(job.name()), ElementsAre(Kind::kJob));
  ASSERT_OK(store_->RenewLease(kWorker, {RenewalOf(leases[0])}));
  EXPECT_THAT(kinds(job.name()), ElementsAre());
  ASSERT_OK(store_->FailDocument(Retry(leases[0]), kWorker));
  EXPECT_THAT(kinds(job.name()), UnorderedElementsAre(Kind::kJob, Kind::kQueued));
  clock_.Advance(absl::Minutes(1));
  EXPECT_EQ(Sweep(), 1);
  EXPECT_THAT(kinds(job.name()), UnorderedElementsAre(Kind::kJob, Kind::kQueued, Kind::kLeaseGone));
  EXPECT_REASON(store_->SealJob(kTenant, job.name()), Reason::kJobState, "RUNNING");
  EXPECT_THAT(kinds(job.name()), ElementsAre()) << "a call that fails changes nothing";
}

}  // namespace
}  // namespace snapkv::service
