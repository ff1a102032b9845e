// SPDX-License-Identifier: Apache-2.0
// Errors across gRPC: absl::Status with a reason on one side, grpc::Status with google.rpc details on the
// other.
#pragma once

#include <string>

#include "grpcpp/grpcpp.h"
#include "runtime/service/reason.h"

namespace snapkv::service {

// The code, the message (at most 2,000 bytes: longer ones would not fit the trailer), and as details
// ErrorInfo (domain "snapkv", reason, figures) and RetryInfo. An error without a reason gets INTERNAL, or the
// name of its code.
grpc::Status ToGrpc(const absl::Status& status);

// The same, and the reason as trailing metadata snapkv-reason, for clients that do not read details. Call it
// once per RPC, before Finish.
grpc::Status ToGrpc(const absl::Status& status, grpc::ServerContextBase& context);

// Back again. Errors that gRPC itself made have no reason.
absl::Status FromGrpc(const grpc::Status& status);

}  // namespace snapkv::service
