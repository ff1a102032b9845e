// SPDX-License-Identifier: Apache-2.0
// Leases out, results in.
#include "runtime/service/server/workers_service.h"

#include <utility>
#include <vector>

#include "google/protobuf/util/time_util.h"
#include "runtime/service/event_log.h"
#include "runtime/service/server/call.h"
#include "runtime/service/server/interactive.h"
#include "runtime/service/server/lease_desk.h"
#include "runtime/service/server/watch_hub.h"
#include "runtime/service/server/worker_registry.h"
#include "runtime/service/server/worker_streams.h"
#include "runtime/service/validate.h"

namespace snapkv::service {
namespace {

v1::LeaseEvent GoneEvent(const v1::LeaseRenewal& renewal, v1::LeaseEvent::Kind kind) {
  v1::LeaseEvent event;
  event.set_kind(kind);
  event.set_lease(renewal.lease());
  event.set_attempt(renewal.attempt());
  return event;
}

}  // namespace

grpc::ServerUnaryReactor* WorkersService::RegisterWorker(grpc::CallbackServerContext* context,
                                                         const v1::RegisterWorkerRequest* request,
                                                         v1::Worker* response) {
  return Answer(service_, "/snapkv.v1.Workers/RegisterWorker", service_.writers, context, response,
                [this, context, request]() -> absl::StatusOr<v1::Worker> {
                  RETURN_IF_ERROR(service_.tenants.AuthenticateWorker(*context));
                  RETURN_IF_ERROR(service_.CheckNotDraining());
                  RETURN_IF_ERROR(ValidateRegisterWorker(*request));
                  ASSIGN_OR_RETURN(v1::Worker worker,
                                   service_.registry.Register(request->worker(), absl::Now()));
                  Event(LogLevel::kInfo, "worker registered",
                        {{"worker", worker.name()},
                         {"host", worker.display_name()},
                         {"model", worker.model()},
                         {"ranks", worker.ranks()},
                         {"dtype", worker.dtype()}});
                  service_.metrics.SetWorkers(service_.registry.size());
                  return worker;
                });
}

grpc::ServerUnaryReactor* WorkersService::AcquireLease(grpc::CallbackServerContext* context,
                                                       const v1::AcquireLeaseRequest* request,
                                                       v1::AcquireLeaseResponse* response) {
  absl::Status status = service_.tenants.AuthenticateWorker(*context);
  if (status.ok()) status = ValidateAcquireLease(*request);
  if (!status.ok()) return AnswerError(service_, "/snapkv.v1.Workers/AcquireLease", context, status);
  const auto worker = service_.registry.Seen(request->worker(), absl::Now());
  if (!worker.ok()) return AnswerError(service_, "/snapkv.v1.Workers/AcquireLease", context, worker.status());
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  service_.writers.Post([this, worker = *worker, context, request, response, reactor] {
    service_.desk.Acquire(worker, *request, context, response, reactor);
  });
  return reactor;
}

grpc::ServerWriteReactor<v1::Chunk>* WorkersService::ReadDocument(grpc::CallbackServerContext* context,
                                                                  const v1::ReadDocumentRequest* request) {
  const auto stream = DocumentStream::Make<DocumentStream>(service_, context, *request);
  if (const absl::Status status = service_.tenants.AuthenticateWorker(*context); !status.ok()) {
    stream->End(status);
  } else {
    stream->Begin();
  }
  return stream.get();
}

grpc::ServerUnaryReactor* WorkersService::RenewLease(grpc::CallbackServerContext* context,
                                                     const v1::RenewLeaseRequest* request,
                                                     v1::RenewLeaseResponse* response) {
  return Answer(service_, "/snapkv.v1.Workers/RenewLease", service_.writers, context, response,
                [this, context, request]() -> absl::StatusOr<v1::RenewLeaseResponse> {
                  RETURN_IF_ERROR(service_.tenants.AuthenticateWorker(*context));
                  RETURN_IF_ERROR(service_.registry.Seen(request->worker(), absl::Now()).status());
                  RETURN_IF_ERROR(ValidateRenewLease(*request));
                  return Renew(*request);
                });
}

absl::StatusOr<v1::RenewLeaseResponse> WorkersService::Renew(const v1::RenewLeaseRequest& request) {
  std::vector<v1::LeaseRenewal> durable;
  std::vector<v1::LeaseEvent> gone;
  for (const v1::LeaseRenewal& renewal : request.leases()) {
    if (!InteractiveQueue::IsInteractive(renewal.lease())) {
      durable.push_back(renewal);
    } else if (!service_.interactive.Renew(renewal, absl::Now()).ok()) {
      gone.push_back(GoneEvent(renewal, v1::LeaseEvent::CANCELLED));
    }
  }
  ASSIGN_OR_RETURN(v1::RenewLeaseResponse response, service_.store.RenewLease(request.worker(), durable));
  for (const v1::LeaseRenewal& renewal : durable) {
    const auto holder = service_.desk.Holder(renewal.lease());
    if (!holder.has_value() || !renewal.has_progress()) continue;
    v1::DocumentProgress progress;
    progress.set_document_id(holder->document_id);
    progress.set_worker(request.worker());
    progress.set_attempt(renewal.attempt());
    *progress.mutable_progress() = renewal.progress();
    service_.hub.SetProgress(holder->job, progress);
  }
  for (const v1::LeaseEvent& event : response.events()) service_.desk.Forget(event.lease());
  for (v1::LeaseEvent& event : gone) *response.add_events() = std::move(event);
  return response;
}

grpc::ServerReadReactor<v1::StreamDeltasRequest>* WorkersService::StreamDeltas(
    grpc::CallbackServerContext* context, google::protobuf::Empty*) {
  return new DeltaCall(service_, context, service_.tenants.AuthenticateWorker(*context));
}

grpc::ServerWriteReactor<v1::LeaseEvent>* WorkersService::WatchLeases(grpc::CallbackServerContext* context,
                                                                      const v1::WatchLeasesRequest* request) {
  const auto stream = LeaseStream::Make<LeaseStream>(service_, context);
  absl::Status status = service_.tenants.AuthenticateWorker(*context);
  if (status.ok()) status = service_.registry.Seen(request->worker(), absl::Now()).status();
  if (!status.ok()) {
    stream->End(status);
    return stream.get();
  }
  service_.registry.SetSink(request->worker(), stream);
  if (service_.draining) {
    v1::LeaseEvent drain;
    drain.set_kind(v1::LeaseEvent::DRAIN);
    stream->Put(drain);
  }
  return stream.get();
}

grpc::ServerUnaryReactor* WorkersService::CompleteDocument(grpc::CallbackServerContext* context,
                                                           const v1::CompleteDocumentRequest* request,
                                                           google::protobuf::Empty* response) {
  return Answer(service_, "/snapkv.v1.Workers/CompleteDocument", service_.writers, context, response,
                [this, context, request]() -> absl::StatusOr<google::protobuf::Empty> {
                  RETURN_IF_ERROR(service_.tenants.AuthenticateWorker(*context));
                  RETURN_IF_ERROR(Complete(*request));
                  return google::protobuf::Empty();
                });
}

absl::Status WorkersService::Complete(const v1::CompleteDocumentRequest& request) {
  if (InteractiveQueue::IsInteractive(request.lease())) return service_.interactive.Complete(request);
  const auto holder = service_.desk.Holder(request.lease());
  const auto result = service_.store.CompleteDocument(request, holder ? holder->worker : "");
  service_.desk.Forget(request.lease());
  if (!result.ok()) {
    Event(LogLevel::kWarning, "result refused",
          {{"lease", request.lease()},
           {"attempt", request.attempt()},
           {"reason", ReasonOf(result.status()) ? ReasonName(*ReasonOf(result.status())) : "INTERNAL"}});
    return result.status();
  }
  Event(LogLevel::kInfo, "document done",
        {{"lease", request.lease()},
         {"attempt", request.attempt()},
         {"job", holder ? holder->job : ""},
         {"document", result->document_id()},
         {"sequence", result->sequence()},
         {"prompt_tokens", result->usage().prompt_tokens()},
         {"completion_tokens", result->usage().completion_tokens()}});
  return absl::OkStatus();
}

grpc::ServerUnaryReactor* WorkersService::FailDocument(grpc::CallbackServerContext* context,
                                                       const v1::FailDocumentRequest* request,
                                                       google::protobuf::Empty* response) {
  return Answer(service_, "/snapkv.v1.Workers/FailDocument", service_.writers, context, response,
                [this, context, request]() -> absl::StatusOr<google::protobuf::Empty> {
                  RETURN_IF_ERROR(service_.tenants.AuthenticateWorker(*context));
                  RETURN_IF_ERROR(Fail(*request));
                  return google::protobuf::Empty();
                });
}

absl::Status WorkersService::Fail(const v1::FailDocumentRequest& request) {
  if (!request.retry() && request.status().code() == 0)
    return ServiceError(Reason::kParameterInvalid,
                        "status.code is 0 (OK): a failure needs a code and a reason");
  if (InteractiveQueue::IsInteractive(request.lease())) return service_.interactive.Fail(request);
  const auto holder = service_.desk.Holder(request.lease());
  RETURN_IF_ERROR(service_.store.FailDocument(request, holder ? holder->worker : ""));
  service_.desk.Forget(request.lease());
  Event(LogLevel::kInfo, request.retry() ? "document handed back" : "document failed",
        {{"lease", request.lease()},
         {"attempt", request.attempt()},
         {"job", holder ? holder->job : ""},
         {"document", holder ? holder->document_id : ""},
         {"reason", request.status().reason()}});
  return absl::OkStatus();
}

}  // namespace snapkv::service
