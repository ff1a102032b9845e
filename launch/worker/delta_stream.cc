// SPDX-License-Identifier: Apache-2.0
// A client stream by callbacks: no thread, one write at a time.
#include "launch/worker/delta_stream.h"

#include <utility>

namespace snapkv::launch {

class DeltaStream::Reactor final : public grpc::ClientWriteReactor<v1::StreamDeltasRequest> {
 public:
  explicit Reactor(const v1::Lease& lease) {
    message_.set_lease(lease.name());
    message_.set_attempt(lease.attempt());
  }

  void Start(v1::Workers::Stub& stub) {
    stub.async()->StreamDeltas(&context_, &answer_, this);
    AddHold();  // writes begin outside of callbacks
    StartCall();
  }

  void Send(const std::string& text, const v1::Progress* progress) {
    const std::lock_guard lock(mutex_);
    if (ending_ || broken_) return;
    text_ += text;
    if (progress != nullptr) {
      progress_ = *progress;
      has_progress_ = true;
    }
    WriteLocked();
  }

  void Cancel() {
    context_.TryCancel();
    End();
  }

  void End() {
    const std::lock_guard lock(mutex_);
    if (ending_) return;
    ending_ = true;
    WriteLocked();
  }

  bool WaitDone(absl::Duration wait) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, absl::ToChronoNanoseconds(wait), [&] { return done_; });
  }

  void WaitDone() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return done_; });
  }

  void OnWriteDone(bool ok) override {
    const std::lock_guard lock(mutex_);
    writing_ = false;
    broken_ = broken_ || !ok;
    WriteLocked();
  }

  void OnDone(const grpc::Status&) override {
    const std::lock_guard lock(mutex_);
    done_ = true;
    changed_.notify_all();
  }

 private:
  // The next message, or the end of the stream.
  void WriteLocked() {
    if (writing_ || closed_) return;
    if (broken_ || (ending_ && text_.empty())) {
      if (!ending_ && !broken_) return;
      closed_ = true;
      if (!broken_) StartWritesDone();
      RemoveHold();
      return;
    }
    if (text_.empty() && !has_progress_) return;
    message_.clear_delta();
    *message_.mutable_delta()->mutable_text() = std::exchange(text_, "");
    if (std::exchange(has_progress_, false)) *message_.mutable_delta()->mutable_progress() = progress_;
    writing_ = true;
    StartWrite(&message_);
  }

  grpc::ClientContext context_;
  google::protobuf::Empty answer_;
  std::mutex mutex_;
  std::condition_variable changed_;
  // All guarded by mutex_ (message_: while nothing is being written).
  v1::StreamDeltasRequest message_;
  std::string text_;  // not yet sent
  v1::Progress progress_;
  bool has_progress_ = false;
  bool writing_ = false, ending_ = false, broken_ = false, closed_ = false, done_ = false;
};

DeltaStream::DeltaStream(v1::Workers::Stub& stub, const v1::Lease& lease)
    : reactor_(std::make_unique<Reactor>(lease)) {
  reactor_->Start(stub);
}

DeltaStream::~DeltaStream() {
  if (reactor_->WaitDone(absl::ZeroDuration())) return;
  reactor_->Cancel();
  reactor_->WaitDone();
}

void DeltaStream::Send(const std::string& text) { reactor_->Send(text, nullptr); }
void DeltaStream::Send(const v1::Progress& progress) { reactor_->Send("", &progress); }
void DeltaStream::Cancel() { reactor_->Cancel(); }

void DeltaStream::Finish(absl::Duration wait) {
  reactor_->End();
  if (!reactor_->WaitDone(wait)) reactor_->Cancel();
}

}  // namespace snapkv::launch
