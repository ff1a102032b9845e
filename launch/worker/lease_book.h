// SPDX-License-Identifier: Apache-2.0
// LeaseBook: the leases a worker holds, and how far each of them is.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "launch/prompt_builder.h"
#include "runtime/engine/context.h"
#include "runtime/service/event_log.h"
#include "snapkv/v1/workers.pb.h"

namespace snapkv::launch {

// A leased document, ready for the engine; or, when document.error is set, what became of it instead.
struct PreparedLease {
  int64_t ticket = 0;
  v1::Lease lease;
  double queue_s = 0;  // from the document's queueing to this lease, by the server's clock
  PreparedDocument document;
  runtime::CompressionOptions compression;
  std::string params_sha256;
};

// Whose lease a line of the log is about.
std::vector<service::EventField> LeaseFields(const v1::Lease& lease);

// A ticket names a lease from Add to Remove. Thread-safe; only Take and WaitForRoom wait.
class LeaseBook {
 public:
  // What the server has said of a lease.
  enum class Fate : uint8_t { kHeld, kCancelled, kLost };

  // A new lease, whose document is now being read.
  int64_t Add(const v1::Lease& lease);
  // It waits for the engine; interactive ones go first.
  void Ready(PreparedLease prepared);
  // The next that waits, within `wait`; from then on it is being worked on. Those that are no longer held are
  // passed over (see TakeGone).
  std::optional<PreparedLease> Take(absl::Duration wait);
  // All that wait for the engine: to be handed back.
  std::vector<PreparedLease> TakeReady();
  // Those that waited and are no longer held.
  std::vector<PreparedLease> TakeGone();
  // The engine is done with it; until Remove it is renewed and waits for being handed in.
  void Worked(int64_t ticket);
  void Remove(int64_t ticket);

  void SetProgress(int64_t ticket, const v1::Progress& progress);
  void SetTokens(int64_t ticket, int64_t generated);
  // By name and attempt: the engine is to stop. False when it is not held, or no longer worked on.
  bool End(const std::string& lease, int32_t attempt, Fate fate);
  // kLost for a ticket that is not known.
  Fate FateOf(int64_t ticket) const;
  v1::Lease LeaseOf(int64_t ticket) const;

  // All leases that are held, as a renewal wants them.
  std::vector<v1::LeaseRenewal> Renewals() const;
  // Leases that are read, wait for the engine or are worked on.
  int64_t busy() const;
  int64_t held() const;
  // Waits until busy() < most; false: not within `wait`.
  bool WaitForRoom(int64_t most, absl::Duration wait);

 private:
  struct Entry {
    v1::Lease lease;
    v1::Progress progress;
    Fate fate = Fate::kHeld;
    bool worked = false;
  };
  int64_t BusyLocked() const { return static_cast<int64_t>(entries_.size()) - worked_; }

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  // All guarded by mutex_.
  std::map<int64_t, Entry> entries_;  // by ticket
  std::deque<PreparedLease> ready_;
  int64_t worked_ = 0;  // entries
  int64_t next_ticket_ = 1;
};

}  // namespace snapkv::launch
