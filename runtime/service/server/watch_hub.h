// SPDX-License-Identifier: Apache-2.0
// WatchHub: tells those who watch a job that it has changed. Changes within a tick are told once, so that a
// job with thousands of results a second and hundreds of watchers costs one read per tick.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "runtime/service/server/executor.h"
#include "runtime/service/store/job_store.h"

namespace snapkv::service {

// Its calls come from any thread, one at a time, and must not block.
class JobWatcher {
 public:
  virtual ~JobWatcher() = default;
  // The job as it is now. False: busy, tell it again at the next tick.
  virtual bool OnJob(const v1::Job& job, const std::vector<v1::DocumentProgress>& documents) = 0;
  // The job cannot be read any more, e.g. it was deleted.
  virtual void OnError(const absl::Status& error) = 0;
  // Every tick; for heartbeats.
  virtual void OnTick(absl::Time now) = 0;
};

// Thread-safe.
class WatchHub {
 public:
  WatchHub(JobStore& store, Executor& readers) : store_(store), readers_(readers) {}

  // Until the watcher is destroyed. It is told of the job at once.
  void Add(const std::string& tenant, const std::string& job, const std::weak_ptr<JobWatcher>& watcher);
  // Marks a job.
  void Changed(const std::string& job);
  // What a worker reports; marks the job.
  void SetProgress(const std::string& job, const v1::DocumentProgress& progress);
  void ClearProgress(const std::string& job, const std::string& document_id);

  // Every 100 ms: tells the watchers of marked jobs, on `readers`.
  void Tick(absl::Time now);
  // Ends all watches.
  void EndAll(const absl::Status& error);

 private:
  using Watchers = std::vector<std::shared_ptr<JobWatcher>>;
  struct Watched {
    std::string tenant;
    std::vector<std::weak_ptr<JobWatcher>> watchers;
  };
  void Tell(const std::string& job);
  void TellAll(const std::string& job, const std::string& tenant, const Watchers& watchers);
  std::vector<v1::DocumentProgress> ProgressOf(const std::string& job) const;

  JobStore& store_;
  Executor& readers_;
  mutable std::mutex mutex_;
  // All guarded by mutex_.
  std::map<std::string, Watched> jobs_;
  std::set<std::string> changed_;
  std::set<std::string> telling_;  // a task for them is under way
  std::map<std::string, std::map<std::string, v1::DocumentProgress>> progress_;  // job, document
};

}  // namespace snapkv::service
