// SPDX-License-Identifier: Apache-2.0
// DeviceComm: tensors between ranks. One grouped point-to-point exchange that overlaps with compute, and
// collectives.
#pragma once

#include <cstdint>

#include "absl/types/span.h"
#include "kernels/base/device.h"
#include "kernels/base/status.h"
#include "kernels/base/tensor_view.h"

namespace snapkv::comm {

// One side of a transfer: a contiguous view of any dtype and the peer rank. Empty views are legal and still
// count as a message. Both sides of a message agree on its bytes.
struct Message {
  TensorView view;
  int peer;
};

// Identifies an exchange that was started and not yet finished.
using ExchangeId = int64_t;

// One rank's end of a fixed group, with the calling and deadline rules of HostComm. Views must stay valid,
// sends unmodified and receives untouched until the exchange is finished. A rank may send to itself.
class DeviceComm {
 public:
  virtual ~DeviceComm() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;

  // Starts one group of sends and receives (a ring step is one of each). Messages between the same two ranks
  // match in the order they were started. Several exchanges may be open; they may be finished in any order.
  virtual absl::StatusOr<ExchangeId> StartExchange(const Stream& stream, absl::Span<const Message> sends,
                                                   absl::Span<const Message> receives) = 0;
  // Moves open exchanges forward without blocking. Call it between blocks of compute, or nothing overlaps.
  virtual absl::Status Poll() = 0;
  // Waits until all messages of `id` have arrived and left.
  virtual absl::Status FinishExchange(const Stream& stream, ExchangeId id) = 0;

  // Root's view to the same-shaped views of everybody.
  virtual absl::Status Broadcast(const Stream& stream, TensorView view, int root) = 0;
  // recv is [size, ...send.shape], in rank order.
  virtual absl::Status AllGather(const Stream& stream, TensorView send, TensorView recv) = 0;

  // Bytes this rank has sent so far, by any of the above, messages to itself not counted.
  virtual int64_t bytes_sent() const = 0;

  // The ring step: send to one neighbour, receive from the other.
  absl::StatusOr<ExchangeId> StartSendRecv(const Stream& stream, TensorView send, int to, TensorView recv,
                                           int from) {
    const Message s{send, to}, r{recv, from};
    return StartExchange(stream, absl::MakeConstSpan(&s, 1), absl::MakeConstSpan(&r, 1));
  }
};

}  // namespace snapkv::comm
