// SPDX-License-Identifier: Apache-2.0
// What the services share: answering a unary call from an executor, and streams that anybody may write to.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "absl/time/clock.h"
#include "grpcpp/grpcpp.h"
#include "runtime/service/grpc_status.h"
#include "runtime/service/server/context.h"

namespace snapkv::service {

// Runs `work`, a function that returns a StatusOr<Response>, on `executor` and answers with what it returns.
template <class Response, class Work>
grpc::ServerUnaryReactor* Answer(ServiceContext& service, const char* method, Executor& executor,
                                 grpc::CallbackServerContext* context, Response* response, Work work) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  const absl::Time start = absl::Now();
  executor.Post([&service, method, context, response, reactor, start, work = std::move(work)] {
    absl::StatusOr<Response> result = work();
    if (result.ok()) *response = *std::move(result);
    const absl::Status status = result.ok() ? absl::OkStatus() : result.status();
    service.RpcFinished(method, status, absl::Now() - start);
    reactor->Finish(ToGrpc(status, *context));
  });
  return reactor;
}

// MESSAGE_TOO_LARGE, with advice. gRPC itself takes greater messages (Server), because its own error has
// none.
inline absl::Status CheckMessage(const ServiceContext& service, const google::protobuf::Message& message) {
  const auto bytes = static_cast<int64_t>(message.ByteSizeLong());
  if (bytes <= service.limits.max_message_bytes) return absl::OkStatus();
  return ServiceError(
      Reason::kMessageTooLarge, "the message has ", bytes, " bytes, at most ",
      service.limits.max_message_bytes,
      " are taken (--max-message-bytes): create the job with open = true and send its documents with "
      "UploadDocument, or make several jobs");
}

// Answers at once.
inline grpc::ServerUnaryReactor* AnswerError(ServiceContext& service, const char* method,
                                             grpc::CallbackServerContext* context,
                                             const absl::Status& status) {
  service.RpcFinished(method, status, absl::ZeroDuration());
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(ToGrpc(status, *context));
  return reactor;
}

// A server stream with a queue, so that any thread may write at any time. It keeps itself alive until gRPC is
// done with it; others hold weak pointers. Subclasses override the hooks, which are called without locks and
// must not block.
template <class Message>
class OutStream : public grpc::ServerWriteReactor<Message>,
                  public std::enable_shared_from_this<OutStream<Message>> {
 public:
  // Derived::Derived(service, method, context, arguments...). Call Start on what it returns.
  template <class Derived, class... Args>
  static std::shared_ptr<Derived> Make(Args&&... args) {
    auto stream = std::make_shared<Derived>(std::forward<Args>(args)...);
    stream->self_ = stream;
    return stream;
  }

  OutStream(ServiceContext& service, const char* method, grpc::CallbackServerContext* context)
      : service_(service), method_(method), context_(context), start_(absl::Now()) {
    service_.StreamOpened(method_);
  }

  // Queues a message; nothing happens after End or once the client is gone.
  void Send(Message message) {
    const std::lock_guard lock(mutex_);
    if (closed_ || end_.has_value()) return;
    queue_.push_back(std::move(message));
    if (!writing_) StartNext();
  }
  // Ends the stream behind what was sent.
  void End(const absl::Status& status) {
    const std::lock_guard lock(mutex_);
    if (closed_ || end_.has_value()) return;
    end_ = status;
    if (!writing_) Close();
  }
  // Everything has been handed to gRPC.
  bool idle() const {
    const std::lock_guard lock(mutex_);
    return !writing_ && queue_.empty();
  }
  // The client has left or the stream is ending.
  bool gone() const {
    const std::lock_guard lock(mutex_);
    return closed_ || end_.has_value();
  }
  size_t queued() const {
    const std::lock_guard lock(mutex_);
    return queue_.size();
  }

 protected:
  ServiceContext& service_;

  // The queue has run empty.
  virtual void OnDrained() {}
  // The client has left; End is too late.
  virtual void OnGone() {}

 private:
  void StartNext() {  // with the lock
    writing_ = true;
    current_ = std::move(queue_.front());
    queue_.pop_front();
    this->StartWrite(&current_);
  }
  void Close() {  // with the lock
    closed_ = true;
    const absl::Status status = end_.value_or(absl::CancelledError("the client has left"));
    service_.RpcFinished(method_, status, absl::Now() - start_);
    this->Finish(ToGrpc(status, *context_));
  }
  void OnWriteDone(bool ok) override {
    bool drained = false;
    {
      const std::lock_guard lock(mutex_);
      writing_ = false;
      if (!ok || cancelled_) queue_.clear();
      if (!queue_.empty()) {
        StartNext();
      } else if (end_.has_value() || !ok || cancelled_) {
        Close();
      } else {
        drained = true;
      }
    }
    if (drained) OnDrained();
  }
  void OnCancel() override {
    {
      const std::lock_guard lock(mutex_);
      cancelled_ = true;
      queue_.clear();
      if (!writing_ && !closed_) Close();
    }
    OnGone();
  }
  void OnDone() override {
    service_.StreamClosed(method_);
    self_.reset();
  }

  const char* const method_;
  grpc::CallbackServerContext* const context_;
  const absl::Time start_;
  mutable std::mutex mutex_;
  // All guarded by mutex_.
  std::deque<Message> queue_;
  Message current_;  // being written
  bool writing_ = false;
  bool cancelled_ = false;
  bool closed_ = false;  // Finish was called
  std::optional<absl::Status> end_;
  std::shared_ptr<OutStream> self_;
};

}  // namespace snapkv::service
