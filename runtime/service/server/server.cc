// SPDX-License-Identifier: Apache-2.0
// Putting the server together, its clock, and its end.
#include "runtime/service/server/server.h"

#include <condition_variable>
#include <fstream>
#include <sstream>
#include <thread>
#include <utility>

#include "grpcpp/ext/proto_server_reflection_plugin.h"
#include "grpcpp/health_check_service_interface.h"
#include "runtime/service/event_log.h"
#include "runtime/service/server/interactive.h"
#include "runtime/service/server/jobs_service.h"
#include "runtime/service/server/lease_desk.h"
#include "runtime/service/server/models_service.h"
#include "runtime/service/server/summarizer_service.h"
#include "runtime/service/server/watch_hub.h"
#include "runtime/service/server/worker_registry.h"
#include "runtime/service/server/workers_service.h"

namespace snapkv::service {
namespace {

constexpr absl::Duration kTick = absl::Milliseconds(100);
constexpr absl::Duration kSweepEvery = absl::Seconds(1);
constexpr absl::Duration kShutdownGrace = absl::Seconds(2);
// Calls that write wait for the disk, not for the CPU; several of them share one flush.
constexpr int kWriterThreads = 4;
constexpr int kReaderThreads = 2;
// Up to here a message that is too large gets our own error, with advice; beyond it gRPC's.
constexpr int kReceiveFactor = 16;
// gRPC's own threads, for reflection (which has no callback form) and the like.
constexpr int kMaxGrpcThreads = 64;

absl::StatusOr<std::string> ReadFile(const std::string& path, const char* flag) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  if (in) text << in.rdbuf();
  if (!in) return NotFound(flag, ": cannot read ", path);
  return std::move(text).str();
}

bool IsLoopback(const std::string& address) {
  return address.starts_with("127.") || address.starts_with("localhost:") || address.starts_with("[::1]:") ||
         address.starts_with("unix:");
}

absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> MakeCredentials(const ServerOptions& options) {
  if (options.tls_cert.empty() != options.tls_key.empty())
    return InvalidArgument("--tls-cert and --tls-key belong together: give both");
  if (options.tls_cert.empty()) {
    if (!options.tls_client_ca.empty())
      return InvalidArgument("--tls-client-ca needs --tls-cert and --tls-key");
    return grpc::InsecureServerCredentials();
  }
  grpc::SslServerCredentialsOptions ssl(options.tls_client_ca.empty()
                                            ? GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE
                                            : GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  grpc::SslServerCredentialsOptions::PemKeyCertPair pair;
  ASSIGN_OR_RETURN(pair.cert_chain, ReadFile(options.tls_cert, "--tls-cert"));
  ASSIGN_OR_RETURN(pair.private_key, ReadFile(options.tls_key, "--tls-key"));
  ssl.pem_key_cert_pairs.push_back(std::move(pair));
  if (!options.tls_client_ca.empty()) {
    ASSIGN_OR_RETURN(ssl.pem_root_certs, ReadFile(options.tls_client_ca, "--tls-client-ca"));
  }
  return grpc::SslServerCredentials(ssl);
}

absl::Status CheckExposure(const ServerOptions& options) {
  if (options.listen.empty()) return InvalidArgument("--listen HOST:PORT is missing");
  for (const std::string& address : options.listen) {
    if (IsLoopback(address)) continue;
    if (options.token_file.empty() && options.tls_client_ca.empty() && !options.insecure) {
      return FailedPrecondition(
          "--listen ", address,
          " can be reached from other machines, and anybody there could "
          "read and submit documents: give --token-file (with --tls-cert and --tls-key), or "
          "--insecure if that is intended");
    }
    if (options.tls_cert.empty() && !options.insecure)
      LOG(Warning) << "--listen " << address
                   << " without --tls-cert: documents and tokens travel in clear text";
  }
  return absl::OkStatus();
}

void WarnWithoutWorkers(const Tenants& tenants) {
  if (tenants.has_workers()) return;
  LOG(Warning) << "--token-file has no line '" << kWorkerTenant << " TOKEN': no worker can register or go on";
}

class GrpcServer final : public Server {
 public:
  GrpcServer(const ServerOptions& options, std::unique_ptr<JobStore> store, std::unique_ptr<Tenants> tenants)
      : options_(options),
        store_(std::move(store)),
        tenants_(std::move(tenants)),
        registry_(options.state + "/models", options.store.lease,
                  2 * options.store.lease + absl::Seconds(30)),
        interactive_({options.limits.max_interactive, options.store.max_attempts, options.store.lease}),
        hub_(*store_, readers_),
        desk_(context_) {}

  ~GrpcServer() override {
    {
      const std::lock_guard lock(mutex_);
      ending_ = true;
    }
    changed_.notify_all();
    if (clock_.joinable()) clock_.join();
    context_.draining = true;
    desk_.Drain();
    hub_.EndAll(context_.CheckNotDraining());
    interactive_.EndAll(context_.CheckNotDraining());
    if (server_) {
      server_->Shutdown(absl::ToChronoTime(absl::Now() + kShutdownGrace));
      server_->Wait();
    }
    // The executors run what is left while everything else still exists.
  }

  absl::Status Begin() {
    store_->SetListener([this](const StoreEvent& event) { OnStoreEvent(event); });
    store_->SetCommitObserver([this](absl::Duration took) { metrics_.ObserveCommit(took); });
    ASSIGN_OR_RETURN(const auto credentials, MakeCredentials(options_));
    grpc::EnableDefaultHealthCheckService(true);
    grpc::reflection::InitProtoReflectionServerBuilderPlugin();
    grpc::ServerBuilder builder;
    ports_.resize(options_.listen.size());
    for (size_t i = 0; i < ports_.size(); ++i) {
      builder.AddListeningPort(options_.listen[i], credentials, &ports_[i]);
    }
    Configure(builder);
    builder.RegisterService(&jobs_);
    builder.RegisterService(&workers_);
    builder.RegisterService(&summarizer_);
    builder.RegisterService(&models_);
    server_ = builder.BuildAndStart();
    for (size_t i = 0; i < ports_.size(); ++i) {
      if (server_ == nullptr || ports_[i] == 0)
        return FailedPrecondition("--listen ", options_.listen[i],
                                  ": cannot listen there (in use by another program, "
                                  "no address of this machine, or a certificate that does not fit its key)");
    }
    SetHealth(true);
    if (!options_.metrics_address.empty()) {
      RETURN_IF_ERROR(Annotate(metrics_.Expose(options_.metrics_address).status(), "--metrics-port"));
    }
    clock_ = std::thread([this] { RunClock(); });
    return absl::OkStatus();
  }

  const std::vector<int>& ports() const override { return ports_; }
  absl::Status ReloadTokens() override {
    RETURN_IF_ERROR(tenants_->Reload());
    WarnWithoutWorkers(*tenants_);
    return absl::OkStatus();
  }

  void Drain() override {
    context_.draining = true;
    SetHealth(false);
    v1::LeaseEvent drain;
    drain.set_kind(v1::LeaseEvent::DRAIN);
    registry_.SendToAll(drain);
    desk_.Drain();
    interactive_.EndAll(context_.CheckNotDraining());
    const absl::Time deadline = absl::Now() + options_.drain_timeout;
    std::unique_lock lock(mutex_);
    while (!hurry_ && absl::Now() < deadline) {
      lock.unlock();
      const auto stats = store_->Stats();
      lock.lock();
      if (stats.ok() && stats->documents_leased == 0) return;
      changed_.wait_for(lock, absl::ToChronoMilliseconds(kTick));
    }
  }

  void HurryUp() override {
    {
      const std::lock_guard lock(mutex_);
      hurry_ = true;
    }
    changed_.notify_all();
  }

 private:
  void Configure(grpc::ServerBuilder& builder) const {
    builder.SetMaxReceiveMessageSize(
        static_cast<int>(std::min<int64_t>(options_.limits.max_message_bytes * kReceiveFactor, INT32_MAX)));
    builder.SetMaxSendMessageSize(-1);
    // A second server on the same port must fail, not take every other connection.
    builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
    // Workers and watchers may be silent for long; dead ones are noticed all the same.
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, 30'000);
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 20'000);
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
    builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 5'000);
    grpc::ResourceQuota quota("snapkv-server");
    quota.SetMaxThreads(kMaxGrpcThreads);
    builder.SetResourceQuota(quota);
  }

  void SetHealth(bool serving) {
    grpc::HealthCheckServiceInterface* health = server_->GetHealthCheckService();
    health->SetServingStatus(serving);
    for (const char* name :
         {"snapkv.v1.Jobs", "snapkv.v1.Workers", "snapkv.v1.Summarizer", "snapkv.v1.Models"}) {
      health->SetServingStatus(name, serving);
    }
  }

  void OnStoreEvent(const StoreEvent& event) {
    switch (event.kind) {
      case StoreEvent::Kind::kJob:
        hub_.Changed(event.job);
        if (event.created) metrics_.JobCreated();
        metrics_.JobEnded(event.ended);
        if (event.ended != v1::Job::STATE_UNSPECIFIED) {
          Event(LogLevel::kInfo, "job ended",
                {{"job", event.job}, {"state", v1::Job::State_Name(event.ended)}});
        }
        break;
      case StoreEvent::Kind::kResult:
        metrics_.ObserveResult(event.result);
        if (event.result.status().reason() == ReasonName(Reason::kAttemptsExhausted)) {
          Event(LogLevel::kWarning, "document given up",
                {{"job", event.job},
                 {"document", event.result.document_id()},
                 {"attempt", event.result.attempt()},
                 {"reason", event.result.status().reason()}});
        }
        break;
      case StoreEvent::Kind::kQueued:
        desk_.Wake(event.model);
        break;
      case StoreEvent::Kind::kLeaseGone:
        desk_.Forget(event.lease.lease());
        registry_.Send(event.worker, event.lease);
        break;
    }
  }

  void RunClock() {
    absl::Time next_sweep = absl::Now();
    std::unique_lock lock(mutex_);
    while (!ending_) {
      changed_.wait_for(lock, absl::ToChronoMilliseconds(kTick), [this] { return ending_; });
      lock.unlock();
      const absl::Time now = absl::Now();
      hub_.Tick(now);
      desk_.Tick(now);
      interactive_.Tick(now);
      for (const std::string& worker : registry_.Tick(now))
        Event(LogLevel::kWarning, "worker lost", {{"worker", worker}});
      if (now >= next_sweep && !sweeping_.exchange(true)) {
        next_sweep = now + kSweepEvery;
        writers_.Post([this] { Sweep(); });
      }
      lock.lock();
    }
  }

  void Sweep() {
    const auto expired = store_->Sweep();
    if (!expired.ok()) {
      Event(LogLevel::kError, "sweep failed", {{"error", std::string(expired.status().message())}});
    } else if (*expired > 0) {
      metrics_.LeaseExpired(*expired);
      Event(LogLevel::kWarning, "leases expired", {{"leases", *expired}});
    }
    if (const auto stats = store_->Stats(); stats.ok()) metrics_.SetQueue(*stats);
    if (const absl::Status disk = metrics_.UpdateDisk(options_.state); !disk.ok())
      Event(LogLevel::kWarning, "disk", {{"error", std::string(disk.message())}});
    metrics_.SetWorkers(registry_.size());
    sweeping_ = false;
  }

  const ServerOptions options_;
  Metrics metrics_{options_.version};
  std::unique_ptr<JobStore> store_;
  std::unique_ptr<Tenants> tenants_;
  WorkerRegistry registry_;
  InteractiveQueue interactive_;
  WatchHub hub_;
  LeaseDesk desk_;
  ServiceContext context_{options_.store, options_.limits, *store_,  *tenants_,
                          metrics_,       writers_,        readers_, registry_,
                          hub_,           interactive_,    desk_,    options_.default_model};
  JobsService jobs_{context_};
  WorkersService workers_{context_};
  SummarizerService summarizer_{context_};
  ModelsService models_{context_};
  std::vector<int> ports_;
  std::unique_ptr<grpc::Server> server_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool ending_ = false;  // guarded by mutex_, as is hurry_
  bool hurry_ = false;
  std::atomic<bool> sweeping_{false};
  std::thread clock_;
  // Last, so that they end first: their tasks use everything above.
  Executor writers_{kWriterThreads};
  Executor readers_{kReaderThreads};
};

}  // namespace

absl::StatusOr<std::unique_ptr<Server>> Server::Start(const ServerOptions& options) {
  RETURN_IF_ERROR(CheckExposure(options));
  ASSIGN_OR_RETURN(auto tenants, Tenants::Open(options.token_file));
  WarnWithoutWorkers(*tenants);
  StoreOptions store_options;
  store_options.folder = options.state;
  store_options.limits = options.store;
  ASSIGN_OR_RETURN(auto store, JobStore::Open(store_options));
  auto server = std::make_unique<GrpcServer>(options, std::move(store), std::move(tenants));
  RETURN_IF_ERROR(server->Begin());
  return server;
}

}  // namespace snapkv::service
