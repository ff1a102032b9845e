// SPDX-License-Identifier: Apache-2.0
// LeaseDesk: gives documents to workers. Calls that find nothing wait here, without a thread, until something
// is queued or their time is up.
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <mutex>
#include <optional>
#include <string>

#include "grpcpp/grpcpp.h"
#include "runtime/service/server/context.h"
#include "snapkv/v1/workers.pb.h"

namespace snapkv::service {

// What a lease is for, as far as this process has given it out.
struct LeaseHolder {
  std::string worker;
  std::string job;
  std::string document_id;
};

// Thread-safe.
class LeaseDesk {
 public:
  explicit LeaseDesk(ServiceContext& service) : service_(service) {}

  // Answers AcquireLease, now or later.
  void Acquire(const v1::Worker& worker, const v1::AcquireLeaseRequest& request,
               grpc::CallbackServerContext* context, v1::AcquireLeaseResponse* response,
               grpc::ServerUnaryReactor* reactor);
  // Documents of `model` wait: those who wait for them are served, on `writers`.
  void Wake(const std::string& model);
  // Answers those whose time is up.
  void Tick(absl::Time now);
  // Answers everybody: DRAINING.
  void Drain();

  std::optional<LeaseHolder> Holder(const std::string& lease) const;
  void Forget(const std::string& lease);

 private:
  struct Waiter {
    v1::Worker worker;
    int count = 0;
    absl::Time deadline;
    absl::Time start;
    grpc::CallbackServerContext* context = nullptr;
    v1::AcquireLeaseResponse* response = nullptr;
    grpc::ServerUnaryReactor* reactor = nullptr;
  };
  // Serves the waiter or lets it wait. On a thread of `writers`.
  void Serve(Waiter waiter);
  absl::Status Take(Waiter& waiter);
  void Answer(const Waiter& waiter, const absl::Status& status);

  ServiceContext& service_;
  mutable std::mutex mutex_;
  // All guarded by mutex_.
  std::list<Waiter> waiters_;
  uint64_t wakes_ = 0;
  std::map<std::string, LeaseHolder> holders_;  // by lease
};

}  // namespace snapkv::service
