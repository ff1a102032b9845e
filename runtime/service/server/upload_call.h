// SPDX-License-Identifier: Apache-2.0
// UploadCall: one stream of UploadDocument. A chunk is on disk before the next one is read, so a stream holds
// one chunk in memory however fast its client is.
#pragma once

#include <string>

#include "runtime/service/server/call.h"
#include "snapkv/v1/jobs.pb.h"

namespace snapkv::service {

class UploadCall final : public grpc::ServerReadReactor<v1::UploadDocumentRequest> {
 public:
  UploadCall(ServiceContext& service, grpc::CallbackServerContext* context, std::string tenant,
             v1::UploadStatus* response);

 private:
  void OnReadDone(bool ok) override;
  void OnDone() override;
  // On a thread of `writers`.
  absl::Status Take();
  absl::Status TakeHeader();
  void End(const absl::Status& status);

  ServiceContext& service_;
  grpc::CallbackServerContext* const context_;
  const std::string tenant_;
  const absl::Time start_ = absl::Now();
  v1::UploadDocumentRequest message_;  // being read or taken
  v1::UploadStatus* const response_;
  bool has_header_ = false;
};

}  // namespace snapkv::service
