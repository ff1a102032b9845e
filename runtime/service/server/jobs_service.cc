// SPDX-License-Identifier: Apache-2.0
// Checks, then the store; and the streams of those who watch.
#include "runtime/service/server/jobs_service.h"

#include <algorithm>
#include <utility>

#include "runtime/service/event_log.h"
#include "runtime/service/server/call.h"
#include "runtime/service/server/job_streams.h"
#include "runtime/service/server/upload_call.h"
#include "runtime/service/server/worker_registry.h"
#include "runtime/service/validate.h"

namespace snapkv::service {
namespace {

// A stream that ends at once.
template <class Message>
class Refusal final : public OutStream<Message> {
 public:
  using OutStream<Message>::OutStream;
};

template <class Message>
grpc::ServerWriteReactor<Message>* Refuse(ServiceContext& service, const char* method,
                                          grpc::CallbackServerContext* context, const absl::Status& status) {
  const auto stream = OutStream<Message>::template Make<Refusal<Message>>(service, method, context);
  stream->End(status);
  return stream.get();
}

// An upload that ends at once.
class RefusedUpload final : public grpc::ServerReadReactor<v1::UploadDocumentRequest> {
 public:
  RefusedUpload(grpc::CallbackServerContext* context, const absl::Status& status) {
    Finish(ToGrpc(status, *context));
  }
  void OnDone() override { delete this; }
};

}  // namespace

grpc::ServerUnaryReactor* JobsService::CreateJob(grpc::CallbackServerContext* context,
                                                 const v1::CreateJobRequest* request, v1::Job* response) {
  return Answer(service_, "/snapkv.v1.Jobs/CreateJob", service_.writers, context, response,
                [this, context, request]() -> absl::StatusOr<v1::Job> {
                  ASSIGN_OR_RETURN(const std::string tenant, service_.tenants.Authenticate(*context));
                  RETURN_IF_ERROR(service_.CheckNotDraining());
                  return Create(tenant, *request);
                });
}

absl::StatusOr<v1::Job> JobsService::Create(const std::string& tenant, v1::CreateJobRequest request) {
  RETURN_IF_ERROR(CheckMessage(service_, request));
  RETURN_IF_ERROR(ValidateCreateJob(request, service_.store_limits, service_.limits.max_inline_bytes));
  v1::Job& job = *request.mutable_job();
  ClearOutputOnly(job);
  if (job.model().empty()) {
    ASSIGN_OR_RETURN(*job.mutable_model(), service_.registry.DefaultModel(service_.default_model));
  }
  RETURN_IF_ERROR(service_.registry.CheckModel(job.model()));
  ASSIGN_OR_RETURN(v1::Job created, service_.store.CreateJob(tenant, request));
  if (!request.validate_only()) {
    Event(LogLevel::kInfo, "job created",
          {{"job", created.name()},
           {"tenant", tenant},
           {"model", created.model()},
           {"documents", created.counts().documents()},
           {"open", request.open()}});
  }
  return created;
}

grpc::ServerReadReactor<v1::UploadDocumentRequest>* JobsService::UploadDocument(
    grpc::CallbackServerContext* context, v1::UploadStatus* response) {
  const auto tenant = service_.tenants.Authenticate(*context);
  if (!tenant.ok()) {
    service_.RpcFinished("/snapkv.v1.Jobs/UploadDocument", tenant.status(), absl::ZeroDuration());
    return new RefusedUpload(context, tenant.status());
  }
  return new UploadCall(service_, context, *tenant, response);
}

grpc::ServerUnaryReactor* JobsService::GetUploadStatus(grpc::CallbackServerContext* context,
                                                       const v1::GetUploadStatusRequest* request,
                                                       v1::UploadStatus* response) {
  return Answer(service_, "/snapkv.v1.Jobs/GetUploadStatus", service_.readers, context, response,
                [this, context, request]() -> absl::StatusOr<v1::UploadStatus> {
                  ASSIGN_OR_RETURN(const std::string tenant, service_.tenants.Authenticate(*context));
                  return service_.store.GetUpload(tenant, request->job(), request->document_id());
                });
}

grpc::ServerUnaryReactor* JobsService::SealJob(grpc::CallbackServerContext* context,
                                               const v1::SealJobRequest* request, v1::Job* response) {
  return Answer(
      service_, "/snapkv.v1.Jobs/SealJob", service_.writers, context, response,
      [this, context, request]() -> absl::StatusOr<v1::Job> {
        ASSIGN_OR_RETURN(const std::string tenant, service_.tenants.Authenticate(*context));
        RETURN_IF_ERROR(service_.CheckNotDraining());
        ASSIGN_OR_RETURN(v1::Job job, service_.store.SealJob(tenant, request->name()));
        Event(LogLevel::kInfo, "job sealed", {{"job", job.name()}, {"documents", job.counts().documents()}});
        return job;
      });
}

grpc::ServerUnaryReactor* JobsService::GetJob(grpc::CallbackServerContext* context,
                                              const v1::GetJobRequest* request, v1::Job* response) {
  return Answer(service_, "/snapkv.v1.Jobs/GetJob", service_.readers, context, response,
                [this, context, request]() -> absl::StatusOr<v1::Job> {
                  ASSIGN_OR_RETURN(const std::string tenant, service_.tenants.Authenticate(*context));
                  return service_.store.GetJob(tenant, request->name());
                });
}

grpc::ServerUnaryReactor* JobsService::ListJobs(grpc::CallbackServerContext* context,
                                                const v1::ListJobsRequest* request,
                                                v1::ListJobsResponse* response) {
  return Answer(service_, "/snapkv.v1.Jobs/ListJobs", service_.readers, context, response,
                [this, context, request]() -> absl::StatusOr<v1::ListJobsResponse> {
                  ASSIGN_OR_RETURN(const std::string tenant, service_.tenants.Authenticate(*context));
                  RETURN_IF_ERROR(ValidateListJobs(*request));
                  v1::ListJobsRequest checked = *request;
                  checked.set_page_size(PageSizeOf(request->page_size()));
                  return service_.store.ListJobs(tenant, checked);
                });
}

grpc::ServerUnaryReactor* JobsService::DeleteJob(grpc::CallbackServerContext* context,
                                                 const v1::DeleteJobRequest* request,
                                                 google::protobuf::Empty* response) {
  return Answer(service_, "/snapkv.v1.Jobs/DeleteJob", service_.writers, context, response,
                [this, context, request]() -> absl::StatusOr<google::protobuf::Empty> {
                  ASSIGN_OR_RETURN(const std::string tenant, service_.tenants.Authenticate(*context));
                  RETURN_IF_ERROR(service_.store.DeleteJob(tenant, request->name()));
                  Event(LogLevel::kInfo, "job deleted", {{"job", request->name()}});
                  return google::protobuf::Empty();
                });
}

grpc::ServerUnaryReactor* JobsService::CancelJob(grpc::CallbackServerContext* context,
                                                 const v1::CancelJobRequest* request, v1::Job* response) {
  return Answer(service_, "/snapkv.v1.Jobs/CancelJob", service_.writers, context, response,
                [this, context, request]() -> absl::StatusOr<v1::Job> {
                  ASSIGN_OR_RETURN(const std::string tenant, service_.tenants.Authenticate(*context));
                  RETURN_IF_ERROR(ValidateCancelJob(*request));
                  ASSIGN_OR_RETURN(v1::Job job,
                                   service_.store.CancelJob(tenant, request->name(), request->reason()));
                  Event(LogLevel::kInfo, "job cancelled", {{"job", job.name()}});
                  return job;
                });
}

grpc::ServerWriteReactor<v1::JobEvent>* JobsService::WatchJob(grpc::CallbackServerContext* context,
                                                              const v1::WatchJobRequest* request) {
  const auto tenant = service_.tenants.Authenticate(*context);
  absl::Status status = tenant.status();
  if (status.ok()) status = CheckStreams(service_);
  if (!status.ok()) return Refuse<v1::JobEvent>(service_, "/snapkv.v1.Jobs/WatchJob", context, status);
  return WatchJobStream::Begin(service_, context, *tenant, *request);
}

grpc::ServerWriteReactor<v1::Result>* JobsService::StreamResults(grpc::CallbackServerContext* context,
                                                                 const v1::StreamResultsRequest* request) {
  const auto tenant = service_.tenants.Authenticate(*context);
  absl::Status status = tenant.status();
  if (status.ok()) status = CheckStreams(service_);
  if (status.ok() && request->after_sequence() < 0)
    status = ServiceError(Reason::kParameterInvalid, "after_sequence is ", request->after_sequence(),
                          ", expected 0 or more");
  if (!status.ok()) return Refuse<v1::Result>(service_, "/snapkv.v1.Jobs/StreamResults", context, status);
  return ResultStream::Begin(service_, context, *tenant, *request);
}

}  // namespace snapkv::service
