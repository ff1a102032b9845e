// SPDX-License-Identifier: Apache-2.0
// Waiting workers and the leases they get.
#include "runtime/service/server/lease_desk.h"

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "google/protobuf/util/time_util.h"
#include "runtime/service/event_log.h"
#include "runtime/service/grpc_status.h"
#include "runtime/service/server/interactive.h"
#include "runtime/service/server/watch_hub.h"

namespace snapkv::service {
namespace {

constexpr char kMethod[] = "/snapkv.v1.Workers/AcquireLease";
constexpr absl::Duration kLongestWait = absl::Seconds(30);

}  // namespace

void LeaseDesk::Acquire(const v1::Worker& worker, const v1::AcquireLeaseRequest& request,
                        grpc::CallbackServerContext* context, v1::AcquireLeaseResponse* response,
                        grpc::ServerUnaryReactor* reactor) {
  const auto wait =
      absl::Milliseconds(google::protobuf::util::TimeUtil::DurationToMilliseconds(request.wait()));
  Waiter waiter;
  waiter.worker = worker;
  waiter.count = request.max_leases();
  waiter.start = absl::Now();
  waiter.deadline = waiter.start + std::clamp(wait, absl::ZeroDuration(), kLongestWait);
  waiter.context = context;
  waiter.response = response;
  waiter.reactor = reactor;
  Serve(std::move(waiter));
}

void LeaseDesk::Serve(Waiter waiter) {
  for (;;) {
    uint64_t wakes = 0;
    {
      const std::lock_guard lock(mutex_);
      wakes = wakes_;
    }
    // Nobody would work on what a lost connection is given.
    if (waiter.context->IsCancelled()) return Answer(waiter, absl::CancelledError("the worker has left"));
    absl::Status status = service_.CheckNotDraining();
    if (status.ok()) status = Take(waiter);
    if (!status.ok() || waiter.response->leases_size() > 0 || absl::Now() >= waiter.deadline)
      return Answer(waiter, status);
    const std::lock_guard lock(mutex_);
    if (wakes_ != wakes) continue;  // something came meanwhile
    waiters_.push_back(std::move(waiter));
    return;
  }
}

absl::Status LeaseDesk::Take(Waiter& waiter) {
  const v1::Worker& worker = waiter.worker;
  std::vector<v1::Lease> leases =
      service_.interactive.Take(worker.name(), worker.model(), waiter.count, absl::Now());
  if (const int left = waiter.count - static_cast<int>(leases.size()); left > 0) {
    auto documents = service_.store.AcquireLease(worker.name(), worker.model(), left);
    // What was taken of the interactive queue must reach the worker all the same.
    if (!documents.ok() && leases.empty()) return documents.status();
    if (documents.ok()) std::move(documents->begin(), documents->end(), std::back_inserter(leases));
  }
  for (v1::Lease& lease : leases) {
    {
      const std::lock_guard lock(mutex_);
      holders_[lease.name()] = {worker.name(), lease.job(), lease.document_id()};
    }
    Event(LogLevel::kInfo, "lease given",
          {{"lease", lease.name()},
           {"attempt", lease.attempt()},
           {"job", lease.job()},
           {"document", lease.document_id()},
           {"worker", worker.name()}});
    if (!lease.interactive()) {
      v1::DocumentProgress progress;
      progress.set_document_id(lease.document_id());
      progress.set_worker(worker.name());
      progress.set_attempt(lease.attempt());
      progress.mutable_progress()->set_phase(v1::Progress::PHASE_WAITING);
      service_.hub.SetProgress(lease.job(), progress);
    }
    *waiter.response->add_leases() = std::move(lease);
  }
  return absl::OkStatus();
}

void LeaseDesk::Answer(const Waiter& waiter, const absl::Status& status) {
  service_.RpcFinished(kMethod, status, absl::Now() - waiter.start);
  waiter.reactor->Finish(ToGrpc(status, *waiter.context));
}

void LeaseDesk::Wake(const std::string& model) {
  std::list<Waiter> awake;
  {
    const std::lock_guard lock(mutex_);
    ++wakes_;
    for (auto it = waiters_.begin(); it != waiters_.end();) {
      const auto next = std::next(it);
      if (it->worker.model() == model) awake.splice(awake.end(), waiters_, it);
      it = next;
    }
  }
  for (Waiter& waiter : awake) service_.writers.Post([this, waiter = std::move(waiter)] { Serve(waiter); });
}

void LeaseDesk::Tick(absl::Time now) {
  std::list<Waiter> over;
  std::set<std::string> models;
  {
    const std::lock_guard lock(mutex_);
    for (auto it = waiters_.begin(); it != waiters_.end();) {
      const auto next = std::next(it);
      models.insert(it->worker.model());
      if (it->deadline <= now || it->context->IsCancelled()) over.splice(over.end(), waiters_, it);
      it = next;
    }
  }
  for (const Waiter& waiter : over) Answer(waiter, absl::OkStatus());
  for (const std::string& model : models) {
    if (service_.interactive.waiting(model)) Wake(model);  // handed back by another worker
  }
}

void LeaseDesk::Drain() {
  std::list<Waiter> all;
  {
    const std::lock_guard lock(mutex_);
    all.swap(waiters_);
  }
  for (const Waiter& waiter : all) Answer(waiter, service_.CheckNotDraining());
}

std::optional<LeaseHolder> LeaseDesk::Holder(const std::string& lease) const {
  const std::lock_guard lock(mutex_);
  const auto found = holders_.find(lease);
  if (found == holders_.end()) return std::nullopt;
  return found->second;
}

void LeaseDesk::Forget(const std::string& lease) {
  std::optional<LeaseHolder> holder;
  {
    const std::lock_guard lock(mutex_);
    const auto found = holders_.find(lease);
    if (found == holders_.end()) return;
    holder = std::move(found->second);
    holders_.erase(found);
  }
  if (!holder->job.empty()) service_.hub.ClearProgress(holder->job, holder->document_id);
}

}  // namespace snapkv::service
