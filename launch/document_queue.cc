// SPDX-License-Identifier: Apache-2.0
// A thread, a bounded queue, and an end that does not wait.
#include "launch/document_queue.h"

#include <thread>
#include <utility>

namespace snapkv::launch {

struct DocumentQueue::Shared {
  std::mutex mutex;
  std::condition_variable changed;
  // All guarded by mutex.
  std::deque<PreparedDocument> documents;
  size_t ahead = 1;
  bool ended = false;
  bool abandoned = false;  // the queue is gone
  absl::Status status;
};

DocumentQueue::DocumentQueue(Next next, size_t ahead) : shared_(std::make_shared<Shared>()) {
  shared_->ahead = ahead;
  // Detached, since it may be blocked in a read for ever; it owns all it touches.
  std::thread([shared = shared_, next = std::move(next)] { Read(shared, next); }).detach();
}

DocumentQueue::~DocumentQueue() {
  const std::lock_guard lock(shared_->mutex);
  shared_->abandoned = true;
  shared_->changed.notify_all();
}

void DocumentQueue::Read(const std::shared_ptr<Shared>& shared, const Next& next) {
  for (;;) {
    {
      std::unique_lock lock(shared->mutex);
      shared->changed.wait(lock,
                           [&] { return shared->abandoned || shared->documents.size() < shared->ahead; });
      if (shared->abandoned) return;
    }
    auto document = next();
    const std::lock_guard lock(shared->mutex);
    if (document.ok() && document->has_value()) {
      shared->documents.push_back(*std::move(*document));
    } else {
      shared->status = document.status();
      shared->ended = true;
    }
    shared->changed.notify_all();
    if (shared->ended) return;
  }
}

DocumentQueue::State DocumentQueue::Take(absl::Duration wait, PreparedDocument& document) {
  std::unique_lock lock(shared_->mutex);
  shared_->changed.wait_for(lock, absl::ToChronoNanoseconds(wait),
                            [&] { return !shared_->documents.empty() || shared_->ended; });
  if (shared_->documents.empty()) return shared_->ended ? State::kEnd : State::kWait;
  document = std::move(shared_->documents.front());
  shared_->documents.pop_front();
  shared_->changed.notify_all();
  return State::kDocument;
}

absl::Status DocumentQueue::status() const {
  const std::lock_guard lock(shared_->mutex);
  return shared_->status;
}

}  // namespace snapkv::launch
