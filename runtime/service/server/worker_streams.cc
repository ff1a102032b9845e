// SPDX-License-Identifier: Apache-2.0
// Streams from and to workers.
#include "runtime/service/server/worker_streams.h"

#include <algorithm>
#include <utility>

#include "runtime/service/server/interactive.h"

namespace snapkv::service {
namespace {

constexpr int64_t kChunkBytes = 256 << 10;
constexpr size_t kMostEvents = 1'000;  // that a worker leaves unread

}  // namespace

DocumentStream::DocumentStream(ServiceContext& service, grpc::CallbackServerContext* context,
                               const v1::ReadDocumentRequest& request)
    : OutStream(service, "/snapkv.v1.Workers/ReadDocument", context),
      request_(request),
      offset_(request.offset()) {}

void DocumentStream::Begin() {
  const auto self = std::static_pointer_cast<DocumentStream>(shared_from_this());
  service_.readers.Post([self] { self->Read(); });
}

void DocumentStream::Read() {
  const int64_t bytes = std::min(kChunkBytes, service_.limits.max_chunk_bytes);
  auto data = InteractiveQueue::IsInteractive(request_.lease())
                  ? service_.interactive.Read(request_.lease(), request_.attempt(), offset_, bytes)
                  : service_.store.ReadDocument(request_.lease(), request_.attempt(), offset_, bytes);
  if (!data.ok() || data->empty()) return End(data.status());
  v1::Chunk chunk;
  chunk.set_offset(offset_);
  offset_ += static_cast<int64_t>(data->size());
  chunk.set_data(*std::move(data));
  Send(std::move(chunk));
}

LeaseStream::LeaseStream(ServiceContext& service, grpc::CallbackServerContext* context)
    : OutStream(service, "/snapkv.v1.Workers/WatchLeases", context) {}

void LeaseStream::Put(const v1::LeaseEvent& event) {
  const std::lock_guard lock(mutex_);
  last_sent_ = absl::Now();
  // Who does not read hears of it at the next renewal.
  if (queued() < kMostEvents) Send(event);
}

void LeaseStream::OnTick(absl::Time now) {
  const std::lock_guard lock(mutex_);
  if (now - last_sent_ < service_.limits.heartbeat || !idle()) return;
  last_sent_ = now;
  Send(v1::LeaseEvent());
}

DeltaCall::DeltaCall(ServiceContext& service, grpc::CallbackServerContext* context,
                     const absl::Status& status)
    : service_(service), context_(context) {
  service_.StreamOpened("/snapkv.v1.Workers/StreamDeltas");
  if (status.ok()) {
    StartRead(&message_);
  } else {
    End(status);
  }
}

void DeltaCall::OnReadDone(bool ok) {
  if (!ok) return End(absl::OkStatus());
  if (const absl::Status status = service_.interactive.Put(message_); !status.ok()) return End(status);
  message_.Clear();
  StartRead(&message_);
}

void DeltaCall::OnDone() {
  service_.StreamClosed("/snapkv.v1.Workers/StreamDeltas");
  delete this;
}

void DeltaCall::End(const absl::Status& status) {
  service_.RpcFinished("/snapkv.v1.Workers/StreamDeltas", status, absl::Now() - start_);
  Finish(ToGrpc(status, *context_));
}

}  // namespace snapkv::service
