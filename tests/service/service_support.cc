// SPDX-License-Identifier: Apache-2.0
// Server, worker and calls for tests.
#include "tests/service/service_support.h"

#include "google/protobuf/util/time_util.h"
#include "gtest/gtest.h"
#include "kernels/base/log.h"
#include "runtime/service/grpc_status.h"

namespace snapkv::testing {

TestServer::TestServer(service::ServerOptions options) : options_(std::move(options)) {
  if (options_.state.empty()) options_.state = folder_.Path("state");
  if (options_.listen.empty()) options_.listen = {"127.0.0.1:0"};
  Start();
}

void TestServer::Start() {
  auto server = service::Server::Start(options_);
  CHECK(server.ok()) << server.status();
  server_ = *std::move(server);
  address_ = "127.0.0.1:" + std::to_string(server_->ports()[0]);
}

std::shared_ptr<grpc::Channel> TestServer::Channel() const {
  grpc::ChannelArguments arguments;
  // Channels of one process to one address share a connection otherwise.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetMaxReceiveMessageSize(64 << 20);
  return grpc::CreateCustomChannel(address_, grpc::InsecureChannelCredentials(), arguments);
}

std::unique_ptr<grpc::ClientContext> Context(double seconds, const std::string& token) {
  auto context = std::make_unique<grpc::ClientContext>();
  context->set_deadline(absl::ToChronoTime(absl::Now() + absl::Seconds(seconds)));
  if (!token.empty()) context->AddMetadata("authorization", "Bearer " + token);
  return context;
}

std::string ReasonIn(const grpc::Status& status, const grpc::ClientContext& context) {
  const auto reason = service::ReasonOf(service::FromGrpc(status));
  const std::string in_details = reason.has_value() ? service::ReasonName(*reason) : "";
  const auto& trailer = context.GetServerTrailingMetadata();
  const auto found = trailer.find("snapkv-reason");
  const std::string in_trailer =
      found == trailer.end() ? "" : std::string(found->second.data(), found->second.size());
  EXPECT_EQ(in_details, in_trailer) << status.error_message();
  return in_details;
}

v1::CreateJobRequest JobOf(const std::vector<std::pair<std::string, std::string>>& documents) {
  v1::CreateJobRequest request;
  request.mutable_job()->set_model("models/smollm2");
  for (const auto& [id, text] : documents) {
    v1::Document& document = *request.add_documents();
    document.set_document_id(id);
    document.set_content(text);
  }
  return request;
}

ScriptedWorker::ScriptedWorker(const std::shared_ptr<grpc::Channel>& channel, const std::string& model,
                               const std::string& host)
    : stub_(v1::Workers::NewStub(channel)) {
  v1::RegisterWorkerRequest request;
  request.mutable_worker()->set_model(model);
  request.mutable_worker()->set_display_name(host);
  request.mutable_worker()->set_model_fingerprint("fingerprint");
  request.mutable_worker()->set_max_context(8192);
  request.mutable_worker()->set_max_batch(8);
  request.mutable_worker()->set_ranks(1);
  const auto context = Context();
  const grpc::Status status = stub_->RegisterWorker(context.get(), request, &worker_);
  EXPECT_TRUE(status.ok()) << status.error_message();
}

std::vector<v1::Lease> ScriptedWorker::Acquire(int count, double wait_s) {
  v1::AcquireLeaseRequest request;
  request.set_worker(name());
  request.set_max_leases(count);
  *request.mutable_wait() =
      google::protobuf::util::TimeUtil::MillisecondsToDuration(static_cast<int64_t>(wait_s * 1000));
  v1::AcquireLeaseResponse response;
  const auto context = Context(wait_s + 20);
  const grpc::Status status = stub_->AcquireLease(context.get(), request, &response);
  EXPECT_TRUE(status.ok()) << status.error_message();
  return {response.leases().begin(), response.leases().end()};
}

grpc::Status ScriptedWorker::Read(const v1::Lease& lease, std::string& text) {
  v1::ReadDocumentRequest request;
  request.set_lease(lease.name());
  request.set_attempt(lease.attempt());
  const auto context = Context();
  const auto reader = stub_->ReadDocument(context.get(), request);
  text.clear();
  for (v1::Chunk chunk; reader->Read(&chunk);) {
    EXPECT_EQ(chunk.offset(), static_cast<int64_t>(text.size()));
    text += chunk.data();
  }
  return reader->Finish();
}

grpc::Status ScriptedWorker::Complete(const v1::Lease& lease, const std::string& summary) {
  v1::CompleteDocumentRequest request;
  request.set_lease(lease.name());
  request.set_attempt(lease.attempt());
  request.mutable_result()->set_summary(summary);
  request.mutable_result()->set_finish_reason(v1::FINISH_REASON_STOP);
  request.mutable_result()->mutable_usage()->set_prompt_tokens(10);
  request.mutable_result()->mutable_usage()->set_completion_tokens(3);
  google::protobuf::Empty response;
  const auto context = Context();
  return stub_->CompleteDocument(context.get(), request, &response);
}

grpc::Status ScriptedWorker::Fail(const v1::Lease& lease, const std::string& reason, bool retry) {
  v1::FailDocumentRequest request;
  request.set_lease(lease.name());
  request.set_attempt(lease.attempt());
  request.set_retry(retry);
  request.mutable_status()->set_code(grpc::StatusCode::INVALID_ARGUMENT);
  request.mutable_status()->set_reason(reason);
  request.mutable_status()->set_message("the document has 9000 tokens, the context takes 8192");
  google::protobuf::Empty response;
  const auto context = Context();
  return stub_->FailDocument(context.get(), request, &response);
}

grpc::Status ScriptedWorker::Renew(const std::vector<v1::Lease>& leases, v1::RenewLeaseResponse& response) {
  v1::RenewLeaseRequest request;
  request.set_worker(name());
  for (const v1::Lease& lease : leases) {
    v1::LeaseRenewal& renewal = *request.add_leases();
    renewal.set_lease(lease.name());
    renewal.set_attempt(lease.attempt());
    renewal.mutable_progress()->set_phase(v1::Progress::PHASE_DECODE);
    renewal.mutable_progress()->set_generated_tokens(7);
  }
  const auto context = Context();
  return stub_->RenewLease(context.get(), request, &response);
}

std::map<std::string, v1::Result> ResultsOf(v1::Jobs::Stub& jobs, const std::string& job, bool follow) {
  v1::StreamResultsRequest request;
  request.set_name(job);
  request.set_follow(follow);
  const auto context = Context(60);
  const auto reader = jobs.StreamResults(context.get(), request);
  std::map<std::string, v1::Result> results;
  int64_t sequence = 0;
  for (v1::Result result; reader->Read(&result);) {
    EXPECT_EQ(result.sequence(), ++sequence) << job;
    EXPECT_TRUE(results.emplace(result.document_id(), result).second)
        << result.document_id() << " has two results";
  }
  const grpc::Status status = reader->Finish();
  EXPECT_TRUE(status.ok()) << status.error_message();
  return results;
}

}  // namespace snapkv::testing
