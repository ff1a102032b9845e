// SPDX-License-Identifier: Apache-2.0
// Calls under way, the thread that ends them, and repetition.
#include "launch/client/session.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/time/clock.h"
#include "kernels/base/log.h"
#include "launch/client/text.h"
#include "launch/output/progress.h"
#include "launch/signals.h"

namespace snapkv::launch {
namespace {

// Several calls at once may fail and succeed in turn.
constexpr absl::Duration kNotePause = absl::Seconds(10);
constexpr auto kSignalPoll = std::chrono::milliseconds(50);
// A connection that breaks gives one such error; a server that gives nothing else is not worth waiting for.
constexpr int kMostOddFailures = 8;

}  // namespace

absl::StatusOr<std::unique_ptr<Session>> Session::Open(const SessionOptions& options) {
  std::unique_ptr<Session> session(new Session(options));
  ASSIGN_OR_RETURN(session->channel_, Connect(options.address));
  session->jobs_ = v1::Jobs::NewStub(session->channel_);
  session->models_ = v1::Models::NewStub(session->channel_);
  session->health_ = grpc::health::v1::Health::NewStub(session->channel_);
  session->interrupter_ = std::thread([s = session.get()] { s->Run(); });
  return session;
}

Session::~Session() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  changed_.notify_all();
  if (interrupter_.joinable()) interrupter_.join();
}

void Session::Run() {
  std::unique_lock lock(mutex_);
  while (!closing_) {
    if (PendingSignal() != 0 && !stopped_) {
      stopped_ = true;
      CancelAllLocked();
      changed_.notify_all();
    }
    changed_.wait_for(lock, kSignalPoll);
  }
}

void Session::CancelAllLocked() {
  for (grpc::ClientContext* const call : calls_) call->TryCancel();
}

void Session::Stop() {
  const std::lock_guard lock(mutex_);
  stopped_ = true;
  CancelAllLocked();
  changed_.notify_all();
}

bool Session::stopped() const {
  const std::lock_guard lock(mutex_);
  return stopped_;
}

bool Session::Sleep(absl::Duration duration) {
  std::unique_lock lock(mutex_);
  const auto until = std::chrono::steady_clock::now() + absl::ToChronoNanoseconds(duration);
  while (!stopped_ && changed_.wait_until(lock, until) != std::cv_status::timeout) {
  }
  return !stopped_;
}

void Session::NoteFailure(const absl::Status& error) {
  {
    const std::lock_guard lock(mutex_);
    const absl::Time now = absl::Now();
    if (failing_ || now - last_note_ < kNotePause) return;
    failing_ = true;
    last_note_ = now;
  }
  LOG(Warning) << ErrorSentence(error, server()) << "; trying again";
}

void Session::NoteSuccess() {
  {
    const std::lock_guard lock(mutex_);
    if (!std::exchange(failing_, false)) return;
  }
  LOG(Info) << server() << " answers again";
}

CallContext::CallContext(Session& session, absl::Duration timeout) : session_(session) {
  if (timeout != absl::InfiniteDuration()) context_.set_deadline(absl::ToChronoTime(absl::Now() + timeout));
  const std::lock_guard lock(session_.mutex_);
  session_.calls_.insert(&context_);
  if (session_.stopped_) context_.TryCancel();
}

CallContext::~CallContext() {
  const std::lock_guard lock(session_.mutex_);
  session_.calls_.erase(&context_);
}

bool Retry::Again(const absl::Status& error) {
  if (session_.stopped() || patience_ == Patience::kNone || !IsTransient(error)) return false;
  if (IsRetryable(error)) {
    odd_failures_ = 0;
  } else if (++odd_failures_ > kMostOddFailures) {
    return false;
  }
  const absl::Time now = absl::Now();
  first_failure_ = std::min(first_failure_, now);
  absl::Duration wait = backoff_.Next(error);
  const bool bounded = patience_ == Patience::kConnect || session_.options().bounded_waits;
  const absl::Time end = first_failure_ + session_.options().connect_timeout;
  if (bounded && now >= end) return false;
  session_.NoteFailure(error);
  // One last try when time is up.
  if (bounded) wait = std::min(wait, std::max(end - now, absl::Milliseconds(1)));
  return session_.Sleep(wait);
}

void Retry::Succeeded() {
  first_failure_ = absl::InfiniteFuture();
  odd_failures_ = 0;
  backoff_.Reset();
  session_.NoteSuccess();
}

}  // namespace snapkv::launch
