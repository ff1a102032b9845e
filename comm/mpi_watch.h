// SPDX-License-Identifier: Apache-2.0
// MpiWatch: ranks ask each other what they are waiting for, on a communicator of its own, so that a time-out
// can name the rank that is really stuck.
#pragma once

#include <mpi.h>

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/wait_graph.h"
#include "kernels/base/status.h"

namespace snapkv::comm {

// The error every rank ends with.
struct Announcement {
  absl::Status status;
  int speaker;    // the rank that prints it and aborts the job
  int exit_code;  // 0: the caller of Abort decides
};

// One rank's end. Nothing here blocks. All messages are small enough to be sent eagerly, so a stopped rank
// does not hold up the others.
class MpiWatch {
 public:
  // `comm` is used for nothing else and outlives this.
  explicit MpiWatch(MPI_Comm comm);

  // Answers the questions that have arrived with `mine`, and collects answers and announcements. Called in
  // every wait.
  void Serve(const RankState& mine);

  // Asks these ranks, or all others, what they do; earlier answers are forgotten.
  void Ask(const std::vector<int>& ranks);
  void AskAll();
  // True once every rank that was asked has answered the latest question.
  bool all_answered() const { return missing_ == 0; }
  // What each rank answered; kSilent without an answer. The own entry is for the caller to fill.
  std::vector<RankState>& answers() { return answers_; }

  // Tells all other ranks, unless an announcement is known already.
  void Announce(const Announcement& announcement);
  // True once no message is still to be handed to the transport.
  bool all_sent() const { return outgoing_.empty(); }
  // The first announcement received or made.
  const std::optional<Announcement>& announcement() const { return announcement_; }

 private:
  void Send(int to, int tag, std::string text);
  void Receive(int from, int tag, const std::string& text, const RankState& mine);

  struct Outgoing {
    MPI_Request request;
    std::string text;
  };
  MPI_Comm comm_;
  int rank_ = 0;
  int size_ = 1;
  int32_t question_ = 0;
  int missing_ = 0;
  std::vector<RankState> answers_;
  std::optional<Announcement> announcement_;
  std::deque<Outgoing> outgoing_;
};

}  // namespace snapkv::comm
