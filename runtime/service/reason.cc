// SPDX-License-Identifier: Apache-2.0
// Reasons and their payloads.
#include "runtime/service/reason.h"

#include <algorithm>
#include <array>

#include "absl/strings/numbers.h"
#include "absl/strings/strip.h"

namespace snapkv::service {
namespace {

using absl::StatusCode;

constexpr char kReasonUrl[] = "snapkv/reason";
constexpr char kRetryUrl[] = "snapkv/retry_delay_ms";
constexpr char kFigureUrl[] = "snapkv/figure/";

struct Entry {
  Reason reason;
  const char* name;
  StatusCode code;
};

constexpr std::array kReasons = {
    Entry{Reason::kDocumentEmpty, "DOCUMENT_EMPTY", StatusCode::kInvalidArgument},
    Entry{Reason::kDocumentNotUtf8, "DOCUMENT_NOT_UTF8", StatusCode::kInvalidArgument},
    Entry{Reason::kParameterInvalid, "PARAMETER_INVALID", StatusCode::kInvalidArgument},
    Entry{Reason::kPageTokenInvalid, "PAGE_TOKEN_INVALID", StatusCode::kInvalidArgument},
    Entry{Reason::kDocumentIdDuplicate, "DOCUMENT_ID_DUPLICATE", StatusCode::kInvalidArgument},
    Entry{Reason::kDocumentIdInvalid, "DOCUMENT_ID_INVALID", StatusCode::kInvalidArgument},
    Entry{Reason::kDocumentTooLarge, "DOCUMENT_TOO_LARGE", StatusCode::kInvalidArgument},
    Entry{Reason::kContextExceeded, "CONTEXT_EXCEEDED", StatusCode::kInvalidArgument},
    Entry{Reason::kChecksumMismatch, "CHECKSUM_MISMATCH", StatusCode::kDataLoss},
    Entry{Reason::kOffsetMismatch, "OFFSET_MISMATCH", StatusCode::kOutOfRange},
    Entry{Reason::kJobNotFound, "JOB_NOT_FOUND", StatusCode::kNotFound},
    Entry{Reason::kRequestIdReused, "REQUEST_ID_REUSED", StatusCode::kAlreadyExists},
    Entry{Reason::kJobState, "JOB_STATE", StatusCode::kFailedPrecondition},
    Entry{Reason::kQueueFull, "QUEUE_FULL", StatusCode::kResourceExhausted},
    Entry{Reason::kQuotaExceeded, "QUOTA_EXCEEDED", StatusCode::kResourceExhausted},
    Entry{Reason::kStorageFull, "STORAGE_FULL", StatusCode::kResourceExhausted},
    Entry{Reason::kMessageTooLarge, "MESSAGE_TOO_LARGE", StatusCode::kResourceExhausted},
    Entry{Reason::kDraining, "DRAINING", StatusCode::kUnavailable},
    Entry{Reason::kNoWorker, "NO_WORKER", StatusCode::kUnavailable},
    Entry{Reason::kModelNotFound, "MODEL_NOT_FOUND", StatusCode::kNotFound},
    Entry{Reason::kDocumentNotFound, "DOCUMENT_NOT_FOUND", StatusCode::kNotFound},
    Entry{Reason::kWorkerUnknown, "WORKER_UNKNOWN", StatusCode::kNotFound},
    Entry{Reason::kModelMismatch, "MODEL_MISMATCH", StatusCode::kFailedPrecondition},
    Entry{Reason::kJobTooLarge, "JOB_TOO_LARGE", StatusCode::kInvalidArgument},
    Entry{Reason::kTokenMissing, "TOKEN_MISSING", StatusCode::kUnauthenticated},
    Entry{Reason::kTokenInvalid, "TOKEN_INVALID", StatusCode::kUnauthenticated},
    Entry{Reason::kLeaseLost, "LEASE_LOST", StatusCode::kAborted},
    Entry{Reason::kAttemptsExhausted, "ATTEMPTS_EXHAUSTED", StatusCode::kAborted},
    Entry{Reason::kCancelled, "CANCELLED", StatusCode::kCancelled},
    Entry{Reason::kInternal, "INTERNAL", StatusCode::kInternal},
};

const Entry& EntryOf(Reason reason) {
  for (const Entry& entry : kReasons) {
    if (entry.reason == reason) return entry;
  }
  return kReasons.back();
}

}  // namespace

const char* ReasonName(Reason reason) { return EntryOf(reason).name; }
StatusCode CodeOf(Reason reason) { return EntryOf(reason).code; }

absl::Status MakeError(Reason reason, const std::string& message) {
  absl::Status status(CodeOf(reason), message);
  status.SetPayload(kReasonUrl, absl::Cord(ReasonName(reason)));
  return status;
}

absl::Status WithReasonName(absl::Status status, const std::string& name) {
  for (const Entry& entry : kReasons) {
    if (name == entry.name) status.SetPayload(kReasonUrl, absl::Cord(name));
  }
  return status;
}

std::optional<Reason> ReasonOf(const absl::Status& status) {
  const auto name = status.GetPayload(kReasonUrl);
  if (!name.has_value()) return std::nullopt;
  for (const Entry& entry : kReasons) {
    if (*name == entry.name) return entry.reason;
  }
  return std::nullopt;
}

absl::Status WithFigure(absl::Status status, const std::string& name, const std::string& value) {
  status.SetPayload(kFigureUrl + name, absl::Cord(value));
  return status;
}

std::vector<std::pair<std::string, std::string>> FiguresOf(const absl::Status& status) {
  std::vector<std::pair<std::string, std::string>> figures;
  status.ForEachPayload([&](absl::string_view url, const absl::Cord& value) {
    if (absl::ConsumePrefix(&url, kFigureUrl)) figures.emplace_back(std::string(url), std::string(value));
  });
  std::sort(figures.begin(), figures.end());
  return figures;
}

absl::Status WithRetryDelay(absl::Status status, absl::Duration delay) {
  status.SetPayload(kRetryUrl, absl::Cord(absl::StrCat(absl::ToInt64Milliseconds(delay))));
  return status;
}

std::optional<absl::Duration> RetryDelayOf(const absl::Status& status) {
  const auto text = status.GetPayload(kRetryUrl);
  int64_t ms = 0;
  if (!text.has_value() || !absl::SimpleAtoi(std::string(*text), &ms)) return std::nullopt;
  return absl::Milliseconds(ms);
}

}  // namespace snapkv::service
