// SPDX-License-Identifier: Apache-2.0
// absl::Status to grpc::Status and back.
#include "runtime/service/grpc_status.h"

#include "google/protobuf/util/time_util.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"

namespace snapkv::service {
namespace {

constexpr size_t kMaxMessageBytes = 2000;
constexpr char kReasonKey[] = "snapkv-reason";

std::string ReasonText(const absl::Status& status) {
  if (const auto reason = ReasonOf(status)) return ReasonName(*reason);
  return absl::StatusCodeToString(status.code());
}

// Cut at a character's border.
std::string Shortened(std::string message) {
  if (message.size() <= kMaxMessageBytes) return message;
  size_t end = kMaxMessageBytes;
  while (end > 0 && (static_cast<unsigned char>(message[end]) & 0xC0) == 0x80) --end;
  return message.substr(0, end) + "...";
}

}  // namespace

grpc::Status ToGrpc(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  google::rpc::Status details;
  details.set_code(static_cast<int>(status.code()));
  details.set_message(Shortened(std::string(status.message())));
  google::rpc::ErrorInfo info;
  info.set_reason(ReasonText(status));
  info.set_domain("snapkv");
  for (const auto& [name, value] : FiguresOf(status)) (*info.mutable_metadata())[name] = value;
  details.add_details()->PackFrom(info);
  if (const auto delay = RetryDelayOf(status)) {
    google::rpc::RetryInfo retry;
    *retry.mutable_retry_delay() =
        google::protobuf::util::TimeUtil::MillisecondsToDuration(absl::ToInt64Milliseconds(*delay));
    details.add_details()->PackFrom(retry);
  }
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()), details.message(),
                      details.SerializeAsString());
}

grpc::Status ToGrpc(const absl::Status& status, grpc::ServerContextBase& context) {
  if (!status.ok()) context.AddTrailingMetadata(kReasonKey, ReasonText(status));
  return ToGrpc(status);
}

absl::Status FromGrpc(const grpc::Status& status) {
  if (status.ok()) return absl::OkStatus();
  absl::Status result(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
  google::rpc::Status details;
  if (!details.ParseFromString(status.error_details())) return result;
  google::rpc::ErrorInfo info;
  google::rpc::RetryInfo retry;
  for (const auto& any : details.details()) {
    if (any.UnpackTo(&info)) {
      result = WithReasonName(std::move(result), info.reason());
      for (const auto& [name, value] : info.metadata()) result = WithFigure(std::move(result), name, value);
    } else if (any.UnpackTo(&retry)) {
      const int64_t ms = google::protobuf::util::TimeUtil::DurationToMilliseconds(retry.retry_delay());
      result = WithRetryDelay(std::move(result), absl::Milliseconds(ms));
    }
  }
  return result;
}

}  // namespace snapkv::service
