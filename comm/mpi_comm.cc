// SPDX-License-Identifier: Apache-2.0
// Point-to-point messages over MPI with non-blocking calls only, and the end of a job that lost a rank.
#include "comm/mpi_comm.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <map>
#include <thread>
#include <utility>

#include "comm/collectives.h"
#include "comm/deadline.h"
#include "comm/endpoint.h"
#include "comm/mpi_watch.h"
#include "kernels/base/log.h"

namespace snapkv::comm {
namespace {

// How long a rank may take to say what it is waiting for. Waiting ranks answer within milliseconds.
constexpr absl::Duration kAnswerTime = absl::Seconds(2);
// First contact of all ranks: connections are made, possibly across a network, by ranks that start at
// different times.
constexpr absl::Duration kConnectTime = absl::Minutes(5);

absl::Status FromMpi(int code, const char* call) {
  if (code == MPI_SUCCESS) return absl::OkStatus();
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(code, text, &length);
  return Internal(call, ": ", text);
}

// The open requests of one Start, all arrays in step. Finished requests become MPI_REQUEST_NULL.
struct OpenGroup {
  std::vector<MPI_Request> requests;
  std::vector<int> peers;
  std::vector<int> receive_bytes;  // -1 for a send
  size_t pending = 0;
};

}  // namespace

class MpiComm::MpiEndpoint final : public Endpoint {
 public:
  MpiEndpoint(MPI_Comm data, MPI_Comm questions, const MpiOptions& options)
      : comm_(data), options_(options), watch_(questions) {
    MPI_Comm_rank(comm_, &rank_);
    MPI_Comm_size(comm_, &size_);
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  MpiWatch& watch() { return watch_; }
  // After an error the caller gives its buffers up while messages may still arrive. Receives that have not
  // begun are withdrawn here; those that have are not moved on, because nothing calls MPI any more but
  // MPI_Abort.
  void CancelReceives() {
    for (auto& [id, group] : open_) {
      for (size_t i = 0; i < group.requests.size(); ++i) {
        const bool open = group.requests[i] != MPI_REQUEST_NULL;
        if (open && group.receive_bytes[i] >= 0) MPI_Cancel(&group.requests[i]);
      }
    }
    open_.clear();
  }
  void set_timeout(absl::Duration timeout) { options_.timeout = timeout; }
  void set_names(std::vector<std::string> names) { names_ = std::move(names); }
  const std::vector<std::string>& names() const { return names_; }

  absl::StatusOr<int64_t> Start(absl::Span<const Transfer> transfers) override {
    RETURN_IF_ERROR(failure_);
    OpenGroup& group = open_[next_id_];  // gone after an error
    for (const Transfer& t : transfers) {
      int64_t begin = 0;
      do {  // once for an empty message
        const int64_t bytes = std::min(t.bytes - begin, options_.max_message_bytes);
        RETURN_IF_ERROR(StartPart(t, begin, static_cast<int>(bytes), group));
        begin += bytes;
      } while (begin < t.bytes);
    }
    group.pending = group.requests.size();
    return next_id_++;
  }

  absl::Status Poll() override {
    RETURN_IF_ERROR(failure_);
    for (auto& [id, group] : open_) RETURN_IF_ERROR(Test(group).status());
    RETURN_IF_ERROR(ServeWatch());
    return CheckNeighbour();
  }

  absl::Status Wait(int64_t id, const char* operation) override {
    RETURN_IF_ERROR(failure_);
    const auto it = open_.find(id);
    if (it == open_.end()) return FailedPrecondition(operation, ": no open exchange has the id ", id);
    OpenGroup& group = it->second;
    Deadline deadline(options_.timeout);
    Deadline answers(kAnswerTime);
    Backoff backoff;
    bool asked = false;
    while (true) {
      ASSIGN_OR_RETURN(const bool progress, Test(group));
      if (group.pending == 0) break;
      if (progress) {
        deadline.Restart();
        backoff.Restart();
        asked = false;
      }
      if (backoff.idle()) {
        SetWaiting(group, operation);
        RETURN_IF_ERROR(ServeWatch());
        if (!asked && deadline.Expired()) {
          watch_.AskAll();
          answers.Restart();
          asked = true;
        } else if (asked && (watch_.all_answered() || answers.Expired())) {
          return GiveUp();
        }
      }
      backoff.Pause();
    }
    doing_ = {Activity::kRunning, {}, {}};
    open_.erase(it);
    return absl::OkStatus();
  }

 private:
  absl::Status StartPart(const Transfer& t, int64_t begin, int bytes, OpenGroup& group) {
    char* data = bytes > 0 ? static_cast<char*>(t.data) + begin : nullptr;
    const int tag = static_cast<int>(t.channel);
    const bool send = t.direction == Transfer::Direction::kSend;
    MPI_Request request = MPI_REQUEST_NULL;
    const int code = send ? MPI_Isend(data, bytes, MPI_BYTE, t.peer, tag, comm_, &request)
                          : MPI_Irecv(data, bytes, MPI_BYTE, t.peer, tag, comm_, &request);
    if (code != MPI_SUCCESS) return Fail(FromMpi(code, send ? "MPI_Isend" : "MPI_Irecv"));
    group.requests.push_back(request);
    group.peers.push_back(t.peer);
    group.receive_bytes.push_back(send ? -1 : bytes);
    return absl::OkStatus();
  }

  // Takes note of what has finished; true if anything has.
  absl::StatusOr<bool> Test(OpenGroup& group) {
    if (group.pending == 0) return false;
    const int count = static_cast<int>(group.requests.size());
    finished_.resize(group.requests.size());
    statuses_.resize(group.requests.size());
    int done = 0;
    const int code = MPI_Testsome(count, group.requests.data(), &done, finished_.data(), statuses_.data());
    if (code != MPI_SUCCESS && code != MPI_ERR_IN_STATUS) return Fail(FromMpi(code, "MPI_Testsome"));
    if (done == MPI_UNDEFINED) done = 0;
    for (int i = 0; i < done; ++i) {
      const size_t at = static_cast<size_t>(finished_[static_cast<size_t>(i)]);
      const MPI_Status& status = statuses_[static_cast<size_t>(i)];
      if (code == MPI_ERR_IN_STATUS && status.MPI_ERROR != MPI_SUCCESS) {
        return Fail(Annotate(FromMpi(status.MPI_ERROR, "MPI_Testsome"),
                             absl::StrCat("message with rank ", group.peers[at])));
      }
      const int expected = group.receive_bytes[at];
      int received = expected;
      if (expected >= 0) MPI_Get_count(&status, MPI_BYTE, &received);
      if (received != expected) {
        return Fail(Internal("rank ", group.peers[at], " sent ", received, " bytes where rank ", rank_,
                             " receives ", expected, "; both sides must agree"));
      }
    }
    group.pending -= static_cast<size_t>(done);
    return done > 0;
  }

  void SetWaiting(const OpenGroup& group, const char* operation) {
    doing_.activity = Activity::kWaiting;
    doing_.operation = operation;
    doing_.peers.clear();
    for (size_t i = 0; i < group.requests.size(); ++i) {
      if (group.requests[i] == MPI_REQUEST_NULL) continue;
      if (std::find(doing_.peers.begin(), doing_.peers.end(), group.peers[i]) != doing_.peers.end()) continue;
      doing_.peers.push_back(group.peers[i]);
    }
  }

  absl::Status ServeWatch() {
    watch_.Serve(doing_);
    return watch_.announcement() ? Fail(watch_.announcement()->status) : absl::OkStatus();
  }

  // A rank that computes waits for nobody: it would notice that a neighbour has stopped only when it needs
  // the neighbour's data. So it asks now and then for a sign of life. In a ring somebody asks every rank.
  absl::Status CheckNeighbour() {
    if (size_ == 1) return absl::OkStatus();
    const int neighbour = (rank_ + 1) % size_;
    const absl::Duration waited = absl::FromChrono(Clock::now() - since_);
    if (!asking_) {
      if (waited < options_.timeout / 4) return absl::OkStatus();
      watch_.Ask({neighbour});
      asking_ = true;
      since_ = Clock::now();
      return absl::OkStatus();
    }
    // Not a Deadline: polls may be far apart. If this process was suspended, the neighbour gets a second
    // chance.
    if (!watch_.all_answered() && waited >= options_.timeout - options_.timeout / 4) {
      doing_ = {Activity::kWaiting, {neighbour}, "Poll"};
      watch_.AskAll();
      Deadline answers(kAnswerTime);
      Backoff backoff;
      while (!watch_.all_answered() && !answers.Expired()) {
        RETURN_IF_ERROR(ServeWatch());
        backoff.Pause();
      }
      if (watch_.answers()[static_cast<size_t>(neighbour)].activity == Activity::kSilent) return GiveUp();
      doing_ = {Activity::kRunning, {}, {}};
    } else if (!watch_.all_answered()) {
      return absl::OkStatus();
    }
    asking_ = false;
    since_ = Clock::now();
    return absl::OkStatus();
  }

  absl::Status GiveUp() {
    std::vector<RankState> states = watch_.answers();
    states[static_cast<size_t>(rank_)] = doing_;
    const Verdict verdict = FindLateRanks(rank_, states, options_.timeout, names_);
    // A rank that waits hears the announcement at once.
    int speaker = 0;
    while (states[static_cast<size_t>(speaker)].activity != Activity::kWaiting) ++speaker;
    watch_.Announce({DeadlineExceeded(verdict.text), speaker, 0});
    // Abort cannot see the announcement off: it must not move data any more.
    Deadline flush(absl::Milliseconds(100));
    while (!watch_.all_sent() && !flush.Expired()) watch_.Serve(doing_);
    return Fail(watch_.announcement()->status);
  }

  absl::Status Fail(absl::Status error) {
    CancelReceives();
    return failure_ = std::move(error);
  }

  using Clock = std::chrono::steady_clock;
  MPI_Comm comm_;
  MpiOptions options_;
  MpiWatch watch_;
  int rank_ = 0;
  int size_ = 1;
  std::vector<std::string> names_;
  RankState doing_{Activity::kRunning, {}, {}};
  // Of CheckNeighbour: whether a question is open, and since when that is so. A quarter of the time-out
  // passes before a question, three quarters may pass before its answer.
  bool asking_ = false;
  Clock::time_point since_ = Clock::now();
  absl::Status failure_;
  int64_t next_id_ = 1;
  std::map<int64_t, OpenGroup> open_;
  std::vector<int> finished_;         // scratch of Test
  std::vector<MPI_Status> statuses_;  // scratch of Test
};

struct MpiComm::State {
  State(MPI_Comm data, MPI_Comm questions, const MpiOptions& options)
      : endpoint(data, questions, options), host(endpoint), device(endpoint) {}
  MpiEndpoint endpoint;
  EndpointHostComm host;
  EndpointDeviceComm device;
};

MpiComm::MpiComm(std::unique_ptr<State> state) : state_(std::move(state)) {}
MpiComm::~MpiComm() = default;
HostComm& MpiComm::host() { return state_->host; }
DeviceComm& MpiComm::device() { return state_->device; }
const std::vector<std::string>& MpiComm::node_names() const { return state_->endpoint.names(); }
void MpiComm::set_timeout(absl::Duration timeout) { state_->endpoint.set_timeout(timeout); }

absl::StatusOr<std::unique_ptr<MpiComm>> MpiComm::Create(MPI_Comm parent, const MpiOptions& options) {
  MPI_Comm comms[2] = {MPI_COMM_NULL, MPI_COMM_NULL};
  for (MPI_Comm& comm : comms) {
    RETURN_IF_ERROR(FromMpi(MPI_Comm_dup(parent, &comm), "MPI_Comm_dup"));
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
  }
  MpiOptions connecting = options;
  connecting.timeout = std::max(options.timeout, kConnectTime);
  std::unique_ptr<MpiComm> comm(new MpiComm(std::make_unique<State>(comms[0], comms[1], connecting)));

  // Every rank sends its name to every other one directly, which is also what connects them.
  char host_name[MPI_MAX_PROCESSOR_NAME] = "";
  int length = 0;
  MPI_Get_processor_name(host_name, &length);
  const std::string mine = absl::StrCat("node ", host_name, ", process ", getpid());
  std::vector<int64_t> lengths;
  ASSIGN_OR_RETURN(const std::vector<char> text,
                   comm->host().AllGatherVector(std::vector<char>(mine.begin(), mine.end()), &lengths));
  std::vector<std::string> names;
  const char* at = text.data();
  for (const int64_t n : lengths) {
    names.emplace_back(at, static_cast<size_t>(n));
    at += n;
  }
  comm->state_->endpoint.set_names(std::move(names));
  comm->set_timeout(options.timeout);
  return comm;
}

void MpiComm::Abort(const absl::Status& status, int exit_code) {
  MpiEndpoint& endpoint = state_->endpoint;
  MpiWatch& watch = endpoint.watch();
  endpoint.CancelReceives();
  watch.Announce({status, endpoint.rank(), exit_code});  // does nothing if there is an announcement already
  const Announcement& verdict = *watch.announcement();
  if (verdict.exit_code != 0) exit_code = verdict.exit_code;
  if (endpoint.rank() != verdict.speaker) {
    // The launcher needs up to a second to kill stopped processes. Then one after the other, so that the
    // first one's abort reaches the rest before they speak as well.
    Deadline patience(absl::Milliseconds(2000 + 100 * std::min(endpoint.rank(), 10)));
    while (!patience.Expired()) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  LogLine(LogLevel::kError, std::string(verdict.status.message()));
  std::fflush(nullptr);
  // MPI_Abort talks to the launcher; should that be stuck as well, this process still ends.
  const Watchdog watchdog(absl::Seconds(3), [exit_code] { _exit(exit_code); });
  // Time for the launcher to read the line before it ends everything.
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  MPI_Abort(MPI_COMM_WORLD, exit_code);
  _exit(exit_code);
}

}  // namespace snapkv::comm
