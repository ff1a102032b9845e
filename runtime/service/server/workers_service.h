// SPDX-License-Identifier: Apache-2.0
// The service Workers: what groups of snapkv-prefill ranks call.
#pragma once

#include "runtime/service/server/context.h"
#include "snapkv/v1/workers.grpc.pb.h"

namespace snapkv::service {

// Contracts are in proto/snapkv/v1/workers.proto. Every method checks the token first.
class WorkersService final : public v1::Workers::CallbackService {
 public:
  explicit WorkersService(ServiceContext& service) : service_(service) {}

  grpc::ServerUnaryReactor* RegisterWorker(grpc::CallbackServerContext* context,
                                           const v1::RegisterWorkerRequest* request,
                                           v1::Worker* response) override;
  grpc::ServerUnaryReactor* AcquireLease(grpc::CallbackServerContext* context,
                                         const v1::AcquireLeaseRequest* request,
                                         v1::AcquireLeaseResponse* response) override;
  grpc::ServerWriteReactor<v1::Chunk>* ReadDocument(grpc::CallbackServerContext* context,
                                                    const v1::ReadDocumentRequest* request) override;
  grpc::ServerUnaryReactor* RenewLease(grpc::CallbackServerContext* context,
                                       const v1::RenewLeaseRequest* request,
                                       v1::RenewLeaseResponse* response) override;
  grpc::ServerReadReactor<v1::StreamDeltasRequest>* StreamDeltas(grpc::CallbackServerContext* context,
                                                                 google::protobuf::Empty* response) override;
  grpc::ServerWriteReactor<v1::LeaseEvent>* WatchLeases(grpc::CallbackServerContext* context,
                                                        const v1::WatchLeasesRequest* request) override;
  grpc::ServerUnaryReactor* CompleteDocument(grpc::CallbackServerContext* context,
                                             const v1::CompleteDocumentRequest* request,
                                             google::protobuf::Empty* response) override;
  grpc::ServerUnaryReactor* FailDocument(grpc::CallbackServerContext* context,
                                         const v1::FailDocumentRequest* request,
                                         google::protobuf::Empty* response) override;

 private:
  absl::StatusOr<v1::RenewLeaseResponse> Renew(const v1::RenewLeaseRequest& request);
  absl::Status Complete(const v1::CompleteDocumentRequest& request);
  absl::Status Fail(const v1::FailDocumentRequest& request);

  ServiceContext& service_;
};

}  // namespace snapkv::service
