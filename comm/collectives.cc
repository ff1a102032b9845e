// SPDX-License-Identifier: Apache-2.0
// The message patterns of the collectives, and the argument checks of both interfaces.
#include "comm/collectives.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "absl/container/inlined_vector.h"

namespace snapkv::comm {
namespace {

using Transfers = absl::InlinedVector<Transfer, 8>;

absl::Status Run(Endpoint& endpoint, const Transfers& transfers, const char* operation) {
  ASSIGN_OR_RETURN(const int64_t group, endpoint.Start(transfers));
  return endpoint.Wait(group, operation);
}

absl::Status CheckRank(const Endpoint& endpoint, int peer, const char* operation) {
  if (peer >= 0 && peer < endpoint.size()) return absl::OkStatus();
  return InvalidArgument(operation, ": rank ", peer, " is outside the group of ", endpoint.size());
}

absl::Status CheckView(const TensorView& view, const char* operation) {
  if (!view.contiguous()) {
    return InvalidArgument(operation, ": ", view.ToString(),
                           " is not contiguous; copy it into a buffer first");
  }
  if (view.data == nullptr && view.bytes() > 0) {
    return InvalidArgument(operation, ": ", view.ToString(), " has no data");
  }
  return absl::OkStatus();
}

// Binomial tree, ranks counted from the root: rank v receives from v minus its lowest set bit and then serves
// v plus each lower power of two. Returns the number of ranks sent to.
absl::StatusOr<int> TreeBroadcast(Endpoint& endpoint, void* data, int64_t bytes, int root,
                                  const char* operation) {
  const int size = endpoint.size(), virtual_rank = (endpoint.rank() - root + size) % size;
  const auto real = [&](int v) { return (v + root) % size; };
  int bit = 1;
  while (bit < size && (virtual_rank & bit) == 0) bit <<= 1;
  if (bit < size) {
    RETURN_IF_ERROR(Run(endpoint,
                        {Transfer::Receive(data, bytes, real(virtual_rank - bit), Channel::kCollective)},
                        operation));
  }
  Transfers sends;
  for (bit >>= 1; bit > 0; bit >>= 1) {
    if (virtual_rank + bit >= size) continue;
    sends.push_back(Transfer::Send(data, bytes, real(virtual_rank + bit), Channel::kCollective));
  }
  if (!sends.empty()) RETURN_IF_ERROR(Run(endpoint, sends, operation));
  return static_cast<int>(sends.size());
}

// Everybody's part to everybody; part r of `out` starts where part r - 1 ends.
absl::Status DirectAllGather(Endpoint& endpoint, const void* in, absl::Span<const int64_t> counts, void* out,
                             const char* operation) {
  const int size = endpoint.size(), rank = endpoint.rank();
  const int64_t own = counts[static_cast<size_t>(rank)];
  char* part = static_cast<char*>(out);
  Transfers transfers;
  for (int r = 0; r < size; ++r) {
    const int64_t count = counts[static_cast<size_t>(r)];
    if (r == rank) {
      if (count > 0 && part != in) std::memmove(part, in, static_cast<size_t>(count));
    } else {
      transfers.push_back(Transfer::Receive(part, count, r, Channel::kCollective));
    }
    if (count > 0) part += count;
  }
  // Each rank begins with its next neighbour, so that no rank is everybody's first target.
  for (int step = 1; step < size; ++step) {
    transfers.push_back(Transfer::Send(in, own, (rank + step) % size, Channel::kCollective));
  }
  return Run(endpoint, transfers, operation);
}

}  // namespace

absl::Status EndpointHostComm::Barrier() {
  for (int distance = 1; distance < size(); distance *= 2) {
    const int to = (rank() + distance) % size(), from = (rank() - distance + size()) % size();
    RETURN_IF_ERROR(Run(endpoint_,
                        {Transfer::Receive(nullptr, 0, from, Channel::kCollective),
                         Transfer::Send(nullptr, 0, to, Channel::kCollective)},
                        "Barrier"));
  }
  return absl::OkStatus();
}

absl::Status EndpointHostComm::BroadcastBytes(void* data, int64_t bytes, int root) {
  RETURN_IF_ERROR(CheckRank(endpoint_, root, "Broadcast"));
  if (bytes < 0) return InvalidArgument("Broadcast: ", bytes, " bytes");
  return TreeBroadcast(endpoint_, data, bytes, root, "Broadcast").status();
}

absl::Status EndpointHostComm::AllGatherBytes(const void* in, absl::Span<const int64_t> counts, void* out) {
  if (static_cast<int>(counts.size()) != size() ||
      std::any_of(counts.begin(), counts.end(), [](int64_t n) { return n < 0; })) {
    return InvalidArgument("AllGather: needs one count of zero or more for each of the ", size(), " ranks");
  }
  return DirectAllGather(endpoint_, in, counts, out, "AllGather");
}

template <class Combine>
absl::Status EndpointHostComm::AllReduce(absl::Span<int64_t> values, const char* operation, Combine combine) {
  const int64_t bytes = static_cast<int64_t>(values.size() * sizeof(int64_t));
  std::vector<int64_t> other(values.size());
  for (int bit = 1; bit < size(); bit <<= 1) {
    if ((rank() & bit) != 0) {
      RETURN_IF_ERROR(Run(
          endpoint_, {Transfer::Send(values.data(), bytes, rank() - bit, Channel::kCollective)}, operation));
      break;
    }
    if (rank() + bit >= size()) continue;
    RETURN_IF_ERROR(Run(
        endpoint_, {Transfer::Receive(other.data(), bytes, rank() + bit, Channel::kCollective)}, operation));
    for (size_t i = 0; i < other.size(); ++i) values[i] = combine(values[i], other[i]);
  }
  return TreeBroadcast(endpoint_, values.data(), bytes, 0, operation).status();
}

absl::Status EndpointHostComm::AllReduceSum(absl::Span<int64_t> values) {
  // Unsigned, so that a sum out of range wraps instead of being undefined.
  return AllReduce(values, "AllReduceSum", [](int64_t a, int64_t b) {
    return static_cast<int64_t>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
  });
}

absl::Status EndpointHostComm::AllReduceMax(absl::Span<int64_t> values) {
  return AllReduce(values, "AllReduceMax", [](int64_t a, int64_t b) { return std::max(a, b); });
}

absl::StatusOr<ExchangeId> EndpointDeviceComm::StartExchange(const Stream&, absl::Span<const Message> sends,
                                                             absl::Span<const Message> receives) {
  Transfers transfers;
  int64_t sent = 0;
  // Receives first: an arriving message then finds its buffer.
  for (const Message& m : receives) {
    RETURN_IF_ERROR(CheckRank(endpoint_, m.peer, "StartExchange"));
    RETURN_IF_ERROR(CheckView(m.view, "StartExchange"));
    transfers.push_back(Transfer::Receive(m.view.data, m.view.bytes(), m.peer, Channel::kExchange));
  }
  for (const Message& m : sends) {
    RETURN_IF_ERROR(CheckRank(endpoint_, m.peer, "StartExchange"));
    RETURN_IF_ERROR(CheckView(m.view, "StartExchange"));
    transfers.push_back(Transfer::Send(m.view.data, m.view.bytes(), m.peer, Channel::kExchange));
    if (m.peer != rank()) sent += m.view.bytes();
  }
  ASSIGN_OR_RETURN(const int64_t group, endpoint_.Start(transfers));
  bytes_sent_ += sent;
  return group;
}

absl::Status EndpointDeviceComm::FinishExchange(const Stream&, ExchangeId id) {
  return endpoint_.Wait(id, "FinishExchange");
}

absl::Status EndpointDeviceComm::Broadcast(const Stream&, TensorView view, int root) {
  RETURN_IF_ERROR(CheckRank(endpoint_, root, "Broadcast"));
  RETURN_IF_ERROR(CheckView(view, "Broadcast"));
  ASSIGN_OR_RETURN(const int sends, TreeBroadcast(endpoint_, view.data, view.bytes(), root, "Broadcast"));
  bytes_sent_ += sends * view.bytes();
  return absl::OkStatus();
}

absl::Status EndpointDeviceComm::AllGather(const Stream&, TensorView send, TensorView recv) {
  RETURN_IF_ERROR(CheckView(send, "AllGather"));
  RETURN_IF_ERROR(CheckView(recv, "AllGather"));
  bool same = recv.dtype == send.dtype && recv.rank == send.rank + 1 && recv.dim(0) == size();
  for (int d = 0; same && d < send.rank; ++d) same = recv.dim(d + 1) == send.dim(d);
  if (!same) {
    return InvalidArgument("AllGather: ", recv.ToString(), " cannot receive ", send.ToString(), " from ",
                           size(), " ranks; its shape is [ranks, ...shape sent]");
  }
  const std::vector<int64_t> counts(static_cast<size_t>(size()), send.bytes());
  RETURN_IF_ERROR(DirectAllGather(endpoint_, send.data, counts, recv.data, "AllGather"));
  bytes_sent_ += (size() - 1) * send.bytes();
  return absl::OkStatus();
}

}  // namespace snapkv::comm
