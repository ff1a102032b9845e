// SPDX-License-Identifier: Apache-2.0
// The streams of WatchJob and StreamResults.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "runtime/service/server/call.h"
#include "runtime/service/server/watch_hub.h"

namespace snapkv::service {

// RESOURCE_EXHAUSTED when too many streams are open.
absl::Status CheckStreams(const ServiceContext& service);

// No work follows; the last event of a watch.
bool IsTerminal(v1::Job::State state);

class WatchJobStream final : public OutStream<v1::JobEvent>, public JobWatcher {
 public:
  // A stream that is already at work.
  static grpc::ServerWriteReactor<v1::JobEvent>* Begin(ServiceContext& service,
                                                       grpc::CallbackServerContext* context,
                                                       const std::string& tenant,
                                                       const v1::WatchJobRequest& request);
  WatchJobStream(ServiceContext& service, grpc::CallbackServerContext* context,
                 const v1::WatchJobRequest& request);

  bool OnJob(const v1::Job& job, const std::vector<v1::DocumentProgress>& documents) override;
  void OnError(const absl::Status& error) override { End(error); }
  void OnTick(absl::Time now) override;

 private:
  std::mutex mutex_;
  // Guarded by mutex_.
  int64_t version_;  // that the client has
  absl::Time last_sent_ = absl::Now();
};

class ResultStream final : public OutStream<v1::Result>, public JobWatcher {
 public:
  static grpc::ServerWriteReactor<v1::Result>* Begin(ServiceContext& service,
                                                     grpc::CallbackServerContext* context,
                                                     const std::string& tenant,
                                                     const v1::StreamResultsRequest& request);
  ResultStream(ServiceContext& service, grpc::CallbackServerContext* context, std::string tenant,
               const v1::StreamResultsRequest& request);

  bool OnJob(const v1::Job& job, const std::vector<v1::DocumentProgress>& documents) override;
  void OnError(const absl::Status& error) override { End(error); }
  void OnTick(absl::Time) override {}

 private:
  void OnDrained() override;
  // Reads what follows the last one sent, on `readers`; ends the stream when nothing can follow.
  void Read();

  const std::string tenant_;
  const v1::StreamResultsRequest request_;
  std::mutex mutex_;
  // Guarded by mutex_.
  int64_t sent_;
  int64_t known_ = 0;      // results that the job is known to have
  bool terminal_ = false;  // no more will come
  bool reading_ = false;
};

}  // namespace snapkv::service
