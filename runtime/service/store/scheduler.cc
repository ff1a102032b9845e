// SPDX-License-Identifier: Apache-2.0
// The order of jobs and the turns of tenants.
#include "runtime/service/store/scheduler.h"

#include <algorithm>

namespace snapkv::service {

Scheduler::Key Scheduler::KeyOf(const JobRow& job) const {
  // Without aging (zero or infinite) priority is all that counts, then the age.
  constexpr int64_t kNoAging = int64_t{1} << 55;
  const bool ages = aging_ > absl::ZeroDuration() && aging_ < absl::Hours(24 * 365);
  const int64_t step = ages ? absl::ToInt64Microseconds(aging_) : kNoAging;
  return {job.queue_time - std::clamp<int64_t>(job.priority, -100, 100) * step, job.id};
}

void Scheduler::Count(const Entry& entry, int64_t sign) {
  const bool waiting = entry.state == v1::Job::UPLOADING || entry.state == v1::Job::QUEUED;
  (waiting ? stats_.jobs_waiting : stats_.jobs_running) += sign;
  if (entry.state != v1::Job::UPLOADING) stats_.documents_queued += sign * entry.queued;
  stats_.documents_leased += sign * entry.running;
}

void Scheduler::Forget(int64_t job) {
  const auto found = jobs_.find(job);
  if (found == jobs_.end()) return;
  const Entry& entry = found->second;
  Count(entry, -1);
  if (--tenant_jobs_[entry.tenant] == 0) tenant_jobs_.erase(entry.tenant);
  if (entry.runnable) {
    queue_times_.erase(queue_times_.find(entry.queue_time));
    ModelQueue& queue = models_[entry.model];
    std::set<Key>& keys = queue.tenants[entry.tenant];
    keys.erase(entry.key);
    if (keys.empty()) queue.tenants.erase(entry.tenant);
    // `served` goes with it: with nothing queued there is nobody to be fair to.
    if (queue.tenants.empty()) models_.erase(entry.model);
  }
  jobs_.erase(found);
}

void Scheduler::Update(const JobRow& job) {
  std::lock_guard lock(mutex_);
  const auto found = jobs_.find(job.id);
  const Key key = KeyOf(job);
  if (found != jobs_.end() && !job.ended() && found->second.runnable == job.runnable() &&
      found->second.key == key) {
    // The usual case: only its numbers have changed.
    Entry& entry = found->second;
    Count(entry, -1);
    entry.state = job.state;
    entry.queued = job.counts.queued();
    entry.running = job.counts.running();
    Count(entry, +1);
    return;
  }
  Forget(job.id);
  if (job.ended() || job.deleted) return;
  const Entry entry = {job.tenant,           job.model,      job.state, job.counts.queued(),
                       job.counts.running(), job.queue_time, key,       job.runnable()};
  Count(entry, +1);
  ++tenant_jobs_[entry.tenant];
  if (entry.runnable) {
    queue_times_.insert(entry.queue_time);
    models_[entry.model].tenants[entry.tenant].insert(key);
  }
  jobs_.emplace(job.id, entry);
}

std::optional<int64_t> Scheduler::Pick(const std::string& model,
                                       const absl::flat_hash_set<int64_t>& exhausted) {
  std::lock_guard lock(mutex_);
  const auto found = models_.find(model);
  if (found == models_.end()) return std::nullopt;
  ModelQueue& queue = found->second;
  auto tenant = queue.tenants.upper_bound(queue.served);
  for (size_t i = 0; i < queue.tenants.size(); ++i, ++tenant) {
    if (tenant == queue.tenants.end()) tenant = queue.tenants.begin();
    for (const auto& [key, job] : tenant->second) {
      if (exhausted.contains(job)) continue;
      queue.served = tenant->first;
      return job;
    }
  }
  return std::nullopt;
}

bool Scheduler::HasWork(const std::string& model) const {
  std::lock_guard lock(mutex_);
  return models_.contains(model);
}

int64_t Scheduler::active() const {
  std::lock_guard lock(mutex_);
  return static_cast<int64_t>(jobs_.size());
}

int64_t Scheduler::active(const std::string& tenant) const {
  std::lock_guard lock(mutex_);
  const auto found = tenant_jobs_.find(tenant);
  return found == tenant_jobs_.end() ? 0 : found->second;
}

StoreStats Scheduler::Stats(absl::Time now) const {
  std::lock_guard lock(mutex_);
  StoreStats stats = stats_;
  if (!queue_times_.empty()) {
    stats.oldest_queued = std::max(absl::ZeroDuration(), now - absl::FromUnixMicros(*queue_times_.begin()));
  }
  return stats;
}

}  // namespace snapkv::service
