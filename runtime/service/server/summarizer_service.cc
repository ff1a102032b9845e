// SPDX-License-Identifier: Apache-2.0
// From the caller to a worker and back.
#include "runtime/service/server/summarizer_service.h"

#include <mutex>
#include <string>
#include <utility>

#include "runtime/service/event_log.h"
#include "runtime/service/server/call.h"
#include "runtime/service/server/interactive.h"
#include "runtime/service/server/job_streams.h"
#include "runtime/service/server/lease_desk.h"
#include "runtime/service/server/worker_registry.h"
#include "runtime/service/validate.h"

namespace snapkv::service {
namespace {

// Text that a caller does not read in time.
constexpr size_t kMostDeltas = 10'000;

class SummarizeStream final : public OutStream<v1::Delta>, public DeltaSink {
 public:
  SummarizeStream(ServiceContext& service, grpc::CallbackServerContext* context)
      : OutStream(service, "/snapkv.v1.Summarizer/Summarize", context) {}

  void Put(const v1::Delta& delta) override {
    if (delta.has_progress() && !idle()) return;  // the next one is as good
    if (queued() > kMostDeltas) {
      End(WithRetryDelay(
          ServiceError(Reason::kQuotaExceeded, "the text is not read: ", kMostDeltas, " pieces of it wait"),
          absl::Seconds(1)));
      return OnGone();
    }
    Send(delta);
  }
  void End(const absl::Status& status) override { OutStream::End(status); }

  // The caller may be gone already.
  void SetLease(const std::string& lease) {
    {
      const std::lock_guard lock(mutex_);
      lease_ = lease;
    }
    if (gone()) OnGone();
  }

 private:
  void OnGone() override {
    std::string lease;
    {
      const std::lock_guard lock(mutex_);
      lease.swap(lease_);
    }
    if (lease.empty()) return;
    // Not here: the queue may be calling us.
    service_.readers.Post([&service = service_, lease] {
      const auto holder = service.interactive.Remove(lease);
      service.desk.Forget(lease);
      if (!holder.has_value()) return;
      v1::LeaseEvent event;
      event.set_kind(v1::LeaseEvent::CANCELLED);
      event.set_lease(lease);
      event.set_attempt(holder->attempt);
      service.registry.Send(holder->worker, event);
    });
  }

  std::mutex mutex_;
  std::string lease_;  // guarded by mutex_
};

}  // namespace

absl::Status SummarizerService::Check(v1::SummarizeRequest& request) const {
  RETURN_IF_ERROR(service_.CheckNotDraining());
  RETURN_IF_ERROR(CheckMessage(service_, request));
  RETURN_IF_ERROR(ValidateSummarize(request, service_.limits.max_inline_bytes));
  if (request.model().empty()) {
    ASSIGN_OR_RETURN(*request.mutable_model(), service_.registry.DefaultModel(service_.default_model));
  }
  RETURN_IF_ERROR(service_.registry.CheckModel(request.model()));
  if (!service_.registry.Ready(request.model())) {
    return WithRetryDelay(ServiceError(Reason::kNoWorker, "no worker serves ", request.model(),
                                       " at present; a job (CreateJob) would wait for one"),
                          absl::Seconds(5));
  }
  return CheckStreams(service_);
}

grpc::ServerWriteReactor<v1::Delta>* SummarizerService::Summarize(grpc::CallbackServerContext* context,
                                                                  const v1::SummarizeRequest* request) {
  const auto stream = SummarizeStream::Make<SummarizeStream>(service_, context);
  v1::SummarizeRequest checked = *request;
  const absl::StatusOr<std::string> tenant = service_.tenants.Authenticate(*context);
  absl::Status status = tenant.status();
  if (status.ok()) status = Check(checked);
  if (!status.ok()) {
    stream->End(status);
    return stream.get();
  }
  const absl::StatusOr<std::string> lease = service_.interactive.Add(checked, stream, absl::Now());
  if (!lease.ok()) {
    stream->End(lease.status());
    return stream.get();
  }
  Event(LogLevel::kInfo, "interactive document",
        {{"lease", *lease}, {"tenant", *tenant}, {"bytes", static_cast<int64_t>(checked.content().size())}});
  stream->SetLease(*lease);
  service_.desk.Wake(checked.model());
  return stream.get();
}

}  // namespace snapkv::service
