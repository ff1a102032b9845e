// SPDX-License-Identifier: Apache-2.0
// Three threads: one registers, renews and watches; one takes leases and reads documents; one hands in.
#include "launch/worker/session.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/time/clock.h"
#include "google/protobuf/util/time_util.h"
#include "launch/worker/document_reader.h"
#include "launch/worker/outcome.h"
#include "runtime/service/grpc_status.h"

namespace snapkv::launch {
namespace {

using service::Event;

constexpr absl::Duration kCallTime = absl::Seconds(20);
// How soon a thread sees that there is something else to do.
constexpr absl::Duration kTurn = absl::Milliseconds(200);
// Between tries to hand in when the worker ends.
constexpr absl::Duration kEndingPause = absl::Seconds(1);
constexpr size_t kMostPerCall = 64;  // leases, by the protocol
// The last text of an interactive document should arrive before its result.
constexpr absl::Duration kDeltaTime = absl::Seconds(5);

double QueueSeconds(const v1::Lease& lease, absl::Duration lease_duration) {
  using google::protobuf::util::TimeUtil;
  if (!lease.has_deadline() || !lease.has_queue_time()) return 0;
  const int64_t ms = TimeUtil::TimestampToMilliseconds(lease.deadline()) -
                     TimeUtil::TimestampToMilliseconds(lease.queue_time());
  return std::max(0.0, static_cast<double>(ms) / 1e3 - absl::ToDoubleSeconds(lease_duration));
}

void LogRefused(const char* event, const v1::Lease& lease, const absl::Status& status) {
  std::vector<service::EventField> fields = LeaseFields(lease);
  fields.push_back({"error", std::string(status.message())});
  Event(LogLevel::kError, event, fields);
}

}  // namespace

WorkerSession::WorkerSession(SessionOptions options)
    : options_(std::move(options)),
      link_(options_.channel, options_.server, options_.worker, options_.connect_timeout),
      link_thread_([this] { RunLink(); }),
      fetch_thread_([this] { RunFetch(); }),
      report_thread_([this] { RunReport(); }) {}

WorkerSession::~WorkerSession() { End(); }

void WorkerSession::End() {
  StopTaking();
  link_.Close();
  {
    const std::lock_guard lock(mutex_);
    changed_.notify_all();
  }
  for (std::thread* thread : {&link_thread_, &fetch_thread_, &report_thread_}) {
    if (thread->joinable()) thread->join();
  }
  watch_.reset();
}

bool WorkerSession::taking() const {
  const std::lock_guard lock(mutex_);
  return taking_;
}

void WorkerSession::StopTaking() {
  const std::lock_guard lock(mutex_);
  taking_ = false;
  changed_.notify_all();
}

bool WorkerSession::congested() const {
  const std::lock_guard lock(mutex_);
  return static_cast<int64_t>(outbox_.size()) >= options_.most_results;
}

// --- The engine's side.

void WorkerSession::SetProgress(int64_t ticket, const v1::Progress& progress) {
  book_.SetProgress(ticket, progress);
  const std::lock_guard lock(mutex_);
  if (const auto it = deltas_.find(ticket); it != deltas_.end()) it->second->Send(progress);
}

void WorkerSession::Emit(int64_t ticket, const std::string& text) {
  const std::lock_guard lock(mutex_);
  if (const auto it = deltas_.find(ticket); it != deltas_.end()) it->second->Send(text);
}

void WorkerSession::Complete(int64_t ticket, v1::Result result) {
  Outgoing outgoing;
  outgoing.ticket = ticket;
  outgoing.lease = book_.LeaseOf(ticket);
  outgoing.complete.set_lease(outgoing.lease.name());
  outgoing.complete.set_attempt(outgoing.lease.attempt());
  *outgoing.complete.mutable_result() = std::move(result);
  Put(std::move(outgoing));
}

void WorkerSession::Fail(int64_t ticket, const v1::Status& status, bool retry, v1::Result result) {
  Outgoing outgoing = MakeFailure(ticket, status, retry);
  *outgoing.fail.mutable_result() = std::move(result);
  Put(std::move(outgoing));
}

WorkerSession::Outgoing WorkerSession::MakeFailure(int64_t ticket, const v1::Status& status,
                                                   bool retry) const {
  Outgoing outgoing;
  outgoing.ticket = ticket;
  outgoing.lease = book_.LeaseOf(ticket);
  outgoing.fails = true;
  outgoing.fail.set_lease(outgoing.lease.name());
  outgoing.fail.set_attempt(outgoing.lease.attempt());
  *outgoing.fail.mutable_status() = status;
  outgoing.fail.set_retry(retry);
  return outgoing;
}

void WorkerSession::Drop(int64_t ticket) {
  const bool lost = book_.FateOf(ticket) == LeaseBook::Fate::kLost;
  Event(LogLevel::kInfo, lost ? "lease lost, work stopped" : "cancelled, work stopped",
        LeaseFields(book_.LeaseOf(ticket)));
  if (!lost) {
    // The server learns that nobody works on it any more.
    Put(MakeFailure(ticket, ToStatus({absl::CancelledError("the document was cancelled"), "CANCELLED"}),
                    false));
    return;
  }
  const std::lock_guard lock(mutex_);
  if (const auto it = deltas_.find(ticket); it != deltas_.end()) {
    it->second->Cancel();
    ended_deltas_.push_back(std::move(it->second));
    deltas_.erase(it);
  }
  book_.Remove(ticket);
}

void WorkerSession::Put(Outgoing outgoing) {
  book_.Worked(outgoing.ticket);
  const std::lock_guard lock(mutex_);
  if (const auto it = deltas_.find(outgoing.ticket); it != deltas_.end()) {
    outgoing.deltas = std::move(it->second);
    deltas_.erase(it);
  }
  outbox_.push_back(std::move(outgoing));
  changed_.notify_all();
}

int64_t WorkerSession::Finish() {
  StopTaking();
  const absl::Time end = absl::Now() + options_.finish_time;
  const auto wait_until = [&](const auto& done) {
    std::unique_lock lock(mutex_);
    while (!done() && absl::Now() < end && !link_.closed())
      changed_.wait_for(lock, absl::ToChronoNanoseconds(kTurn));
  };
  // What it still had it hands back.
  wait_until([&] { return fetch_ended_; });
  HandBackReady("the worker ends");
  wait_until([&] { return outbox_.empty() && !reporting_; });
  End();
  const std::lock_guard lock(mutex_);
  int64_t left = 0;
  for (const Outgoing& outgoing : outbox_) left += outgoing.fails && outgoing.fail.retry() ? 0 : 1;
  return left;
}

// --- Registration, renewal, watch.

void WorkerSession::RunLink() {
  Backoff watch_backoff, renew_backoff;
  absl::Time watch_at = absl::InfinitePast(), renew_at = absl::InfinitePast();
  while (link_.Register()) {
    const std::string worker = link_.WaitRegistered(absl::ZeroDuration());
    if (worker.empty()) continue;
    bool watch_ended;
    std::vector<std::shared_ptr<DeltaStream>> ended_deltas;  // go without the lock
    {
      const std::lock_guard lock(mutex_);
      watch_ended = watch_ended_;
      ended_deltas.swap(ended_deltas_);
    }
    if (watched_ != worker) {
      watch_backoff.Reset();
      watch_at = absl::InfinitePast();
      renew_at = absl::InfinitePast();  // what it held before it was forgotten
    }
    if ((watch_ended || watched_ != worker) && absl::Now() >= watch_at) {
      OpenWatch(worker);
      watch_at = absl::Now() + watch_backoff.Next(absl::OkStatus());
    }
    if (!watch_ended && absl::Now() - watch_at > absl::Seconds(60)) watch_backoff.Reset();
    if (absl::Now() >= renew_at) {
      const bool renewed = Renew(worker);
      if (renewed) renew_backoff.Reset();
      const absl::Duration third = link_.lease_duration() / 3;
      renew_at = absl::Now() + (renewed ? third : std::min(third, renew_backoff.Next(absl::OkStatus())));
    }
    DropGone();
    if (link_.draining()) HandBackReady("the server drains");
    if (!link_.Pause(std::min(kTurn, link_.lease_duration() / 12))) return;
  }
}

void WorkerSession::OpenWatch(const std::string& worker) {
  watch_.reset();  // waits for the end of the old one
  {
    const std::lock_guard lock(mutex_);
    watch_ended_ = false;
  }
  watched_ = worker;
  watch_ = std::make_unique<LeaseWatch>(
      link_.stub(), worker, [this](const v1::LeaseEvent& event) { OnLeaseEvent(event); },
      [this, worker](const absl::Status& status) {
        link_.WatchBroke();
        // CANCELLED is our own doing.
        if (!status.ok() && !absl::IsCancelled(status)) link_.Judge(status, worker);
        const std::lock_guard lock(mutex_);
        watch_ended_ = true;
      });
}

void WorkerSession::OnLeaseEvent(const v1::LeaseEvent& event) {
  using Fate = LeaseBook::Fate;
  if (event.kind() == v1::LeaseEvent::DRAIN) return link_.Drain();
  if (event.kind() == v1::LeaseEvent::KIND_UNSPECIFIED) return;
  book_.End(event.lease(), event.attempt(),
            event.kind() == v1::LeaseEvent::CANCELLED ? Fate::kCancelled : Fate::kLost);
}

bool WorkerSession::Renew(const std::string& worker) {
  const std::vector<v1::LeaseRenewal> renewals = book_.Renewals();
  // While the server drains nothing else would show its return.
  if (renewals.empty() && !link_.draining()) return true;
  size_t at = 0;
  do {
    v1::RenewLeaseRequest request;
    request.set_worker(worker);
    for (size_t n = 0; n < kMostPerCall && at < renewals.size(); ++n) *request.add_leases() = renewals[at++];
    v1::RenewLeaseResponse response;
    absl::Status status;
    {
      // One that hangs must leave time for another before the deadline.
      WorkerLink::Call call(link_, std::min(kCallTime, link_.lease_duration() / 3));
      status = service::FromGrpc(link_.stub().RenewLease(call.context(), request, &response));
    }
    if (link_.Judge(status, worker) != Verdict::kOk) return false;
    for (const v1::LeaseEvent& event : response.events()) OnLeaseEvent(event);
  } while (at < renewals.size());
  return true;
}

// --- Leases and documents.

void WorkerSession::RunFetch() {
  Backoff backoff;
  const int64_t most = options_.worker.max_batch() + options_.lease_ahead;
  while (taking() && !link_.closed()) {
    const std::string worker = link_.WaitRegistered(kTurn);
    if (worker.empty()) continue;
    if (link_.draining() || congested()) {
      link_.Pause(kTurn);
      continue;
    }
    if (!book_.WaitForRoom(most, kTurn)) continue;
    v1::AcquireLeaseRequest request;
    request.set_worker(worker);
    request.set_max_leases(static_cast<int32_t>(std::min<int64_t>(most - book_.busy(), kMostPerCall)));
    *request.mutable_wait() = google::protobuf::util::TimeUtil::MillisecondsToDuration(
        absl::ToInt64Milliseconds(options_.acquire_wait));
    v1::AcquireLeaseResponse response;
    absl::Status status;
    {
      WorkerLink::Call call(link_, options_.acquire_wait + kCallTime);
      status = service::FromGrpc(link_.stub().AcquireLease(call.context(), request, &response));
    }
    const Verdict verdict = link_.Judge(status, worker);
    if (verdict == Verdict::kOk) {
      backoff.Reset();
      FetchAll(response);
      continue;
    }
    if (verdict == Verdict::kRefused)
      Event(LogLevel::kWarning, "the server gives no lease", {{"error", std::string(status.message())}});
    WaitWhileTaking(backoff.Next(status));
  }
  const std::lock_guard lock(mutex_);
  fetch_ended_ = true;
  changed_.notify_all();
}

void WorkerSession::WaitWhileTaking(absl::Duration wait) {
  const absl::Time end = absl::Now() + wait;
  while (taking() && absl::Now() < end && link_.Pause(std::min(kTurn, end - absl::Now()))) {
  }
}

// All are noted first: they are to be renewed while the documents of some are read.
void WorkerSession::FetchAll(const v1::AcquireLeaseResponse& response) {
  std::vector<std::pair<int64_t, const v1::Lease*>> leases;
  for (const v1::Lease& lease : response.leases()) {
    leases.emplace_back(book_.Add(lease), &lease);
    Event(LogLevel::kInfo, "lease taken", LeaseFields(lease));
  }
  std::stable_partition(leases.begin(), leases.end(), [](const auto& l) { return l.second->interactive(); });
  for (const auto& [ticket, lease] : leases) Fetch(ticket, *lease);
}

void WorkerSession::Fetch(int64_t ticket, const v1::Lease& lease) {
  const auto fail = [&](const DocumentError& error, bool retry) {
    Put(MakeFailure(ticket, ToStatus(error), retry));
  };
  if (!taking() || link_.draining())
    return fail({absl::UnavailableError("the worker ends"), "WORKER_ENDS"}, /*retry=*/true);
  if (lease.size_bytes() > options_.max_document_bytes) {
    return fail(
        {InvalidArgument("the document has ", lease.size_bytes(), " bytes, more than ",
                         options_.max_document_bytes, ", the limit of the worker's --max-document-bytes"),
         "DOCUMENT_TOO_LARGE"},
        false);
  }
  ReadOutcome read = ReadLeasedDocument(
      link_, lease, [&] { return taking() && book_.FateOf(ticket) == LeaseBook::Fate::kHeld; });
  switch (read.verdict) {
    case Verdict::kOk:
      break;
    case Verdict::kLost:
      if (book_.FateOf(ticket) == LeaseBook::Fate::kHeld) {
        if (!taking())
          return fail({absl::UnavailableError("the worker ends"), "WORKER_ENDS"}, /*retry=*/true);
        // Lost, or cancelled: the server does not say which, and in the second case waits to hear from us. A
        // lease that is lost cannot be handed back.
        return fail({read.status, "LEASE_LOST"}, /*retry=*/true);
      }
      return Drop(ticket);
    case Verdict::kRefused:
      return fail({read.status, ReasonText(read.status)}, false);
    default:
      return;  // the session ends
  }
  PreparedLease prepared = options_.prepare(lease, std::move(read.bytes));
  if (!prepared.document.error.ok()) {
    v1::Result result;
    result.mutable_usage()->set_prompt_tokens(static_cast<int64_t>(prepared.document.tokens.size()));
    result.set_params_sha256(prepared.params_sha256);
    return Fail(ticket, ToStatus(prepared.document.error), false, std::move(result));
  }
  prepared.ticket = ticket;
  prepared.lease = lease;
  prepared.queue_s = QueueSeconds(lease, link_.lease_duration());
  if (lease.interactive()) {
    const std::lock_guard lock(mutex_);
    deltas_[ticket] = std::make_shared<DeltaStream>(link_.stub(), lease);
  }
  book_.Ready(std::move(prepared));
}

void WorkerSession::HandBackReady(const std::string& why) {
  for (const PreparedLease& prepared : book_.TakeReady())
    Put(MakeFailure(prepared.ticket, ToStatus({absl::UnavailableError(why), "WORKER_ENDS"}), /*retry=*/true));
}

void WorkerSession::DropGone() {
  for (const PreparedLease& prepared : book_.TakeGone()) Drop(prepared.ticket);
}

// --- Results.

void WorkerSession::RunReport() {
  Backoff backoff;
  std::unique_lock lock(mutex_);
  while (!link_.closed()) {
    if (outbox_.empty()) {
      changed_.wait_for(lock, absl::ToChronoNanoseconds(kTurn));
      continue;
    }
    Outgoing outgoing = std::move(outbox_.front());
    outbox_.pop_front();
    reporting_ = true;
    lock.unlock();
    const Verdict verdict = Report(outgoing);
    bool done = verdict != Verdict::kRetry && verdict != Verdict::kRenew && verdict != Verdict::kFatal;
    if (done) {
      backoff.Reset();
      book_.Remove(outgoing.ticket);
    }
    lock.lock();
    reporting_ = false;
    if (!done) outbox_.push_front(std::move(outgoing));
    changed_.notify_all();
    if (done) continue;
    const absl::Duration pause = backoff.Next(absl::OkStatus());
    const bool ending = !taking_;
    lock.unlock();
    link_.Pause(ending ? std::min(pause, kEndingPause) : pause);
    lock.lock();
  }
}

Verdict WorkerSession::Report(Outgoing& outgoing) {
  if (outgoing.deltas != nullptr) {
    outgoing.deltas->Finish(kDeltaTime);
    outgoing.deltas.reset();
  }
  const std::string worker = link_.WaitRegistered(kTurn);
  if (worker.empty()) return Verdict::kRetry;
  absl::Status status;
  {
    google::protobuf::Empty answer;
    WorkerLink::Call call(link_, kCallTime);
    status = service::FromGrpc(
        outgoing.fails ? link_.stub().FailDocument(call.context(), outgoing.fail, &answer)
                       : link_.stub().CompleteDocument(call.context(), outgoing.complete, &answer));
  }
  const Verdict verdict = link_.Judge(status, worker);
  if (verdict == Verdict::kOk) {
    LogHandedIn(outgoing);
  } else if (verdict == Verdict::kLost && outgoing.fails && outgoing.fail.status().reason() == "CANCELLED") {
    // Expected of a cancelled lease, and said by Drop.
  } else if (verdict == Verdict::kLost) {
    Event(LogLevel::kWarning, "result refused: the lease is lost", LeaseFields(outgoing.lease));
  } else if (verdict == Verdict::kRefused && !outgoing.fails) {
    // The document must not wait for the end of its lease, only to be done again.
    LogRefused("result refused", outgoing.lease, status);
    Outgoing failure = MakeFailure(
        outgoing.ticket,
        ToStatus({Internal("the server refused the result: ", status.message()), "INTERNAL"}), false);
    outgoing = std::move(failure);
    return Verdict::kRetry;
  } else if (verdict == Verdict::kRefused) {
    LogRefused("failure refused", outgoing.lease, status);
  }
  return verdict;
}

void WorkerSession::LogHandedIn(const Outgoing& outgoing) const {
  std::vector<service::EventField> fields = LeaseFields(outgoing.lease);
  if (!outgoing.fails) {
    const v1::Result& result = outgoing.complete.result();
    fields.insert(fields.end(), {{"prompt_tokens", result.usage().prompt_tokens()},
                                 {"completion_tokens", result.usage().completion_tokens()},
                                 {"prefill_ms", std::round(result.timings().prefill_ms())},
                                 {"decode_ms", std::round(result.timings().decode_ms())}});
    return Event(LogLevel::kInfo, "document done", fields);
  }
  const v1::Status& status = outgoing.fail.status();
  if (status.reason() == "CANCELLED") return;  // Drop has said so
  fields.push_back({"reason", status.reason()});
  if (outgoing.fail.retry()) return Event(LogLevel::kInfo, "lease handed back", fields);
  fields.push_back({"error", status.message()});
  Event(LogLevel::kWarning, "document failed", fields);
}

}  // namespace snapkv::launch
