// SPDX-License-Identifier: Apache-2.0
// models and health.
#include "launch/client/command_support.h"
#include "launch/client/commands.h"
#include "launch/client/job_text.h"
#include "launch/client/text.h"
#include "launch/report.h"

namespace snapkv::launch {

int RunModels(const ClientFlags& flags, Session& session) {
  v1::ListModelsRequest request;
  bool any = false;
  do {
    const auto page = session.Call<v1::ListModelsResponse>(
        Patience::kConnect, [&](grpc::ClientContext& context, v1::ListModelsResponse& answer) {
          return session.models().ListModels(&context, request, &answer);
        });
    if (!page.ok()) return ReportRpc(session, page.status());
    std::string text;
    if (!flags.json) text = ModelTable(page->models());
    for (const v1::Model& model : page->models()) {
      if (flags.json) text += JsonLine(ModelJson(model));
    }
    any = any || page->models_size() > 0;
    if (const int code = Print(text); code != kExitOk) return code;
    request.set_page_token(page->next_page_token());
  } while (!request.page_token().empty());
  if (!any) LOG(Info) << "no worker has registered yet; start snapkv-prefill --server " << session.server();
  return kExitOk;
}

int RunHealth(const ClientFlags& flags, Session& session) {
  using grpc::health::v1::HealthCheckResponse;
  grpc::health::v1::HealthCheckRequest request;
  request.set_service(flags.service);
  // A probe asks once, unless told otherwise.
  const Patience patience = flags.session.bounded_waits ? Patience::kConnect : Patience::kNone;
  const auto answer = session.Call<HealthCheckResponse>(
      patience, [&](grpc::ClientContext& context, HealthCheckResponse& response) {
        return session.health().Check(&context, request, &response);
      });
  if (!answer.ok()) return ReportRpc(session, answer.status());
  std::string name = HealthCheckResponse::ServingStatus_Name(answer->status());
  if (name.empty()) name = "UNKNOWN";
  const int code = Print(flags.json ? JsonLine({{"status", name}}) : name + "\n");
  if (code != kExitOk || answer->status() == HealthCheckResponse::SERVING) return code;
  LOG(Error) << name << ": " << session.server() << " does not take calls now; try again later";
  return kExitServerRefused;
}

}  // namespace snapkv::launch
