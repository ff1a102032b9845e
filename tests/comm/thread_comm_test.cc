// SPDX-License-Identifier: Apache-2.0
// thread_comm: the conformance suite, and what happens to late, failing and absent ranks.
#include "comm/thread_comm.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "tests/comm/conformance.h"

namespace snapkv::comm {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

std::vector<Transport> Transports() {
  std::vector<Transport> all;
  for (const int ranks : {1, 2, 3, 5, 8}) {
    all.push_back({absl::StrCat("thread_", ranks, "_ranks"), ranks,
                   [ranks](const RankBody& body) { return RunRanks(ranks, absl::Seconds(60), body); }});
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(Threads, CommConformance, ::testing::ValuesIn(Transports()),
                         [](const auto& info) { return info.param.name; });

constexpr absl::Duration kShort = absl::Milliseconds(200);
constexpr absl::Duration kLong = absl::Seconds(60);

void Sleep(absl::Duration d) { std::this_thread::sleep_for(absl::ToChronoNanoseconds(d)); }

// Every blocking operation, called by all ranks.
struct Operation {
  const char* name;
  std::function<absl::Status(HostComm&, DeviceComm&)> call;
};
std::vector<Operation> Operations() {
  return {
      {"Barrier", [](HostComm& host, DeviceComm&) { return host.Barrier(); }},
      {"Broadcast",
       [](HostComm& host, DeviceComm&) {
         int64_t value = 1;
         return host.Broadcast(value,
                               1);  // from the late rank: a root that does not wait would notice nobody
       }},
      {"AllGather", [](HostComm& host, DeviceComm&) { return host.AllGather(1).status(); }},
      {"AllReduceSum",
       [](HostComm& host, DeviceComm&) {
         int64_t value = 1;
         return host.AllReduceSum(absl::MakeSpan(&value, 1));
       }},
      {"AllReduceMax",
       [](HostComm& host, DeviceComm&) {
         int64_t value = 1;
         return host.AllReduceMax(absl::MakeSpan(&value, 1));
       }},
      {"FinishExchange",
       [](HostComm&, DeviceComm& device) -> absl::Status {
         std::vector<uint8_t> in(10), out(10);
         const int n = device.size();
         ASSIGN_OR_RETURN(const ExchangeId id,
                          device.StartSendRecv({}, BytesView(in), (device.rank() + 1) % n, BytesView(out),
                                               (device.rank() + n - 1) % n));
         return device.FinishExchange({}, id);
       }},
      {"Broadcast",
       [](HostComm&, DeviceComm& device) {
         std::vector<uint8_t> data(10);
         return device.Broadcast({}, BytesView(data), 1);
       }},
      {"AllGather",
       [](HostComm&, DeviceComm& device) {
         std::vector<uint8_t> in(3), out(3 * static_cast<size_t>(device.size()));
         return device.AllGather({}, BytesView(in),
                                 TensorView::Of(out.data(), DType::kU8, Device::kCpu, device.size(), 3));
       }},
  };
}

// Rank 1 arrives long after the deadline: all get the same error, which names it, and so does rank 1 itself.
TEST(ThreadCommFaults, LateRankIsNamedInEveryOperation) {
  for (const Operation& operation : Operations()) {
    std::vector<absl::Status> seen(4);
    const absl::Status all = RunRanks(4, kShort, [&](HostComm& host, DeviceComm& device) {
      if (host.rank() == 1) Sleep(4 * kShort);
      absl::Status status = operation.call(host, device);
      if (status.ok()) status = host.Barrier();  // a rank that needed nothing from rank 1 notices it here
      return seen[static_cast<size_t>(host.rank())] = status;
    });
    for (const absl::Status& status : seen) {
      EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << operation.name << ": " << status;
      EXPECT_THAT(std::string(status.message()),
                  HasSubstr("rank 1 did not respond for 0.2 s (--comm-timeout)"))
          << operation.name;
    }
    EXPECT_EQ(all, seen[0]);
  }
}

// A late rank within the deadline is no error.
TEST(ThreadCommFaults, SlowRankIsWaitedFor) {
  for (const Operation& operation : Operations()) {
    const absl::Status all = RunRanks(3, kLong, [&](HostComm& host, DeviceComm& device) {
      if (host.rank() == 1) Sleep(absl::Milliseconds(30));
      return operation.call(host, device);
    });
    EXPECT_TRUE(all.ok()) << operation.name << ": " << all;
  }
}

TEST(ThreadCommFaults, RankThatReturnsEarlyEndsTheWaitsAtOnce) {
  for (const Operation& operation : Operations()) {
    const auto start = std::chrono::steady_clock::now();
    const absl::Status all = RunRanks(4, kLong, [&](HostComm& host, DeviceComm& device) -> absl::Status {
      if (host.rank() == 1) return absl::OkStatus();
      RETURN_IF_ERROR(operation.call(host, device));
      return host.Barrier();
    });
    EXPECT_THAT(std::string(all.message()), HasSubstr("rank 1 has returned")) << operation.name;
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20)) << operation.name;
  }
}

TEST(ThreadCommFaults, ErrorOfOneRankIsEverybodysError) {
  for (const Operation& operation : Operations()) {
    std::vector<absl::Status> seen(4);
    const absl::Status all = RunRanks(4, kLong, [&](HostComm& host, DeviceComm& device) -> absl::Status {
      if (host.rank() == 1) return NotFound("weights.gguf");
      absl::Status status = operation.call(host, device);
      if (status.ok()) status = host.Barrier();
      return seen[static_cast<size_t>(host.rank())] = status;
    });
    EXPECT_EQ(all, NotFound("rank 1: weights.gguf")) << operation.name;
    for (const int r : {0, 2, 3}) {
      EXPECT_EQ(seen[static_cast<size_t>(r)], all) << operation.name << " on rank " << r;
    }
  }
}

// Rank 3 waits for 2, 2 for 1, 1 for 0, and 0 is busy: it is rank 0 that must be named, not a neighbour.
TEST(ThreadCommFaults, EndOfAChainIsNamed) {
  const absl::Status all = RunRanks(4, kShort, [&](HostComm& host, DeviceComm& device) -> absl::Status {
    std::vector<uint8_t> data(1);
    if (host.rank() == 0) {
      Sleep(4 * kShort);
      return absl::OkStatus();
    }
    ASSIGN_OR_RETURN(const ExchangeId id, device.StartExchange({}, {}, {{BytesView(data), host.rank() - 1}}));
    return device.FinishExchange({}, id);
  });
  EXPECT_THAT(std::string(all.message()),
              AllOf(HasSubstr("rank 0 did not respond"), Not(HasSubstr("rank 2 did"))));
}

TEST(ThreadCommFaults, RanksThatWaitForEachOtherAreADeadlock) {
  const absl::Status all = RunRanks(2, kShort, [&](HostComm& host, DeviceComm& device) -> absl::Status {
    if (host.rank() == 0) return host.Barrier();
    std::vector<uint8_t> data(1);
    ASSIGN_OR_RETURN(const ExchangeId id, device.StartExchange({}, {}, {{BytesView(data), 0}}));
    return device.FinishExchange({}, id);
  });
  EXPECT_EQ(all.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(all.message()),
              AllOf(HasSubstr("deadlock"), HasSubstr("rank 0 waits for rank 1 in Barrier"),
                    HasSubstr("rank 1 waits for rank 0 in FinishExchange")));
}

TEST(ThreadCommFaults, SizesThatDisagreeNameBothRanks) {
  const absl::Status all = RunRanks(2, kLong, [&](HostComm& host, DeviceComm& device) -> absl::Status {
    std::vector<uint8_t> data(host.rank() == 0 ? 10 : 12);
    const Message message{BytesView(data), 1 - host.rank()};
    ASSIGN_OR_RETURN(const ExchangeId id, host.rank() == 0 ? device.StartExchange({}, {message}, {})
                                                           : device.StartExchange({}, {}, {message}));
    return device.FinishExchange({}, id);
  });
  EXPECT_THAT(std::string(all.message()), HasSubstr("rank 0 sent 10 bytes where rank 1 receives 12"));
}

TEST(ThreadCommFaults, ModifiedSendBufferIsFound) {
  const absl::Status all = RunRanks(2, kLong, [&](HostComm& host, DeviceComm& device) -> absl::Status {
    std::vector<uint8_t> data(10);
    const Message message{BytesView(data), 1 - host.rank()};
    ASSIGN_OR_RETURN(const ExchangeId id, host.rank() == 0 ? device.StartExchange({}, {message}, {})
                                                           : device.StartExchange({}, {}, {message}));
    if (host.rank() == 0) data[3] = 1;
    return device.FinishExchange({}, id);
  });
  EXPECT_THAT(std::string(all.message()),
              HasSubstr("rank 0 modified a buffer of 10 bytes before its send to rank 1"));
}

// A send is not finished before the receiver has taken it, whatever its size.
TEST(ThreadCommFaults, SendsAreNotBuffered) {
  const absl::Status all = RunRanks(2, kShort, [&](HostComm& host, DeviceComm& device) -> absl::Status {
    std::vector<uint8_t> out(1), in(1);
    const int other = 1 - host.rank();
    ASSIGN_OR_RETURN(const ExchangeId send, device.StartExchange({}, {{BytesView(out), other}}, {}));
    RETURN_IF_ERROR(device.FinishExchange({}, send));
    ASSIGN_OR_RETURN(const ExchangeId receive, device.StartExchange({}, {}, {{BytesView(in), other}}));
    return device.FinishExchange({}, receive);
  });
  EXPECT_THAT(std::string(all.message()), HasSubstr("deadlock"));
}

}  // namespace
}  // namespace snapkv::comm
