// SPDX-License-Identifier: Apache-2.0
// The conformance suite of every transport: what HostComm and DeviceComm promise, with data whose result is
// exact. A transport's test file instantiates CommConformance with its Transports; test bodies run on every
// rank and return the first mismatch as a Status.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "comm/device_comm.h"
#include "comm/host_comm.h"

namespace snapkv::comm {

using RankBody = std::function<absl::Status(HostComm&, DeviceComm&)>;

struct Transport {
  std::string name;
  int ranks;
  // Runs the body on every rank; the error of any rank is returned on every rank.
  std::function<absl::Status(const RankBody&)> run;
};

inline void PrintTo(const Transport& t, std::ostream* os) { *os << t.name; }

inline constexpr DType kAllTypes[] = {DType::kF32,  DType::kF64,  DType::kF16,  DType::kBF16, DType::kI32,
                                      DType::kI64,  DType::kU8,   DType::kQ4_0, DType::kQ4_1, DType::kQ5_0,
                                      DType::kQ5_1, DType::kQ8_0, DType::kQ2_K, DType::kQ3_K, DType::kQ4_K,
                                      DType::kQ5_K, DType::kQ6_K};

// A byte that differs between senders, receivers, messages and places.
inline uint8_t Pattern(int64_t from, int64_t to, int64_t message, int64_t i) {
  uint64_t x =
      static_cast<uint64_t>(from) * 0x9e3779b97f4a7c15u ^ static_cast<uint64_t>(to) * 0xc2b2ae3d27d4eb4fu ^
      static_cast<uint64_t>(message) * 0x165667b19e3779f9u ^ static_cast<uint64_t>(i) * 0xd6e8feb86659fd93u;
  x ^= x >> 32;
  x *= 0xd6e8feb86659fd93u;
  return static_cast<uint8_t>(x >> 56);
}
inline std::vector<uint8_t> Patterned(int64_t from, int64_t to, int64_t message, int64_t bytes) {
  std::vector<uint8_t> data(static_cast<size_t>(bytes));
  for (int64_t i = 0; i < bytes; ++i) data[static_cast<size_t>(i)] = Pattern(from, to, message, i);
  return data;
}
inline TensorView BytesView(std::vector<uint8_t>& data) {
  return TensorView::Of(data.data(), DType::kU8, Device::kCpu, data.size());
}

// OK, or where the two first differ.
template <class T>
absl::Status ExpectSame(const std::string& what, const std::vector<T>& got, const std::vector<T>& want) {
  if (got.size() != want.size()) return Internal(what, ": ", got.size(), " values instead of ", want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    if (got[i] != want[i]) return Internal(what, ": [", i, "] is ", got[i], " instead of ", want[i]);
  }
  return absl::OkStatus();
}
inline absl::Status ExpectPattern(const std::string& what, const std::vector<uint8_t>& got, int64_t from,
                                  int64_t to, int64_t message) {
  return ExpectSame(what, got, Patterned(from, to, message, static_cast<int64_t>(got.size())));
}
inline absl::Status ExpectCode(const absl::Status& status, absl::StatusCode code) {
  if (status.code() == code) return absl::OkStatus();
  return Internal("expected ", absl::StatusCodeToString(code), ", got ", status.ToString());
}

class CommConformance : public ::testing::TestWithParam<Transport> {
 protected:
  void Run(const RankBody& body) {
    const absl::Status status = GetParam().run(body);
    EXPECT_TRUE(status.ok()) << status;
  }
  Stream stream_;
};

TEST_P(CommConformance, GroupIsAsRequested) {
  Run([&](HostComm& host, DeviceComm& device) -> absl::Status {
    if (host.size() != GetParam().ranks || device.size() != host.size())
      return Internal("size is ", host.size());
    if (device.rank() != host.rank()) return Internal("host and device disagree about the rank");
    ASSIGN_OR_RETURN(const std::vector<int> ranks, host.AllGather(host.rank()));
    std::vector<int> want(ranks.size());
    std::iota(want.begin(), want.end(), 0);
    return ExpectSame("ranks", ranks, want);
  });
}

// No rank may leave barrier n before every rank has entered it: everybody's count, sent after it, is at least
// n.
TEST_P(CommConformance, BarriersAndCollectives100Times) {
  Run([](HostComm& host, DeviceComm&) -> absl::Status {
    const int n = host.size();
    for (int64_t round = 0; round < 100; ++round) {
      RETURN_IF_ERROR(host.Barrier());
      std::vector<int64_t> sum = {host.rank() + round, -1, int64_t{1} << 40};
      std::vector<int64_t> max = {host.rank() * 10 - round, -host.rank() - 1, INT64_MIN};
      RETURN_IF_ERROR(host.AllReduceSum(absl::MakeSpan(sum)));
      RETURN_IF_ERROR(host.AllReduceMax(absl::MakeSpan(max)));
      RETURN_IF_ERROR(ExpectSame("sum", sum, {n * (n - 1) / 2 + n * round, -n, n * (int64_t{1} << 40)}));
      RETURN_IF_ERROR(ExpectSame("max", max, {(n - 1) * 10 - round, -1, INT64_MIN}));
      const int root = static_cast<int>(round % n);
      int64_t value = host.rank() * 1000 + round;
      RETURN_IF_ERROR(host.Broadcast(value, root));
      if (value != root * 1000 + round) return Internal("round ", round, ": broadcast gave ", value);
    }
    return absl::OkStatus();
  });
}

TEST_P(CommConformance, ReductionsOfManyValuesAndOfNone) {
  Run([](HostComm& host, DeviceComm&) -> absl::Status {
    const int n = host.size();
    std::vector<int64_t> none, sum(5001), max(5001), want_sum(5001), want_max(5001);
    RETURN_IF_ERROR(host.AllReduceSum(absl::MakeSpan(none)));
    RETURN_IF_ERROR(host.AllReduceMax(absl::MakeSpan(none)));
    for (int64_t i = 0; i < 5001; ++i) {
      const size_t at = static_cast<size_t>(i);
      sum[at] = i * (host.rank() + 1) - 7;
      max[at] = (i + host.rank()) % n - n;
      want_sum[at] = i * n * (n + 1) / 2 - 7 * n;
      want_max[at] = -1;
    }
    RETURN_IF_ERROR(host.AllReduceSum(absl::MakeSpan(sum)));
    RETURN_IF_ERROR(host.AllReduceMax(absl::MakeSpan(max)));
    RETURN_IF_ERROR(ExpectSame("sum", sum, want_sum));
    return ExpectSame("max", max, want_max);
  });
}

TEST_P(CommConformance, BroadcastsFromEachRoot) {
  Run([this](HostComm& host, DeviceComm& device) -> absl::Status {
    for (int root = 0; root < host.size(); ++root) {
      const bool mine = host.rank() == root;
      std::string text = mine ? std::string(static_cast<size_t>(root) * 3000, 'a') + "end" : "other";
      RETURN_IF_ERROR(host.BroadcastString(text, root));
      if (text != std::string(static_cast<size_t>(root) * 3000, 'a') + "end")
        return Internal("wrong string from ", root);
      std::string empty = mine ? "" : "other";
      RETURN_IF_ERROR(host.BroadcastString(empty, root));
      if (!empty.empty()) return Internal("expected an empty string, got ", empty);
      std::vector<double> values(mine ? 17 : 3, host.rank());
      RETURN_IF_ERROR(host.BroadcastVector(values, root));
      RETURN_IF_ERROR(ExpectSame("vector", values, std::vector<double>(17, root)));
      for (const int64_t bytes : {0, 1, 999, 1000, 1001, 30011}) {
        std::vector<uint8_t> data(static_cast<size_t>(bytes));
        if (mine) data = Patterned(root, -1, bytes, bytes);
        RETURN_IF_ERROR(device.Broadcast(stream_, BytesView(data), root));
        RETURN_IF_ERROR(ExpectPattern(absl::StrCat("broadcast of ", bytes), data, root, -1, bytes));
      }
    }
    return absl::OkStatus();
  });
}

TEST_P(CommConformance, AllGatherOfUnevenParts) {
  Run([](HostComm& host, DeviceComm&) -> absl::Status {
    // Rank r brings a vector of r * r values: rank 0 brings nothing.
    const int64_t mine = int64_t{host.rank()} * host.rank();
    std::vector<int64_t> lengths, want, want_lengths;
    ASSIGN_OR_RETURN(
        const std::vector<int64_t> all,
        host.AllGatherVector(std::vector<int64_t>(static_cast<size_t>(mine), host.rank()), &lengths));
    for (int64_t r = 0; r < host.size(); ++r) {
      want.insert(want.end(), static_cast<size_t>(r * r), r);
      want_lengths.push_back(r * r);
    }
    RETURN_IF_ERROR(ExpectSame("values", all, want));
    RETURN_IF_ERROR(ExpectSame("lengths", lengths, want_lengths));
    ASSIGN_OR_RETURN(const std::vector<char> nothing, host.AllGatherVector(std::vector<char>{}));
    return nothing.empty() ? absl::OkStatus() : Internal("gathered something from nothing");
  });
}

TEST_P(CommConformance, AllGatherInPlace) {
  Run([](HostComm& host, DeviceComm&) -> absl::Status {
    const std::vector<int64_t> counts(static_cast<size_t>(host.size()), 8);
    std::vector<int64_t> all(counts.size(), -1), want(counts.size());
    for (size_t r = 0; r < want.size(); ++r) want[r] = static_cast<int64_t>(r * r);
    int64_t& mine = all[static_cast<size_t>(host.rank())];
    mine = int64_t{host.rank()} * host.rank();
    RETURN_IF_ERROR(host.AllGatherBytes(&mine, counts, all.data()));
    return ExpectSame("in place", all, want);
  });
}

TEST_P(CommConformance, DeviceAllGatherOfEveryType) {
  Run([this](HostComm&, DeviceComm& device) -> absl::Status {
    const int n = device.size();
    for (const DType type : kAllTypes) {
      for (const int64_t rows : {0, 1, 5}) {
        const int64_t cols = 2 * BlockElements(type);
        TensorView send = TensorView::Of(nullptr, type, Device::kCpu, rows, cols);
        TensorView recv = TensorView::Of(nullptr, type, Device::kCpu, n, rows, cols);
        std::vector<uint8_t> in = Patterned(device.rank(), -1, rows, send.bytes());
        std::vector<uint8_t> out(static_cast<size_t>(recv.bytes()) + 1, 0xee), want;
        for (int r = 0; r < n; ++r) {
          const std::vector<uint8_t> part = Patterned(r, -1, rows, send.bytes());
          want.insert(want.end(), part.begin(), part.end());
        }
        want.push_back(0xee);  // one byte behind the buffer stays
        send.data = in.data();
        recv.data = out.data();
        RETURN_IF_ERROR(device.AllGather(stream_, send, recv));
        RETURN_IF_ERROR(ExpectSame(DTypeName(type), out, want));
      }
    }
    return absl::OkStatus();
  });
}

TEST_P(CommConformance, AgreeOnTheFirstRanksError) {
  Run([](HostComm& host, DeviceComm&) -> absl::Status {
    RETURN_IF_ERROR(host.Agree(absl::OkStatus()));
    for (int bad = 0; bad < host.size(); ++bad) {
      const bool fails = host.rank() == bad || host.rank() == host.size() - 1;
      const absl::Status mine = fails ? NotFound("file of rank ", host.rank()) : absl::OkStatus();
      const absl::Status all = host.Agree(mine);
      const std::string prefix = bad == 0 ? "" : absl::StrCat("rank ", bad, ": ");
      if (all != NotFound(prefix, "file of rank ", bad)) return Internal("agreed on ", all.ToString());
    }
    return host.Agree(absl::OkStatus());
  });
}

TEST_P(CommConformance, ExchangeOfEveryTypeWithEveryRank) {
  Run([this](HostComm&, DeviceComm& device) -> absl::Status {
    for (const DType type : kAllTypes) {
      for (const int64_t rows : {0, 1, 3}) {
        const TensorView shape = TensorView::Of(nullptr, type, Device::kCpu, rows, BlockElements(type));
        std::vector<std::vector<uint8_t>> in, out;
        std::vector<Message> sends, receives;
        for (int peer = 0; peer < device.size(); ++peer) {  // the rank itself included
          in.push_back(Patterned(device.rank(), peer, rows, shape.bytes()));
          out.emplace_back(static_cast<size_t>(shape.bytes()));
          sends.push_back({shape, peer});
          sends.back().view.data = in.back().data();
          receives.push_back({shape, peer});
          receives.back().view.data = out.back().data();
        }
        ASSIGN_OR_RETURN(const ExchangeId id, device.StartExchange(stream_, sends, receives));
        RETURN_IF_ERROR(device.FinishExchange(stream_, id));
        for (int peer = 0; peer < device.size(); ++peer) {
          RETURN_IF_ERROR(ExpectPattern(absl::StrCat(DTypeName(type), " from ", peer),
                                        out[static_cast<size_t>(peer)], peer, device.rank(), rows));
        }
      }
    }
    return absl::OkStatus();
  });
}

TEST_P(CommConformance, ExchangeOfNothingAndWithNobody) {
  Run([this](HostComm& host, DeviceComm& device) -> absl::Status {
    ASSIGN_OR_RETURN(const ExchangeId id, device.StartExchange(stream_, {}, {}));
    RETURN_IF_ERROR(device.FinishExchange(stream_, id));
    RETURN_IF_ERROR(ExpectCode(device.FinishExchange(stream_, id), absl::StatusCode::kFailedPrecondition));
    return host.Barrier();
  });
}

// Bad arguments are refused before anything is sent, so the group stays usable.
TEST_P(CommConformance, BadArgumentsAreRefused) {
  Run([this](HostComm& host, DeviceComm& device) -> absl::Status {
    constexpr absl::StatusCode kBad = absl::StatusCode::kInvalidArgument;
    std::vector<uint8_t> data(12);
    const TensorView view = BytesView(data);
    const TensorView grid = TensorView::Of(data.data(), DType::kU8, Device::kCpu, 3, 4);
    const TensorView no_data = TensorView::Of(nullptr, DType::kU8, Device::kCpu, 3);
    for (const Message& m : {Message{view, -1}, Message{view, device.size()},
                             Message{grid.Transposed(0, 1), 0}, Message{no_data, 0}}) {
      RETURN_IF_ERROR(ExpectCode(device.StartExchange(stream_, {m}, {}).status(), kBad));
      RETURN_IF_ERROR(ExpectCode(device.StartExchange(stream_, {}, {m}).status(), kBad));
    }
    RETURN_IF_ERROR(ExpectCode(device.Broadcast(stream_, view, device.size()), kBad));
    RETURN_IF_ERROR(ExpectCode(device.AllGather(stream_, view, view), kBad));
    RETURN_IF_ERROR(ExpectCode(host.BroadcastBytes(data.data(), 1, -1), kBad));
    RETURN_IF_ERROR(
        ExpectCode(host.AllGatherBytes(data.data(), std::vector<int64_t>(9, 0), data.data()), kBad));
    return host.Barrier();
  });
}

// Fifteen exchanges with each neighbour, started in one order and finished in another; each pair's messages,
// of different sizes, arrive in the order they were started.
TEST_P(CommConformance, ManyOpenExchangesFinishInAnyOrder) {
  Run([this](HostComm&, DeviceComm& device) -> absl::Status {
    constexpr int kOpen = 15;
    const int n = device.size(), to = (device.rank() + 1) % n, from = (device.rank() + n - 1) % n;
    std::vector<std::vector<uint8_t>> in, out;
    std::vector<ExchangeId> ids;
    for (int m = 0; m < kOpen; ++m) {
      const int64_t bytes = (m * 977) % 5000;
      in.push_back(Patterned(device.rank(), to, m, bytes));
      out.emplace_back(static_cast<size_t>(bytes));
      ASSIGN_OR_RETURN(const ExchangeId id,
                       device.StartSendRecv(stream_, BytesView(in.back()), to, BytesView(out.back()), from));
      ids.push_back(id);
      RETURN_IF_ERROR(device.Poll());
    }
    for (int i = 0; i < kOpen; ++i) {
      const int m = (i * 7 + 3 + device.rank()) % kOpen;  // a permutation, another one on each rank
      RETURN_IF_ERROR(device.FinishExchange(stream_, ids[static_cast<size_t>(m)]));
      RETURN_IF_ERROR(
          ExpectPattern(absl::StrCat("message ", m), out[static_cast<size_t>(m)], from, device.rank(), m));
    }
    return absl::OkStatus();
  });
}

TEST_P(CommConformance, SeveralMessagesOfOneExchangeToOnePeerKeepTheirOrder) {
  Run([this](HostComm&, DeviceComm& device) -> absl::Status {
    const int n = device.size(), to = (device.rank() + 1) % n, from = (device.rank() + n - 1) % n;
    std::vector<std::vector<uint8_t>> in, out;
    std::vector<Message> sends, receives;
    for (int m = 0; m < 6; ++m) {
      in.push_back(Patterned(device.rank(), to, m, 1500));
      out.emplace_back(1500);
    }
    for (size_t m = 0; m < 6; ++m) {
      sends.push_back({BytesView(in[m]), to});
      receives.push_back({BytesView(out[m]), from});
    }
    ASSIGN_OR_RETURN(const ExchangeId id, device.StartExchange(stream_, sends, receives));
    RETURN_IF_ERROR(device.FinishExchange(stream_, id));
    for (size_t m = 0; m < 6; ++m) {
      RETURN_IF_ERROR(
          ExpectPattern(absl::StrCat("message ", m), out[m], from, device.rank(), static_cast<int64_t>(m)));
    }
    return absl::OkStatus();
  });
}

// Collectives between the start and the end of an exchange match their own kind only.
TEST_P(CommConformance, CollectivesPassOpenExchanges) {
  Run([this](HostComm& host, DeviceComm& device) -> absl::Status {
    const int n = device.size(), to = (device.rank() + 1) % n, from = (device.rank() + n - 1) % n;
    std::vector<uint8_t> in = Patterned(device.rank(), to, 0, 70000), out(70000);
    ExchangeId id = 0;
    const auto start = [&]() -> absl::Status {
      ASSIGN_OR_RETURN(id, device.StartSendRecv(stream_, BytesView(in), to, BytesView(out), from));
      return absl::OkStatus();
    };
    // Odd ranks start the exchange after the collectives, even ones before.
    if (host.rank() % 2 == 0) RETURN_IF_ERROR(start());
    RETURN_IF_ERROR(host.Barrier());
    int64_t value = host.rank() == 0 ? 42 : 0;
    RETURN_IF_ERROR(host.Broadcast(value, 0));
    if (host.rank() % 2 != 0) RETURN_IF_ERROR(start());
    RETURN_IF_ERROR(device.FinishExchange(stream_, id));
    if (value != 42) return Internal("broadcast gave ", value);
    return ExpectPattern("exchange", out, from, device.rank(), 0);
  });
}

TEST_P(CommConformance, BigMessages) {
  Run([this](HostComm&, DeviceComm& device) -> absl::Status {
    const int n = device.size(), to = (device.rank() + 1) % n, from = (device.rank() + n - 1) % n;
    for (const int64_t bytes : {4095, 4096, 4097, 65536, (1 << 20) + 13}) {
      std::vector<uint8_t> in = Patterned(device.rank(), to, bytes, bytes), out(static_cast<size_t>(bytes));
      ASSIGN_OR_RETURN(const ExchangeId id,
                       device.StartSendRecv(stream_, BytesView(in), to, BytesView(out), from));
      RETURN_IF_ERROR(device.FinishExchange(stream_, id));
      RETURN_IF_ERROR(ExpectPattern(absl::StrCat(bytes, " bytes"), out, from, device.rank(), bytes));
    }
    return absl::OkStatus();
  });
}

// The engine's ring: N - 1 hops, own block first, two receive buffers, the next hop started before the
// current block is used. Every rank must see every block once, in ring order, 100 times.
TEST_P(CommConformance, RingWithTwoReceiveBuffers100Times) {
  Run([this](HostComm&, DeviceComm& device) -> absl::Status {
    const int n = device.size(), rank = device.rank(), to = (rank + 1) % n, from = (rank + n - 1) % n;
    for (int round = 0; round < 100; ++round) {
      const int64_t bytes = round % 10 == 9 ? 20000 : round;  // empty blocks in round 0
      std::vector<uint8_t> own = Patterned(rank, -1, round, bytes);
      std::vector<std::vector<uint8_t>> buffers(2, std::vector<uint8_t>(static_cast<size_t>(bytes)));
      std::vector<uint8_t>* current = &own;
      for (int hop = 0; hop < n; ++hop) {
        std::vector<uint8_t>* next = &buffers[static_cast<size_t>(hop % 2)];
        ExchangeId id = 0;
        if (hop < n - 1) {
          ASSIGN_OR_RETURN(id,
                           device.StartSendRecv(stream_, BytesView(*current), to, BytesView(*next), from));
        }
        const int owner = (rank - hop + n) % n;
        RETURN_IF_ERROR(
            ExpectPattern(absl::StrCat("round ", round, " hop ", hop), *current, owner, -1, round));
        RETURN_IF_ERROR(device.Poll());
        if (hop < n - 1) RETURN_IF_ERROR(device.FinishExchange(stream_, id));
        current = next;
      }
    }
    return absl::OkStatus();
  });
}

TEST_P(CommConformance, BytesSentAreExact) {
  Run([this](HostComm& host, DeviceComm& device) -> absl::Status {
    const int n = device.size(), to = (device.rank() + 1) % n, from = (device.rank() + n - 1) % n;
    std::vector<uint8_t> in(3001), out(3001), all(3001 * static_cast<size_t>(n));
    int64_t before = device.bytes_sent();
    ASSIGN_OR_RETURN(const ExchangeId ring,
                     device.StartSendRecv(stream_, BytesView(in), to, BytesView(out), from));
    RETURN_IF_ERROR(device.FinishExchange(stream_, ring));
    const int64_t ring_bytes = device.bytes_sent() - before;
    if (ring_bytes != (n > 1 ? 3001 : 0)) return Internal("a ring step of 3001 bytes counted ", ring_bytes);
    before = device.bytes_sent();
    ASSIGN_OR_RETURN(const ExchangeId self,
                     device.StartSendRecv(stream_, BytesView(in), host.rank(), BytesView(out), host.rank()));
    RETURN_IF_ERROR(device.FinishExchange(stream_, self));
    RETURN_IF_ERROR(host.Barrier());  // metadata is not counted
    if (device.bytes_sent() != before) return Internal("a message to itself was counted");
    RETURN_IF_ERROR(device.AllGather(stream_, BytesView(in),
                                     TensorView::Of(all.data(), DType::kU8, Device::kCpu, n, 3001)));
    if (device.bytes_sent() - before != 3001 * (n - 1)) {
      return Internal("AllGather counted ", device.bytes_sent() - before);
    }
    before = device.bytes_sent();
    RETURN_IF_ERROR(device.Broadcast(stream_, BytesView(in), n - 1));
    std::vector<int64_t> sum = {device.bytes_sent() - before};
    RETURN_IF_ERROR(host.AllReduceSum(absl::MakeSpan(sum)));
    // Which rank forwards is the transport's choice; all together send each receiver its copy.
    return sum[0] == 3001 * (n - 1) ? absl::OkStatus()
                                    : Internal("Broadcast counted ", sum[0], " over all ranks");
  });
}

}  // namespace snapkv::comm
