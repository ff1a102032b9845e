// SPDX-License-Identifier: Apache-2.0
// The fake's calls, each under one lock.
#include "tests/support/fake_workers.h"

#include <algorithm>
#include <utility>

#include "google/protobuf/util/time_util.h"
#include "kernels/base/log.h"
#include "runtime/hash/sha256.h"
#include "runtime/service/grpc_status.h"

namespace snapkv::testing {
namespace {

using google::protobuf::util::TimeUtil;
using service::Reason;
using service::ServiceError;
using service::ToGrpc;

constexpr std::chrono::milliseconds kTurn{20};

template <class TimePoint>
google::protobuf::Timestamp Stamp(TimePoint time) {
  return TimeUtil::MillisecondsToTimestamp(
      std::chrono::duration_cast<std::chrono::milliseconds>(time.time_since_epoch()).count());
}

}  // namespace

FakeWorkers::FakeWorkers() : FakeWorkers(Options()) {}
FakeWorkers::FakeWorkers(Options options) : options_(std::move(options)) { Start(false); }
FakeWorkers::~FakeWorkers() { Stop(); }

std::string FakeWorkers::address() const { return "127.0.0.1:" + std::to_string(port_); }

void FakeWorkers::Start(bool forget) {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = draining_ = false;
    broadcast_.clear();
    if (forget) known_.clear();
  }
  // The port may be held for a moment by what was cut.
  for (int tries = 0; server_ == nullptr && tries < 100; ++tries) {
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:" + std::to_string(port_), grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
    if (server_ != nullptr && port_ == 0) port_ = port;
    if (server_ == nullptr) std::this_thread::sleep_for(kTurn);
  }
  CHECK(server_ != nullptr) << "no port for the fake server";
}

void FakeWorkers::Stop() {
  if (server_ == nullptr) return;
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    changed_.notify_all();
  }
  server_->Shutdown(Clock::now());
  server_->Wait();
  server_.reset();
}

void FakeWorkers::Add(const std::string& id, const std::string& content) {
  FakeDocument document;
  document.id = id;
  document.content = content;
  Add(std::move(document));
}

void FakeWorkers::Add(FakeDocument document) {
  if (document.sha256.empty()) {
    const auto hash = runtime::Sha256(document.content);
    document.sha256.assign(hash.begin(), hash.end());
  }
  const std::lock_guard lock(mutex_);
  entries_.emplace_back().document = std::move(document);
  changed_.notify_all();
}

FakeDocument FakeWorkers::document(const std::string& id) const {
  const std::lock_guard lock(mutex_);
  for (const Entry& entry : entries_)
    if (entry.document.id == id) return entry.document;
  return {};
}

int FakeWorkers::done() const {
  const std::lock_guard lock(mutex_);
  return static_cast<int>(std::count_if(entries_.begin(), entries_.end(),
                                        [](const Entry& e) { return e.state == State::kDone; }));
}

std::vector<v1::Worker> FakeWorkers::registered() const {
  const std::lock_guard lock(mutex_);
  return registered_;
}

int FakeWorkers::drains_seen() const {
  const std::lock_guard lock(mutex_);
  return since_drain_;
}

int FakeWorkers::most_held() const {
  const std::lock_guard lock(mutex_);
  return most_held_;
}

bool FakeWorkers::watched() const {
  const std::lock_guard lock(mutex_);
  return watches_ > 0;
}

void FakeWorkers::set_quiet(bool quiet) {
  const std::lock_guard lock(mutex_);
  quiet_ = quiet;
}

void FakeWorkers::set_readable(bool readable) {
  const std::lock_guard lock(mutex_);
  readable_ = readable;
  changed_.notify_all();
}

void FakeWorkers::Cancel(const std::string& id) {
  const std::lock_guard lock(mutex_);
  for (Entry& entry : entries_)
    if (entry.document.id == id) entry.gone = v1::LeaseEvent::CANCELLED;
  changed_.notify_all();
}

void FakeWorkers::Lose(const std::string& id) {
  const std::lock_guard lock(mutex_);
  for (Entry& entry : entries_)
    if (entry.document.id == id) entry.gone = v1::LeaseEvent::LOST;
  changed_.notify_all();
}

void FakeWorkers::Drain() {
  const std::lock_guard lock(mutex_);
  draining_ = true;
  since_drain_ = 0;
  v1::LeaseEvent event;
  event.set_kind(v1::LeaseEvent::DRAIN);
  broadcast_.push_back(event);
  changed_.notify_all();
}

