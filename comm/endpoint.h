// SPDX-License-Identifier: Apache-2.0
// Endpoint: what a transport has to provide, point-to-point messages between host buffers. HostComm and
// DeviceComm are built on it once for all transports (collectives.h).
#pragma once

#include <cstdint>

#include "absl/types/span.h"
#include "kernels/base/status.h"

namespace snapkv::comm {

// Messages of different channels never match each other.
enum class Channel : int { kExchange, kCollective };
inline constexpr int kChannels = 2;

struct Transfer {
  enum class Direction : int { kSend, kReceive };
  Direction direction;
  void* data;  // null only if bytes is 0; a send only reads it
  int64_t bytes;
  int peer;  // in [0, size); may be the rank itself
  Channel channel;

  static Transfer Send(const void* data, int64_t bytes, int peer, Channel channel) {
    return {Direction::kSend, const_cast<void*>(data), bytes, peer, channel};
  }
  static Transfer Receive(void* data, int64_t bytes, int peer, Channel channel) {
    return {Direction::kReceive, data, bytes, peer, channel};
  }
};

// One rank's end. One thread calls it. Buffers must stay valid, those of sends unmodified, until Wait has
// returned. A send and a receive between the same two ranks on one channel match in the order they were
// started and must agree on the bytes. After an error the endpoint is unusable and every later call returns
// that error; only Wait for an unknown group, FAILED_PRECONDITION, does no harm.
class Endpoint {
 public:
  virtual ~Endpoint() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;

  // Starts a group of transfers and returns its id; never blocks.
  virtual absl::StatusOr<int64_t> Start(absl::Span<const Transfer> transfers) = 0;
  // Moves every open group forward without blocking. Notices a rank that has stopped although this one waits
  // for nobody (transports between processes): every rank polls or waits at least once in a time-out.
  virtual absl::Status Poll() = 0;
  // Waits until every transfer of the group is done, for at most the transport's time-out since the last
  // progress of this group. DEADLINE_EXCEEDED names the rank that is really late; `operation` is named as
  // what this rank waits in.
  virtual absl::Status Wait(int64_t group, const char* operation) = 0;
};

}  // namespace snapkv::comm
