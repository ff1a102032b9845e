// SPDX-License-Identifier: Apache-2.0
// What the tests of the job store share: a store in a folder of its own with a clock that they turn.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/hash/sha256.h"
#include "runtime/service/store/job_store.h"

namespace snapkv::service {

inline constexpr char kTenant[] = "alice";
inline constexpr char kModel[] = "models/m";
inline constexpr char kWorker[] = "workers/w";

// A status of this reason, with this text in its message.
MATCHER_P2(FailsWith, reason, text, absl::StrCat("fails with ", ReasonName(reason), " and '", text, "'")) {
  const absl::Status& status = arg;
  *result_listener << status;
  return ReasonOf(status) == reason && status.code() == CodeOf(reason) &&
         status.message().find(text) != absl::string_view::npos;
}

inline absl::Status StatusOf(const absl::Status& status) { return status; }
template <class T>
absl::Status StatusOf(const absl::StatusOr<T>& result) {
  return result.status();
}

#define EXPECT_OK(expression) EXPECT_TRUE(::snapkv::service::StatusOf(expression).ok()) << #expression
#define ASSERT_OK(expression)                                               \
  do {                                                                      \
    const absl::Status ok_status = ::snapkv::service::StatusOf(expression); \
    ASSERT_TRUE(ok_status.ok()) << #expression << ": " << ok_status;        \
  } while (false)
#define EXPECT_REASON(expression, reason, text) \
  EXPECT_THAT(::snapkv::service::StatusOf(expression), ::snapkv::service::FailsWith(reason, text))

// From now on TempFolders are in memory, where there is such a file system: fsync costs nothing there.
void UseMemory();

// Removed with everything in it.
class TempFolder {
 public:
  TempFolder();
  ~TempFolder();
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

class FakeClock {
 public:
  absl::Time Now() const { return absl::FromUnixMicros(micros_); }
  void Advance(absl::Duration duration) { micros_ += absl::ToInt64Microseconds(duration); }

 private:
  std::atomic<int64_t> micros_{1'700'000'000'000'000};
};

// A request with documents "d0", "d1", ... whose texts are "text of d0", ...
v1::CreateJobRequest JobOf(int documents, const std::string& model = kModel);
v1::UploadHeader HeaderOf(const std::string& job, const std::string& document_id, const std::string& text);
v1::Chunk ChunkOf(int64_t offset, const std::string& data);
v1::Result ResultOf(const std::string& summary);
v1::CompleteDocumentRequest Complete(const v1::Lease& lease, const std::string& summary = "a summary");
v1::FailDocumentRequest Fail(const v1::Lease& lease, const std::string& reason = "CONTEXT_EXCEEDED");
v1::FailDocumentRequest Retry(const v1::Lease& lease);
v1::LeaseRenewal RenewalOf(const v1::Lease& lease);

class StoreTest : public ::testing::Test {
 protected:
  void SetUp() override { Open(); }

  StoreOptions Options();
  // Closes the store, if it is open, and opens it again.
  void Open();
  void Close() { store_.reset(); }

  // The job, as it is now.
  v1::Job Get(const std::string& name);
  // Creates, or fails the test.
  v1::Job Create(const v1::CreateJobRequest& request, const std::string& tenant = kTenant);
  v1::Job CreateOpen();
  // A whole document in one chunk.
  absl::StatusOr<v1::UploadStatus> Upload(const std::string& job, const std::string& id,
                                          const std::string& text);
  std::vector<v1::Lease> Acquire(int count = 64, const std::string& worker = kWorker);
  // All results; checks that the sequences are 1, 2, ...
  std::vector<v1::Result> AllResults(const std::string& job, const std::string& tenant = kTenant);
  std::string ReadAll(const v1::Lease& lease, int64_t piece);
  int64_t Sweep();
  std::vector<StoreEvent> TakeEvents();
  // Files below `sub`.
  size_t Files(const std::string& sub) const;

  TempFolder folder_;
  FakeClock clock_;
  StoreLimits limits_;
  std::unique_ptr<JobStore> store_;

 private:
  std::mutex events_mutex_;
  std::vector<StoreEvent> events_;
};

}  // namespace snapkv::service
