// SPDX-License-Identifier: Apache-2.0
// HostComm and DeviceComm over any Endpoint. Collectives are trees of messages rather than the transport's
// own, so that every wait is for known ranks and a late one can be named.
#pragma once

#include "comm/device_comm.h"
#include "comm/endpoint.h"
#include "comm/host_comm.h"

namespace snapkv::comm {

// Barrier: dissemination, ceil(log2 N) rounds. Broadcast: binomial tree. AllGather: every rank to every
// other, one round. AllReduce: binomial tree to rank 0 and back.
class EndpointHostComm final : public HostComm {
 public:
  // `endpoint` must outlive this.
  explicit EndpointHostComm(Endpoint& endpoint) : endpoint_(endpoint) {}

  int rank() const override { return endpoint_.rank(); }
  int size() const override { return endpoint_.size(); }
  absl::Status Barrier() override;
  absl::Status BroadcastBytes(void* data, int64_t bytes, int root) override;
  absl::Status AllGatherBytes(const void* in, absl::Span<const int64_t> counts, void* out) override;
  absl::Status AllReduceSum(absl::Span<int64_t> values) override;
  absl::Status AllReduceMax(absl::Span<int64_t> values) override;

 private:
  template <class Combine>
  absl::Status AllReduce(absl::Span<int64_t> values, const char* operation, Combine combine);

  Endpoint& endpoint_;
};

class EndpointDeviceComm final : public DeviceComm {
 public:
  // `endpoint` must outlive this.
  explicit EndpointDeviceComm(Endpoint& endpoint) : endpoint_(endpoint) {}

  int rank() const override { return endpoint_.rank(); }
  int size() const override { return endpoint_.size(); }
  absl::StatusOr<ExchangeId> StartExchange(const Stream& stream, absl::Span<const Message> sends,
                                           absl::Span<const Message> receives) override;
  absl::Status Poll() override { return endpoint_.Poll(); }
  absl::Status FinishExchange(const Stream& stream, ExchangeId id) override;
  absl::Status Broadcast(const Stream& stream, TensorView view, int root) override;
  absl::Status AllGather(const Stream& stream, TensorView send, TensorView recv) override;
  int64_t bytes_sent() const override { return bytes_sent_; }

 private:
  Endpoint& endpoint_;
  int64_t bytes_sent_ = 0;
};

}  // namespace snapkv::comm
