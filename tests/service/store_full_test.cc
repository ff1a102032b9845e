// SPDX-License-Identifier: Apache-2.0
// A full disk, at every write of every call: STORAGE_FULL, nothing changed, and all goes on when there is
// room again.
#include <functional>

#include "runtime/service/store/database.h"
#include "tests/service/fault_vfs.h"
#include "tests/service/store_testing.h"

namespace snapkv::service {
namespace {

namespace fs = std::filesystem;

class FullTest : public StoreTest {
 protected:
  static void SetUpTestSuite() { InstallFaultVfs(); }
  void TearDown() override { FailAfterWrites(-1); }

  // Every row of every table but the pages' own, as text.
  std::string Dump() {
    std::string dump;
    auto database = Database::Open(folder_.path() + "/state/jobs.db", true);
    EXPECT_TRUE(database.ok()) << database.status();
    for (const std::string& columns :
         {std::string("jobs"), std::string("job_specs"), std::string("labels"), std::string("requests"),
          std::string("documents"), std::string("contents"), std::string("results"), std::string("purges")}) {
      absl::StrAppend(&dump, columns, "\n");
      auto names = (*database)->Query(
          "SELECT group_concat('quote(' || name || ')', ' || '','' || ') FROM "
          "pragma_table_info(?)",
          columns);
      EXPECT_TRUE(names.ok() && *names->Next()) << columns;
      auto rows = (*database)->Query("SELECT " + names->Text(0) + " FROM " + columns + " ORDER BY 1");
      EXPECT_TRUE(rows.ok()) << rows.status();
      while (*rows->Next()) absl::StrAppend(&dump, "  ", rows->Text(0), "\n");
    }
    return dump;
  }

  // Runs `call` with a disk that is full after 0, 1, 2, ... writes, until it succeeds.
  void AtEveryWrite(const std::string& name, const std::function<absl::Status()>& call) {
    const std::string before = Dump();
    const StoreStats stats = *store_->Stats();
    int failures = 0;
    for (int writes = 0;; ++writes) {
      ASSERT_LT(writes, 3000) << name << " never succeeds";
      FailAfterWrites(writes);
      TakeEvents();
      const absl::Status status = call();
      FailAfterWrites(-1);
      if (status.ok()) break;
      ++failures;
      ASSERT_THAT(status, FailsWith(Reason::kStorageFull, "no space left")) << name << " after " << writes;
      EXPECT_TRUE(RetryDelayOf(status).has_value()) << name;
      EXPECT_TRUE(TakeEvents().empty()) << name << " after " << writes;
      ASSERT_EQ(Dump(), before) << name << " after " << writes;
      const StoreStats now = *store_->Stats();
      EXPECT_EQ(now.documents_queued, stats.documents_queued) << name;
      EXPECT_EQ(now.jobs_waiting, stats.jobs_waiting) << name;
    }
    EXPECT_GT(failures, 0) << name << " writes nothing";
    EXPECT_NE(Dump(), before) << name;
    calls_ += failures;
  }

