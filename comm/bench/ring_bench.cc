// SPDX-License-Identifier: Apache-2.0
// Ring step and collectives: median time and one-way bandwidth per rank, over MPI or between threads of one
// process. Usage: mpirun -np N ring_bench [--repeats R] [--max-mib M]   or   ring_bench --threads N [...]
#include <time.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <iostream>
#include <string>
#include <thread>
#include <vector>

#include "comm/bootstrap.h"
#include "comm/thread_comm.h"

namespace snapkv::comm {
namespace {

struct BenchOptions {
  int threads = 0;
  int repeats = 31;
  int64_t max_mib = 16;
};

using Step = std::function<absl::Status()>;

// Median over `repeats` of the slowest rank's time, in seconds. Every repeat starts after a barrier.
absl::StatusOr<double> Median(HostComm& host, int repeats, const Step& step) {
  std::vector<int64_t> times_ns;
  for (int i = -2; i < repeats; ++i) {  // two to warm up
    RETURN_IF_ERROR(host.Barrier());
    const auto start = std::chrono::steady_clock::now();
    RETURN_IF_ERROR(step());
    int64_t ns = std::chrono::nanoseconds(std::chrono::steady_clock::now() - start).count();
    RETURN_IF_ERROR(host.AllReduceMax(absl::MakeSpan(&ns, 1)));
    if (i >= 0) times_ns.push_back(ns);
  }
  std::nth_element(times_ns.begin(), times_ns.begin() + repeats / 2, times_ns.end());
  return static_cast<double>(times_ns[static_cast<size_t>(repeats / 2)]) * 1e-9;
}

absl::Status Collectives(HostComm& host, int repeats) {
  std::vector<int64_t> values(2048, 1);
  const std::vector<std::pair<const char*, Step>> steps = {
      {"barrier", [&] { return host.Barrier(); }},
      {"allgather of 8 bytes", [&] { return host.AllGather(int64_t{1}).status(); }},
      {"allreduce of 16 KiB", [&] { return host.AllReduceMax(absl::MakeSpan(values)); }}};
  for (const auto& [name, step] : steps) {
    ASSIGN_OR_RETURN(const double seconds, Median(host, repeats, step));
    if (host.rank() == 0) std::printf("%-22s %10.1f us\n", name, seconds * 1e6);
  }
  return absl::OkStatus();
}

absl::Status Ring(HostComm& host, DeviceComm& device, const BenchOptions& options) {
  const int n = device.size(), to = (device.rank() + 1) % n, from = (device.rank() + n - 1) % n;
  if (host.rank() == 0) {
    std::printf("%d ranks; ceiling: all ranks copying the same bytes in their own memory\n", n);
    std::printf("%14s %12s %12s %12s\n", "bytes a step", "step us", "GB/s", "of ceiling");
  }
  for (int64_t bytes = 8; bytes <= options.max_mib << 20; bytes *= 8) {
    std::vector<char> in(static_cast<size_t>(bytes), 1), out(in.size());
    const auto view = [&](std::vector<char>& data) {
      return TensorView::Of(data.data(), DType::kU8, Device::kCpu, bytes);
    };
    ASSIGN_OR_RETURN(const double step, Median(host, options.repeats, [&]() -> absl::Status {
                       ASSIGN_OR_RETURN(const ExchangeId id,
                                        device.StartSendRecv({}, view(in), to, view(out), from));
                       return device.FinishExchange({}, id);
                     }));
    ASSIGN_OR_RETURN(const double copy, Median(host, options.repeats, [&] {
                       std::memcpy(out.data(), in.data(), in.size());
                       return absl::OkStatus();
                     }));
    if (host.rank() == 0) {
      std::printf("%14lld %12.1f %12.3f %11.1f%%\n", static_cast<long long>(bytes), step * 1e6,
                  static_cast<double>(bytes) / step * 1e-9, 100 * copy / step);
    }
  }
  return absl::OkStatus();
}

// Uses `seconds` of this thread's processor time, however long that takes.
void Burn(double seconds) {
  const auto now = [] {
    timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
  };
  const double end = now() + seconds;
  while (now() < end) {
  }
}

// A ring step of 256 KiB behind 5 ms of work: what waiting ranks take from computing ones when ranks
// outnumber cores.
absl::Status RingWithWork(HostComm& host, DeviceComm& device, int repeats) {
  constexpr double kWork = 5e-3;
  const int n = device.size(), to = (device.rank() + 1) % n, from = (device.rank() + n - 1) % n;
  std::vector<char> in(262144, 1), out(in.size());
  const auto view = [&](std::vector<char>& data) {
    return TensorView::Of(data.data(), DType::kU8, Device::kCpu, data.size());
  };
  ASSIGN_OR_RETURN(const double step, Median(host, repeats, [&]() -> absl::Status {
                     ASSIGN_OR_RETURN(const ExchangeId id,
                                      device.StartSendRecv({}, view(in), to, view(out), from));
                     Burn(kWork);
                     return device.FinishExchange({}, id);
                   }));
  const double cores = std::thread::hardware_concurrency();
  const double ideal = kWork * std::max(1.0, n / cores);
  if (host.rank() == 0) {
    std::printf("5 ms of work + exchange %9.1f us, %.1f%% of the ceiling (%.0f us on %.0f cores)\n",
                step * 1e6, 100 * ideal / step, ideal * 1e6, cores);
  }
  return absl::OkStatus();
}

absl::Status RunAll(HostComm& host, DeviceComm& device, const BenchOptions& options) {
  RETURN_IF_ERROR(Ring(host, device, options));
  RETURN_IF_ERROR(RingWithWork(host, device, options.repeats));
  return Collectives(host, options.repeats);
}

int Main(int argc, char** argv) {
  BenchOptions options;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string flag = argv[i];
    const int value = std::atoi(argv[i + 1]);
    if (flag == "--threads") options.threads = value;
    if (flag == "--repeats") options.repeats = std::max(value, 1);
    if (flag == "--max-mib") options.max_mib = value;
  }
  if (options.threads > 0) {
    const absl::Status status =
        RunRanks(options.threads, absl::Seconds(60),
                 [&](HostComm& host, DeviceComm& device) { return RunAll(host, device, options); });
    if (!status.ok()) std::cerr << status << "\n";
    return status.ok() ? 0 : 1;
  }
  auto world = Bootstrap(&argc, &argv, {});
  if (!world.ok()) {
    std::cerr << world.status() << "\n";
    return 1;
  }
  absl::Status status = RunAll((*world)->host(), (*world)->device(), options);
  if (status.ok()) status = (*world)->Finalize();
  if (!status.ok()) AbortJob(**world, status);
  return 0;
}

}  // namespace
}  // namespace snapkv::comm

int main(int argc, char** argv) { return snapkv::comm::Main(argc, argv); }
