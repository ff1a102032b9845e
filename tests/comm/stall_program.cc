// SPDX-License-Identifier: Apache-2.0
// A job for stall_test.py to disturb: every rank writes its process number to FOLDER/rank.N and then works in MODE until
// the time is up (exit 0) or communication fails (AbortJob).
// Usage: stall_program FOLDER MODE TIMEOUT_S; MODE is ring, collective, compute or exchange.
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <string>
#include <vector>

#include "comm/bootstrap.h"

namespace snapkv::comm {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::seconds kRunTime{60};

void Compute(std::chrono::milliseconds time) {
  const Clock::time_point end = Clock::now() + time;
  while (Clock::now() < end) {
  }
}

TensorView View(std::vector<char>& data) { return TensorView::Of(data.data(), DType::kU8, Device::kCpu, data.size()); }

absl::Status RingStep(DeviceComm& device, std::vector<char>& in, std::vector<char>& out, std::chrono::milliseconds work) {
  const int n = device.size();
  ASSIGN_OR_RETURN(const ExchangeId id, device.StartSendRecv({}, View(in), (device.rank() + 1) % n, View(out),
                                                             (device.rank() + n - 1) % n));
  Compute(work);
  RETURN_IF_ERROR(device.Poll());
  return device.FinishExchange({}, id);
}

absl::Status Work(World& world, const std::string& mode) {
  std::vector<char> in(300000), out(300000);
  const Clock::time_point end = Clock::now() + kRunTime;
  // Rank 0's clock decides for all, or some would leave a step before the others.
  for (int64_t more = 1; more != 0;) {
    if (mode == "ring") {
      for (int i = 0; i < 20; ++i) RETURN_IF_ERROR(RingStep(world.device(), in, out, std::chrono::milliseconds(0)));
    } else if (mode == "compute") {
      RETURN_IF_ERROR(RingStep(world.device(), in, out, std::chrono::milliseconds(200)));
    } else {
      for (int i = 0; i < 20; ++i) {
        std::vector<int64_t> values(1000, world.rank());
        RETURN_IF_ERROR(world.host().AllReduceSum(absl::MakeSpan(values)));
        RETURN_IF_ERROR(world.host().AllGather(world.rank()).status());
        RETURN_IF_ERROR(world.host().Barrier());
      }
    }
    more = Clock::now() < end ? 1 : 0;
    RETURN_IF_ERROR(world.host().Broadcast(more, 0));
  }
  return absl::OkStatus();
}

int Main(int argc, char** argv) {
  BootstrapOptions options;
  options.timeout = absl::Seconds(std::atof(argv[3]));
  auto world = Bootstrap(&argc, &argv, options);
  if (!world.ok()) {
    std::cerr << world.status() << "\n";
    return 1;
  }
  World& w = **world;
  std::ofstream(absl::StrCat(argv[1], "/rank.", w.rank())) << getpid() << std::endl;
  absl::Status status = Work(w, argv[2]);
  if (status.ok()) status = w.Finalize();
  if (!status.ok()) AbortJob(w, status);
  return 0;
}

}  // namespace
}  // namespace snapkv::comm

int main(int argc, char** argv) {
  if (argc != 4) {
    std::cerr << "usage: stall_program FOLDER MODE TIMEOUT_S\n";
    return 2;
  }
  return snapkv::comm::Main(argc, argv);
}
