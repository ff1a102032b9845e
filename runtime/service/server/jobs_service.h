// SPDX-License-Identifier: Apache-2.0
// The service Jobs: what clients call.
#pragma once

#include "runtime/service/server/context.h"
#include "snapkv/v1/jobs.grpc.pb.h"

namespace snapkv::service {

// Contracts are in proto/snapkv/v1/jobs.proto. Every method checks the token first.
class JobsService final : public v1::Jobs::CallbackService {
 public:
  explicit JobsService(ServiceContext& service) : service_(service) {}

  grpc::ServerUnaryReactor* CreateJob(grpc::CallbackServerContext* context,
                                      const v1::CreateJobRequest* request, v1::Job* response) override;
  grpc::ServerReadReactor<v1::UploadDocumentRequest>* UploadDocument(grpc::CallbackServerContext* context,
                                                                     v1::UploadStatus* response) override;
  grpc::ServerUnaryReactor* GetUploadStatus(grpc::CallbackServerContext* context,
                                            const v1::GetUploadStatusRequest* request,
                                            v1::UploadStatus* response) override;
  grpc::ServerUnaryReactor* SealJob(grpc::CallbackServerContext* context, const v1::SealJobRequest* request,
                                    v1::Job* response) override;
  grpc::ServerUnaryReactor* GetJob(grpc::CallbackServerContext* context, const v1::GetJobRequest* request,
                                   v1::Job* response) override;
  grpc::ServerUnaryReactor* ListJobs(grpc::CallbackServerContext* context, const v1::ListJobsRequest* request,
                                     v1::ListJobsResponse* response) override;
  grpc::ServerUnaryReactor* DeleteJob(grpc::CallbackServerContext* context,
                                      const v1::DeleteJobRequest* request,
                                      google::protobuf::Empty* response) override;
  grpc::ServerUnaryReactor* CancelJob(grpc::CallbackServerContext* context,
                                      const v1::CancelJobRequest* request, v1::Job* response) override;
  grpc::ServerWriteReactor<v1::JobEvent>* WatchJob(grpc::CallbackServerContext* context,
                                                   const v1::WatchJobRequest* request) override;
  grpc::ServerWriteReactor<v1::Result>* StreamResults(grpc::CallbackServerContext* context,
                                                      const v1::StreamResultsRequest* request) override;

 private:
  absl::StatusOr<v1::Job> Create(const std::string& tenant, v1::CreateJobRequest request);

  ServiceContext& service_;
};

}  // namespace snapkv::service
