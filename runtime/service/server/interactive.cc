// SPDX-License-Identifier: Apache-2.0
// Documents that somebody waits for.
#include "runtime/service/server/interactive.h"

#include <utility>

#include "google/protobuf/util/time_util.h"
#include "runtime/hash/sha256.h"
#include "runtime/service/server/ids.h"

namespace snapkv::service {
namespace {

using google::protobuf::util::TimeUtil;

constexpr char kPrefix[] = "leases/i-";

google::protobuf::Timestamp ToProto(absl::Time time) {
  return TimeUtil::MillisecondsToTimestamp(absl::ToUnixMillis(time));
}

absl::Status Lost(const std::string& lease, int32_t attempt) {
  return ServiceError(Reason::kLeaseLost, lease, ", attempt ", attempt,
                      ": nobody waits for it any more, or another worker has it");
}

}  // namespace

bool InteractiveQueue::IsInteractive(const std::string& lease) { return lease.starts_with(kPrefix); }

absl::StatusOr<std::string> InteractiveQueue::Add(const v1::SummarizeRequest& request,
                                                  const std::weak_ptr<DeltaSink>& sink, absl::Time now) {
  const auto digest = runtime::Sha256(request.content());
  const std::string lease = kPrefix + RandomId();
  const std::lock_guard lock(mutex_);
  if (static_cast<int64_t>(documents_.size()) >= options_.max_documents) {
    return WithRetryDelay(
        ServiceError(Reason::kQueueFull, options_.max_documents,
                     " interactive documents wait already (--max-interactive); submit a job instead"),
        absl::Seconds(5));
  }
  Document& document = documents_[lease];
  document.request = request;
  document.sha256.assign(digest.begin(), digest.end());
  document.sink = sink;
  document.queued = now;
  waiting_.push_back(lease);
  return lease;
}

std::optional<InteractiveQueue::Holder> InteractiveQueue::Remove(const std::string& lease) {
  const std::lock_guard lock(mutex_);
  const auto found = documents_.find(lease);
  if (found == documents_.end()) return std::nullopt;
  Holder holder{std::move(found->second.worker), found->second.attempt};
  documents_.erase(found);
  if (holder.worker.empty()) return std::nullopt;
  return holder;
}

std::vector<v1::Lease> InteractiveQueue::Take(const std::string& worker, const std::string& model, int count,
                                              absl::Time now) {
  std::vector<v1::Lease> leases;
  std::deque<std::string> others;
  const std::lock_guard lock(mutex_);
  while (!waiting_.empty() && static_cast<int>(leases.size()) < count) {
    const std::string name = std::move(waiting_.front());
    waiting_.pop_front();
    const auto found = documents_.find(name);
    if (found == documents_.end()) continue;
    Document& document = found->second;
    if (document.request.model() != model) {
      others.push_back(name);
      continue;
    }
    document.worker = worker;
    document.deadline = now + options_.lease;
    ++document.attempt;
    v1::Lease& lease = leases.emplace_back();
    lease.set_name(name);
    lease.set_attempt(document.attempt);
    lease.set_document_id("-");
    lease.set_size_bytes(static_cast<int64_t>(document.request.content().size()));
    lease.set_sha256(document.sha256);
    lease.set_media_type(document.request.media_type());
    *lease.mutable_parameters() = document.request.parameters();
    *lease.mutable_deadline() = ToProto(document.deadline);
    *lease.mutable_queue_time() = ToProto(document.queued);
    lease.set_interactive(true);
  }
  waiting_.insert(waiting_.begin(), others.begin(), others.end());
  return leases;
}

absl::StatusOr<InteractiveQueue::Documents::iterator> InteractiveQueue::Find(const std::string& lease,
                                                                             int32_t attempt) {
  const auto found = documents_.find(lease);
  if (found == documents_.end() || found->second.attempt != attempt || found->second.worker.empty())
    return Lost(lease, attempt);
  return found;
}

absl::Status InteractiveQueue::Renew(const v1::LeaseRenewal& renewal, absl::Time now) {
  const std::lock_guard lock(mutex_);
  ASSIGN_OR_RETURN(const auto found, Find(renewal.lease(), renewal.attempt()));
  found->second.deadline = now + options_.lease;
  if (const auto sink = found->second.sink.lock(); sink && renewal.has_progress()) {
    v1::Delta delta;
    *delta.mutable_progress() = renewal.progress();
    sink->Put(delta);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> InteractiveQueue::Read(const std::string& lease, int32_t attempt, int64_t offset,
                                                   int64_t max_bytes) {
  const std::lock_guard lock(mutex_);
  ASSIGN_OR_RETURN(const auto found, Find(lease, attempt));
  const std::string& content = found->second.request.content();
  if (offset < 0 || offset > static_cast<int64_t>(content.size()))
    return ServiceError(Reason::kOffsetMismatch, "offset ", offset, " lies outside of the document's ",
                        content.size(), " bytes");
  return content.substr(static_cast<size_t>(offset), static_cast<size_t>(max_bytes));
}

absl::Status InteractiveQueue::Put(const v1::StreamDeltasRequest& request) {
  const std::lock_guard lock(mutex_);
  ASSIGN_OR_RETURN(const auto found, Find(request.lease(), request.attempt()));
  const auto sink = found->second.sink.lock();
  if (!sink) return Lost(request.lease(), request.attempt());
  if (!request.delta().text().empty()) found->second.text_sent = true;
  v1::Delta delta = request.delta();
  delta.clear_result();  // Complete brings it
  sink->Put(delta);
  return absl::OkStatus();
}

absl::Status InteractiveQueue::Complete(const v1::CompleteDocumentRequest& request) {
  const std::lock_guard lock(mutex_);
  ASSIGN_OR_RETURN(const auto found, Find(request.lease(), request.attempt()));
  if (const auto sink = found->second.sink.lock()) {
    v1::Delta delta;
    *delta.mutable_result() = request.result();
    delta.mutable_result()->set_document_id("-");
    delta.mutable_result()->set_worker(found->second.worker);
    delta.mutable_result()->set_attempt(found->second.attempt);
    sink->Put(delta);
    sink->End(absl::OkStatus());
  }
  documents_.erase(found);
  return absl::OkStatus();
}

absl::Status InteractiveQueue::Fail(const v1::FailDocumentRequest& request) {
  const std::lock_guard lock(mutex_);
  ASSIGN_OR_RETURN(const auto found, Find(request.lease(), request.attempt()));
  if (request.retry()) {
    Requeue(found, "its worker has ended");
    return absl::OkStatus();
  }
  if (const auto sink = found->second.sink.lock()) {
    const v1::Status& status = request.status();
    sink->End(WithReasonName(absl::Status(static_cast<absl::StatusCode>(status.code()), status.message()),
                             status.reason()));
  }
  documents_.erase(found);
  return absl::OkStatus();
}

void InteractiveQueue::Requeue(Documents::iterator it, const std::string& why) {
  Document& document = it->second;
  document.worker.clear();
  if (!document.text_sent && document.losses < options_.max_attempts) {
    waiting_.push_front(it->first);
    return;
  }
  if (const auto sink = document.sink.lock()) {
    sink->End(WithRetryDelay(
        ServiceError(Reason::kNoWorker, "the document could not be finished: ", why, "; send it again"),
        absl::Seconds(1)));
  }
  documents_.erase(it);
}

void InteractiveQueue::Tick(absl::Time now) {
  const std::lock_guard lock(mutex_);
  for (auto it = documents_.begin(); it != documents_.end();) {
    const auto next = std::next(it);
    if (!it->second.worker.empty() && it->second.deadline < now) {
      ++it->second.losses;
      Requeue(it, "its worker was lost");
    }
    it = next;
  }
}

bool InteractiveQueue::waiting(const std::string& model) const {
  const std::lock_guard lock(mutex_);
  for (const std::string& name : waiting_) {
    const auto found = documents_.find(name);
    if (found != documents_.end() && found->second.request.model() == model) return true;
  }
  return false;
}

void InteractiveQueue::EndAll(const absl::Status& status) {
  const std::lock_guard lock(mutex_);
  for (auto& [name, document] : documents_) {
    if (const auto sink = document.sink.lock()) sink->End(status);
  }
  documents_.clear();
  waiting_.clear();
}

}  // namespace snapkv::service
