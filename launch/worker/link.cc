// SPDX-License-Identifier: Apache-2.0
// Registration, and the meaning of errors.
#include "launch/worker/link.h"

#include <algorithm>
#include <utility>

#include "absl/time/clock.h"
#include "runtime/service/event_log.h"
#include "runtime/service/grpc_status.h"

namespace snapkv::launch {
namespace {

using service::Event;
using service::Reason;

constexpr absl::Duration kCallTime = absl::Seconds(10);
// A worker that waits for its server says so this often.
constexpr absl::Duration kAwayLogInterval = absl::Seconds(30);

Verdict VerdictOf(const absl::Status& status) {
  if (status.ok()) return Verdict::kOk;
  const auto reason = service::ReasonOf(status);
  if (reason == Reason::kWorkerUnknown) return Verdict::kRenew;
  if (reason == Reason::kLeaseLost || reason == Reason::kCancelled) return Verdict::kLost;
  if (reason == Reason::kModelMismatch) return Verdict::kFatal;
  if (IsRetryable(status)) return Verdict::kRetry;
  switch (status.code()) {
    case absl::StatusCode::kUnauthenticated:
    case absl::StatusCode::kPermissionDenied:
    case absl::StatusCode::kUnimplemented:
      return Verdict::kFatal;
    case absl::StatusCode::kDeadlineExceeded:
    case absl::StatusCode::kCancelled:
    case absl::StatusCode::kUnknown:
      return Verdict::kRetry;
    case absl::StatusCode::kInternal:  // of gRPC itself, when a connection breaks: no reason
      return reason.has_value() ? Verdict::kRefused : Verdict::kRetry;
    default:
      return Verdict::kRefused;
  }
}

}  // namespace

WorkerLink::WorkerLink(std::shared_ptr<grpc::Channel> channel, std::string server, v1::Worker worker,
                       absl::Duration connect_timeout)
    : server_(std::move(server)),
      worker_(std::move(worker)),
      connect_timeout_(connect_timeout),
      start_(absl::Now()),
      stub_(v1::Workers::NewStub(std::move(channel))) {}

bool WorkerLink::Register() {
  Backoff backoff;
  for (;;) {
    {
      const std::lock_guard lock(mutex_);
      if (EndedLocked()) return false;
      if (!name_.empty()) return true;
    }
    v1::RegisterWorkerRequest request;
    *request.mutable_worker() = worker_;
    v1::Worker answer;
    absl::Status status;
    {
      Call call(*this, kCallTime);
      status = service::FromGrpc(stub_->RegisterWorker(call.context(), request, &answer));
    }
    if (status.ok() && answer.name().empty()) status = Internal("the server has given the worker no name");
    const Verdict verdict = Judge(status, "");
    if (verdict == Verdict::kOk) {
      const std::lock_guard lock(mutex_);
      const absl::Duration lease = absl::Seconds(answer.lease_duration().seconds()) +
                                   absl::Nanoseconds(answer.lease_duration().nanos());
      name_ = answer.name();
      if (lease > absl::ZeroDuration()) lease_duration_ = lease;
      draining_ = watch_broke_ = false;
      Event(LogLevel::kInfo, was_registered_ ? "registered again" : "registered",
            {{"server", server_},
             {"worker", name_},
             {"model", worker_.model()},
             {"lease_s", absl::ToDoubleSeconds(lease_duration_)}});
      was_registered_ = true;
      ++returns_;
      changed_.notify_all();
      return true;
    }
    if (verdict != Verdict::kRetry && verdict != Verdict::kFatal) {
      const std::lock_guard lock(mutex_);
      SetFatalLocked(status);
    }
    if (!Pause(backoff.Next(status))) return false;
  }
}

std::string WorkerLink::WaitRegistered(absl::Duration wait) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, absl::ToChronoNanoseconds(wait), [&] { return EndedLocked() || !name_.empty(); });
  return EndedLocked() ? "" : name_;
}

absl::Duration WorkerLink::lease_duration() const {
  const std::lock_guard lock(mutex_);
  return lease_duration_;
}

