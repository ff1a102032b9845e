// SPDX-License-Identifier: Apache-2.0
// The families of metrics and what moves them.
#include "runtime/service/metrics.h"

#include <atomic>
#include <exception>

#include "kernels/base/status.h"
#include "prometheus/counter.h"
#include "prometheus/exposer.h"
#include "prometheus/gauge.h"
#include "prometheus/histogram.h"
#include "prometheus/registry.h"
#include "prometheus/text_serializer.h"

#ifndef SNAPKV_VERSION
#error "SNAPKV_VERSION comes from CMake"
#endif

namespace snapkv::service {
namespace {

using prometheus::BuildCounter;
using prometheus::BuildGauge;
using prometheus::BuildHistogram;
using prometheus::Counter;
using prometheus::Family;
using prometheus::Gauge;
using prometheus::Histogram;
using prometheus::Registry;

// Bounds in seconds. A commit takes a fsync: 0.1 ms to seconds. A prefill takes milliseconds to hours.
const Histogram::BucketBoundaries kCommitBounds = {1e-4,   2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 1e-2,
                                                   2.5e-2, 5e-2,   0.1,  0.25, 1,      5};
const Histogram::BucketBoundaries kRpcBounds = {1e-3, 2.5e-3, 5e-3, 1e-2, 2.5e-2, 5e-2, 0.1, 0.25, 1, 5, 30};
const Histogram::BucketBoundaries kFirstTokenBounds = {0.1, 0.5, 1,   5,    10,     30,
                                                       60,  300, 900, 3600, 14'400, 86'400};
const Histogram::BucketBoundaries kTokenBounds = {1e-3, 2.5e-3, 5e-3, 1e-2, 2.5e-2, 5e-2,
                                                  0.1,  0.25,   0.5,  1,    5};

Counter& AddCounter(Registry& registry, const char* name, const char* help) {
  return BuildCounter().Name(name).Help(help).Register(registry).Add({});
}
Gauge& AddGauge(Registry& registry, const char* name, const char* help) {
  return BuildGauge().Name(name).Help(help).Register(registry).Add({});
}
Histogram& AddHistogram(Registry& registry, const char* name, const char* help,
                        const Histogram::BucketBoundaries& bounds) {
  return BuildHistogram().Name(name).Help(help).Register(registry).Add({}, bounds);
}

// Reasons come from workers: only our own become labels.
std::string ReasonLabel(const v1::Status& status) {
  if (status.code() == 0) return "";
  const absl::Status named = WithReasonName(absl::UnknownError(""), status.reason());
  return ReasonOf(named).has_value() ? status.reason() : "OTHER";
}

}  // namespace

struct Metrics::Families {
  std::shared_ptr<Registry> registry = std::make_shared<Registry>();
  Registry& r = *registry;
  Gauge& waiting = AddGauge(r, "snapkv_requests_waiting", "Documents that wait for a worker.");
  Gauge& running = AddGauge(r, "snapkv_requests_running", "Documents that workers hold under a lease.");
  Gauge& jobs_waiting =
      AddGauge(r, "snapkv_jobs_waiting", "Jobs that are being uploaded or wait for a worker.");
  Gauge& jobs_running = AddGauge(r, "snapkv_jobs_running", "Jobs with work under way.");
  Gauge& queue_age = AddGauge(r, "snapkv_queue_age_seconds", "Age of the document that has waited longest.");
  Gauge& workers = AddGauge(r, "snapkv_workers", "Worker groups that are registered and alive.");
  Histogram& first_token =
      AddHistogram(r, "snapkv_time_to_first_token_seconds",
                   "From the submission of a document to its first generated token.", kFirstTokenBounds);
  Histogram& inter_token =
      AddHistogram(r, "snapkv_inter_token_latency_seconds",
                   "Time between two generated tokens of a document, on average over it.", kTokenBounds);
  Counter& prompt_tokens =
      AddCounter(r, "snapkv_prompt_tokens_total", "Tokens of the prompts of finished documents.");
  Counter& generation_tokens =
      AddCounter(r, "snapkv_generation_tokens_total", "Tokens generated for finished documents.");
  Counter& cache_full =
      AddCounter(r, "snapkv_cache_full_bytes_total",
                 "Bytes that the KV caches of finished documents would have taken in full.");
  Counter& cache_kept =
      AddCounter(r, "snapkv_cache_compressed_bytes_total", "Bytes that their KV caches took after SnapKV.");
  Counter& expired = AddCounter(r, "snapkv_lease_expiries_total", "Leases that were not renewed in time.");
  Counter& uploaded =
      AddCounter(r, "snapkv_uploaded_bytes_total", "Bytes of documents that UploadDocument has stored.");
  Histogram& commit =
      AddHistogram(r, "snapkv_commit_seconds", "Duration of commits to the state folder.", kCommitBounds);
  Family<Counter>& documents = BuildCounter()
                                   .Name("snapkv_documents_total")
                                   .Help("Documents with a result, by outcome and by the reason of failures.")
                                   .Register(r);
  Family<Counter>& rpcs =
      BuildCounter().Name("snapkv_rpcs_total").Help("Answered calls, by method and status code.").Register(r);
  Family<Histogram>& rpc_seconds =
      BuildHistogram()
          .Name("snapkv_rpc_duration_seconds")
          .Help("Duration of answered calls, by method; of streams from open to end.")
          .Register(r);
  Family<Gauge>& streams =
      BuildGauge().Name("snapkv_open_streams").Help("Streams that are open, by method.").Register(r);
  std::atomic<int64_t> open{0};
  std::unique_ptr<prometheus::Exposer> exposer;
};

Metrics::Metrics() : families_(std::make_unique<Families>()) {
  BuildGauge()
      .Name("snapkv_build_info")
      .Help("1; the label has the version.")
      .Register(families_->r)
      .Add({{"version", SNAPKV_VERSION}})
      .Set(1);
}

Metrics::~Metrics() = default;

void Metrics::RpcFinished(const char* method, absl::StatusCode code, absl::Duration took) {
  families_->rpcs.Add({{"method", method}, {"code", absl::StatusCodeToString(code)}}).Increment();
  families_->rpc_seconds.Add({{"method", method}}, kRpcBounds).Observe(absl::ToDoubleSeconds(took));
}

void Metrics::StreamOpened(const char* method) {
  ++families_->open;
  families_->streams.Add({{"method", method}}).Increment();
}

void Metrics::StreamClosed(const char* method) {
  --families_->open;
  families_->streams.Add({{"method", method}}).Decrement();
}

int64_t Metrics::open_streams() const { return families_->open; }
void Metrics::UploadedBytes(int64_t bytes) { families_->uploaded.Increment(static_cast<double>(bytes)); }
void Metrics::ObserveCommit(absl::Duration took) { families_->commit.Observe(absl::ToDoubleSeconds(took)); }
void Metrics::LeaseExpired(int64_t leases) { families_->expired.Increment(static_cast<double>(leases)); }
void Metrics::SetWorkers(int64_t workers) { families_->workers.Set(static_cast<double>(workers)); }

void Metrics::ObserveResult(const v1::Result& result) {
  const bool failed = result.status().code() != 0;
  families_->documents
      .Add({{"result", failed ? "failed" : "succeeded"}, {"reason", ReasonLabel(result.status())}})
      .Increment();
  families_->prompt_tokens.Increment(static_cast<double>(result.usage().prompt_tokens()));
  families_->generation_tokens.Increment(static_cast<double>(result.usage().completion_tokens()));
  families_->cache_full.Increment(static_cast<double>(result.cache().bytes_full()));
  families_->cache_kept.Increment(static_cast<double>(result.cache().bytes_kept()));
  if (failed) return;
  const v1::Timings& t = result.timings();
  families_->first_token.Observe((t.queue_ms() + t.prefill_ms()) / 1e3);
  const int64_t gaps = result.usage().completion_tokens() - 1;
  if (gaps > 0) families_->inter_token.Observe(t.decode_ms() / 1e3 / static_cast<double>(gaps));
}

void Metrics::SetQueue(const StoreStats& stats) {
  families_->waiting.Set(static_cast<double>(stats.documents_queued));
  families_->running.Set(static_cast<double>(stats.documents_leased));
  families_->jobs_waiting.Set(static_cast<double>(stats.jobs_waiting));
  families_->jobs_running.Set(static_cast<double>(stats.jobs_running));
  families_->queue_age.Set(absl::ToDoubleSeconds(stats.oldest_queued));
}

absl::Status Metrics::Expose(const std::string& address) {
  try {
    families_->exposer = std::make_unique<prometheus::Exposer>(address, 1);
  } catch (const std::exception&) {  // the library's web server says no more than that
    return FailedPrecondition("--metrics-port: cannot listen on ", address, " (in use by another program?)");
  }
  families_->exposer->RegisterCollectable(families_->registry);
  return absl::OkStatus();
}

std::string Metrics::Text() const {
  return prometheus::TextSerializer().Serialize(families_->registry->Collect());
}

}  // namespace snapkv::service
