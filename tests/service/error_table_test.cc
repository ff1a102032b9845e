// SPDX-License-Identifier: Apache-2.0
// Every row of the error table of docs/service.md, provoked through gRPC: code, reason (in details and
// trailer), message.
#include <cmath>
#include <fstream>
#include <functional>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/hash/sha256.h"
#include "runtime/service/grpc_status.h"
#include "tests/service/service_support.h"

namespace snapkv::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string Digest(const std::string& text) {
  const auto digest = runtime::Sha256(text);
  return std::string(digest.begin(), digest.end());
}

class ErrorTable : public ::testing::Test {
 protected:
  static service::ServerOptions Options() {
    service::ServerOptions options;
    options.limits.max_inline_bytes = 6'000;
    options.limits.max_message_bytes = 1 << 20;
    options.limits.max_chunk_bytes = 1'000;
    options.store.max_document_bytes = 5'000;
    options.store.max_job_bytes = 8'000;
    options.store.max_job_documents = 10;
    options.store.max_queued_jobs = 20;
    options.store.lease = absl::Seconds(1);
    options.drain_timeout = absl::Milliseconds(200);
    return options;
  }

  // The error that `call` ends with has this code, reason, and words in its message.
  void Expect(grpc::StatusCode code, const std::string& reason, const std::vector<std::string>& words,
              const std::function<grpc::Status(grpc::ClientContext*)>& call, const std::string& token = "") {
    const auto context = Context(20, token);
    const grpc::Status status = call(context.get());
    EXPECT_EQ(status.error_code(), code) << status.error_message();
    EXPECT_EQ(ReasonIn(status, *context), reason) << status.error_message();
    for (const std::string& word : words) EXPECT_THAT(status.error_message(), HasSubstr(word));
    const absl::Status back = service::FromGrpc(status);
    const bool retry = reason == "QUEUE_FULL" || reason == "QUOTA_EXCEEDED" || reason == "DRAINING" ||
                       reason == "NO_WORKER" || reason == "STORAGE_FULL";
    EXPECT_EQ(service::RetryDelayOf(back).has_value(), retry) << reason;
  }

  void ExpectCreate(grpc::StatusCode code, const std::string& reason, const std::vector<std::string>& words,
                    const v1::CreateJobRequest& request) {
    for (const bool validate_only : {false, true}) {
      v1::CreateJobRequest asked = request;
      asked.set_validate_only(validate_only);
      Expect(code, reason, words, [&](grpc::ClientContext* context) {
        v1::Job job;
        return jobs_->CreateJob(context, asked, &job);
      });
    }
  }

  v1::Job Create(const v1::CreateJobRequest& request) {
    v1::Job job;
    const auto context = Context();
    const grpc::Status status = jobs_->CreateJob(context.get(), request, &job);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return job;
  }

