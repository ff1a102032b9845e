// SPDX-License-Identifier: Apache-2.0
// WorkerSession: everything between a worker and the job server. Takes leases ahead of need, reads their
// documents, renews them, hands in results; all on threads of its own.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "launch/worker/delta_stream.h"
#include "launch/worker/lease_book.h"
#include "launch/worker/lease_watch.h"
#include "launch/worker/link.h"

namespace snapkv::launch {

struct SessionOptions {
  std::shared_ptr<grpc::Channel> channel;
  std::string server;  // HOST:PORT, for messages
  // As it registers. Its max_batch and lease_ahead together are the leases it holds at most, results that
  // wait for being handed in not counted.
  v1::Worker worker;
  int64_t lease_ahead = 4;
  // While so many results wait, no lease is taken.
  int64_t most_results = 256;
  // How long the server may be away at the start; zero: for ever.
  absl::Duration connect_timeout;
  int64_t max_document_bytes = int64_t{16} << 20;
  // From the bytes of a leased document to a prompt, or an error in it. Sets all but ticket, lease and
  // queue_s. Called on a thread of the session's.
  std::function<PreparedLease(const v1::Lease& lease, std::string bytes)> prepare;
  // How long the server may wait with an empty answer: an orderly end waits for that.
  absl::Duration acquire_wait = absl::Seconds(2);
  // How long an orderly end tries to hand in what there is.
  absl::Duration finish_time = absl::Seconds(20);
};

// The methods are for the engine's thread. None waits for the network; only Take waits.
//
// What becomes of a lease: Take -> Complete or Fail, once. When Fate is no longer kHeld, the engine drops the
// document and calls Drop instead.
//
// The server's absence stops nothing but the taking of leases: results wait, at most most_results and the
// leases that are held, and are handed in late; the server decides by lease and attempt whether they count.
class WorkerSession {
 public:
  // Connects and registers in the background.
  explicit WorkerSession(SessionOptions options);
  // Ends at once, without handing anything in (see Finish).
  ~WorkerSession();
  WorkerSession(const WorkerSession&) = delete;
  WorkerSession& operator=(const WorkerSession&) = delete;

  // The next document, within `wait`.
  std::optional<PreparedLease> Take(absl::Duration wait) { return book_.Take(wait); }
  LeaseBook::Fate FateOf(int64_t ticket) const { return book_.FateOf(ticket); }
  // Goes out with the next renewal, and for an interactive document at once.
  void SetProgress(int64_t ticket, const v1::Progress& progress);
  // Generated so far; goes out with the next renewal only.
  void SetTokens(int64_t ticket, int64_t tokens) { book_.SetTokens(ticket, tokens); }
  // Text of an interactive document; ignored for others.
  void Emit(int64_t ticket, const std::string& text);
  void Complete(int64_t ticket, v1::Result result);
  // `retry`: the document is given to another worker.
  void Fail(int64_t ticket, const v1::Status& status, bool retry, v1::Result result);
  // The engine has stopped.
  void Drop(int64_t ticket);
  // Results that wait are so many that nothing should be begun.
  bool congested() const;
  // Why the worker must end (MODEL_MISMATCH, no valid token, ...), or OK. Nothing can be handed in then.
  absl::Status fatal() const { return link_.fatal(); }

  // No further leases.
  void StopTaking();
  // After the last document: hands back what was not begun, hands in what there is, for at most finish_time,
  // and ends the threads. The number of results that could not be handed in.
  int64_t Finish();

 private:
  // A result on its way.
  struct Outgoing {
    int64_t ticket = 0;
    v1::Lease lease;
    bool fails = false;
    v1::CompleteDocumentRequest complete;
    v1::FailDocumentRequest fail;
    std::shared_ptr<DeltaStream> deltas;
  };

  void RunLink();
  bool Renew(const std::string& worker);
  void OpenWatch(const std::string& worker);
  void OnLeaseEvent(const v1::LeaseEvent& event);

  void RunFetch();
  void FetchAll(const v1::AcquireLeaseResponse& response);
  void Fetch(int64_t ticket, const v1::Lease& lease);
  void WaitWhileTaking(absl::Duration wait);
  void HandBackReady(const std::string& why);
  void DropGone();

  void RunReport();
  Verdict Report(Outgoing& outgoing);
  void LogHandedIn(const Outgoing& outgoing) const;
  void Put(Outgoing outgoing);
  Outgoing MakeFailure(int64_t ticket, const v1::Status& status, bool retry) const;
  bool taking() const;
  void End();

  const SessionOptions options_;
  WorkerLink link_;
  LeaseBook book_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  // All guarded by mutex_.
  bool taking_ = true;
  bool fetch_ended_ = false;
  bool reporting_ = false;  // an item has left outbox_ and is on its way
  bool watch_ended_ = true;
  std::deque<Outgoing> outbox_;
  std::map<int64_t, std::shared_ptr<DeltaStream>> deltas_;  // by ticket
  std::vector<std::shared_ptr<DeltaStream>> ended_deltas_;  // of lost leases

  std::unique_ptr<LeaseWatch> watch_;  // of link_thread_
  std::string watched_;                // its worker
  std::thread link_thread_, fetch_thread_, report_thread_;
};

}  // namespace snapkv::launch
