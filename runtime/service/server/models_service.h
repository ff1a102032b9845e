// SPDX-License-Identifier: Apache-2.0
// The service Models: what is served, and the limits.
#pragma once

#include "runtime/service/server/context.h"
#include "snapkv/v1/models.grpc.pb.h"

namespace snapkv::service {

// Contracts are in proto/snapkv/v1/models.proto.
class ModelsService final : public v1::Models::CallbackService {
 public:
  explicit ModelsService(ServiceContext& service) : service_(service) {}
  grpc::ServerUnaryReactor* ListModels(grpc::CallbackServerContext* context,
                                       const v1::ListModelsRequest* request,
                                       v1::ListModelsResponse* response) override;
  grpc::ServerUnaryReactor* GetModel(grpc::CallbackServerContext* context, const v1::GetModelRequest* request,
                                     v1::Model* response) override;

 private:
  absl::StatusOr<v1::ListModelsResponse> List(const v1::ListModelsRequest& request) const;
  ServiceContext& service_;
};

}  // namespace snapkv::service
