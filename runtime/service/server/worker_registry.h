// SPDX-License-Identifier: Apache-2.0
// WorkerRegistry: the workers that are alive, and the models that have ever been served.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "runtime/service/reason.h"
#include "snapkv/v1/models.pb.h"
#include "snapkv/v1/workers.pb.h"

namespace snapkv::service {

// Where a worker's events go.
class LeaseEventSink {
 public:
  virtual ~LeaseEventSink() = default;
  virtual void Put(const v1::LeaseEvent& event) = 0;
  virtual void OnTick(absl::Time now) = 0;  // for heartbeats
};

// Thread-safe. Workers are in memory only: after a restart they register again.
class WorkerRegistry {
 public:
  // `models_file` keeps the names of models over restarts. Workers that have said nothing for `lifetime` are
  // dead.
  WorkerRegistry(std::string models_file, absl::Duration lease, absl::Duration lifetime);

  // The worker with its new name; PARAMETER_INVALID, MODEL_MISMATCH.
  absl::StatusOr<v1::Worker> Register(const v1::Worker& worker, absl::Time now);
  // A sign of life; WORKER_UNKNOWN.
  absl::StatusOr<v1::Worker> Seen(const std::string& name, absl::Time now);
  void SetSink(const std::string& name, const std::weak_ptr<LeaseEventSink>& sink);
  void Send(const std::string& name, const v1::LeaseEvent& event);
  void SendToAll(const v1::LeaseEvent& event);

  // The model that requests without one mean: the only one that is known, else `fallback`; MODEL_NOT_FOUND
  // when several are known and `fallback` is none of them.
  absl::StatusOr<std::string> DefaultModel(const std::string& fallback) const;
  // MODEL_NOT_FOUND for a name that no worker has ever registered, unless none has registered any yet.
  absl::Status CheckModel(const std::string& model) const;
  bool Ready(const std::string& model) const;
  // By name; MODEL_NOT_FOUND.
  absl::StatusOr<v1::Model> GetModel(const std::string& model) const;
  std::vector<v1::Model> Models() const;

  // Forgets the dead; heartbeats. Returns the names of those who died.
  std::vector<std::string> Tick(absl::Time now);
  int64_t size() const;

 private:
  struct Entry {
    v1::Worker worker;
    absl::Time seen;
    std::weak_ptr<LeaseEventSink> sink;
  };
  void Remember(const std::string& model);             // with the lock
  v1::Model Describe(const std::string& model) const;  // with the lock

  const std::string models_file_;
  const absl::Duration lease_;
  const absl::Duration lifetime_;
  mutable std::mutex mutex_;
  std::map<std::string, Entry> workers_;  // guarded by mutex_, as is models_
  std::set<std::string> models_;
};

}  // namespace snapkv::service