  // One upload of `data` in chunks of 1,000 bytes from `offset`.
  grpc::Status Upload(grpc::ClientContext* context, const v1::UploadHeader& header, const std::string& data,
                      int64_t offset = 0) {
    v1::UploadStatus status;
    const auto writer = jobs_->UploadDocument(context, &status);
    v1::UploadDocumentRequest message;
    *message.mutable_header() = header;
    bool ok = writer->Write(message);
    for (size_t at = 0; ok && at < data.size(); at += 1'000) {
      message.mutable_chunk()->set_offset(offset + static_cast<int64_t>(at));
      message.mutable_chunk()->set_data(data.substr(at, 1'000));
      ok = writer->Write(message);
    }
    writer->WritesDone();
    return writer->Finish();
  }

  v1::UploadHeader Header(const std::string& job, const std::string& id, const std::string& data) {
    v1::UploadHeader header;
    header.set_job(job);
    header.set_document_id(id);
    header.set_size_bytes(static_cast<int64_t>(data.size()));
    header.set_sha256(Digest(data));
    return header;
  }

  v1::Job OpenJob() {
    v1::CreateJobRequest request = JobOf({});
    request.set_open(true);
    return Create(request);
  }

  TestServer server_{Options()};
  std::shared_ptr<grpc::Channel> channel_ = server_.Channel();
  std::unique_ptr<v1::Jobs::Stub> jobs_ = v1::Jobs::NewStub(channel_);
};

TEST_F(ErrorTable, Documents) {
  using enum grpc::StatusCode;
  ExpectCreate(INVALID_ARGUMENT, "DOCUMENT_EMPTY", {"a"}, JobOf({{"a", ""}}));
  ExpectCreate(INVALID_ARGUMENT, "DOCUMENT_EMPTY", {"a"}, JobOf({{"a", " \n\t"}}));
  ExpectCreate(INVALID_ARGUMENT, "DOCUMENT_NOT_UTF8", {"a", "3"}, JobOf({{"a", "abc\xff"}}));
  ExpectCreate(INVALID_ARGUMENT, "DOCUMENT_NOT_UTF8", {"a", "NUL"}, JobOf({{"a", std::string("ab\0c", 4)}}));
  ExpectCreate(INVALID_ARGUMENT, "DOCUMENT_ID_DUPLICATE", {"a"}, JobOf({{"a", "x"}, {"a", "y"}}));
  ExpectCreate(INVALID_ARGUMENT, "DOCUMENT_ID_INVALID", {"512"}, JobOf({{std::string(513, 'i'), "x"}}));
  ExpectCreate(INVALID_ARGUMENT, "DOCUMENT_ID_INVALID", {}, JobOf({{"", "x"}}));
  ExpectCreate(INVALID_ARGUMENT, "DOCUMENT_ID_INVALID", {}, JobOf({{"a\nb", "x"}}));
}

TEST_F(ErrorTable, Parameters) {
  using enum grpc::StatusCode;
  const auto with = [](const std::function<void(v1::Parameters&)>& change) {
    v1::CreateJobRequest request = JobOf({{"a", "text"}});
    change(*request.mutable_job()->mutable_parameters());
    return request;
  };
  ExpectCreate(INVALID_ARGUMENT, "PARAMETER_INVALID", {"max_tokens", "0"},
               with([](auto& p) { p.set_max_tokens(0); }));
  ExpectCreate(INVALID_ARGUMENT, "PARAMETER_INVALID", {"temperature"},
               with([](auto& p) { p.set_temperature(-1); }));
  ExpectCreate(INVALID_ARGUMENT, "PARAMETER_INVALID", {"temperature"},
               with([](auto& p) { p.set_temperature(NAN); }));
  ExpectCreate(INVALID_ARGUMENT, "PARAMETER_INVALID", {"top_p"}, with([](auto& p) { p.set_top_p(1.5); }));
  ExpectCreate(INVALID_ARGUMENT, "PARAMETER_INVALID", {"min_p"}, with([](auto& p) { p.set_min_p(-0.5); }));
  ExpectCreate(INVALID_ARGUMENT, "PARAMETER_INVALID", {"top_k"}, with([](auto& p) { p.set_top_k(-1); }));
  ExpectCreate(INVALID_ARGUMENT, "PARAMETER_INVALID", {"repeat_penalty"},
               with([](auto& p) { p.set_repeat_penalty(0); }));
  ExpectCreate(INVALID_ARGUMENT, "PARAMETER_INVALID", {"stop"}, with([](auto& p) { p.add_stop(""); }));
  ExpectCreate(INVALID_ARGUMENT, "PARAMETER_INVALID", {"window"}, with([](auto& p) { p.set_window(0); }));
  ExpectCreate(INVALID_ARGUMENT, "PARAMETER_INVALID", {"kernel"}, with([](auto& p) { p.set_kernel(4); }));
  ExpectCreate(INVALID_ARGUMENT, "PARAMETER_INVALID", {"capacity"}, with([](auto& p) {
                 p.set_capacity(32);
                 p.set_window(32);
               }));
  v1::CreateJobRequest request = JobOf({{"a", "text"}});
  request.mutable_job()->set_priority(101);
  ExpectCreate(INVALID_ARGUMENT, "PARAMETER_INVALID", {"priority", "101"}, request);
  request = JobOf({{"a", "text"}});
  request.set_request_id("not allowed");
  ExpectCreate(INVALID_ARGUMENT, "PARAMETER_INVALID", {"request_id"}, request);
  request = JobOf({{"a", "text"}});
  request.mutable_documents(0)->mutable_parameters()->set_capacity(512);
  ExpectCreate(INVALID_ARGUMENT, "PARAMETER_INVALID", {"capacity"}, request);
  request = JobOf({{"a", "text"}});
  request.mutable_documents(0)->set_media_type("image/png");
  ExpectCreate(INVALID_ARGUMENT, "PARAMETER_INVALID", {"media_type", "image/png"}, request);

  Expect(INVALID_ARGUMENT, "PARAMETER_INVALID", {"page_size", "-1"}, [&](grpc::ClientContext* context) {
    v1::ListJobsRequest list;
    list.set_page_size(-1);
    v1::ListJobsResponse response;
    return jobs_->ListJobs(context, list, &response);
  });
  Expect(INVALID_ARGUMENT, "PARAMETER_INVALID", {"filter"}, [&](grpc::ClientContext* context) {
    v1::ListJobsRequest list;
    list.set_filter("state ~ QUEUED");
    v1::ListJobsResponse response;
    return jobs_->ListJobs(context, list, &response);
  });
  Expect(INVALID_ARGUMENT, "PAGE_TOKEN_INVALID", {"page_token"}, [&](grpc::ClientContext* context) {
    v1::ListJobsRequest list;
    list.set_page_token("forged");
    v1::ListJobsResponse response;
    return jobs_->ListJobs(context, list, &response);
  });
}

TEST_F(ErrorTable, Sizes) {
  using enum grpc::StatusCode;
  ExpectCreate(INVALID_ARGUMENT, "DOCUMENT_TOO_LARGE", {"5001", "5000"},
               JobOf({{"a", std::string(5'001, 'x')}}));
  ExpectCreate(INVALID_ARGUMENT, "JOB_TOO_LARGE", {"8000"},
               JobOf({{"a", std::string(4'500, 'x')}, {"b", std::string(4'500, 'x')}}));
  ExpectCreate(INVALID_ARGUMENT, "JOB_TOO_LARGE", {"6000", "UploadDocument"},
               JobOf({{"a", std::string(3'500, 'x')}, {"b", std::string(3'500, 'x')}}));
  v1::CreateJobRequest many = JobOf({});
  for (int i = 0; i < 11; ++i) {
    many.add_documents()->set_document_id(std::to_string(i));
    many.mutable_documents(i)->set_content("x");
  }
  ExpectCreate(INVALID_ARGUMENT, "JOB_TOO_LARGE", {"11", "10"}, many);
  ExpectCreate(INVALID_ARGUMENT, "PARAMETER_INVALID", {"open"}, JobOf({}));
  v1::CreateJobRequest huge = JobOf({{"a", std::string(2 << 20, 'x')}});
  ExpectCreate(RESOURCE_EXHAUSTED, "MESSAGE_TOO_LARGE", {"UploadDocument", "1048576"}, huge);
}

TEST_F(ErrorTable, Uploads) {
  using enum grpc::StatusCode;
  const v1::Job job = OpenJob();
  const std::string text(2'500, 'x');
  v1::UploadHeader large = Header(job.name(), "large", text);
  large.set_size_bytes(5'001);
  Expect(INVALID_ARGUMENT, "DOCUMENT_TOO_LARGE", {"5001", "5000"},
         [&](grpc::ClientContext* context) { return Upload(context, large, ""); });
  v1::UploadHeader wrong = Header(job.name(), "wrong", text);
  wrong.set_sha256(Digest("other"));
  Expect(DATA_LOSS, "CHECKSUM_MISMATCH", {"wrong"},
         [&](grpc::ClientContext* context) { return Upload(context, wrong, text); });
  wrong.set_sha256("short");
  Expect(INVALID_ARGUMENT, "PARAMETER_INVALID", {"sha256", "32"},
         [&](grpc::ClientContext* context) { return Upload(context, wrong, text); });
  Expect(OUT_OF_RANGE, "OFFSET_MISMATCH", {"1000", "0"}, [&](grpc::ClientContext* context) {
    return Upload(context, Header(job.name(), "offset", text), text, 1'000);
  });
  {
    const auto context = Context();
    const grpc::Status status = Upload(context.get(), Header(job.name(), "offset", text), text, 7);
    EXPECT_THAT(service::FiguresOf(service::FromGrpc(status)),
                ::testing::Contains(std::pair<std::string, std::string>("committed_size", "0")));
  }
  Expect(INVALID_ARGUMENT, "PARAMETER_INVALID", {"header"}, [&](grpc::ClientContext* context) {
    v1::UploadStatus response;
    const auto writer = jobs_->UploadDocument(context, &response);
    v1::UploadDocumentRequest message;
    message.mutable_chunk()->set_data("x");
    writer->Write(message);
    writer->WritesDone();
    return writer->Finish();
  });
  Expect(NOT_FOUND, "DOCUMENT_NOT_FOUND", {"nothing"}, [&](grpc::ClientContext* context) {
    v1::GetUploadStatusRequest request;
    request.set_job(job.name());
    request.set_document_id("nothing");
    v1::UploadStatus response;
    return jobs_->GetUploadStatus(context, request, &response);
  });
  // Half of it, then the seal names it.
  {
    const auto context = Context();
    EXPECT_TRUE(Upload(context.get(), Header(job.name(), "half", text), text.substr(0, 1'000)).ok());
  }
  Expect(FAILED_PRECONDITION, "JOB_STATE", {"half"}, [&](grpc::ClientContext* context) {
    v1::SealJobRequest request;
    request.set_name(job.name());
    v1::Job response;
    return jobs_->SealJob(context, request, &response);
  });
  const v1::Job queued = Create(JobOf({{"a", "text"}}));
  Expect(FAILED_PRECONDITION, "JOB_STATE", {"QUEUED"}, [&](grpc::ClientContext* context) {
    return Upload(context, Header(queued.name(), "b", text), text);
  });
  Expect(FAILED_PRECONDITION, "JOB_STATE", {"QUEUED"}, [&](grpc::ClientContext* context) {
    v1::DeleteJobRequest request;
    request.set_name(queued.name());
    google::protobuf::Empty response;
    return jobs_->DeleteJob(context, request, &response);
  });
}

TEST_F(ErrorTable, Jobs) {
  using enum grpc::StatusCode;
  const auto unknown = [&](const std::function<grpc::Status(grpc::ClientContext*)>& call) {
    Expect(NOT_FOUND, "JOB_NOT_FOUND", {"jobs/unknown"}, call);
  };
  v1::Job job;
  unknown([&](grpc::ClientContext* context) {
    v1::GetJobRequest request;
    request.set_name("jobs/unknown");
    return jobs_->GetJob(context, request, &job);
  });
  unknown([&](grpc::ClientContext* context) {
    v1::SealJobRequest request;
    request.set_name("jobs/unknown");
    return jobs_->SealJob(context, request, &job);
  });
  unknown([&](grpc::ClientContext* context) {
    v1::CancelJobRequest request;
    request.set_name("jobs/unknown");
    return jobs_->CancelJob(context, request, &job);
  });
  unknown([&](grpc::ClientContext* context) {
    v1::WatchJobRequest request;
    request.set_name("jobs/unknown");
    return jobs_->WatchJob(context, request)->Finish();
  });
  unknown([&](grpc::ClientContext* context) {
    v1::StreamResultsRequest request;
    request.set_name("jobs/unknown");
    return jobs_->StreamResults(context, request)->Finish();
  });
  v1::CreateJobRequest request = JobOf({{"a", "text"}});
  request.set_request_id("once");
  const v1::Job first = Create(request);
  EXPECT_EQ(Create(request).name(), first.name());
  request.mutable_documents(0)->set_content("other");
  request.set_validate_only(false);
  Expect(ALREADY_EXISTS, "REQUEST_ID_REUSED", {"once"},
         [&](grpc::ClientContext* context) { return jobs_->CreateJob(context, request, &job); });
}

TEST_F(ErrorTable, QueueFull) {
  for (int i = 0; i < 20; ++i) Create(JobOf({{"a", "text"}}));
  v1::Job job;
  Expect(grpc::RESOURCE_EXHAUSTED, "QUEUE_FULL", {"20"}, [&](grpc::ClientContext* context) {
    return jobs_->CreateJob(context, JobOf({{"a", "text"}}), &job);
  });
}

TEST_F(ErrorTable, Workers) {
  using enum grpc::StatusCode;
  ScriptedWorker worker(channel_);
  Expect(FAILED_PRECONDITION, "MODEL_MISMATCH", {"models/smollm2"}, [&](grpc::ClientContext* context) {
    v1::RegisterWorkerRequest request;
    *request.mutable_worker() = worker.worker();
    request.mutable_worker()->set_display_name("host:2");
    request.mutable_worker()->set_model_fingerprint("another");
    v1::Worker response;
    return worker.stub().RegisterWorker(context, request, &response);
  });
  const auto acquire = [&](const std::string& name, int count) {
    return [&, name, count](grpc::ClientContext* context) {
      v1::AcquireLeaseRequest request;
      request.set_worker(name);
      request.set_max_leases(count);
      v1::AcquireLeaseResponse response;
      return worker.stub().AcquireLease(context, request, &response);
    };
  };
  Expect(NOT_FOUND, "WORKER_UNKNOWN", {"workers/x", "register"}, acquire("workers/x", 1));
  Expect(INVALID_ARGUMENT, "PARAMETER_INVALID", {"max_leases", "0"}, acquire(worker.name(), 0));
  // A model that nobody has ever served, once one is known.
  v1::CreateJobRequest request = JobOf({{"a", "text"}});
  request.mutable_job()->set_model("models/smolm2");
  ExpectCreate(NOT_FOUND, "MODEL_NOT_FOUND", {"models/smolm2", "models/smollm2"}, request);
  Expect(NOT_FOUND, "MODEL_NOT_FOUND", {"models/x"}, [&](grpc::ClientContext* context) {
    v1::GetModelRequest get;
    get.set_name("models/x");
    v1::Model response;
    return v1::Models::NewStub(channel_)->GetModel(context, get, &response);
  });
  // The lease expires after a second, and somebody else has it.
  Create(JobOf({{"a", "text"}}));
  const auto leases = worker.Acquire(1);
  ASSERT_EQ(leases.size(), 1u);
  ScriptedWorker other(channel_, "models/smollm2", "host:2");
  const auto again = other.Acquire(1, 10);
  ASSERT_EQ(again.size(), 1u);
  EXPECT_EQ(again[0].attempt(), 2);
  Expect(ABORTED, "LEASE_LOST", {}, [&](grpc::ClientContext* context) {
    v1::CompleteDocumentRequest late;
    late.set_lease(leases[0].name());
    late.set_attempt(1);
    late.mutable_result()->set_summary("late");
    google::protobuf::Empty response;
    return worker.stub().CompleteDocument(context, late, &response);
  });
  Expect(ABORTED, "LEASE_LOST", {}, [&](grpc::ClientContext* context) {
    v1::ReadDocumentRequest read;
    read.set_lease(leases[0].name());
    read.set_attempt(1);
    return worker.stub().ReadDocument(context, read)->Finish();
  });
  EXPECT_TRUE(other.Complete(again[0], "in time").ok());
}

TEST_F(ErrorTable, ContextExceededIsAResult) {
  const v1::Job job = Create(JobOf({{"a", "text"}, {"b", "text"}}));
  ScriptedWorker worker(channel_);
  const auto leases = worker.Acquire(2);
  ASSERT_EQ(leases.size(), 2u);
  EXPECT_TRUE(worker.Fail(leases[0], "CONTEXT_EXCEEDED", false).ok());
  EXPECT_TRUE(worker.Complete(leases[1], "fine").ok());
  const auto results = ResultsOf(*jobs_, job.name());
  ASSERT_EQ(results.size(), 2u);
  const v1::Status& status = results.at("a").status();
  EXPECT_EQ(status.code(), grpc::INVALID_ARGUMENT);
  EXPECT_EQ(status.reason(), "CONTEXT_EXCEEDED");
  EXPECT_THAT(status.message(), AllOf(HasSubstr("9000"), HasSubstr("8192")));
  v1::GetJobRequest get;
  get.set_name(job.name());
  v1::Job now;
  const auto context = Context();
  ASSERT_TRUE(jobs_->GetJob(context.get(), get, &now).ok());
  EXPECT_EQ(now.state(), v1::Job::SUCCEEDED);
  EXPECT_EQ(now.counts().failed(), 1);
  EXPECT_EQ(now.counts().succeeded(), 1);
}

TEST_F(ErrorTable, NoWorkerAndDraining) {
  using enum grpc::StatusCode;
  const auto summarizer = v1::Summarizer::NewStub(channel_);
  const auto summarize = [&](grpc::ClientContext* context) {
    v1::SummarizeRequest request;
    request.set_content("text");
    return summarizer->Summarize(context, request)->Finish();
  };
  Expect(UNAVAILABLE, "NO_WORKER", {"models/smollm2"}, summarize);
  server_.server().Drain();
  Expect(UNAVAILABLE, "DRAINING", {}, summarize);
  v1::Job job;
  Expect(UNAVAILABLE, "DRAINING", {}, [&](grpc::ClientContext* context) {
    return jobs_->CreateJob(context, JobOf({{"a", "text"}}), &job);
  });
}

TEST(ErrorTableTokens, Tokens) {
  using enum grpc::StatusCode;
  const TestFolder folder;
  service::ServerOptions options;
  options.token_file =
      folder.Write("tokens", "# who\nanna secret-of-anna\nbert secret-of-bert\nworkers secret-of-workers\n");
  options.store.max_tenant_jobs = 2;
  TestServer server(options);
  const auto channel = server.Channel();
  const auto jobs = v1::Jobs::NewStub(channel);
  const auto create = [&](const std::string& token, v1::Job& job, std::string& reason) {
    const auto context = Context(20, token);
    const grpc::Status status = jobs->CreateJob(context.get(), JobOf({{"a", "text"}}), &job);
    reason = status.ok() ? "" : ReasonIn(status, *context);
    return status.error_code();
  };
  v1::Job job;
  std::string reason;
  EXPECT_EQ(create("", job, reason), UNAUTHENTICATED);
  EXPECT_EQ(reason, "TOKEN_MISSING");
  EXPECT_EQ(create("wrong", job, reason), UNAUTHENTICATED);
  EXPECT_EQ(reason, "TOKEN_INVALID");
  EXPECT_EQ(create(std::string(5'000, 'x'), job, reason), UNAUTHENTICATED);
  EXPECT_EQ(reason, "TOKEN_INVALID");
  ASSERT_EQ(create("secret-of-anna", job, reason), OK);
  EXPECT_EQ(job.tenant(), "anna");
  v1::Job other;
  ASSERT_EQ(create("secret-of-anna", other, reason), OK);
  EXPECT_EQ(create("secret-of-anna", other, reason), RESOURCE_EXHAUSTED);
  EXPECT_EQ(reason, "QUOTA_EXCEEDED");
  ASSERT_EQ(create("secret-of-bert", other, reason), OK);
  // Another tenant's job is none, for every method.
  v1::GetJobRequest get;
  get.set_name(job.name());
  auto context = Context(20, "secret-of-bert");
  grpc::Status status = jobs->GetJob(context.get(), get, &other);
  EXPECT_EQ(status.error_code(), NOT_FOUND);
  EXPECT_EQ(ReasonIn(status, *context), "JOB_NOT_FOUND");
  context = Context(20, "secret-of-bert");
  v1::WatchJobRequest watch;
  watch.set_name(job.name());
  EXPECT_EQ(jobs->WatchJob(context.get(), watch)->Finish().error_code(), NOT_FOUND);
  // A tenant is no worker.
  const auto workers = v1::Workers::NewStub(channel);
  v1::RegisterWorkerRequest registration;
  registration.mutable_worker()->set_model("models/m");
  registration.mutable_worker()->set_model_fingerprint("f");
  registration.mutable_worker()->set_max_context(10);
  registration.mutable_worker()->set_max_batch(1);
  registration.mutable_worker()->set_ranks(1);
  v1::Worker worker;
  context = Context(20, "secret-of-anna");
  status = workers->RegisterWorker(context.get(), registration, &worker);
  EXPECT_EQ(status.error_code(), UNAUTHENTICATED);
  EXPECT_EQ(ReasonIn(status, *context), "TOKEN_INVALID");
  context = Context(20, "secret-of-workers");
  EXPECT_TRUE(workers->RegisterWorker(context.get(), registration, &worker).ok());
  // Read again.
  std::ofstream(folder.Path("tokens")) << "anna new-secret\n";
  ASSERT_TRUE(server.server().ReloadTokens().ok());
  EXPECT_EQ(create("secret-of-anna", job, reason), UNAUTHENTICATED);
  std::ofstream(folder.Path("tokens")) << "broken\n";
  EXPECT_FALSE(server.server().ReloadTokens().ok());
  context = Context(20, "new-secret");
  v1::ListJobsResponse list;
  EXPECT_TRUE(jobs->ListJobs(context.get(), {}, &list).ok());
  EXPECT_EQ(list.jobs_size(), 2);
}

}  // namespace
}  // namespace snapkv::testing
