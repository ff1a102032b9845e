// SPDX-License-Identifier: Apache-2.0
// The service Summarizer: one document, while somebody waits.
#pragma once

#include "runtime/service/server/context.h"
#include "snapkv/v1/summarizer.grpc.pb.h"

namespace snapkv::service {

// Contracts are in proto/snapkv/v1/summarizer.proto.
class SummarizerService final : public v1::Summarizer::CallbackService {
 public:
  explicit SummarizerService(ServiceContext& service) : service_(service) {}
  grpc::ServerWriteReactor<v1::Delta>* Summarize(grpc::CallbackServerContext* context,
                                                 const v1::SummarizeRequest* request) override;

 private:
  // Fills in the model where none is named.
  absl::Status Check(v1::SummarizeRequest& request) const;
  ServiceContext& service_;
};

}  // namespace snapkv::service
