// SPDX-License-Identifier: Apache-2.0
// Streams that are opened again where they broke.
#include "launch/client/streams.h"

#include "launch/client/job_text.h"

namespace snapkv::launch {
namespace {

// A stream that ends although the job has not: the server is going away in good order.
constexpr absl::Duration kEarlyEndPause = absl::Milliseconds(500);

// One stream to its end. `taken`: what `take` said.
absl::Status ReadResults(Session& session, const v1::StreamResultsRequest& request, Retry& retry,
                         int64_t& after, const TakeResult& take, absl::Status& taken) {
  CallContext call(session);
  const auto reader = session.jobs().StreamResults(call.get(), request);
  v1::Result result;
  while (taken.ok() && reader->Read(&result)) {
    retry.Succeeded();
    if (result.sequence() <= after) continue;
    if (result.sequence() != after + 1) {
      taken = Internal(request.name(), ": the server sent result ", result.sequence(), " after ", after,
                       ": results are missing; fetch them again later");
      break;
    }
    taken = take(result);
    if (taken.ok()) after = result.sequence();
  }
  if (!taken.ok()) (*call).TryCancel();
  return service::FromGrpc(reader->Finish());
}

}  // namespace

absl::StatusOr<v1::Job> GetJob(Session& session, const std::string& name, Patience patience) {
  v1::GetJobRequest request;
  request.set_name(name);
  return session.Call<v1::Job>(patience, [&](grpc::ClientContext& context, v1::Job& job) {
    return session.jobs().GetJob(&context, request, &job);
  });
}

absl::Status FollowResults(Session& session, const std::string& job, bool follow, int64_t& after,
                           const TakeResult& take) {
  Retry retry(session, follow ? Patience::kWait : Patience::kConnect);
  for (;;) {
    v1::StreamResultsRequest request;
    request.set_name(job);
    request.set_after_sequence(after);
    request.set_follow(follow);
    absl::Status taken;
    const absl::Status status = ReadResults(session, request, retry, after, take, taken);
    if (!taken.ok()) return taken;
    if (!status.ok()) {
      if (!retry.Again(status)) return status;
      continue;
    }
    if (!follow) return absl::OkStatus();
    ASSIGN_OR_RETURN(const v1::Job now, GetJob(session, job, Patience::kWait));
    // Results that were committed between the stream's end and now.
    if (HasEnded(now.state()) && after >= now.results()) return absl::OkStatus();
    if (!session.Sleep(kEarlyEndPause)) return absl::CancelledError("stopped");
  }
}

absl::StatusOr<v1::Job> FollowJob(Session& session, const v1::Job& job,
                                  const std::function<void(const v1::JobEvent&)>& on_event) {
  v1::Job now = job;
  {
    v1::JobEvent first;
    *first.mutable_job() = job;
    on_event(first);
  }
  Retry retry(session, Patience::kWait);
  while (!HasEnded(now.state())) {
    v1::WatchJobRequest request;
    request.set_name(job.name());
    request.set_after_version(now.version());
    CallContext call(session);
    const auto reader = session.jobs().WatchJob(call.get(), request);
    v1::JobEvent event;
    while (reader->Read(&event)) {
      retry.Succeeded();
      if (event.has_job()) now = event.job();
      on_event(event);
    }
    const absl::Status status = service::FromGrpc(reader->Finish());
    if (HasEnded(now.state())) break;
    if (!status.ok()) {
      if (!retry.Again(status)) return status;
    } else if (!session.Sleep(kEarlyEndPause)) {
      return absl::CancelledError("stopped");
    }
  }
  return now;
}

}  // namespace snapkv::launch
