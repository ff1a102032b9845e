// SPDX-License-Identifier: Apache-2.0
// Models from the registry of workers.
#include "runtime/service/server/models_service.h"

#include <algorithm>
#include <vector>

#include "runtime/service/server/call.h"
#include "runtime/service/server/worker_registry.h"
#include "runtime/service/validate.h"

namespace snapkv::service {
grpc::ServerUnaryReactor* ModelsService::ListModels(grpc::CallbackServerContext* context,
                                                    const v1::ListModelsRequest* request,
                                                    v1::ListModelsResponse* response) {
  return Answer(service_, "/snapkv.v1.Models/ListModels", service_.readers, context, response,
                [this, context, request]() -> absl::StatusOr<v1::ListModelsResponse> {
                  RETURN_IF_ERROR(service_.tenants.Authenticate(*context).status());
                  return List(*request);
                });
}

absl::StatusOr<v1::ListModelsResponse> ModelsService::List(const v1::ListModelsRequest& request) const {
  if (request.page_size() < 0)
    return ServiceError(Reason::kParameterInvalid, "page_size is ", request.page_size(),
                        ", expected 0 or more");
  const auto size = static_cast<size_t>(PageSizeOf(request.page_size()));
  const std::vector<v1::Model> models = service_.registry.Models();
  // The token is the name of the last model before; models are never forgotten.
  auto it = models.begin();
  if (!request.page_token().empty()) {
    it = std::find_if(models.begin(), models.end(),
                      [&](const v1::Model& model) { return model.name() == request.page_token(); });
    if (it == models.end())
      return ServiceError(Reason::kPageTokenInvalid, "page_token is not one that ListModels has given");
    ++it;
  }
  v1::ListModelsResponse response;
  for (; it != models.end() && static_cast<size_t>(response.models_size()) < size; ++it) {
    *response.add_models() = *it;
    *response.mutable_models()->rbegin()->mutable_limits() = service_.Limits();
  }
  if (it != models.end()) response.set_next_page_token(response.models().rbegin()->name());
  return response;
}

grpc::ServerUnaryReactor* ModelsService::GetModel(grpc::CallbackServerContext* context,
                                                  const v1::GetModelRequest* request, v1::Model* response) {
  return Answer(service_, "/snapkv.v1.Models/GetModel", service_.readers, context, response,
                [this, context, request]() -> absl::StatusOr<v1::Model> {
                  RETURN_IF_ERROR(service_.tenants.Authenticate(*context).status());
                  ASSIGN_OR_RETURN(v1::Model model, service_.registry.GetModel(request->name()));
                  *model.mutable_limits() = service_.Limits();
                  return model;
                });
}

}  // namespace snapkv::service
