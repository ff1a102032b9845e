// SPDX-License-Identifier: Apache-2.0
// /proc/meminfo, and the limits of control groups (version 2, each level up to the root).
#include "launch/memory.h"

#include <sys/resource.h>

#include <algorithm>
#include <fstream>
#include <optional>
#include <string>

namespace snapkv::launch {
namespace {

std::optional<int64_t> ReadNumber(const std::string& path) {
  std::ifstream file(path);
  int64_t number = 0;
  if (file >> number) return number;
  return std::nullopt;  // missing, or "max"
}

int64_t MachineMemory() {
  std::ifstream file("/proc/meminfo");
  std::string key;
  int64_t kib = 0;
  for (std::string line; file >> key >> kib; std::getline(file, line))
    if (key == "MemAvailable:") return kib * 1024;
  return INT64_MAX;
}

// This process's group below /sys/fs/cgroup, e.g. "/job.slice/rank0"; "" without one.
std::string ControlGroup() {
  std::ifstream file("/proc/self/cgroup");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("0::")) return line.substr(3);
  return "";
}

}  // namespace

int64_t AvailableMemory() {
  int64_t available = MachineMemory();
  for (std::string group = ControlGroup();; group.resize(group.rfind('/'))) {
    const std::string folder = "/sys/fs/cgroup" + group;
    const auto most = ReadNumber(folder + "/memory.max"), used = ReadNumber(folder + "/memory.current");
    if (most && used) available = std::min(available, std::max<int64_t>(*most - *used, 0));
    if (group.rfind('/') == std::string::npos) return available;
  }
}

int64_t PeakResidentBytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return int64_t{usage.ru_maxrss} * 1024;
}

}  // namespace snapkv::launch