void FakeWorkers::Fail(const std::string& method, const absl::Status& status, int calls) {
  const std::lock_guard lock(mutex_);
  for (int i = 0; i < calls; ++i) failures_[method].push_back(status);
}

void FakeWorkers::BreakReads(int64_t after_bytes, int times) {
  const std::lock_guard lock(mutex_);
  break_after_ = after_bytes;
  breaks_ = times;
}

bool FakeWorkers::WaitUntil(const std::function<bool()>& done, std::chrono::milliseconds timeout) const {
  const auto end = Clock::now() + timeout;
  while (!done()) {
    if (Clock::now() > end) return false;
    std::this_thread::sleep_for(kTurn);
  }
  return true;
}

bool FakeWorkers::WaitForDone(int count) const {
  return WaitUntil([&] { return done() >= count; });
}

absl::Status FakeWorkers::EnterLocked(const grpc::ServerContext& context, const std::string& method,
                                      const std::string& worker) {
  if (auto& failures = failures_[method]; !failures.empty()) {
    const absl::Status status = failures.front();
    failures.pop_front();
    return status;
  }
  if (!options_.token.empty()) {
    const auto& metadata = context.client_metadata();
    const auto it = metadata.find("authorization");
    if (it == metadata.end()) return ServiceError(Reason::kTokenMissing, "no token; use --token-file");
    if (std::string(it->second.data(), it->second.size()) != "Bearer " + options_.token)
      return ServiceError(Reason::kTokenInvalid, "the token is not known");
  }
  if (!worker.empty() && !known_.contains(worker))
    return ServiceError(Reason::kWorkerUnknown, worker, " is not registered");
  return absl::OkStatus();
}

FakeWorkers::Entry* FakeWorkers::FindLocked(const std::string& lease) {
  for (Entry& entry : entries_)
    if (entry.lease == lease) return &entry;
  return nullptr;
}

absl::StatusOr<FakeWorkers::Entry*> FakeWorkers::HeldLocked(const std::string& lease, int32_t attempt) {
  SweepLocked();
  Entry* entry = FindLocked(lease);
  if (entry == nullptr || entry->state == State::kQueued || entry->document.attempts != attempt ||
      entry->gone != v1::LeaseEvent::KIND_UNSPECIFIED) {
    if (entry != nullptr) ++entry->document.refused;
    return ServiceError(Reason::kLeaseLost, lease, " attempt ", attempt, " is not the present lease");
  }
  return entry;
}

void FakeWorkers::SweepLocked() {
  int held = 0;
  for (Entry& entry : entries_) {
    if (entry.state == State::kLeased && entry.deadline < Clock::now()) entry.state = State::kQueued;
    held += entry.state == State::kLeased ? 1 : 0;
  }
  most_held_ = std::max(most_held_, held);
}

grpc::Status FakeWorkers::RegisterWorker(grpc::ServerContext* context,
                                         const v1::RegisterWorkerRequest* request, v1::Worker* worker) {
  const std::lock_guard lock(mutex_);
  if (const absl::Status status = EnterLocked(*context, "RegisterWorker", ""); !status.ok())
    return ToGrpc(status, *context);
  if (!options_.fingerprint.empty() && request->worker().model_fingerprint() != options_.fingerprint)
    return ToGrpc(
        ServiceError(Reason::kModelMismatch, request->worker().model(), " has another content here"),
        *context);
  *worker = request->worker();
  worker->set_name("workers/w" + std::to_string(next_name_++));
  *worker->mutable_lease_duration() = TimeUtil::MillisecondsToDuration(options_.lease.count());
  known_[worker->name()] = true;
  registered_.push_back(*worker);
  return grpc::Status::OK;
}

