// SPDX-License-Identifier: Apache-2.0
// What a running server tells Prometheus and its log: every job, result and refusal once.
#include <gmock/gmock.h>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "tests/service/metrics_testing.h"
#include "tests/service/service_support.h"

namespace snapkv::service {
namespace {

using snapkv::testing::Context;
using snapkv::testing::JobOf;
using snapkv::testing::ScriptedWorker;
using snapkv::testing::TestServer;

// A port that was free a moment ago.
int FreePort() {
  const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  EXPECT_EQ(::bind(fd, reinterpret_cast<sockaddr*>(&address), size), 0);
  EXPECT_EQ(::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size), 0);
  ::close(fd);
  return ntohs(address.sin_port);
}

class ServerMetricsTest : public ::testing::Test {
 protected:
  ServerMetricsTest() {
    ServerOptions options;
    options.metrics_address = absl::StrCat("127.0.0.1:", port_);
    options.version = "1.2.3";
    options.store.max_attempts = 1;
    options.store.lease = absl::Seconds(1);
    server_ = std::make_unique<TestServer>(options);
    jobs_ = v1::Jobs::NewStub(server_->Channel());
  }

  double Value(const std::string& series) {
    const Series served = ParseMetrics(FetchMetrics(port_));
    const auto found = served.find(series);
    return found == served.end() ? 0 : found->second;
  }
  // Waits for the value, at most 30 s.
  void ExpectValue(const std::string& series, double value) {
    for (int i = 0; i < 300 && Value(series) != value; ++i) absl::SleepFor(absl::Milliseconds(100));
    EXPECT_EQ(Value(series), value) << series;
  }

  const int port_ = FreePort();
  std::unique_ptr<TestServer> server_;
  std::unique_ptr<v1::Jobs::Stub> jobs_;
};

TEST_F(ServerMetricsTest, EverythingIsCountedOnce) {
  v1::CreateJobRequest request = JobOf({{"a", "text a"}, {"b", "text b"}, {"c", "text c"}});
  request.set_request_id("once");
  v1::Job job;
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(jobs_->CreateJob(Context().get(), request, &job).ok());
  ExpectValue("snapkv_requests_waiting", 3);
  ScriptedWorker worker(server_->Channel());
  ExpectValue("snapkv_workers", 1);

  const std::vector<v1::Lease> first = worker.Acquire(2);
  ASSERT_EQ(first.size(), 2u);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(worker.Complete(first[0], "summary").ok()) << "repeated call " << i;
  EXPECT_TRUE(worker.Fail(first[1], "CONTEXT_EXCEEDED", false).ok());
  ASSERT_EQ(worker.Acquire(1).size(), 1u);  // and is never heard of again
  ExpectValue("snapkv_lease_expiries_total", 1);

  ExpectValue("snapkv_documents_total{reason=\"ATTEMPTS_EXHAUSTED\",result=\"failed\"}", 1);
  EXPECT_EQ(Value("snapkv_documents_total{reason=\"OK\",result=\"succeeded\"}"), 1);
  EXPECT_EQ(Value("snapkv_documents_total{reason=\"CONTEXT_EXCEEDED\",result=\"failed\"}"), 1);
  EXPECT_EQ(Value("snapkv_jobs_created_total"), 1) << "the second CreateJob gave the first one's job";
  ExpectValue("snapkv_jobs_ended_total{state=\"SUCCEEDED\"}", 1);
  ExpectValue("snapkv_requests_waiting", 0);
  ExpectValue("snapkv_requests_running", 0);
  EXPECT_EQ(Value("snapkv_rpcs_total{code=\"OK\",method=\"Jobs/CreateJob\"}"), 2);
  EXPECT_EQ(Value("snapkv_build_info{version=\"1.2.3\"}"), 1);
  EXPECT_GT(Value("snapkv_commit_duration_seconds_count"), 3);
  EXPECT_GT(Value("snapkv_state_disk_size_bytes"), 0);

  ASSERT_TRUE(jobs_->CreateJob(Context().get(), JobOf({{"d", "text d"}}), &job).ok());
  v1::CancelJobRequest cancel;
  cancel.set_name(job.name());
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(jobs_->CancelJob(Context().get(), cancel, &job).ok());
  ExpectValue("snapkv_jobs_ended_total{state=\"CANCELLED\"}", 1);
  v1::DeleteJobRequest remove;
  remove.set_name(job.name());
  google::protobuf::Empty empty;
  ASSERT_TRUE(jobs_->DeleteJob(Context().get(), remove, &empty).ok());
  EXPECT_EQ(jobs_->DeleteJob(Context().get(), remove, &empty).error_code(), grpc::NOT_FOUND);
  ExpectValue("snapkv_rpc_errors_total{reason=\"JOB_NOT_FOUND\"}", 1);
  EXPECT_EQ(Value("snapkv_jobs_ended_total{state=\"CANCELLED\"}"), 1) << "deleting ends nothing";
}

TEST_F(ServerMetricsTest, StreamsAreCountedWhileTheyAreOpen) {
  v1::Job job;
  ASSERT_TRUE(jobs_->CreateJob(Context().get(), JobOf({{"a", "text"}}), &job).ok());
  v1::WatchJobRequest request;
  request.set_name(job.name());
  const auto context = Context();
  const auto reader = jobs_->WatchJob(context.get(), request);
  v1::JobEvent event;
  ASSERT_TRUE(reader->Read(&event));
  EXPECT_EQ(Value("snapkv_streams_open{method=\"Jobs/WatchJob\"}"), 1);
  context->TryCancel();
  while (reader->Read(&event)) {
  }
  reader->Finish();
  ExpectValue("snapkv_streams_open{method=\"Jobs/WatchJob\"}", 0);
}

TEST_F(ServerMetricsTest, PromtoolAcceptsWhatItServes) {
  if (!HasPromtool()) GTEST_SKIP() << kNoPromtool;
  v1::Job job;
  ASSERT_TRUE(jobs_->CreateJob(Context().get(), JobOf({{"a", "text"}}), &job).ok());
  const auto result = Promtool({"check", "metrics"}, FetchMetrics(port_));
  EXPECT_EQ(result.exit_code, 0) << result.ToString();
}

}  // namespace
}  // namespace snapkv::service
