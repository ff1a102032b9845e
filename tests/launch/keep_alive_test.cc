// SPDX-License-Identifier: Apache-2.0
// RunKeepingAlive on virtual ranks: work longer than the time-out, on one rank or all, and a rank that is
// lost.
#include "launch/keep_alive.h"

#include <atomic>
#include <chrono>
#include <thread>

#include "comm/thread_comm.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace snapkv::launch {
namespace {

using std::chrono::milliseconds;

constexpr absl::Duration kTimeout = absl::Seconds(1);

TEST(RunKeepingAlive, WorkOfOneRankLongerThanTheTimeout) {
  for (const int worker : {0, 2}) {
    std::atomic<int> calls{0}, seen{0};
    const absl::Status status =
        comm::RunRanks(3, kTimeout, [&](comm::HostComm& host, comm::DeviceComm&) -> absl::Status {
          const auto work = [&] {
            std::this_thread::sleep_for(milliseconds(3000));
            ++calls;
          };
          RETURN_IF_ERROR(
              RunKeepingAlive(host, kTimeout, host.rank() == worker ? work : std::function<void()>()));
          seen += calls;  // nobody returns before the work is done
          return host.Barrier();
        });
    EXPECT_TRUE(status.ok()) << status;
    EXPECT_EQ(calls, 1);
    EXPECT_EQ(seen, 3);
  }
}

TEST(RunKeepingAlive, WorkOfAllRanksOfDifferentLengths) {
  std::atomic<int> calls{0};
  const absl::Status status =
      comm::RunRanks(4, kTimeout, [&](comm::HostComm& host, comm::DeviceComm&) -> absl::Status {
        return RunKeepingAlive(host, kTimeout, [&] {
          std::this_thread::sleep_for(milliseconds(700 * host.rank()));
          ++calls;
        });
      });
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(calls, 4);
}

TEST(RunKeepingAlive, NobodyHasWork) {
  const absl::Status status = comm::RunRanks(2, kTimeout, [&](comm::HostComm& host, comm::DeviceComm&) {
    return RunKeepingAlive(host, kTimeout, nullptr);
  });
  EXPECT_TRUE(status.ok()) << status;
}

TEST(RunKeepingAlive, OneRankNeedsNoThread) {
  std::thread::id caller, worker;
  const absl::Status status = comm::RunRanks(1, kTimeout, [&](comm::HostComm& host, comm::DeviceComm&) {
    caller = std::this_thread::get_id();
    return RunKeepingAlive(host, kTimeout, [&] { worker = std::this_thread::get_id(); });
  });
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(worker, caller);
}

TEST(RunKeepingAlive, LostRankIsNoticedWhileOthersWork) {
  const auto start = std::chrono::steady_clock::now();
  auto release = std::make_shared<std::atomic<bool>>(false);
  const absl::Status status =
      comm::RunRanks(3, kTimeout, [&](comm::HostComm& host, comm::DeviceComm&) -> absl::Status {
        if (host.rank() == 1) {
          std::this_thread::sleep_for(milliseconds(4000));  // never takes part
          return absl::OkStatus();
        }
        return RunKeepingAlive(host, kTimeout, [release] {
          while (!*release) std::this_thread::sleep_for(milliseconds(10));
        });
      });
  *release = true;
  EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
  EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr("rank 1"));
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(6));
}

}  // namespace
}  // namespace snapkv::launch
