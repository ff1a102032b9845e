// SPDX-License-Identifier: Apache-2.0
// A map of leases and a queue of those that are ready.
#include "launch/worker/lease_book.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace snapkv::launch {

std::vector<service::EventField> LeaseFields(const v1::Lease& lease) {
  return {{"job", lease.job()},
          {"document", lease.document_id()},
          {"lease", lease.name()},
          {"attempt", lease.attempt()}};
}

int64_t LeaseBook::Add(const v1::Lease& lease) {
  const std::lock_guard lock(mutex_);
  Entry& entry = entries_[next_ticket_];
  entry.lease = lease;
  entry.progress.set_phase(v1::Progress::PHASE_WAITING);
  return next_ticket_++;
}

void LeaseBook::Ready(PreparedLease prepared) {
  const std::lock_guard lock(mutex_);
  const auto it = entries_.find(prepared.ticket);
  if (it == entries_.end()) return;
  it->second.progress.set_prompt_tokens(static_cast<int64_t>(prepared.document.tokens.size()));
  auto place = ready_.end();
  if (prepared.lease.interactive())
    place = std::find_if(ready_.begin(), ready_.end(),
                         [](const PreparedLease& p) { return !p.lease.interactive(); });
  ready_.insert(place, std::move(prepared));
  changed_.notify_all();
}

std::optional<PreparedLease> LeaseBook::Take(absl::Duration wait) {
  std::unique_lock lock(mutex_);
  const auto next = [&] {
    return std::find_if(ready_.begin(), ready_.end(), [&](const PreparedLease& prepared) {
      return entries_.at(prepared.ticket).fate == Fate::kHeld;
    });
  };
  if (!changed_.wait_for(lock, absl::ToChronoNanoseconds(wait), [&] { return next() != ready_.end(); }))
    return std::nullopt;
  const auto it = next();
  PreparedLease taken = std::move(*it);
  ready_.erase(it);
  return taken;
}

std::vector<PreparedLease> LeaseBook::TakeReady() {
  const std::lock_guard lock(mutex_);
  std::vector<PreparedLease> taken(std::make_move_iterator(ready_.begin()),
                                   std::make_move_iterator(ready_.end()));
  ready_.clear();
  return taken;
}

std::vector<PreparedLease> LeaseBook::TakeGone() {
  const std::lock_guard lock(mutex_);
  std::vector<PreparedLease> gone;
  for (auto it = ready_.begin(); it != ready_.end();) {
    if (entries_.at(it->ticket).fate == Fate::kHeld) {
      ++it;
      continue;
    }
    gone.push_back(std::move(*it));
    it = ready_.erase(it);
  }
  return gone;
}

void LeaseBook::Worked(int64_t ticket) {
  const std::lock_guard lock(mutex_);
  const auto it = entries_.find(ticket);
  if (it == entries_.end() || it->second.worked) return;
  it->second.worked = true;
  ++worked_;
  changed_.notify_all();
}

void LeaseBook::Remove(int64_t ticket) {
  const std::lock_guard lock(mutex_);
  const auto it = entries_.find(ticket);
  if (it == entries_.end()) return;
  if (it->second.worked) --worked_;
  entries_.erase(it);
  changed_.notify_all();
}

void LeaseBook::SetProgress(int64_t ticket, const v1::Progress& progress) {
  const std::lock_guard lock(mutex_);
  if (const auto it = entries_.find(ticket); it != entries_.end()) it->second.progress = progress;
}

void LeaseBook::SetTokens(int64_t ticket, int64_t generated) {
  const std::lock_guard lock(mutex_);
  if (const auto it = entries_.find(ticket); it != entries_.end())
    it->second.progress.set_generated_tokens(generated);
}

bool LeaseBook::End(const std::string& lease, int32_t attempt, Fate fate) {
  const std::lock_guard lock(mutex_);
  for (auto& [ticket, entry] : entries_) {
    if (entry.lease.name() != lease || entry.lease.attempt() != attempt) continue;
    if (entry.worked || entry.fate != Fate::kHeld) return false;
    entry.fate = fate;
    changed_.notify_all();
    return true;
  }
  return false;
}

LeaseBook::Fate LeaseBook::FateOf(int64_t ticket) const {
  const std::lock_guard lock(mutex_);
  const auto it = entries_.find(ticket);
  return it == entries_.end() ? Fate::kLost : it->second.fate;
}

v1::Lease LeaseBook::LeaseOf(int64_t ticket) const {
  const std::lock_guard lock(mutex_);
  const auto it = entries_.find(ticket);
  return it == entries_.end() ? v1::Lease() : it->second.lease;
}

std::vector<v1::LeaseRenewal> LeaseBook::Renewals() const {
  const std::lock_guard lock(mutex_);
  std::vector<v1::LeaseRenewal> renewals;
  for (const auto& [ticket, entry] : entries_) {
    if (entry.fate != Fate::kHeld) continue;
    v1::LeaseRenewal& renewal = renewals.emplace_back();
    renewal.set_lease(entry.lease.name());
    renewal.set_attempt(entry.lease.attempt());
    *renewal.mutable_progress() = entry.progress;
  }
  return renewals;
}

int64_t LeaseBook::busy() const {
  const std::lock_guard lock(mutex_);
  return BusyLocked();
}

int64_t LeaseBook::held() const {
  const std::lock_guard lock(mutex_);
  return static_cast<int64_t>(entries_.size());
}

bool LeaseBook::WaitForRoom(int64_t most, absl::Duration wait) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, absl::ToChronoNanoseconds(wait), [&] { return BusyLocked() < most; });
}

}  // namespace snapkv::launch
