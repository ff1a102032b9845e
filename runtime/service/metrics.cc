// SPDX-License-Identifier: Apache-2.0
// The metric families of the job server and how results, RPCs and the queue move them.
#include "runtime/service/metrics.h"

#include <sys/statvfs.h>

#include <array>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <exception>
#include <unordered_map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "prometheus/counter.h"
#include "prometheus/exposer.h"
#include "prometheus/family.h"
#include "prometheus/gauge.h"
#include "prometheus/histogram.h"
#include "prometheus/registry.h"
#include "prometheus/text_serializer.h"
#include "snapkv/v1/models.pb.h"
#include "snapkv/v1/summarizer.pb.h"
#include "snapkv/v1/workers.pb.h"

namespace snapkv::service {
namespace {

using prometheus::Counter;
using prometheus::Family;
using prometheus::Gauge;
using prometheus::Histogram;
using Buckets = Histogram::BucketBoundaries;

constexpr char kOther[] = "other";

// From a commit to an SSD (0.1 ms) to a disk that hangs.
const Buckets kCommitBuckets = {0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01,
                                0.025,  0.05,    0.1,    0.25,  1,      5};
// From a lookup to the longest wait of AcquireLease.
const Buckets kRpcBuckets = {0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10, 30};
// Waiting in a queue over night, to half a day, is normal.
const Buckets kFirstTokenBuckets = {0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600, 10800, 43200};
// From 1,000 tokens/s to one token in 5 s.
const Buckets kInterTokenBuckets = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5};

// Names of google.rpc.Code, in the order of their numbers.
constexpr std::array kCodeNames = {
    "OK",        "CANCELLED",       "UNKNOWN",           "INVALID_ARGUMENT",   "DEADLINE_EXCEEDED",
    "NOT_FOUND", "ALREADY_EXISTS",  "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION",
    "ABORTED",   "OUT_OF_RANGE",    "UNIMPLEMENTED",     "INTERNAL",           "UNAVAILABLE",
    "DATA_LOSS", "UNAUTHENTICATED",
};

const char* CodeName(int code) {
  return code >= 0 && code < static_cast<int>(kCodeNames.size()) ? kCodeNames[static_cast<size_t>(code)]
                                                                 : "UNKNOWN";
}

// A reason as a worker wrote it; only those of reason.h become labels.
std::string KnownReason(const std::string& name) {
  const std::optional<Reason> reason = ReasonOf(WithReasonName(absl::UnknownError(""), name));
  return reason.has_value() ? ReasonName(*reason) : kOther;
}

struct Method {
  std::string label;  // "Jobs/CreateJob"
  bool stream;
};

// By full name with the leading slash.
std::unordered_map<std::string, Method> AllMethods() {
  std::unordered_map<std::string, Method> methods = {
      {"/grpc.health.v1.Health/Check", {"Health/Check", false}},
      {"/grpc.health.v1.Health/Watch", {"Health/Watch", true}},
  };
  for (const google::protobuf::FileDescriptor* file :
       {v1::Job::descriptor()->file(), v1::Worker::descriptor()->file(), v1::Model::descriptor()->file(),
        v1::SummarizeRequest::descriptor()->file()}) {
    for (int s = 0; s < file->service_count(); ++s) {
      const auto* service = file->service(s);
      for (int m = 0; m < service->method_count(); ++m) {
        const auto* method = service->method(m);
        methods[absl::StrCat("/", service->full_name(), "/", method->name())] = {
            absl::StrCat(service->name(), "/", method->name()),
            method->client_streaming() || method->server_streaming()};
      }
    }
  }
  return methods;
}

bool IsMeasured(double value) { return std::isfinite(value) && value >= 0; }

void Add(Counter& counter, int64_t amount) {
  if (amount > 0) counter.Increment(static_cast<double>(amount));
}

}  // namespace

struct Metrics::Families {
  explicit Families(const std::string& version);

  Family<Gauge>& GaugeFamily(const char* name, const char* help) {
    return prometheus::BuildGauge().Name(name).Help(help).Register(*registry);
  }
  Gauge& OneGauge(const char* name, const char* help) { return GaugeFamily(name, help).Add({}); }
  Family<Counter>& CounterFamily(const char* name, const char* help) {
    return prometheus::BuildCounter().Name(name).Help(help).Register(*registry);
  }
  Counter& OneCounter(const char* name, const char* help) { return CounterFamily(name, help).Add({}); }
  Family<Histogram>& HistogramFamily(const char* name, const char* help) {
    return prometheus::BuildHistogram().Name(name).Help(help).Register(*registry);
  }
  const Method& MethodOf(const std::string& name) const {
    const auto found = methods.find(name);
    return found == methods.end() ? other : found->second;
  }

  const std::unordered_map<std::string, Method> methods = AllMethods();
  const Method other{kOther, true};
  std::shared_ptr<prometheus::Registry> registry = std::make_shared<prometheus::Registry>();