grpc::Status FakeWorkers::AcquireLease(grpc::ServerContext* context, const v1::AcquireLeaseRequest* request,
                                       v1::AcquireLeaseResponse* response) {
  std::unique_lock lock(mutex_);
  if (const absl::Status status = EnterLocked(*context, "AcquireLease", request->worker()); !status.ok())
    return ToGrpc(status, *context);
  ++since_drain_;
  if (draining_) return ToGrpc(ServiceError(Reason::kDraining, "the server drains"), *context);
  const auto end =
      Clock::now() + std::chrono::milliseconds(TimeUtil::DurationToMilliseconds(request->wait()));
  for (;;) {
    SweepLocked();
    for (Entry& entry : entries_) {
      if (response->leases_size() == request->max_leases()) break;
      if (entry.state != State::kQueued || entry.gone == v1::LeaseEvent::CANCELLED) continue;
      FakeDocument& document = entry.document;
      entry.state = State::kLeased;
      entry.lease = "leases/l" + std::to_string(next_name_++);
      entry.deadline = Clock::now() + options_.lease;
      entry.gone = v1::LeaseEvent::KIND_UNSPECIFIED;
      entry.told = false;
      ++document.attempts;
      v1::Lease& lease = *response->add_leases();
      lease.set_name(entry.lease);
      lease.set_attempt(document.attempts);
      if (!document.interactive) lease.set_job("jobs/j1");
      lease.set_document_id(document.id);
      lease.set_size_bytes(static_cast<int64_t>(document.content.size()));
      lease.set_sha256(document.sha256);
      lease.set_media_type(document.media_type);
      *lease.mutable_parameters() = document.parameters;
      *lease.mutable_deadline() = Stamp(entry.deadline);
      *lease.mutable_queue_time() = Stamp(Clock::now() - std::chrono::seconds(5));
      lease.set_interactive(document.interactive);
    }
    SweepLocked();
    if (response->leases_size() > 0 || Clock::now() >= end || stopping_ || context->IsCancelled()) break;
    changed_.wait_for(lock, kTurn);
  }
  return grpc::Status::OK;
}

grpc::Status FakeWorkers::ReadDocument(grpc::ServerContext* context, const v1::ReadDocumentRequest* request,
                                       grpc::ServerWriter<v1::Chunk>* writer) {
  std::string content;
  int64_t end = INT64_MAX;
  {
    std::unique_lock lock(mutex_);
    while (!readable_ && !stopping_ && !context->IsCancelled()) changed_.wait_for(lock, kTurn);
    if (const absl::Status status = EnterLocked(*context, "ReadDocument", ""); !status.ok())
      return ToGrpc(status, *context);
    const auto entry = HeldLocked(request->lease(), request->attempt());
    if (!entry.ok()) return ToGrpc(entry.status(), *context);
    content = (*entry)->document.content;
    if (breaks_ > 0) {
      --breaks_;
      if (break_after_ == 0) content[content.size() / 2] ^= 1;
      if (break_after_ > 0) end = request->offset() + break_after_;
    }
  }
  for (int64_t at = request->offset(); at < static_cast<int64_t>(content.size());) {
    if (at >= end) return ToGrpc(absl::UnavailableError("cut"), *context);
    v1::Chunk chunk;
    chunk.set_offset(at);
    const int64_t n = std::min(options_.chunk_bytes, end - at);
    chunk.set_data(content.substr(static_cast<size_t>(at), static_cast<size_t>(n)));
    if (!writer->Write(chunk)) break;
    at += static_cast<int64_t>(chunk.data().size());
  }
  return grpc::Status::OK;
}

grpc::Status FakeWorkers::RenewLease(grpc::ServerContext* context, const v1::RenewLeaseRequest* request,
                                     v1::RenewLeaseResponse* response) {
  const std::lock_guard lock(mutex_);
  if (const absl::Status status = EnterLocked(*context, "RenewLease", request->worker()); !status.ok())
    return ToGrpc(status, *context);
  SweepLocked();
  const auto deadline = Clock::now() + options_.lease;
  *response->mutable_deadline() = Stamp(deadline);
  for (const v1::LeaseRenewal& renewal : request->leases()) {
    Entry* entry = FindLocked(renewal.lease());
    const bool held = entry != nullptr && entry->state == State::kLeased &&
                      entry->document.attempts == renewal.attempt() &&
                      entry->gone == v1::LeaseEvent::KIND_UNSPECIFIED;
    if (held) {
      entry->deadline = deadline;
      ++entry->document.renewals;
      entry->document.progress.push_back(renewal.progress());
      continue;
    }
    v1::LeaseEvent& event = *response->add_events();
    event.set_kind(entry != nullptr && entry->gone == v1::LeaseEvent::CANCELLED ? v1::LeaseEvent::CANCELLED
                                                                                : v1::LeaseEvent::LOST);
    event.set_lease(renewal.lease());
    event.set_attempt(renewal.attempt());
    if (event.kind() == v1::LeaseEvent::CANCELLED) entry->state = State::kDone;
  }
  return grpc::Status::OK;
}

