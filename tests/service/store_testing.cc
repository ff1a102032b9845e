// SPDX-License-Identifier: Apache-2.0
// The fixture of the job store's tests.
#include "tests/service/store_testing.h"

#include <cstdlib>

namespace snapkv::service {

void UseMemory() {
  if (std::filesystem::is_directory("/dev/shm")) ::setenv("TMPDIR", "/dev/shm", 1);
}

TempFolder::TempFolder() {
  std::string pattern = std::filesystem::temp_directory_path().string() + "/snapkv_store.XXXXXX";
  EXPECT_NE(::mkdtemp(pattern.data()), nullptr) << pattern;
  path_ = pattern;
}

TempFolder::~TempFolder() {
  std::error_code error;
  std::filesystem::remove_all(path_, error);
}

v1::CreateJobRequest JobOf(int documents, const std::string& model) {
  v1::CreateJobRequest request;
  request.mutable_job()->set_model(model);
  for (int i = 0; i < documents; ++i) {
    v1::Document* document = request.add_documents();
    document->set_document_id(absl::StrCat("d", i));
    document->set_content(absl::StrCat("text of d", i));
  }
  return request;
}

v1::UploadHeader HeaderOf(const std::string& job, const std::string& document_id, const std::string& text) {
  v1::UploadHeader header;
  header.set_job(job);
  header.set_document_id(document_id);
  header.set_size_bytes(static_cast<int64_t>(text.size()));
  const auto digest = runtime::Sha256(text);
  header.set_sha256(std::string(digest.begin(), digest.end()));
  return header;
}

v1::Chunk ChunkOf(int64_t offset, const std::string& data) {
  v1::Chunk chunk;
  chunk.set_offset(offset);
  chunk.set_data(data);
  return chunk;
}

v1::Result ResultOf(const std::string& summary) {
  v1::Result result;
  result.set_summary(summary);
  result.set_finish_reason(v1::FINISH_REASON_STOP);
  result.mutable_usage()->set_prompt_tokens(100);
  result.mutable_usage()->set_completion_tokens(7);
  return result;
}

v1::CompleteDocumentRequest Complete(const v1::Lease& lease, const std::string& summary) {
  v1::CompleteDocumentRequest request;
  request.set_lease(lease.name());
  request.set_attempt(lease.attempt());
  *request.mutable_result() = ResultOf(summary);
  return request;
}

v1::FailDocumentRequest Fail(const v1::Lease& lease, const std::string& reason) {
  v1::FailDocumentRequest request;
  request.set_lease(lease.name());
  request.set_attempt(lease.attempt());
  request.mutable_status()->set_code(3);
  request.mutable_status()->set_reason(reason);
  request.mutable_status()->set_message("too long");
  return request;
}

v1::FailDocumentRequest Retry(const v1::Lease& lease) {
  v1::FailDocumentRequest request = Fail(lease);
  request.set_retry(true);
  return request;
}

v1::LeaseRenewal RenewalOf(const v1::Lease& lease) {
  v1::LeaseRenewal renewal;
  renewal.set_lease(lease.name());
  renewal.set_attempt(lease.attempt());
  return renewal;
}

StoreOptions StoreTest::Options() {
  StoreOptions options;
  options.folder = folder_.path() + "/state";
  options.limits = limits_;
  options.clock = [this] { return clock_.Now(); };
  return options;
}

void StoreTest::Open() {
  store_.reset();
  auto store = JobStore::Open(Options());
  ASSERT_TRUE(store.ok()) << store.status();
  store_ = *std::move(store);
  store_->SetListener([this](const StoreEvent& event) {
    std::lock_guard lock(events_mutex_);
    events_.push_back(event);
  });
}

v1::Job StoreTest::Get(const std::string& name) {
  auto job = store_->GetJob(kTenant, name);
  EXPECT_TRUE(job.ok()) << job.status();
  return job.value_or(v1::Job());
}

v1::Job StoreTest::Create(const v1::CreateJobRequest& request, const std::string& tenant) {
  auto job = store_->CreateJob(tenant, request);
  EXPECT_TRUE(job.ok()) << job.status();
  return job.value_or(v1::Job());
}

v1::Job StoreTest::CreateOpen() {
  v1::CreateJobRequest request = JobOf(0);
  request.set_open(true);
  return Create(request);
}

absl::StatusOr<v1::UploadStatus> StoreTest::Upload(const std::string& job, const std::string& id,
                                                   const std::string& text) {
  RETURN_IF_ERROR(store_->BeginUpload(kTenant, HeaderOf(job, id, text)).status());
  return store_->Append(kTenant, job, id, ChunkOf(0, text));
}

std::vector<v1::Lease> StoreTest::Acquire(int count, const std::string& worker) {
  auto leases = store_->AcquireLease(worker, kModel, count);
  EXPECT_TRUE(leases.ok()) << leases.status();
  return leases.value_or(std::vector<v1::Lease>());
}

std::vector<v1::Result> StoreTest::AllResults(const std::string& job, const std::string& tenant) {
  std::vector<v1::Result> all;
  while (true) {
    auto some = store_->Results(tenant, job, static_cast<int64_t>(all.size()), 100);
    EXPECT_TRUE(some.ok()) << some.status();
    if (!some.ok() || some->empty()) return all;
    for (v1::Result& result : *some) {
      all.push_back(std::move(result));
      EXPECT_EQ(all.back().sequence(), static_cast<int64_t>(all.size())) << job;
    }
  }
}

std::string StoreTest::ReadAll(const v1::Lease& lease, int64_t piece) {
  std::string text;
  while (true) {
    auto data = store_->ReadDocument(lease.name(), lease.attempt(), static_cast<int64_t>(text.size()), piece);
    EXPECT_TRUE(data.ok()) << data.status();
    if (!data.ok() || data->empty()) return text;
    EXPECT_LE(static_cast<int64_t>(data->size()), piece);
    text += *data;
  }
}

int64_t StoreTest::Sweep() {
  auto expired = store_->Sweep();
  EXPECT_TRUE(expired.ok()) << expired.status();
  return expired.value_or(-1);
}

std::vector<StoreEvent> StoreTest::TakeEvents() {
  std::lock_guard lock(events_mutex_);
  return std::exchange(events_, {});
}

size_t StoreTest::Files(const std::string& sub) const {
  size_t files = 0;
  for ([[maybe_unused]] const auto& entry :
       std::filesystem::directory_iterator(folder_.path() + "/state/" + sub)) {
    ++files;
  }
  return files;
}

}  // namespace snapkv::service
