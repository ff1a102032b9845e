// SPDX-License-Identifier: Apache-2.0
// From chunks to the store, one after the other.
#include "runtime/service/server/upload_call.h"

#include <utility>

#include "runtime/service/validate.h"

namespace snapkv::service {
namespace {

constexpr char kMethod[] = "/snapkv.v1.Jobs/UploadDocument";

}  // namespace

UploadCall::UploadCall(ServiceContext& service, grpc::CallbackServerContext* context, std::string tenant,
                       v1::UploadStatus* response)
    : service_(service), context_(context), tenant_(std::move(tenant)), response_(response) {
  service_.StreamOpened(kMethod);
  StartRead(&message_);
}

void UploadCall::OnReadDone(bool ok) {
  if (!ok) {  // the client has said all, or is gone: what is committed stays
    const bool nothing = !has_header_;
    service_.writers.Post([this, nothing] {
      End(nothing ? ServiceError(Reason::kParameterInvalid, "the stream ended before its header")
                  : absl::OkStatus());
    });
    return;
  }
  service_.writers.Post([this] {
    if (const absl::Status status = Take(); !status.ok()) {
      End(status);
    } else {
      StartRead(&message_);
    }
  });
}

absl::Status UploadCall::Take() {
  if (!has_header_) return TakeHeader();
  if (!message_.has_chunk())
    return ServiceError(Reason::kParameterInvalid, "behind the header only chunks may follow");
  const v1::Chunk& chunk = message_.chunk();
  RETURN_IF_ERROR(ValidateChunk(chunk, service_.limits.max_chunk_bytes));
  ASSIGN_OR_RETURN(*response_,
                   service_.store.Append(tenant_, response_->job(), response_->document_id(), chunk));
  service_.metrics.UploadedBytes(static_cast<int64_t>(chunk.data().size()));
  return absl::OkStatus();
}

absl::Status UploadCall::TakeHeader() {
  RETURN_IF_ERROR(service_.CheckNotDraining());
  if (!message_.has_header())
    return ServiceError(Reason::kParameterInvalid, "the first message of an upload must be its header");
  RETURN_IF_ERROR(ValidateUploadHeader(message_.header(), service_.store_limits));
  ASSIGN_OR_RETURN(*response_, service_.store.BeginUpload(tenant_, message_.header()));
  has_header_ = true;
  return absl::OkStatus();
}

void UploadCall::End(const absl::Status& status) {
  service_.RpcFinished(kMethod, status, absl::Now() - start_);
  Finish(ToGrpc(status, *context_));
}

void UploadCall::OnDone() {
  service_.StreamClosed(kMethod);
  delete this;
}

}  // namespace snapkv::service
