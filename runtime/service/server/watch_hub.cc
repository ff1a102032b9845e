// SPDX-License-Identifier: Apache-2.0
// Who watches which job, and what has changed.
#include "runtime/service/server/watch_hub.h"

#include <utility>

namespace snapkv::service {
namespace {

constexpr size_t kMostDocuments = 64;  // of one event

}  // namespace

void WatchHub::Add(const std::string& tenant, const std::string& job,
                   const std::weak_ptr<JobWatcher>& watcher) {
  // Another tenant's job must not come in among those that are watched.
  if (const auto job_or = store_.GetJob(tenant, job); !job_or.ok()) {
    if (const auto alive = watcher.lock()) alive->OnError(job_or.status());
    return;
  }
  {
    const std::lock_guard lock(mutex_);
    Watched& watched = jobs_[job];
    watched.tenant = tenant;
    watched.watchers.push_back(watcher);
  }
  if (const auto alive = watcher.lock()) TellAll(job, tenant, {alive});
}

void WatchHub::Changed(const std::string& job) {
  const std::lock_guard lock(mutex_);
  if (jobs_.contains(job)) changed_.insert(job);
}

void WatchHub::SetProgress(const std::string& job, const v1::DocumentProgress& progress) {
  const std::lock_guard lock(mutex_);
  progress_[job][progress.document_id()] = progress;
  if (jobs_.contains(job)) changed_.insert(job);
}

void WatchHub::ClearProgress(const std::string& job, const std::string& document_id) {
  const std::lock_guard lock(mutex_);
  const auto found = progress_.find(job);
  if (found == progress_.end()) return;
  found->second.erase(document_id);
  if (found->second.empty()) progress_.erase(found);
}

void WatchHub::Tick(absl::Time now) {
  Watchers all;
  std::vector<std::string> tell;
  {
    const std::lock_guard lock(mutex_);
    for (auto it = jobs_.begin(); it != jobs_.end();) {
      std::vector<std::weak_ptr<JobWatcher>> alive;
      for (const auto& watcher : it->second.watchers) {
        if (auto strong = watcher.lock()) {
          alive.push_back(watcher);
          all.push_back(std::move(strong));
        }
      }
      it->second.watchers = std::move(alive);
      if (it->second.watchers.empty()) {
        changed_.erase(it->first);
        it = jobs_.erase(it);
      } else {
        ++it;
      }
    }
    for (const std::string& job : changed_) {
      if (telling_.insert(job).second) tell.push_back(job);
    }
    for (const std::string& job : tell) changed_.erase(job);
  }
  for (const auto& watcher : all) watcher->OnTick(now);
  for (const std::string& job : tell) readers_.Post([this, job] { Tell(job); });
}

void WatchHub::Tell(const std::string& job) {
  Watchers watchers;
  std::string tenant;
  {
    const std::lock_guard lock(mutex_);
    telling_.erase(job);
    const auto found = jobs_.find(job);
    if (found == jobs_.end()) return;
    tenant = found->second.tenant;
    for (const auto& watcher : found->second.watchers) {
      if (auto strong = watcher.lock()) watchers.push_back(std::move(strong));
    }
  }
  TellAll(job, tenant, watchers);
}

void WatchHub::TellAll(const std::string& job, const std::string& tenant, const Watchers& watchers) {
  const absl::StatusOr<v1::Job> now = store_.GetJob(tenant, job);
  const auto documents = ProgressOf(job);
  bool again = false;
  for (const auto& watcher : watchers) {
    if (!now.ok()) {
      watcher->OnError(now.status());
    } else if (!watcher->OnJob(*now, documents)) {
      again = true;
    }
  }
  if (again) Changed(job);
}

void WatchHub::EndAll(const absl::Status& error) {
  Watchers all;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [job, watched] : jobs_) {
      for (const auto& watcher : watched.watchers) {
        if (auto strong = watcher.lock()) all.push_back(std::move(strong));
      }
    }
  }
  for (const auto& watcher : all) watcher->OnError(error);
}

std::vector<v1::DocumentProgress> WatchHub::ProgressOf(const std::string& job) const {
  std::vector<v1::DocumentProgress> documents;
  const std::lock_guard lock(mutex_);
  const auto found = progress_.find(job);
  if (found == progress_.end()) return documents;
  for (const auto& [id, progress] : found->second) {
    if (documents.size() == kMostDocuments) break;
    documents.push_back(progress);
  }
  return documents;
}

}  // namespace snapkv::service
