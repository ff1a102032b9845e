// SPDX-License-Identifier: Apache-2.0
// Scheduler: which job's documents are next. In memory, rebuilt when the store is opened.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/time/time.h"
#include "runtime/service/store/job_store.h"
#include "runtime/service/store/rows.h"

namespace snapkv::service {

// Every job that has not ended. Thread-safe; Update and Pick are called under the store's write lock, so that
// it follows the commits in their order.
//
// Order in a tenant: priority + (now - queue time) / aging, highest first; as all jobs age alike, the order
// of two jobs never changes, and queue time - priority * aging is the key of a sorted set. Tenants take
// turns by name, per model.
class Scheduler {
 public:
  explicit Scheduler(absl::Duration aging) : aging_(aging) {}

  // The job as it has been committed: added, moved, or removed when it has ended or is deleted.
  void Update(const JobRow& job);

  // The job of `model` whose document is next, without those in `exhausted`; the next call goes on with the
  // next tenant.
  std::optional<int64_t> Pick(const std::string& model, const absl::flat_hash_set<int64_t>& exhausted);

  // Documents of `model` are queued.
  bool HasWork(const std::string& model) const;

  // Jobs that have not ended: all, and of one tenant.
  int64_t active() const;
  int64_t active(const std::string& tenant) const;
  StoreStats Stats(absl::Time now) const;

 private:
  // Key and job; less goes first.
  using Key = std::pair<int64_t, int64_t>;
  struct Entry {
    std::string tenant, model;
    v1::Job::State state;
    int64_t queued, running, queue_time;
    Key key;
    bool runnable;
  };
  struct ModelQueue {
    std::map<std::string, std::set<Key>> tenants;  // runnable jobs; no empty sets
    std::string served;                            // the tenant of the latest Pick
  };

  void Forget(int64_t job);
  void Count(const Entry& entry, int64_t sign);
  Key KeyOf(const JobRow& job) const;

  const absl::Duration aging_;
  mutable std::mutex mutex_;
  absl::flat_hash_map<int64_t, Entry> jobs_;
  absl::flat_hash_map<std::string, int64_t> tenant_jobs_;
  std::map<std::string, ModelQueue> models_;
  std::multiset<int64_t> queue_times_;  // of runnable jobs
  StoreStats stats_;
};

}  // namespace snapkv::service
