// SPDX-License-Identifier: Apache-2.0
// What watchers and readers of results are told, and when.
#include "runtime/service/server/job_streams.h"

#include <utility>

namespace snapkv::service {
namespace {

constexpr int kResultsPerRead = 64;

}  // namespace

absl::Status CheckStreams(const ServiceContext& service) {
  if (service.open_streams < service.limits.max_streams) return absl::OkStatus();
  return WithRetryDelay(
      ServiceError(Reason::kQuotaExceeded, service.limits.max_streams,
                   " streams are open already (--max-streams); try again later, or ask with GetJob"),
      absl::Seconds(10));
}

bool IsTerminal(v1::Job::State state) {
  return state == v1::Job::SUCCEEDED || state == v1::Job::FAILED || state == v1::Job::CANCELLED ||
         state == v1::Job::EXPIRED;
}

grpc::ServerWriteReactor<v1::JobEvent>* WatchJobStream::Begin(ServiceContext& service,
                                                              grpc::CallbackServerContext* context,
                                                              const std::string& tenant,
                                                              const v1::WatchJobRequest& request) {
  const auto stream = Make<WatchJobStream>(service, context, request);
  service.readers.Post(
      [&service, stream, tenant, name = request.name()] { service.hub.Add(tenant, name, stream); });
  return stream.get();
}

WatchJobStream::WatchJobStream(ServiceContext& service, grpc::CallbackServerContext* context,
                               const v1::WatchJobRequest& request)
    : OutStream(service, "/snapkv.v1.Jobs/WatchJob", context), version_(request.after_version()) {}

bool WatchJobStream::OnJob(const v1::Job& job, const std::vector<v1::DocumentProgress>& documents) {
  if (!idle()) return gone();  // a slow client gets fewer events, not more memory
  const std::lock_guard lock(mutex_);
  const bool terminal = IsTerminal(job.state());
  if (job.version() > version_ || !documents.empty()) {
    version_ = job.version();
    last_sent_ = absl::Now();
    v1::JobEvent event;
    *event.mutable_job() = job;
    *event.mutable_documents() = {documents.begin(), documents.end()};
    Send(std::move(event));
  }
  if (terminal) End(absl::OkStatus());
  return true;
}

void WatchJobStream::OnTick(absl::Time now) {
  const std::lock_guard lock(mutex_);
  if (now - last_sent_ < service_.limits.heartbeat || !idle()) return;
  last_sent_ = now;
  v1::JobEvent event;
  event.set_heartbeat(true);
  Send(std::move(event));
}

grpc::ServerWriteReactor<v1::Result>* ResultStream::Begin(ServiceContext& service,
                                                          grpc::CallbackServerContext* context,
                                                          const std::string& tenant,
                                                          const v1::StreamResultsRequest& request) {
  const auto stream = Make<ResultStream>(service, context, tenant, request);
  service.readers.Post(
      [&service, stream, tenant, name = request.name()] { service.hub.Add(tenant, name, stream); });
  return stream.get();
}

ResultStream::ResultStream(ServiceContext& service, grpc::CallbackServerContext* context, std::string tenant,
                           const v1::StreamResultsRequest& request)
    : OutStream(service, "/snapkv.v1.Jobs/StreamResults", context),
      tenant_(std::move(tenant)),
      request_(request),
      sent_(request.after_sequence()) {}

bool ResultStream::OnJob(const v1::Job& job, const std::vector<v1::DocumentProgress>&) {
  {
    const std::lock_guard lock(mutex_);
    known_ = job.results();
    terminal_ = terminal_ || IsTerminal(job.state());
    if (reading_ || !idle()) return true;  // OnDrained goes on
    reading_ = true;
  }
  Read();
  return true;
}

void ResultStream::OnDrained() {
  {
    const std::lock_guard lock(mutex_);
    if (reading_ || !idle()) return;
    reading_ = true;
  }
  const auto self = std::static_pointer_cast<ResultStream>(shared_from_this());
  service_.readers.Post([self] { self->Read(); });
}

void ResultStream::Read() {
  for (;;) {
    int64_t after = 0;
    bool last = false;
    {
      const std::lock_guard lock(mutex_);
      after = sent_;
      const bool all = sent_ >= known_;
      last = all && (terminal_ || !request_.follow());
      if (all) reading_ = false;
      if (all && !last) return;  // OnJob goes on
    }
    if (last) return End(absl::OkStatus());
    auto results = service_.store.Results(tenant_, request_.name(), after, kResultsPerRead);
    if (!results.ok()) return End(results.status());
    if (results->empty()) return End(Internal("results behind ", after, " are missing"));
    const int64_t sent = results->back().sequence();
    for (v1::Result& result : *results) Send(std::move(result));
    const std::lock_guard lock(mutex_);
    sent_ = sent;
    // Unless all of them are on their way already, OnDrained goes on.
    if (!idle()) {
      reading_ = false;
      return;
    }
  }
}

}  // namespace snapkv::service
