// SPDX-License-Identifier: Apache-2.0
// Mailboxes between threads: one queue per (sender, receiver, channel), all under one mutex.
#include "comm/thread_comm.h"

#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "comm/collectives.h"
#include "comm/endpoint.h"
#include "comm/wait_graph.h"
#include "kernels/base/log.h"

namespace snapkv::comm {
namespace {

using Clock = std::chrono::steady_clock;

// A message on its way: a copy of the sender's bytes. `taken` is guarded by the group's mutex.
struct Letter {
  std::vector<char> bytes;
  bool taken = false;
};

struct OpenSend {
  std::shared_ptr<Letter> letter;
  const void* data;
  int peer;
};

struct OpenReceive {
  void* data;
  int64_t bytes;
  int peer;
  bool done = false;
};

struct OpenGroup {
  std::vector<OpenSend> sends;
  std::deque<OpenReceive> receives;  // a deque, because posted receives are pointed at
};

}  // namespace

struct ThreadGroup::State {
  explicit State(absl::Duration limit) : timeout(limit) {}

  struct Slot {
    std::condition_variable changed;
    uint64_t events = 0;  // counts what happened to this rank, so that no wake-up is lost
    bool left = false;
    RankState doing{Activity::kRunning, {}, {}};
  };

  void NotifyLocked(int rank) {
    Slot& slot = slots[static_cast<size_t>(rank)];
    ++slot.events;
    slot.changed.notify_all();
  }
  void FailLocked(const absl::Status& error) {
    if (!failure.ok()) return;
    failure = error;
    for (int r = 0; r < static_cast<int>(slots.size()); ++r) NotifyLocked(r);
  }

  const absl::Duration timeout;
  mutable std::mutex mutex;  // guards everything below
  absl::Status failure;
  std::deque<Slot> slots;
  std::map<std::tuple<int, int, Channel>, std::deque<std::shared_ptr<Letter>>>
      mail;  // by (from, to, channel)
};

class ThreadGroup::ThreadEndpoint final : public Endpoint {
 public:
  ThreadEndpoint(State& state, int rank) : state_(state), rank_(rank) {}

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(state_.slots.size()); }

  absl::StatusOr<int64_t> Start(absl::Span<const Transfer> transfers) override {
    OpenGroup& group = open_[next_id_];
    for (const Transfer& t : transfers) {
      if (t.direction == Transfer::Direction::kReceive) {
        group.receives.push_back({t.data, t.bytes, t.peer});
        posted_[{t.peer, t.channel}].push_back(&group.receives.back());
        continue;
      }
      auto letter = std::make_shared<Letter>();
      const char* begin = static_cast<const char*>(t.data);
      if (t.bytes > 0) letter->bytes.assign(begin, begin + t.bytes);
      group.sends.push_back({letter, t.data, t.peer});
      const std::lock_guard<std::mutex> lock(state_.mutex);
      if (!state_.failure.ok()) return state_.failure;
      state_.mail[{rank_, t.peer, t.channel}].push_back(std::move(letter));
      state_.NotifyLocked(t.peer);
    }
    RETURN_IF_ERROR(Poll());
    return next_id_++;
  }

  absl::Status Poll() override {
    std::vector<std::pair<OpenReceive*, std::shared_ptr<Letter>>> arrived;
    {
      const std::lock_guard<std::mutex> lock(state_.mutex);
      if (!state_.failure.ok()) return state_.failure;
      for (auto& [key, receives] : posted_) {
        auto& letters = state_.mail[{key.first, rank_, key.second}];
        while (!receives.empty() && !letters.empty()) {
          arrived.emplace_back(receives.front(), letters.front());
          letters.front()->taken = true;
          receives.pop_front();
          letters.pop_front();
          state_.NotifyLocked(key.first);
        }
      }
    }
    for (auto& [receive, letter] : arrived) {
      if (receive->bytes != static_cast<int64_t>(letter->bytes.size())) {
        return Fail(Internal("rank ", receive->peer, " sent ", letter->bytes.size(), " bytes where rank ",
                             rank_, " receives ", receive->bytes, "; both sides must agree"));
      }
      if (receive->bytes > 0) std::memcpy(receive->data, letter->bytes.data(), letter->bytes.size());
      receive->done = true;
    }
    return absl::OkStatus();
  }

  absl::Status Wait(int64_t id, const char* operation) override {
    const auto it = open_.find(id);
    if (it == open_.end()) return FailedPrecondition(operation, ": no open exchange has the id ", id);
    OpenGroup& group = it->second;
    Clock::time_point deadline = Deadline();
    size_t pending_before = SIZE_MAX;
    while (true) {
      RETURN_IF_ERROR(Poll());
      std::unique_lock<std::mutex> lock(state_.mutex);
      State::Slot& slot = state_.slots[static_cast<size_t>(rank_)];
      std::vector<int> pending = PendingLocked(group);
      if (pending.empty()) break;
      if (!state_.failure.ok()) return state_.failure;
      RETURN_IF_ERROR(CheckPresentLocked(group, operation));
      if (pending.size() < pending_before) deadline = Deadline();
      pending_before = pending.size();
      slot.doing = {Activity::kWaiting, std::move(pending), operation};
      // Events since the last wait count: mail may have arrived between Poll and the lock.
      const bool woken = slot.changed.wait_until(lock, deadline, [&] { return slot.events != events_seen_; });
      events_seen_ = slot.events;
      if (!woken) {
        std::vector<RankState> doing;
        for (const State::Slot& s : state_.slots) doing.push_back(s.doing);
        const Verdict verdict = FindLateRanks(rank_, doing, state_.timeout, {});
        state_.FailLocked(DeadlineExceeded(verdict.text));
      }
      slot.doing.activity = Activity::kRunning;
      if (!state_.failure.ok()) return state_.failure;
    }
    for (const OpenSend& send : group.sends) {
      const std::vector<char>& sent = send.letter->bytes;
      if (sent.empty() || std::memcmp(sent.data(), send.data, sent.size()) == 0) continue;
      return Fail(Internal("rank ", rank_, " modified a buffer of ", sent.size(),
                           " bytes before its send to rank ", send.peer, " was finished"));
    }
    open_.erase(it);
    return absl::OkStatus();
  }