Verdict WorkerLink::Judge(const absl::Status& status, const std::string& worker) {
  const Verdict verdict = VerdictOf(status);
  const std::lock_guard lock(mutex_);
  if (closed_) return verdict;
  const bool drains = service::ReasonOf(status) == Reason::kDraining && was_registered_;
  if (verdict == Verdict::kRetry && !drains) {
    NoteAwayLocked(status);
    return fatal_.ok() ? verdict : Verdict::kFatal;
  }
  if (away_) {
    away_ = false;
    ++returns_;
    changed_.notify_all();
    Event(LogLevel::kInfo, "the server answers again",
          {{"server", server_}, {"away_s", absl::ToDoubleSeconds(absl::Now() - away_since_)}});
  }
  if (verdict == Verdict::kOk && watch_broke_) draining_ = watch_broke_ = false;
  if (verdict == Verdict::kRenew && (worker.empty() || worker == name_)) {
    if (!name_.empty())
      Event(LogLevel::kWarning, "the server does not know this worker any more", {{"worker", name_}});
    name_.clear();
    changed_.notify_all();
  }
  if (verdict == Verdict::kFatal) SetFatalLocked(status);
  return verdict;
}

void WorkerLink::SetFatalLocked(const absl::Status& status) {
  if (!fatal_.ok()) return;
  fatal_ = Annotate(status, "--server " + server_);
  changed_.notify_all();
}

// The first failure is said at once, then one each half minute.
void WorkerLink::NoteAwayLocked(const absl::Status& status) {
  const absl::Time now = absl::Now();
  if (!away_) {
    away_ = true;
    away_since_ = now;
    away_logged_ = absl::InfinitePast();
  }
  if (!was_registered_ && connect_timeout_ > absl::ZeroDuration() && now - start_ >= connect_timeout_) {
    SetFatalLocked(
        absl::UnavailableError(absl::StrCat("not reached within --connect-timeout: ", status.message())));
    return;
  }
  if (now - away_logged_ < kAwayLogInterval) return;
  away_logged_ = now;
  const bool away = !absl::IsResourceExhausted(status);
  Event(LogLevel::kWarning,
        !was_registered_ ? "waiting for the server"
        : away           ? "the server is away; trying again"
                         : "the server asks to be called later",
        {{"server", server_},
         {"away_s", absl::ToDoubleSeconds(now - away_since_)},
         {"error", std::string(status.message())}});
}

void WorkerLink::Drain() {
  const std::lock_guard lock(mutex_);
  if (draining_) return;
  draining_ = true;
  watch_broke_ = false;
  Event(LogLevel::kInfo, "the server drains: no further documents until it is back", {{"server", server_}});
}

void WorkerLink::WatchBroke() {
  const std::lock_guard lock(mutex_);
  watch_broke_ = draining_;
}

bool WorkerLink::draining() const {
  const std::lock_guard lock(mutex_);
  return draining_;
}

bool WorkerLink::Pause(absl::Duration wait) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, absl::ToChronoNanoseconds(wait),
                    [&, before = returns_] { return EndedLocked() || returns_ != before; });
  return !EndedLocked();
}

bool WorkerLink::closed() const {
  const std::lock_guard lock(mutex_);
  return EndedLocked();
}

absl::Status WorkerLink::fatal() const {
  const std::lock_guard lock(mutex_);
  return fatal_;
}

void WorkerLink::Close() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  for (grpc::ClientContext* call : calls_) call->TryCancel();
  changed_.notify_all();
}

WorkerLink::Call::Call(WorkerLink& link, absl::Duration deadline) : link_(link) {
  context_.set_deadline(absl::ToChronoTime(absl::Now() + deadline));
  const std::lock_guard lock(link_.mutex_);
  link_.calls_.insert(&context_);
  if (link_.closed_) context_.TryCancel();
}

WorkerLink::Call::~Call() {
  const std::lock_guard lock(link_.mutex_);
  link_.calls_.erase(&context_);
}

}  // namespace snapkv::launch