grpc::Status FakeWorkers::StreamDeltas(grpc::ServerContext* context,
                                       grpc::ServerReader<v1::StreamDeltasRequest>* reader,
                                       google::protobuf::Empty*) {
  {
    const std::lock_guard lock(mutex_);
    if (const absl::Status status = EnterLocked(*context, "StreamDeltas", ""); !status.ok())
      return ToGrpc(status, *context);
  }
  std::string lease;
  for (v1::StreamDeltasRequest request; reader->Read(&request);) {
    const std::lock_guard lock(mutex_);
    lease = request.lease();
    const auto entry = HeldLocked(request.lease(), request.attempt());
    if (!entry.ok()) return ToGrpc(entry.status(), *context);
    (*entry)->document.deltas += request.delta().text();
  }
  const std::lock_guard lock(mutex_);
  if (Entry* entry = FindLocked(lease); entry != nullptr && !context->IsCancelled())
    entry->document.deltas_ended = entry->document.results == 0;
  return grpc::Status::OK;
}

grpc::Status FakeWorkers::WatchLeases(grpc::ServerContext* context, const v1::WatchLeasesRequest* request,
                                      grpc::ServerWriter<v1::LeaseEvent>* writer) {
  std::unique_lock lock(mutex_);
  if (const absl::Status status = EnterLocked(*context, "WatchLeases", request->worker()); !status.ok())
    return ToGrpc(status, *context);
  ++watches_;
  writer->Write({});  // a heartbeat
  while (!stopping_ && !context->IsCancelled()) {
    while (!broadcast_.empty()) {
      writer->Write(broadcast_.front());
      broadcast_.pop_front();
    }
    for (Entry& entry : entries_) {
      if (quiet_ || entry.told || entry.gone == v1::LeaseEvent::KIND_UNSPECIFIED ||
          entry.state != State::kLeased)
        continue;
      entry.told = true;
      v1::LeaseEvent event;
      event.set_kind(entry.gone);
      event.set_lease(entry.lease);
      event.set_attempt(entry.document.attempts);
      writer->Write(event);
    }
    changed_.wait_for(lock, kTurn);
  }
  --watches_;
  return grpc::Status::OK;
}

grpc::Status FakeWorkers::CompleteDocument(grpc::ServerContext* context,
                                           const v1::CompleteDocumentRequest* request,
                                           google::protobuf::Empty*) {
  const std::lock_guard lock(mutex_);
  if (const absl::Status status = EnterLocked(*context, "CompleteDocument", ""); !status.ok())
    return ToGrpc(status, *context);
  const auto entry = HeldLocked(request->lease(), request->attempt());
  if (!entry.ok()) return ToGrpc(entry.status(), *context);
  if ((*entry)->state == State::kDone) return grpc::Status::OK;
  (*entry)->state = State::kDone;
  (*entry)->document.completed = true;
  (*entry)->document.result = request->result();
  ++(*entry)->document.results;
  changed_.notify_all();
  return grpc::Status::OK;
}

grpc::Status FakeWorkers::FailDocument(grpc::ServerContext* context, const v1::FailDocumentRequest* request,
                                       google::protobuf::Empty*) {
  const std::lock_guard lock(mutex_);
  if (const absl::Status status = EnterLocked(*context, "FailDocument", ""); !status.ok())
    return ToGrpc(status, *context);
  Entry* cancelled = FindLocked(request->lease());
  if (cancelled != nullptr && cancelled->gone == v1::LeaseEvent::CANCELLED &&
      cancelled->state == State::kLeased) {
    // The worker has stopped: it counts, but its lease is gone.
    cancelled->state = State::kDone;
    cancelled->document.result.mutable_status()->CopyFrom(request->status());
  }
  const auto entry = HeldLocked(request->lease(), request->attempt());
  if (!entry.ok()) return ToGrpc(entry.status(), *context);
  if ((*entry)->state == State::kDone) return grpc::Status::OK;
  FakeDocument& document = (*entry)->document;
  if (request->retry()) {
    ++document.handed_back;
    --document.attempts;
    (*entry)->state = State::kQueued;
    (*entry)->lease.clear();
  } else {
    (*entry)->state = State::kDone;
    document.result = request->result();
    *document.result.mutable_status() = request->status();
    ++document.results;
  }
  changed_.notify_all();
  return grpc::Status::OK;
}

}  // namespace snapkv::testing
