// SPDX-License-Identifier: Apache-2.0
// Reason: the machine-readable part of every error of the job service, and absl::Status that carries one.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "kernels/base/status.h"

namespace snapkv::service {

// Its code is fixed by its reason (CodeOf). docs/service.md has the table.
enum class Reason : uint8_t {
  kDocumentEmpty,
  kDocumentNotUtf8,
  kParameterInvalid,
  kPageTokenInvalid,
  kDocumentIdDuplicate,
  kDocumentIdInvalid,
  kDocumentTooLarge,
  kContextExceeded,
  kChecksumMismatch,
  kOffsetMismatch,
  kJobNotFound,
  kRequestIdReused,
  kJobState,
  kQueueFull,
  kQuotaExceeded,
  kStorageFull,      // the state folder's disk; RESOURCE_EXHAUSTED
  kMessageTooLarge,  // RESOURCE_EXHAUSTED, without a retry delay
  kDraining,
  kNoWorker,
  kModelNotFound,
  kDocumentNotFound,
  kWorkerUnknown,
  kModelMismatch,
  kJobTooLarge,
  kTokenMissing,
  kTokenInvalid,
  kLeaseLost,
  kAttemptsExhausted,  // in a result: every worker that took the document was lost; ABORTED
  kCancelled,          // CANCELLED
  kInternal,
};

// "DOCUMENT_EMPTY".
const char* ReasonName(Reason reason);
absl::StatusCode CodeOf(Reason reason);

// A status with the reason's code, the message, and the reason as a payload.
absl::Status MakeError(Reason reason, const std::string& message);
template <class... Args>
absl::Status ServiceError(Reason reason, const Args&... args) {
  return MakeError(reason, absl::StrCat(args...));
}

// The reason of a status; nullopt for OK and for statuses that did not come from MakeError.
std::optional<Reason> ReasonOf(const absl::Status& status);

// For errors that came from elsewhere: unknown names are left out, the code stays as it is.
absl::Status WithReasonName(absl::Status status, const std::string& name);

// A figure for programs, e.g. ("committed_size", "65536"); it becomes ErrorInfo.metadata.
absl::Status WithFigure(absl::Status status, const std::string& name, const std::string& value);
// All of them, as name, value; in the order of their names.
std::vector<std::pair<std::string, std::string>> FiguresOf(const absl::Status& status);

// When to repeat the call; it becomes RetryInfo.
absl::Status WithRetryDelay(absl::Status status, absl::Duration delay);
std::optional<absl::Duration> RetryDelayOf(const absl::Status& status);

}  // namespace snapkv::service