  Gauge& documents_running = OneGauge("snapkv_requests_running", "Documents leased to workers.");
  Gauge& documents_waiting =
      OneGauge("snapkv_requests_waiting", "Documents of sealed jobs that wait for a worker.");
  Gauge& queue_age =
      OneGauge("snapkv_queue_age_seconds", "Age of the document that has waited longest; 0: none waits.");
  Family<Gauge>& jobs =
      GaugeFamily("snapkv_jobs", "Jobs that have not ended, by state (waiting: UPLOADING or QUEUED).");
  Gauge& workers = OneGauge("snapkv_workers", "Worker groups that are registered and alive.");
  Family<Counter>& documents =
      CounterFamily("snapkv_documents_total", "Results committed, by result and reason.");
  Counter& jobs_created = OneCounter("snapkv_jobs_created_total", "Jobs created.");
  Family<Counter>& jobs_ended =
      CounterFamily("snapkv_jobs_ended_total", "Jobs that ended, by their last state.");
  Counter& prompt_tokens =
      OneCounter("snapkv_prompt_tokens_total", "Tokens of the prompts of committed results.");
  Counter& generation_tokens =
      OneCounter("snapkv_generation_tokens_total", "Tokens generated for committed results.");
  Counter& cache_full =
      OneCounter("snapkv_cache_full_bytes_total", "KV cache bytes of committed results before compression.");
  Counter& cache_kept = OneCounter("snapkv_cache_compressed_bytes_total",
                                   "KV cache bytes of committed results after compression.");
  Histogram& first_token =
      HistogramFamily("snapkv_time_to_first_token_seconds", "From queueing a document to its first token.")
          .Add({}, kFirstTokenBuckets);
  Histogram& inter_token = HistogramFamily("snapkv_inter_token_latency_seconds",
                                           "Mean time between the generated tokens of a document.")
                               .Add({}, kInterTokenBuckets);
  Counter& lease_expiries =
      OneCounter("snapkv_lease_expiries_total", "Leases that were not renewed before their deadline.");
  Histogram& commits =
      HistogramFamily("snapkv_commit_duration_seconds", "Time of a commit to the job database.")
          .Add({}, kCommitBuckets);
  Counter& upload_bytes =
      OneCounter("snapkv_upload_bytes_total", "Bytes of documents written to the state folder.");
  Gauge& disk_free = OneGauge("snapkv_state_disk_free_bytes",
                              "Bytes free for the server on the file system of the state folder.");
  Gauge& disk_size = OneGauge("snapkv_state_disk_size_bytes", "Size of the file system of the state folder.");
  Family<Counter>& rpcs = CounterFamily("snapkv_rpcs_total", "RPCs finished, by method and code.");
  Family<Counter>& rpc_errors =
      CounterFamily("snapkv_rpc_errors_total", "RPCs refused with a reason, by reason.");
  Family<Histogram>& rpc_duration = HistogramFamily(
      "snapkv_rpc_duration_seconds", "Time of unary RPCs, by method (AcquireLease waits for work).");
  Family<Gauge>& streams = GaugeFamily("snapkv_streams_open", "Streaming RPCs that are open, by method.");

  // Last, so that nothing is served any more when the rest is destroyed.
  std::unique_ptr<prometheus::Exposer> exposer;
};

// Series without labels, and with labels that dashboards compute ratios of, exist from the start: a rate over
// a series that appears with its first event misses that event.
Metrics::Families::Families(const std::string& version) {
  GaugeFamily("snapkv_build_info", "Always 1; the version is its label.").Add({{"version", version}}).Set(1);
  OneGauge("snapkv_start_time_seconds", "When the server started, in seconds since 1970.")
      .Set(absl::ToDoubleSeconds(absl::Now() - absl::UnixEpoch()));
  jobs.Add({{"state", "waiting"}});
  jobs.Add({{"state", "running"}});
  documents.Add({{"result", "succeeded"}, {"reason", "OK"}});
  for (const v1::Job::State state :
       {v1::Job::SUCCEEDED, v1::Job::FAILED, v1::Job::CANCELLED, v1::Job::EXPIRED}) {
    jobs_ended.Add({{"state", v1::Job::State_Name(state)}});
  }
  rpc_errors.Add({{"reason", ReasonName(Reason::kStorageFull)}});
  for (const auto& [name, method] : methods) {
    if (name.rfind("/snapkv.", 0) != 0) continue;  // gRPC's own health service may answer without telling us
    rpcs.Add({{"method", method.label}, {"code", "OK"}});
    if (method.stream) {
      streams.Add({{"method", method.label}});
    } else {
      rpc_duration.Add({{"method", method.label}}, kRpcBuckets);
    }
  }
}

Metrics::Metrics(const std::string& version) : families_(std::make_unique<Families>(version)) {}
Metrics::~Metrics() = default;

