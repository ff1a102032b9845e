// SPDX-License-Identifier: Apache-2.0
// A server stream by callbacks.
#include "launch/worker/lease_watch.h"

#include <condition_variable>
#include <mutex>
#include <utility>

#include "runtime/service/grpc_status.h"

namespace snapkv::launch {

class LeaseWatch::Reactor final : public grpc::ClientReadReactor<v1::LeaseEvent> {
 public:
  Reactor(const std::string& worker, std::function<void(const v1::LeaseEvent&)> on_event,
          std::function<void(const absl::Status&)> on_end)
      : on_event_(std::move(on_event)), on_end_(std::move(on_end)) {
    request_.set_worker(worker);
  }

  void Start(v1::Workers::Stub& stub) {
    stub.async()->WatchLeases(&context_, &request_, this);
    StartRead(&event_);
    StartCall();
  }

  void OnReadDone(bool ok) override {
    if (!ok) return;
    if (event_.kind() != v1::LeaseEvent::KIND_UNSPECIFIED) on_event_(event_);
    StartRead(&event_);
  }

  void OnDone(const grpc::Status& status) override {
    on_end_(service::FromGrpc(status));
    const std::lock_guard lock(mutex_);
    done_ = true;
    changed_.notify_all();
  }

  void CancelAndWait() {
    context_.TryCancel();
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return done_; });
  }

 private:
  const std::function<void(const v1::LeaseEvent&)> on_event_;
  const std::function<void(const absl::Status&)> on_end_;
  grpc::ClientContext context_;
  v1::WatchLeasesRequest request_;
  v1::LeaseEvent event_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool done_ = false;  // guarded by mutex_
};

LeaseWatch::LeaseWatch(v1::Workers::Stub& stub, const std::string& worker,
                       std::function<void(const v1::LeaseEvent&)> on_event,
                       std::function<void(const absl::Status&)> on_end)
    : reactor_(std::make_unique<Reactor>(worker, std::move(on_event), std::move(on_end))) {
  reactor_->Start(stub);
}

LeaseWatch::~LeaseWatch() { reactor_->CancelAndWait(); }

}  // namespace snapkv::launch