 private:
  Clock::time_point Deadline() const { return Clock::now() + absl::ToChronoNanoseconds(state_.timeout); }

  absl::Status Fail(const absl::Status& error) {
    const std::lock_guard<std::mutex> lock(state_.mutex);
    state_.FailLocked(error);
    return state_.failure;
  }

  // The peer of every unfinished transfer.
  static std::vector<int> PendingLocked(const OpenGroup& group) {
    std::vector<int> peers;
    for (const OpenReceive& receive : group.receives) {
      if (!receive.done) peers.push_back(receive.peer);
    }
    for (const OpenSend& send : group.sends) {
      if (!send.letter->taken) peers.push_back(send.peer);
    }
    return peers;
  }

  // A transfer with a rank that has left never finishes, unless its message is already here.
  absl::Status CheckPresentLocked(const OpenGroup& group, const char* operation) {
    const auto left = [&](int peer) { return state_.slots[static_cast<size_t>(peer)].left; };
    int gone = -1;
    for (const OpenReceive& receive : group.receives) {
      bool on_its_way = false;
      for (const Channel channel : {Channel::kExchange, Channel::kCollective}) {
        on_its_way = on_its_way || !state_.mail[{receive.peer, rank_, channel}].empty();
      }
      if (!receive.done && left(receive.peer) && !on_its_way) gone = receive.peer;
    }
    for (const OpenSend& send : group.sends) {
      if (!send.letter->taken && left(send.peer)) gone = send.peer;
    }
    if (gone < 0) return absl::OkStatus();
    state_.FailLocked(
        FailedPrecondition("rank ", gone, " has returned, but rank ", rank_, " waits for it in ", operation));
    return state_.failure;
  }

  State& state_;
  const int rank_;
  int64_t next_id_ = 1;
  uint64_t events_seen_ = 0;
  std::map<int64_t, OpenGroup> open_;
  std::map<std::pair<int, Channel>, std::deque<OpenReceive*>> posted_;  // not yet arrived, in order
};

struct ThreadGroup::Rank {
  Rank(State& state, int rank) : endpoint(state, rank), host(endpoint), device(endpoint) {}
  ThreadEndpoint endpoint;
  EndpointHostComm host;
  EndpointDeviceComm device;
};

ThreadGroup::ThreadGroup(std::unique_ptr<State> state) : state_(std::move(state)) {
  for (int r = 0; r < size(); ++r) ranks_.push_back(std::make_unique<Rank>(*state_, r));
}
ThreadGroup::~ThreadGroup() = default;

std::unique_ptr<ThreadGroup> ThreadGroup::Create(int ranks, absl::Duration timeout) {
  CHECK(ranks >= 1) << ranks;
  auto state = std::make_unique<State>(timeout);
  state->slots.resize(static_cast<size_t>(ranks));
  return std::unique_ptr<ThreadGroup>(new ThreadGroup(std::move(state)));
}

int ThreadGroup::size() const { return static_cast<int>(state_->slots.size()); }
HostComm& ThreadGroup::host(int rank) { return ranks_[static_cast<size_t>(rank)]->host; }
DeviceComm& ThreadGroup::device(int rank) { return ranks_[static_cast<size_t>(rank)]->device; }

void ThreadGroup::Leave(int rank) {
  const std::lock_guard<std::mutex> lock(state_->mutex);
  state_->slots[static_cast<size_t>(rank)].left = true;
  for (int r = 0; r < size(); ++r) state_->NotifyLocked(r);
}

void ThreadGroup::Fail(const absl::Status& error) {
  const std::lock_guard<std::mutex> lock(state_->mutex);
  state_->FailLocked(error);
}

absl::Status ThreadGroup::failure() const {
  const std::lock_guard<std::mutex> lock(state_->mutex);
  return state_->failure;
}

absl::Status RunRanks(int ranks, absl::Duration timeout,
                      const std::function<absl::Status(HostComm&, DeviceComm&)>& body) {
  const std::unique_ptr<ThreadGroup> group = ThreadGroup::Create(ranks, timeout);
  std::mutex mutex;
  absl::Status first;  // guarded by mutex
  std::vector<std::thread> threads;
  threads.reserve(static_cast<size_t>(ranks));
  for (int r = 0; r < ranks; ++r) {
    threads.emplace_back([&, r] {
      absl::Status status = body(group->host(r), group->device(r));
      if (status.ok()) {
        group->Leave(r);
        return;
      }
      if (status != group->failure()) status = Annotate(status, absl::StrCat("rank ", r));
      {
        const std::lock_guard<std::mutex> lock(mutex);
        if (first.ok()) first = status;
      }
      group->Fail(status);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return first;
}

}  // namespace snapkv::comm
