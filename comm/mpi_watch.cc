// SPDX-License-Identifier: Apache-2.0
// Questions, answers and announcements: arrays of int32 followed by text.
#include "comm/mpi_watch.h"

#include <algorithm>
#include <cstring>

namespace snapkv::comm {
namespace {

enum Tag : int { kQuestion, kAnswer, kAnnouncement };
// Keeps every message below the smallest eager limit of Open MPI's transports (4 KiB).
constexpr size_t kMaxPeers = 256;
constexpr size_t kMaxText = 1500;

// [numbers..., text]; the count of numbers comes first.
std::string Encode(const std::vector<int32_t>& numbers, const std::string& text) {
  const int32_t count = static_cast<int32_t>(numbers.size());
  std::string out(sizeof(count) * (numbers.size() + 1), '\0');
  std::memcpy(out.data(), &count, sizeof(count));
  if (count > 0) std::memcpy(out.data() + sizeof(count), numbers.data(), numbers.size() * sizeof(int32_t));
  return out + text.substr(0, kMaxText);
}

std::vector<int32_t> Decode(const std::string& in, std::string* text) {
  int32_t count = 0;
  std::memcpy(&count, in.data(), sizeof(count));
  std::vector<int32_t> numbers(static_cast<size_t>(count));
  if (count > 0) std::memcpy(numbers.data(), in.data() + sizeof(count), numbers.size() * sizeof(int32_t));
  *text = in.substr(sizeof(count) * (numbers.size() + 1));
  return numbers;
}

}  // namespace

MpiWatch::MpiWatch(MPI_Comm comm) : comm_(comm) {
  MPI_Comm_rank(comm_, &rank_);
  MPI_Comm_size(comm_, &size_);
  answers_.resize(static_cast<size_t>(size_));
}

void MpiWatch::Send(int to, int tag, std::string text) {
  outgoing_.push_back({MPI_REQUEST_NULL, std::move(text)});
  Outgoing& out = outgoing_.back();
  MPI_Isend(out.text.data(), static_cast<int>(out.text.size()), MPI_BYTE, to, tag, comm_, &out.request);
}

void MpiWatch::Serve(const RankState& mine) {
  while (true) {
    int found = 0;
    MPI_Status status;
    if (MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, comm_, &found, &status) != MPI_SUCCESS || found == 0) break;
    int bytes = 0;
    MPI_Get_count(&status, MPI_BYTE, &bytes);
    std::string text(static_cast<size_t>(bytes), '\0');
    MPI_Recv(text.data(), bytes, MPI_BYTE, status.MPI_SOURCE, status.MPI_TAG, comm_, MPI_STATUS_IGNORE);
    Receive(status.MPI_SOURCE, status.MPI_TAG, text, mine);
  }
  while (!outgoing_.empty()) {
    int done = 0;
    MPI_Test(&outgoing_.front().request, &done, MPI_STATUS_IGNORE);
    if (done == 0) break;
    outgoing_.pop_front();
  }
}

void MpiWatch::Receive(int from, int tag, const std::string& message, const RankState& mine) {
  std::string text;
  std::vector<int32_t> numbers = Decode(message, &text);
  if (tag == kQuestion) {
    std::vector<int32_t> reply = {numbers[0], static_cast<int32_t>(mine.activity)};
    reply.insert(reply.end(), mine.peers.begin(),
                 mine.peers.begin() + static_cast<int64_t>(std::min(mine.peers.size(), kMaxPeers)));
    Send(from, kAnswer, Encode(reply, mine.operation));
  } else if (tag == kAnswer) {
    RankState& answer = answers_[static_cast<size_t>(from)];
    if (numbers[0] != question_ || answer.activity != Activity::kSilent) return;
    answer = {static_cast<Activity>(numbers[1]), {numbers.begin() + 2, numbers.end()}, text};
    --missing_;
  } else if (!announcement_) {
    announcement_ = {absl::Status(static_cast<absl::StatusCode>(numbers[0]), text), numbers[1], numbers[2]};
  }
}

void MpiWatch::Ask(const std::vector<int>& ranks) {
  ++question_;
  missing_ = static_cast<int>(ranks.size());
  answers_.assign(static_cast<size_t>(size_), RankState{});
  for (const int r : ranks) Send(r, kQuestion, Encode({question_}, ""));
}

void MpiWatch::AskAll() {
  std::vector<int> others;
  for (int r = 0; r < size_; ++r)
    if (r != rank_) others.push_back(r);
  Ask(others);
}

void MpiWatch::Announce(const Announcement& announcement) {
  if (announcement_) return;
  announcement_ = announcement;
  const std::vector<int32_t> numbers = {static_cast<int32_t>(announcement.status.code()),
                                        announcement.speaker, announcement.exit_code};
  for (int r = 0; r < size_; ++r) {
    if (r != rank_) Send(r, kAnnouncement, Encode(numbers, std::string(announcement.status.message())));
  }
}

}  // namespace snapkv::comm