  int calls_ = 0;
};

TEST_F(FullTest, EveryCallAtEveryWrite) {
  v1::CreateJobRequest request = JobOf(3);
  request.set_request_id("r1");
  (*request.mutable_job()->mutable_labels())["k"] = "v";
  request.mutable_documents(0)->set_content(std::string(20'000, 'x'));
  std::string job, open, torn;
  std::vector<v1::Lease> leases;
  AtEveryWrite("CreateJob", [&] {
    auto created = store_->CreateJob(kTenant, request);
    if (created.ok()) job = created->name();
    return created.status();
  });
  AtEveryWrite("CreateJob, open", [&] {
    v1::CreateJobRequest open_request = JobOf(0);
    open_request.set_open(true);
    auto created = store_->CreateJob(kTenant, open_request);
    if (created.ok()) open = created->name();
    return created.status();
  });
  const std::string text = "one two three";
  AtEveryWrite("BeginUpload",
               [&] { return store_->BeginUpload(kTenant, HeaderOf(open, "a", text)).status(); });
  AtEveryWrite("Append", [&] { return store_->Append(kTenant, open, "a", ChunkOf(0, "one ")).status(); });
  EXPECT_EQ(store_->GetUpload(kTenant, open, "a")->committed_size(), 4);
  // Its file is published before the commit, and taken back by the next try.
  AtEveryWrite("Append, last",
               [&] { return store_->Append(kTenant, open, "a", ChunkOf(4, "two three")).status(); });
  EXPECT_TRUE(store_->GetUpload(kTenant, open, "a")->complete());
  ASSERT_OK(store_->BeginUpload(kTenant, HeaderOf(open, "b", text)));
  AtEveryWrite("Append, wrong checksum", [&]() -> absl::Status {
    const absl::Status status = store_->Append(kTenant, open, "b", ChunkOf(0, "one too three")).status();
    return ReasonOf(status) == Reason::kChecksumMismatch ? absl::OkStatus() : status;
  });
  AtEveryWrite("SealJob", [&] { return store_->SealJob(kTenant, open).status(); });
  AtEveryWrite("AcquireLease", [&] {
    auto acquired = store_->AcquireLease(kWorker, kModel, 4);
    if (acquired.ok()) leases = *acquired;
    return acquired.status();
  });
  ASSERT_EQ(leases.size(), 4u);
  std::map<std::string, v1::Lease> by_id;
  for (const v1::Lease& lease : leases) by_id[lease.document_id()] = lease;
  EXPECT_EQ(ReadAll(by_id["a"], 5), text);
  clock_.Advance(absl::Seconds(1));
  AtEveryWrite("RenewLease", [&] { return store_->RenewLease(kWorker, {RenewalOf(by_id["d0"])}).status(); });
  AtEveryWrite("CompleteDocument",
               [&] { return store_->CompleteDocument(Complete(by_id["a"]), kWorker).status(); });
  EXPECT_EQ(Get(open).state(), v1::Job::SUCCEEDED);
  AtEveryWrite("FailDocument", [&] { return store_->FailDocument(Fail(by_id["d0"]), kWorker); });
  AtEveryWrite("FailDocument, retry", [&] { return store_->FailDocument(Retry(by_id["d1"]), kWorker); });
  AtEveryWrite("ReleaseLeases", [&] { return store_->ReleaseLeases(kWorker); });
  EXPECT_EQ(Acquire(1).size(), 1u);
  clock_.Advance(absl::Minutes(1));
  AtEveryWrite("Sweep, leases", [&] { return store_->Sweep().status(); });
  AtEveryWrite("CancelJob", [&] { return store_->CancelJob(kTenant, job, "reason").status(); });
  AtEveryWrite("DeleteJob", [&] { return store_->DeleteJob(kTenant, job); });
  EXPECT_EQ(AllResults(open).size(), 1u);
  const std::string last = Dump();
  const StoreStats stats = *store_->Stats();
  Open();
  EXPECT_EQ(Dump(), last);
  EXPECT_EQ(store_->Stats()->documents_queued, stats.documents_queued);
  std::cout << calls_ << " calls failed and left nothing\n";
}

TEST_F(FullTest, SweepGoesOnWhereItStopped) {
  std::vector<std::string> jobs;
  for (int i = 0; i < 3; ++i) jobs.push_back(Create(JobOf(300)).name());
  for (const std::string& job : jobs) ASSERT_OK(store_->CancelJob(kTenant, job, ""));
  for (const std::string& job : jobs) ASSERT_OK(store_->DeleteJob(kTenant, job));
  // Its steps are committed one by one: an error ends the call, not what is done.
  int failures = 0;
  for (int writes = 0; writes < 200; writes += 7) {
    FailAfterWrites(writes);
    if (!store_->Sweep().ok()) ++failures;
  }
  FailAfterWrites(-1);
  EXPECT_GT(failures, 0);
  for (int i = 0; i < 3; ++i) Sweep();
  EXPECT_EQ(Dump(), "jobs\njob_specs\nlabels\nrequests\ndocuments\ncontents\nresults\npurges\n");
}

TEST_F(FullTest, CheckpointsThatFailLoseNothing) {
  // 700 KiB a job: the log is copied into the database (at 4 MB) several times, sometimes without room.
  v1::CreateJobRequest request = JobOf(1);
  std::vector<std::string> jobs;
  int failures = 0;
  for (int i = 0; i < 40; ++i) {
    request.mutable_documents(0)->set_content(std::string(700'000, static_cast<char>('a' + i % 26)));
    FailAfterWrites(i % 3 == 0 ? 200 * (i % 5) : 100'000);
    auto job = store_->CreateJob(kTenant, request);
    FailAfterWrites(-1);
    if (job.ok()) {
      jobs.push_back(job->name());
    } else {
      ++failures;
      ASSERT_THAT(job.status(), FailsWith(Reason::kStorageFull, ""));
    }
  }
  EXPECT_GT(failures, 3);
  Open();
  auto list = store_->ListJobs(kTenant, {});
  ASSERT_OK(list);
  ASSERT_EQ(list->jobs_size(), static_cast<int>(jobs.size()));
  for (int i = 0; i < list->jobs_size(); ++i) EXPECT_EQ(list->jobs(i).name(), jobs[jobs.size() - 1 - i]);
  auto database = Database::Open(folder_.path() + "/state/jobs.db", true);
  ASSERT_OK(database);
  auto rows = (*database)->Query("PRAGMA integrity_check");
  ASSERT_OK(rows);
  ASSERT_TRUE(*rows->Next());
  EXPECT_EQ(rows->Text(0), "ok");
}

TEST_F(FullTest, NoRoomForAnUploadsFile) {
  const std::string job = CreateOpen().name();
  ASSERT_OK(store_->BeginUpload(kTenant, HeaderOf(job, "a", "one two three")));
  // Writes to this device fail with ENOSPC.
  const std::string file = folder_.path() + "/state/uploads/1";
  fs::create_symlink("/dev/full", file);
  const absl::Status full = store_->Append(kTenant, job, "a", ChunkOf(0, "one ")).status();
  EXPECT_REASON(full, Reason::kStorageFull, "uploads/1: no space left");
  EXPECT_TRUE(RetryDelayOf(full).has_value());
  EXPECT_EQ(store_->GetUpload(kTenant, job, "a")->committed_size(), 0);
  fs::remove(file);
  ASSERT_OK(store_->Append(kTenant, job, "a", ChunkOf(0, "one ")));
  ASSERT_OK(store_->Append(kTenant, job, "a", ChunkOf(4, "two three")));
  ASSERT_OK(store_->SealJob(kTenant, job));
  EXPECT_EQ(ReadAll(Acquire(1).at(0), 100), "one two three");
}

TEST_F(FullTest, NoRoomToOpen) {
  Create(JobOf(1));
  Close();
  int failures = 0;
  for (int writes = 0; writes < 50; ++writes) {
    fs::remove_all(folder_.path() + "/fresh");
    StoreOptions options = Options();
    options.folder = folder_.path() + "/fresh";
    FailAfterWrites(writes);
    auto store = JobStore::Open(options);
    FailAfterWrites(-1);
    if (!store.ok()) {
      ++failures;
      EXPECT_REASON(store.status(), Reason::kStorageFull, "no space left") << writes;
    }
    EXPECT_OK(store.ok() ? absl::OkStatus() : JobStore::Open(options).status())
        << "the same folder, with room";
  }
  EXPECT_GT(failures, 5);
}

}  // namespace
}  // namespace snapkv::service
