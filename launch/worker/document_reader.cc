// SPDX-License-Identifier: Apache-2.0
// Streams of chunks, one after another until the document is whole.
#include "launch/worker/document_reader.h"

#include <algorithm>

#include "absl/time/clock.h"
#include "runtime/hash/sha256.h"
#include "runtime/service/grpc_status.h"

namespace snapkv::launch {
namespace {

using service::Reason;
using service::ServiceError;

// A stream that delivers nothing for so long is given up and begun anew.
constexpr absl::Duration kStreamTime = absl::Seconds(60);
constexpr absl::Duration kTurn = absl::Milliseconds(200);  // how soon it sees that it is not wanted
constexpr int kTries = 3;                                  // of a document whose content does not match

// One stream from the end of `bytes`.
absl::Status ReadStream(WorkerLink& link, const v1::Lease& lease, const std::function<bool()>& wanted,
                        std::string& bytes) {
  v1::ReadDocumentRequest request;
  request.set_lease(lease.name());
  request.set_attempt(lease.attempt());
  request.set_offset(static_cast<int64_t>(bytes.size()));
  WorkerLink::Call call(link, kStreamTime);
  const auto reader = link.stub().ReadDocument(call.context(), request);
  v1::Chunk chunk;
  absl::Status fault;
  while (fault.ok() && reader->Read(&chunk)) {
    const int64_t held = static_cast<int64_t>(bytes.size());
    if (chunk.offset() != held) {
      fault = ServiceError(Reason::kChecksumMismatch, "the server sent bytes from offset ", chunk.offset(),
                           " where ", held, " was expected");
    } else if (held + static_cast<int64_t>(chunk.data().size()) > lease.size_bytes()) {
      fault = ServiceError(Reason::kChecksumMismatch, "the server sent more than the document's ",
                           lease.size_bytes(), " bytes");
    } else if (!wanted()) {
      fault = absl::CancelledError("not wanted any more");
    } else {
      bytes += chunk.data();
    }
  }
  if (!fault.ok()) call.context()->TryCancel();
  const absl::Status status = service::FromGrpc(reader->Finish());
  return fault.ok() ? status : fault;
}

absl::Status CheckContent(const v1::Lease& lease, const std::string& bytes) {
  if (static_cast<int64_t>(bytes.size()) != lease.size_bytes())
    return ServiceError(Reason::kChecksumMismatch, "document ", lease.document_id(), ": the server sent ",
                        bytes.size(), " bytes, the lease says ", lease.size_bytes());
  const auto hash = runtime::Sha256(bytes);
  if (!std::equal(hash.begin(), hash.end(), lease.sha256().begin(), lease.sha256().end(),
                  [](uint8_t a, char b) { return a == static_cast<uint8_t>(b); }))
    return ServiceError(Reason::kChecksumMismatch, "document ", lease.document_id(),
                        ": its SHA-256 is not that of the lease; submit it again");
  return absl::OkStatus();
}

}  // namespace

ReadOutcome ReadLeasedDocument(WorkerLink& link, const v1::Lease& lease,
                               const std::function<bool()>& wanted) {
  ReadOutcome outcome;
  Backoff backoff;
  for (int tries = 0;;) {
    const size_t held = outcome.bytes.size();
    outcome.status = ReadStream(link, lease, wanted, outcome.bytes);
    if (outcome.bytes.size() > held) backoff.Reset();
    if (!wanted()) return {Verdict::kLost, absl::CancelledError("not wanted any more"), ""};
    const bool torn = service::ReasonOf(outcome.status) == Reason::kChecksumMismatch;
    if (outcome.status.ok()) outcome.status = CheckContent(lease, outcome.bytes);
    if (torn || service::ReasonOf(outcome.status) == Reason::kChecksumMismatch) {
      outcome.bytes.clear();
      if (++tries < kTries) continue;
      outcome.verdict = Verdict::kRefused;
      return outcome;
    }
    outcome.verdict = link.Judge(outcome.status, "");
    if (outcome.verdict != Verdict::kRetry && outcome.verdict != Verdict::kRenew) return outcome;
    const absl::Time again = absl::Now() + backoff.Next(outcome.status);
    for (bool more = true; more && absl::Now() < again; more = wanted()) {
      if (link.Pause(std::min(kTurn, again - absl::Now()))) continue;
      outcome.verdict = Verdict::kFatal;
      return outcome;
    }
  }
}

}  // namespace snapkv::launch
