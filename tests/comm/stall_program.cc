// SPDX-License-Identifier: Apache-2.0
// A job for stall_test.py to disturb: every rank writes its process number to FOLDER/rank.N and then does
// what MODE says. Usage: stall_program FOLDER MODE TIMEOUT_S
//   ring, collective, compute  work until told from outside, 60 s at most
//   poll                       likewise, computing and polling for 60 s without needing another rank's data
//   late_OPERATION             rank 1 sleeps before the operation, far beyond the time-out
//   polling                    rank 1 is busy but polls
//   busy0                      rank 1 sleeps, the others wait for it, but rank 0 is busy and hears nothing
//   deadlock                   rank 0 waits in a barrier, the others for a message from it
//   error                      rank 1 alone has an error and ends the job with exit code 3
//   finalize                   rank 1 stops where the others are in MPI_Finalize
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <string>
#include <thread>
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

TensorView View(std::vector<char>& data) {
  return TensorView::Of(data.data(), DType::kU8, Device::kCpu, data.size());
}

absl::Status RingStep(DeviceComm& device, std::chrono::milliseconds work) {
  std::vector<char> in(300000), out(300000);
  const int n = device.size(), to = (device.rank() + 1) % n, from = (device.rank() + n - 1) % n;
  ASSIGN_OR_RETURN(const ExchangeId id, device.StartSendRecv({}, View(in), to, View(out), from));
  Compute(work);
  RETURN_IF_ERROR(device.Poll());
  return device.FinishExchange({}, id);
}

absl::Status Collectives(HostComm& host) {
  std::vector<int64_t> values(1000, host.rank());
  RETURN_IF_ERROR(host.AllReduceSum(absl::MakeSpan(values)));
  RETURN_IF_ERROR(host.AllGather(host.rank()).status());
  return host.Barrier();
}

absl::Status WorkUntilDisturbed(World& world, const std::string& mode) {
  const Clock::time_point end = Clock::now() + kRunTime;
  // Rank 0's clock decides for all, or some would leave a step before the others.
  for (int64_t more = 1; more != 0;) {
    for (int i = 0; i < (mode == "compute" ? 1 : 20); ++i) {
      RETURN_IF_ERROR(mode == "collective"
                          ? Collectives(world.host())
                          : RingStep(world.device(), std::chrono::milliseconds(mode == "compute" ? 200 : 0)));
    }
    more = Clock::now() < end ? 1 : 0;
    RETURN_IF_ERROR(world.host().Broadcast(more, 0));
  }
  return absl::OkStatus();
}

absl::Status PollUntilDisturbed(World& world) {
  const Clock::time_point end = Clock::now() + kRunTime;
  while (Clock::now() < end) {
    Compute(std::chrono::milliseconds(50));
    RETURN_IF_ERROR(world.device().Poll());
  }
  return absl::OkStatus();
}

absl::Status OneOperation(World& world, const std::string& name) {
  std::vector<char> in(10), out(10 * static_cast<size_t>(world.size()));
  int64_t value = world.rank();
  if (name == "barrier") return world.host().Barrier();
  if (name == "broadcast") return world.host().Broadcast(value, 1);
  if (name == "allgather") return world.host().AllGather(value).status();
  if (name == "sum") return world.host().AllReduceSum(absl::MakeSpan(&value, 1));
  if (name == "max") return world.host().AllReduceMax(absl::MakeSpan(&value, 1));
  if (name == "exchange") return RingStep(world.device(), std::chrono::milliseconds(0));
  if (name == "tensorbroadcast") return world.device().Broadcast({}, View(in), 1);
  if (name == "tensorallgather") {
    return world.device().AllGather(
        {}, View(in), TensorView::Of(out.data(), DType::kU8, Device::kCpu, world.size(), in.size()));
  }
  return InvalidArgument("no operation ", name);
}

absl::Status Misbehave(World& world, const std::string& mode) {
  const bool victim = world.rank() == 1;
  if (mode == "polling") {
    while (victim) {
      RETURN_IF_ERROR(world.device().Poll());
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return world.host().Barrier();
  }
  if (mode == "deadlock") {
    std::vector<char> data(1);
    if (world.rank() == 0) return world.host().Barrier();
    ASSIGN_OR_RETURN(const ExchangeId id, world.device().StartExchange({}, {}, {{View(data), 0}}));
    return world.device().FinishExchange({}, id);
  }
  if (mode == "error") {
    if (victim) AbortJob(world, NotFound("model.gguf: no such file"), 3);
    return world.host().Barrier();
  }
  if (mode == "finalize") {
    if (!victim) return absl::OkStatus();
    RETURN_IF_ERROR(world.host().Barrier());  // the one in Finalize
    raise(SIGSTOP);
    return absl::OkStatus();
  }
  if (victim || (mode == "busy0" && world.rank() == 0)) std::this_thread::sleep_for(kRunTime);
  if (mode == "busy0") {
    std::vector<char> data(1);
    ASSIGN_OR_RETURN(const ExchangeId id, world.device().StartExchange({}, {}, {{View(data), 1}}));
    return world.device().FinishExchange({}, id);
  }
  RETURN_IF_ERROR(OneOperation(world, mode.substr(mode.find('_') + 1)));
  return world.host().Barrier();  // a rank that needed nothing from rank 1 notices it here
}

int Main(int argc, char** argv) {
  const std::string folder = argv[1], mode = argv[2];
  BootstrapOptions options;
  options.timeout = absl::Seconds(std::atof(argv[3]));
  auto made = Bootstrap(&argc, &argv, options);
  if (!made.ok()) {
    std::cerr << made.status() << "\n";
    return 1;
  }
  World& world = **made;
  std::ofstream(absl::StrCat(folder, "/rank.", world.rank())) << getpid() << std::endl;
  const bool works = mode == "ring" || mode == "collective" || mode == "compute";
  absl::Status status = works            ? WorkUntilDisturbed(world, mode)
                        : mode == "poll" ? PollUntilDisturbed(world)
                                         : Misbehave(world, mode);
  if (status.ok()) status = world.Finalize();
  if (!status.ok()) AbortJob(world, status);
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