void Metrics::ObserveResult(const v1::Result& result) {
  Families& f = *families_;
  const bool succeeded = result.status().code() == 0;
  f.documents
      .Add({{"result", succeeded ? "succeeded" : "failed"},
            {"reason", succeeded ? "OK" : KnownReason(result.status().reason())}})
      .Increment();
  const v1::Usage& usage = result.usage();
  Add(f.prompt_tokens, usage.prompt_tokens());
  Add(f.generation_tokens, usage.completion_tokens());
  Add(f.cache_full, result.cache().bytes_full());
  Add(f.cache_kept, result.cache().bytes_kept());
  if (!succeeded || usage.completion_tokens() < 1) return;
  const v1::Timings& timings = result.timings();
  const double first_ms = timings.queue_ms() + timings.prefill_ms();
  if (IsMeasured(timings.queue_ms()) && IsMeasured(first_ms)) f.first_token.Observe(first_ms / 1000);
  if (usage.completion_tokens() > 1 && IsMeasured(timings.decode_ms())) {
    f.inter_token.Observe(timings.decode_ms() / 1000 / static_cast<double>(usage.completion_tokens() - 1));
  }
}

void Metrics::JobCreated() { families_->jobs_created.Increment(); }

void Metrics::JobEnded(v1::Job::State state) {
  if (state != v1::Job::SUCCEEDED && state != v1::Job::FAILED && state != v1::Job::CANCELLED &&
      state != v1::Job::EXPIRED) {
    return;
  }
  families_->jobs_ended.Add({{"state", v1::Job::State_Name(state)}}).Increment();
}

void Metrics::LeaseExpired(int64_t leases) { Add(families_->lease_expiries, leases); }

void Metrics::SetQueue(const StoreStats& stats) {
  Families& f = *families_;
  f.documents_running.Set(static_cast<double>(stats.documents_leased));
  f.documents_waiting.Set(static_cast<double>(stats.documents_queued));
  f.queue_age.Set(absl::ToDoubleSeconds(stats.oldest_queued));
  f.jobs.Add({{"state", "waiting"}}).Set(static_cast<double>(stats.jobs_waiting));
  f.jobs.Add({{"state", "running"}}).Set(static_cast<double>(stats.jobs_running));
}

void Metrics::SetWorkers(int64_t workers) { families_->workers.Set(static_cast<double>(workers)); }

void Metrics::ObserveCommit(absl::Duration duration) {
  families_->commits.Observe(absl::ToDoubleSeconds(duration));
}

void Metrics::UploadedBytes(int64_t bytes) { Add(families_->upload_bytes, bytes); }

absl::Status Metrics::UpdateDisk(const std::string& folder) {
  struct statvfs disk;
  if (::statvfs(folder.c_str(), &disk) != 0) {
    return absl::UnavailableError(absl::StrCat("the free space of the state folder '", folder,
                                               "' cannot be read: ", std::strerror(errno)));
  }
  families_->disk_free.Set(static_cast<double>(disk.f_bavail) * static_cast<double>(disk.f_frsize));
  families_->disk_size.Set(static_cast<double>(disk.f_blocks) * static_cast<double>(disk.f_frsize));
  return absl::OkStatus();
}

void Metrics::RpcFinished(const std::string& method, int code, absl::Duration duration,
                          std::optional<Reason> reason) {
  Families& f = *families_;
  const Method& known = f.MethodOf(method);
  f.rpcs.Add({{"method", known.label}, {"code", CodeName(code)}}).Increment();
  if (reason.has_value()) f.rpc_errors.Add({{"reason", ReasonName(*reason)}}).Increment();
  if (!known.stream) {
    f.rpc_duration.Add({{"method", known.label}}, kRpcBuckets).Observe(absl::ToDoubleSeconds(duration));
  }
}

void Metrics::StreamOpened(const std::string& method) {
  families_->streams.Add({{"method", families_->MethodOf(method).label}}).Increment();
}

void Metrics::StreamClosed(const std::string& method) {
  families_->streams.Add({{"method", families_->MethodOf(method).label}}).Decrement();
}

absl::StatusOr<int> Metrics::Expose(const std::string& address) {
  if (families_->exposer != nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat("metrics are served already; '", address, "' is a second address"));
  }
  try {
    auto exposer = std::make_unique<prometheus::Exposer>(address);
    const std::vector<int> ports = exposer->GetListeningPorts();
    exposer->RegisterCollectable(families_->registry);
    families_->exposer = std::move(exposer);
    return ports.empty() ? 0 : ports.front();
  } catch (const std::exception&) {
    // The library says "null context when constructing CivetServer" and no more.
    return absl::UnavailableError(absl::StrCat("metrics cannot be served on '", address,
                                               "': the port is in use, or this machine has no such address; "
                                               "choose another one with --metrics-port"));
  }
}

std::string Metrics::Text() const {
  return prometheus::TextSerializer().Serialize(families_->registry->Collect());
}

}  // namespace snapkv::service
