// SPDX-License-Identifier: Apache-2.0
// InteractiveQueue: documents of Summarize, which somebody waits for. In memory only; they go before all
// jobs.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "runtime/service/reason.h"
#include "snapkv/v1/summarizer.pb.h"
#include "snapkv/v1/workers.pb.h"

namespace snapkv::service {

// Who waits for the text. Calls come from any thread and must not block.
class DeltaSink {
 public:
  virtual ~DeltaSink() = default;
  virtual void Put(const v1::Delta& delta) = 0;
  virtual void End(const absl::Status& status) = 0;
};

struct InteractiveOptions {
  int64_t max_documents = 1'000;
  int max_attempts = 3;
  absl::Duration lease = absl::Seconds(30);
};

// Thread-safe.
class InteractiveQueue {
 public:
  explicit InteractiveQueue(const InteractiveOptions& options) : options_(options) {}

  // The lease name by which it is known; QUEUE_FULL.
  absl::StatusOr<std::string> Add(const v1::SummarizeRequest& request, const std::weak_ptr<DeltaSink>& sink,
                                  absl::Time now);
  struct Holder {
    std::string worker;
    int32_t attempt = 0;
  };
  // Nobody waits any more. Who holds it, if somebody does.
  std::optional<Holder> Remove(const std::string& lease);

  static bool IsInteractive(const std::string& lease);
  // Documents for `model`, oldest first.
  std::vector<v1::Lease> Take(const std::string& worker, const std::string& model, int count, absl::Time now);
  // From here on LEASE_LOST for leases that are not the present ones.
  absl::Status Renew(const v1::LeaseRenewal& renewal, absl::Time now);
  absl::StatusOr<std::string> Read(const std::string& lease, int32_t attempt, int64_t offset,
                                   int64_t max_bytes);
  absl::Status Put(const v1::StreamDeltasRequest& delta);
  absl::Status Complete(const v1::CompleteDocumentRequest& request);
  absl::Status Fail(const v1::FailDocumentRequest& request);

  // What lost workers held waits again, or ends when text of it has been sent.
  void Tick(absl::Time now);
  bool waiting(const std::string& model) const;
  void EndAll(const absl::Status& status);

 private:
  struct Document {
    v1::SummarizeRequest request;
    std::string sha256;
    std::weak_ptr<DeltaSink> sink;
    absl::Time queued;
    int32_t attempt = 0;  // grows with every lease
    int losses = 0;       // of workers
    std::string worker;   // "": waits
    absl::Time deadline;
    bool text_sent = false;
  };
  using Documents = std::map<std::string, Document>;
  // The document of a present lease.
  absl::StatusOr<Documents::iterator> Find(const std::string& lease, int32_t attempt);
  // Gives it back to the queue, or ends it. With the lock.
  void Requeue(Documents::iterator it, const std::string& why);

  const InteractiveOptions options_;
  mutable std::mutex mutex_;
  Documents documents_;              // guarded by mutex_, as is waiting_
  std::deque<std::string> waiting_;  // leases; some may be gone
};

}  // namespace snapkv::service
