// SPDX-License-Identifier: Apache-2.0
// The two streams of a job, followed across connections that break.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "launch/client/session.h"

namespace snapkv::launch {

using TakeResult = std::function<absl::Status(const v1::Result&)>;

// Results behind `after`, each once and in their order; `after` is moved along. Without `follow`: what is
// there now. With: until the job has ended, whatever happens to the connection (Patience::kWait). An error
// of `take` ends it and is returned; INTERNAL for a gap in the sequence.
absl::Status FollowResults(Session& session, const std::string& job, bool follow, int64_t& after,
                           const TakeResult& take);

// The job as it is, then each change and heartbeat, until it has ended; the last state is returned.
absl::StatusOr<v1::Job> FollowJob(Session& session, const v1::Job& job,
                                  const std::function<void(const v1::JobEvent&)>& on_event);

absl::StatusOr<v1::Job> GetJob(Session& session, const std::string& name, Patience patience);

}  // namespace snapkv::launch
