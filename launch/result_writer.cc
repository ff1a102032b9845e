// SPDX-License-Identifier: Apache-2.0
// A queue and the thread that empties it.
#include "launch/result_writer.h"

#include <chrono>
#include <utility>

#include "launch/output/output_files.h"

namespace snapkv::launch {
namespace {

constexpr size_t kMostWaiting = 256;
constexpr std::chrono::seconds kSyncPause{1};
constexpr int64_t kMostHeld = 4096;  // by --ordered

}  // namespace

ResultWriter::ResultWriter(std::shared_ptr<OutputLog> log, bool ordered)
    : log_(std::move(log)),
      ordered_(ordered, [this](const std::string& text) { return Write(text); }),
      thread_([this] { Run(); }) {}

ResultWriter::~ResultWriter() {
  {
    const std::lock_guard lock(mutex_);
    finishing_ = true;
    changed_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
}

void ResultWriter::Put(int64_t sequence, std::string text) {
  const std::lock_guard lock(mutex_);
  items_.push_back({sequence, std::move(text)});
  changed_.notify_all();
}

void ResultWriter::Stream(std::string text) { Put(-1, std::move(text)); }

bool ResultWriter::congested() const {
  const std::lock_guard lock(mutex_);
  return items_.size() >= kMostWaiting || held_ >= kMostHeld;
}

absl::Status ResultWriter::status() const {
  const std::lock_guard lock(mutex_);
  return status_;
}

void ResultWriter::Run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    if (!changed_.wait_for(lock, kSyncPause, [&] { return !items_.empty() || finishing_; })) {
      if (!log_ || !status_.ok()) continue;
      lock.unlock();  // what Append has not brought to the disk
      const absl::Status synced = Annotate(log_->Sync(), "--output");
      lock.lock();
      status_.Update(synced);
      continue;
    }
    if (items_.empty()) return;
    const Item item = std::move(items_.front());
    items_.pop_front();
    if (!status_.ok()) continue;
    lock.unlock();
    const absl::Status status = item.sequence < 0 ? Write(item.text) : ordered_.Put(item.sequence, item.text);
    lock.lock();
    held_ = ordered_.held();
    status_.Update(status);
  }
}

absl::Status ResultWriter::Write(const std::string& text) {
  return log_ ? Annotate(log_->Append(text), "--output") : WriteStdout(text);
}

absl::Status ResultWriter::Finish(bool discard_if_empty) {
  {
    const std::lock_guard lock(mutex_);
    finishing_ = true;
    changed_.notify_all();
  }
  thread_.join();
  // A batch that was stopped leaves gaps: what is finished is worth keeping.
  if (status_.ok()) status_ = ordered_.Drain();
  const absl::Status closed = log_ ? log_->Close(discard_if_empty) : absl::OkStatus();
  return status_.ok() ? closed : status_;
}

}  // namespace snapkv::launch
