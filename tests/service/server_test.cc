// SPDX-License-Identifier: Apache-2.0
// The job server through gRPC: the life of jobs, streams, workers, interactive documents, drain and restart.
#include "gmock/gmock.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"
#include "runtime/hash/sha256.h"
#include "tests/service/service_support.h"

#include <thread>

namespace snapkv::testing {
namespace {

using ::testing::HasSubstr;

service::ServerOptions QuickOptions() {
  service::ServerOptions options;
  options.store.lease = absl::Seconds(2);
  options.limits.heartbeat = absl::Milliseconds(300);
  options.drain_timeout = absl::Seconds(10);
  return options;
}

class ServerTest : public ::testing::Test {
 protected:
  v1::Job Create(const v1::CreateJobRequest& request) {
    v1::Job job;
    const auto context = Context();
    const grpc::Status status = jobs_->CreateJob(context.get(), request, &job);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return job;
  }
  v1::Job Get(const std::string& name) {
    v1::GetJobRequest request;
    request.set_name(name);
    v1::Job job;
    const auto context = Context();
    const grpc::Status status = jobs_->GetJob(context.get(), request, &job);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return job;
  }

  TestServer server_{QuickOptions()};
  std::shared_ptr<grpc::Channel> channel_ = server_.Channel();
  std::unique_ptr<v1::Jobs::Stub> jobs_ = v1::Jobs::NewStub(channel_);
};

TEST_F(ServerTest, AJobFromBeginningToEnd) {
  const v1::Job job = Create(JobOf({{"a", "text a"}, {"b", "text b"}, {"c", "text c"}}));
  EXPECT_EQ(job.state(), v1::Job::QUEUED);
  EXPECT_EQ(job.counts().documents(), 3);
  EXPECT_EQ(job.tenant(), "default");
  ScriptedWorker worker(channel_);
  auto leases = worker.Acquire(2);
  ASSERT_EQ(leases.size(), 2u);
  EXPECT_EQ(Get(job.name()).state(), v1::Job::RUNNING);
  EXPECT_EQ(Get(job.name()).counts().running(), 2);
  std::string text;
  ASSERT_TRUE(worker.Read(leases[0], text).ok());
  EXPECT_EQ(text, "text a");
  EXPECT_TRUE(worker.Complete(leases[1], "summary b").ok());
  EXPECT_TRUE(worker.Complete(leases[1], "summary b").ok()) << "a repeated call";
  EXPECT_TRUE(worker.Complete(leases[0], "summary a").ok());
  leases = worker.Acquire(2);
  ASSERT_EQ(leases.size(), 1u);
  EXPECT_TRUE(worker.Complete(leases[0], "summary c").ok());
  const auto results = ResultsOf(*jobs_, job.name());
  ASSERT_EQ(results.size(), 3u);
  for (const auto& [id, result] : results) {
    EXPECT_EQ(result.summary(), "summary " + id);
    EXPECT_EQ(result.attempt(), 1);
    EXPECT_EQ(result.worker(), worker.name());
  }
  EXPECT_EQ(results.at("b").sequence(), 1);
  EXPECT_EQ(Get(job.name()).state(), v1::Job::SUCCEEDED);
  EXPECT_EQ(Get(job.name()).counts().prompt_tokens(), 30);
  v1::DeleteJobRequest request;
  request.set_name(job.name());
  google::protobuf::Empty empty;
  auto context = Context();
  EXPECT_TRUE(jobs_->DeleteJob(context.get(), request, &empty).ok());
  context = Context();
  v1::GetJobRequest get;
  get.set_name(job.name());
  v1::Job gone;
  EXPECT_EQ(jobs_->GetJob(context.get(), get, &gone).error_code(), grpc::NOT_FOUND);
}

TEST_F(ServerTest, ValidateOnlyCreatesNothing) {
  v1::CreateJobRequest request = JobOf({{"a", "text"}});
  request.set_validate_only(true);
  EXPECT_EQ(Create(request).name(), "");
  v1::ListJobsResponse list;
  const auto context = Context();
  ASSERT_TRUE(jobs_->ListJobs(context.get(), {}, &list).ok());
  EXPECT_EQ(list.jobs_size(), 0);
}

TEST_F(ServerTest, UploadGoesOnWhereItEnded) {
  v1::CreateJobRequest request = JobOf({});
  request.set_open(true);
  const v1::Job job = Create(request);
  EXPECT_EQ(job.state(), v1::Job::UPLOADING);
  std::string text;
  for (int i = 0; text.size() < 300'000; ++i) text += "line " + std::to_string(i) + "\n";
  const auto digest = runtime::Sha256(text);
  v1::UploadDocumentRequest header;
  header.mutable_header()->set_job(job.name());
  header.mutable_header()->set_document_id("long");
  header.mutable_header()->set_size_bytes(static_cast<int64_t>(text.size()));
  header.mutable_header()->set_sha256(std::string(digest.begin(), digest.end()));
  constexpr size_t kChunk = 64 << 10;
  int64_t committed = 0;
  const auto send = [&](size_t most_chunks, bool cancel) {
    v1::UploadStatus status;
    const auto context = Context();
    const auto writer = jobs_->UploadDocument(context.get(), &status);
    EXPECT_TRUE(writer->Write(header));
    for (size_t at = static_cast<size_t>(committed); at < text.size() && most_chunks > 0;
         at += kChunk, --most_chunks) {
      v1::UploadDocumentRequest message;
      message.mutable_chunk()->set_offset(static_cast<int64_t>(at));
      message.mutable_chunk()->set_data(text.substr(at, kChunk));
      EXPECT_TRUE(writer->Write(message));
    }
    if (cancel) context->TryCancel();
    writer->WritesDone();
    return writer->Finish();
  };
  const auto look = [&] {
    v1::GetUploadStatusRequest ask;
    ask.set_job(job.name());
    ask.set_document_id("long");
    v1::UploadStatus status;
    const auto context = Context();
    EXPECT_TRUE(jobs_->GetUploadStatus(context.get(), ask, &status).ok());
    EXPECT_GE(status.committed_size(), committed) << "what is committed never shrinks";
    committed = status.committed_size();
    return status;
  };
  EXPECT_TRUE(send(2, false).ok());
  EXPECT_EQ(look().committed_size(), static_cast<int64_t>(2 * kChunk));
  EXPECT_FALSE(send(1, true).ok());
  look();
  // The server ends and starts again in between.
  server_.Stop();
  server_.Start();
  channel_ = server_.Channel();
  jobs_ = v1::Jobs::NewStub(channel_);
  look();
  EXPECT_TRUE(send(1'000, false).ok());
  EXPECT_TRUE(look().complete());
  v1::SealJobRequest seal;
  seal.set_name(job.name());
  v1::Job sealed;
  const auto context = Context();
  ASSERT_TRUE(jobs_->SealJob(context.get(), seal, &sealed).ok());
  EXPECT_EQ(sealed.state(), v1::Job::QUEUED);
  ScriptedWorker worker(channel_);
  const auto leases = worker.Acquire(1);
  ASSERT_EQ(leases.size(), 1u);
  std::string read;
  ASSERT_TRUE(worker.Read(leases[0], read).ok());
  EXPECT_EQ(read, text);
}

TEST_F(ServerTest, WatchTellsChangesAndHeartbeats) {
  const v1::Job job = Create(JobOf({{"a", "text"}}));
  v1::WatchJobRequest request;
  request.set_name(job.name());
  const auto context = Context();
  const auto reader = jobs_->WatchJob(context.get(), request);
  v1::JobEvent event;
  ASSERT_TRUE(reader->Read(&event));
  EXPECT_EQ(event.job().state(), v1::Job::QUEUED);
  ASSERT_TRUE(reader->Read(&event));
  EXPECT_TRUE(event.heartbeat());
  EXPECT_FALSE(event.has_job());
  ScriptedWorker worker(channel_);
  const auto leases = worker.Acquire(1);
  ASSERT_EQ(leases.size(), 1u);
  v1::RenewLeaseResponse renewed;
  ASSERT_TRUE(worker.Renew(leases, renewed).ok());
  bool progress = false;
  while (!progress && reader->Read(&event)) {
    for (const auto& document : event.documents()) progress |= document.progress().generated_tokens() == 7;
  }
  EXPECT_TRUE(progress);
  ASSERT_TRUE(worker.Complete(leases[0], "summary").ok());
  v1::Job last;
  while (reader->Read(&event)) {
    if (!event.has_job()) continue;
    EXPECT_GE(event.job().version(), last.version());
    last = event.job();
  }
  EXPECT_TRUE(reader->Finish().ok());
  EXPECT_EQ(last.state(), v1::Job::SUCCEEDED);
  // From the last version on there is nothing more to tell.
  request.set_after_version(last.version());
  const auto again = Context();
  const auto nothing = jobs_->WatchJob(again.get(), request);
  EXPECT_FALSE(nothing->Read(&event));
  EXPECT_TRUE(nothing->Finish().ok());
}

TEST_F(ServerTest, ResultsFollowWithoutGaps) {
  std::vector<std::pair<std::string, std::string>> documents;
  for (int i = 0; i < 300; ++i) documents.emplace_back(std::to_string(i), "text");
  const v1::Job job = Create(JobOf(documents));
  std::map<std::string, v1::Result> followed;
  std::thread follower([&] { followed = ResultsOf(*jobs_, job.name(), true); });
  ScriptedWorker worker(channel_);
  for (auto leases = worker.Acquire(50); !leases.empty(); leases = worker.Acquire(50)) {
    for (const v1::Lease& lease : leases) EXPECT_TRUE(worker.Complete(lease, "s").ok());
  }
  follower.join();
  EXPECT_EQ(followed.size(), 300u);
  v1::StreamResultsRequest request;
  request.set_name(job.name());
  request.set_after_sequence(298);
  const auto context = Context();
  const auto reader = jobs_->StreamResults(context.get(), request);
  v1::Result result;
  ASSERT_TRUE(reader->Read(&result));
  EXPECT_EQ(result.sequence(), 299);
  ASSERT_TRUE(reader->Read(&result));
  EXPECT_FALSE(reader->Read(&result));
  EXPECT_TRUE(reader->Finish().ok());
}

TEST_F(ServerTest, AcquireWaitsForWork) {
  ScriptedWorker worker(channel_);
  std::vector<v1::Lease> leases;
  std::thread waiting([&] { leases = worker.Acquire(4, 15); });
  absl::SleepFor(absl::Milliseconds(200));
  Create(JobOf({{"a", "text"}}));
  waiting.join();
  EXPECT_EQ(leases.size(), 1u);
  EXPECT_TRUE(worker.Acquire(4, 0.2).empty());
}

TEST_F(ServerTest, CancelReachesTheWorker) {
  const v1::Job job = Create(JobOf({{"a", "text"}, {"b", "text"}, {"c", "text"}}));
  ScriptedWorker worker(channel_);
  const auto leases = worker.Acquire(2);
  ASSERT_EQ(leases.size(), 2u);
  ASSERT_TRUE(worker.Complete(leases[0], "done").ok());
  v1::WatchLeasesRequest watch;
  watch.set_worker(worker.name());
  const auto watching = Context();
  const auto events = worker.stub().WatchLeases(watching.get(), watch);
  v1::LeaseEvent event;
  ASSERT_TRUE(events->Read(&event)) << "a heartbeat shows that the stream stands";
  v1::CancelJobRequest cancel;
  cancel.set_name(job.name());
  cancel.set_reason("not wanted");
  v1::Job cancelled;
  auto context = Context();
  ASSERT_TRUE(jobs_->CancelJob(context.get(), cancel, &cancelled).ok());
  EXPECT_EQ(cancelled.state(), v1::Job::CANCELLING);
  while (event.kind() == v1::LeaseEvent::KIND_UNSPECIFIED) ASSERT_TRUE(events->Read(&event));
  EXPECT_EQ(event.kind(), v1::LeaseEvent::CANCELLED);
  EXPECT_EQ(event.lease(), leases[1].name());
  watching->TryCancel();
  v1::RenewLeaseResponse renewed;
  ASSERT_TRUE(worker.Renew({leases[1]}, renewed).ok());
  ASSERT_EQ(renewed.events_size(), 1);
  EXPECT_EQ(renewed.events(0).kind(), v1::LeaseEvent::CANCELLED);
  EXPECT_EQ(worker.Complete(leases[1], "late").error_code(), grpc::ABORTED);
  context = Context();
  ASSERT_TRUE(jobs_->CancelJob(context.get(), cancel, &cancelled).ok()) << "idempotent";
  const v1::Job now = Get(job.name());
  EXPECT_TRUE(now.state() == v1::Job::CANCELLED || now.state() == v1::Job::CANCELLING);
  EXPECT_EQ(ResultsOf(*jobs_, job.name()).size(), 1u) << "finished results stay readable";
}

TEST_F(ServerTest, LeasesSurviveARestart) {
  const v1::Job job = Create(JobOf({{"a", "text"}, {"b", "text"}}));
  std::vector<v1::Lease> leases;
  {
    ScriptedWorker worker(channel_);
    leases = worker.Acquire(1);
    ASSERT_EQ(leases.size(), 1u);
  }
  server_.Stop();
  server_.Start();
  channel_ = server_.Channel();
  jobs_ = v1::Jobs::NewStub(channel_);
  ScriptedWorker worker(channel_);
  v1::RenewLeaseResponse renewed;
  ASSERT_TRUE(worker.Renew(leases, renewed).ok());
  EXPECT_EQ(renewed.events_size(), 0) << "the lease is good under the worker's new name";
  EXPECT_TRUE(worker.Complete(leases[0], "over the restart").ok());
  const auto rest = worker.Acquire(4);
  ASSERT_EQ(rest.size(), 1u);
  EXPECT_EQ(rest[0].document_id(), "b");
  EXPECT_TRUE(worker.Complete(rest[0], "b").ok());
  EXPECT_EQ(ResultsOf(*jobs_, job.name()).size(), 2u);
}

TEST_F(ServerTest, SummarizeStreamsAndStops) {
  ScriptedWorker worker(channel_);
  const auto summarizer = v1::Summarizer::NewStub(channel_);
  v1::SummarizeRequest request;
  request.set_content("interactive text");
  const auto context = Context();
  const auto reader = summarizer->Summarize(context.get(), request);
  auto leases = worker.Acquire(1, 10);
  ASSERT_EQ(leases.size(), 1u);
  EXPECT_TRUE(leases[0].interactive());
  std::string text;
  ASSERT_TRUE(worker.Read(leases[0], text).ok());
  EXPECT_EQ(text, "interactive text");
  {
    google::protobuf::Empty empty;
    const auto sending = Context();
    const auto deltas = worker.stub().StreamDeltas(sending.get(), &empty);
    for (const char* piece : {"one ", "two"}) {
      v1::StreamDeltasRequest delta;
      delta.set_lease(leases[0].name());
      delta.set_attempt(leases[0].attempt());
      delta.mutable_delta()->set_text(piece);
      ASSERT_TRUE(deltas->Write(delta));
    }
    deltas->WritesDone();
    EXPECT_TRUE(deltas->Finish().ok());
  }
  EXPECT_TRUE(worker.Complete(leases[0], "one two").ok());
  std::string streamed;
  v1::Delta delta;
  v1::Result result;
  while (reader->Read(&delta)) {
    streamed += delta.text();
    if (delta.has_result()) result = delta.result();
  }
  EXPECT_TRUE(reader->Finish().ok());
  EXPECT_EQ(streamed, "one two");
  EXPECT_EQ(result.summary(), "one two");

  // The caller leaves: the worker hears of it.
  auto leaving = Context();
  auto left = summarizer->Summarize(leaving.get(), request);
  leases = worker.Acquire(1, 10);
  ASSERT_EQ(leases.size(), 1u);
  v1::WatchLeasesRequest watch;
  watch.set_worker(worker.name());
  const auto watching = Context();
  const auto events = worker.stub().WatchLeases(watching.get(), watch);
  v1::LeaseEvent event;
  ASSERT_TRUE(events->Read(&event)) << "a heartbeat shows that the stream stands";
  leaving->TryCancel();
  left->Finish();
  while (event.kind() == v1::LeaseEvent::KIND_UNSPECIFIED) ASSERT_TRUE(events->Read(&event));
  EXPECT_EQ(event.kind(), v1::LeaseEvent::CANCELLED);
  EXPECT_EQ(event.lease(), leases[0].name());
  EXPECT_EQ(event.attempt(), leases[0].attempt());
  watching->TryCancel();
  v1::RenewLeaseResponse renewed;
  for (int i = 0; i < 100 && renewed.events_size() == 0; ++i) {
    absl::SleepFor(absl::Milliseconds(50));
    ASSERT_TRUE(worker.Renew(leases, renewed).ok());
  }
  ASSERT_EQ(renewed.events_size(), 1);
  EXPECT_EQ(renewed.events(0).kind(), v1::LeaseEvent::CANCELLED);
  EXPECT_EQ(worker.Complete(leases[0], "x").error_code(), grpc::ABORTED);

  // A document that fails is an error of the call, not a stream that ends well.
  leaving = Context();
  left = summarizer->Summarize(leaving.get(), request);
  leases = worker.Acquire(1, 10);
  ASSERT_EQ(leases.size(), 1u);
  EXPECT_TRUE(worker.Fail(leases[0], "CONTEXT_EXCEEDED", false).ok());
  while (left->Read(&delta)) {
  }
  const grpc::Status status = left->Finish();
  EXPECT_EQ(status.error_code(), grpc::INVALID_ARGUMENT);
  EXPECT_EQ(ReasonIn(status, *leaving), "CONTEXT_EXCEEDED");

  // A worker that dies before any text: the next one does it.
  leaving = Context(30);
  left = summarizer->Summarize(leaving.get(), request);
  leases = worker.Acquire(1, 10);
  ASSERT_EQ(leases.size(), 1u);
  const auto second = worker.Acquire(1, 10);
  ASSERT_EQ(second.size(), 1u);
  EXPECT_EQ(second[0].name(), leases[0].name());
  EXPECT_EQ(second[0].attempt(), 2);
  EXPECT_EQ(worker.Complete(leases[0], "late").error_code(), grpc::ABORTED);
  EXPECT_TRUE(worker.Complete(second[0], "second").ok());
  while (left->Read(&delta)) {
  }
  EXPECT_TRUE(left->Finish().ok());
}

TEST_F(ServerTest, DrainWaitsForOpenLeases) {
  const v1::Job job = Create(JobOf({{"a", "text"}, {"b", "text"}}));
  ScriptedWorker worker(channel_);
  const auto leases = worker.Acquire(1);
  ASSERT_EQ(leases.size(), 1u);
  v1::WatchLeasesRequest watch;
  watch.set_worker(worker.name());
  const auto watching = Context();
  const auto events = worker.stub().WatchLeases(watching.get(), watch);
  v1::LeaseEvent event;
  ASSERT_TRUE(events->Read(&event));
  std::thread draining([&] { server_.server().Drain(); });
  while (event.kind() != v1::LeaseEvent::DRAIN) ASSERT_TRUE(events->Read(&event));
  v1::AcquireLeaseRequest acquire;
  acquire.set_worker(worker.name());
  acquire.set_max_leases(1);
  v1::AcquireLeaseResponse none;
  const auto context = Context();
  EXPECT_EQ(worker.stub().AcquireLease(context.get(), acquire, &none).error_code(), grpc::UNAVAILABLE);
  EXPECT_TRUE(worker.Complete(leases[0], "handed in").ok()) << "results are taken to the end";
  draining.join();
  watching->TryCancel();
  server_.Stop();
  server_.Start();
  const auto jobs = v1::Jobs::NewStub(server_.Channel());
  const auto results = ResultsOf(*jobs, job.name());
  ASSERT_EQ(results.size(), 1u);
  EXPECT_EQ(results.at("a").summary(), "handed in");
}

TEST_F(ServerTest, ModelsAreReadyWhileAWorkerLives) {
  const auto models = v1::Models::NewStub(channel_);
  v1::ListModelsResponse list;
  auto context = Context();
  ASSERT_TRUE(models->ListModels(context.get(), {}, &list).ok());
  EXPECT_EQ(list.models_size(), 0);
  const ScriptedWorker worker(channel_);
  context = Context();
  ASSERT_TRUE(models->ListModels(context.get(), {}, &list).ok());
  ASSERT_EQ(list.models_size(), 1);
  EXPECT_TRUE(list.models(0).ready());
  EXPECT_EQ(list.models(0).max_context(), 8192);
  EXPECT_EQ(list.models(0).limits().max_document_bytes(), 16 << 20);
  server_.Stop();
  server_.Start();
  const auto again = v1::Models::NewStub(server_.Channel());
  context = Context();
  ASSERT_TRUE(again->ListModels(context.get(), {}, &list).ok());
  ASSERT_EQ(list.models_size(), 1) << "known over a restart";
  EXPECT_FALSE(list.models(0).ready()) << "but not ready";
}

TEST_F(ServerTest, SeveralModelsMustBeNamed) {
  const ScriptedWorker one(channel_, "models/one", "host:1"), two(channel_, "models/two", "host:2");
  v1::CreateJobRequest request = JobOf({{"a", "text"}});
  request.mutable_job()->clear_model();
  v1::Job job;
  const auto context = Context();
  const grpc::Status status = jobs_->CreateJob(context.get(), request, &job);
  EXPECT_EQ(status.error_code(), grpc::NOT_FOUND);
  EXPECT_EQ(ReasonIn(status, *context), "MODEL_NOT_FOUND");
  EXPECT_THAT(status.error_message(), HasSubstr("models/one, models/two"));
  request.mutable_job()->set_model("models/two");
  EXPECT_EQ(Create(request).model(), "models/two");
}

TEST(ServerStart, RefusesWhatIsUnsafeOrImpossible) {
  const TestFolder folder;
  service::ServerOptions options;
  options.state = folder.Path("state");
  options.listen = {"0.0.0.0:0"};
  auto server = service::Server::Start(options);
  ASSERT_FALSE(server.ok());
  EXPECT_THAT(std::string(server.status().message()), HasSubstr("--insecure"));
  options.insecure = true;
  EXPECT_TRUE(service::Server::Start(options).ok());
  options.insecure = false;
  options.listen = {"127.0.0.1:0"};
  options.token_file = folder.Path("missing");
  server = service::Server::Start(options);
  ASSERT_FALSE(server.ok());
  EXPECT_THAT(std::string(server.status().message()), HasSubstr("--token-file"));
  options.token_file = "";
  options.tls_cert = folder.Write("cert", "no certificate");
  server = service::Server::Start(options);
  ASSERT_FALSE(server.ok());
  EXPECT_THAT(std::string(server.status().message()), HasSubstr("--tls-key"));
  options.tls_cert = "";
  // One process at a time per state folder, and one server per port.
  const auto first = service::Server::Start(options);
  ASSERT_TRUE(first.ok()) << first.status();
  server = service::Server::Start(options);
  ASSERT_FALSE(server.ok());
  EXPECT_THAT(std::string(server.status().message()), HasSubstr("state"));
  service::ServerOptions other = options;
  other.state = folder.Path("other");
  other.listen = {"127.0.0.1:" + std::to_string((*first)->ports()[0])};
  server = service::Server::Start(other);
  ASSERT_FALSE(server.ok());
  EXPECT_THAT(std::string(server.status().message()), HasSubstr("--listen"));
}

}  // namespace
}  // namespace snapkv::testing
