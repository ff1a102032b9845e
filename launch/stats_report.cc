// SPDX-License-Identifier: Apache-2.0
// Statistics as JSON.
#include "launch/stats_report.h"

#include <vector>

#include "kernels/op/device_info.h"
#include "launch/memory.h"

namespace snapkv::launch {

using nlohmann::ordered_json;

ordered_json RankReport(const runtime::RankContext& context, comm::World& world) {
  ordered_json phases = ordered_json::object();
  for (int p = 0; p < runtime::kPhases; ++p) {
    phases[runtime::PhaseName(static_cast<runtime::Phase>(p))] = {
        {"seconds", context.stats.seconds[static_cast<size_t>(p)]},
        {"tokens", context.stats.tokens[static_cast<size_t>(p)]}};
  }
  ordered_json memory = ordered_json::object();
  for (int k = 0; k < kMemoryKinds; ++k) {
    const auto kind = static_cast<MemoryKind>(k);
    memory[MemoryKindName(kind)] = context.allocator.use(kind).peak_bytes;
  }
  memory["kv_total"] = context.allocator.kv_use().peak_bytes;
  ordered_json kernels = kernels::CpuKernelNames();
  for (const auto& [name, kernel] : context.model.KernelNames()) kernels["gemm." + name] = kernel;
  return {{"rank", context.rank()},
          {"node", world.node_names()[static_cast<size_t>(context.rank())]},
          {"threads", context.stream.threads},
          {"dtype", DTypeName(context.model.dtype())},
          {"phases", phases},
          {"bytes_sent", context.device.bytes_sent()},
          {"peak_bytes", memory},
          {"peak_rss_bytes", PeakResidentBytes()},
          {"cpu", {{"isa", kernels::CpuKernelIsa()}, {"features", kernels::CpuFeatures()}}},
          {"kernels", kernels}};
}

absl::StatusOr<std::string> CollectStats(comm::World& world, const ordered_json& mine,
                                         const ordered_json& run) {
  // Paths may hold bytes that are not UTF-8.
  constexpr auto kReplace = ordered_json::error_handler_t::replace;
  const std::string text = mine.dump(-1, ' ', false, kReplace);
  std::vector<int64_t> lengths;
  ASSIGN_OR_RETURN(const std::vector<char> all,
                   world.host().AllGatherVector(std::vector<char>(text.begin(), text.end()), &lengths));
  if (world.rank() != 0) return std::string();
  ordered_json report = {{"run", run}, {"ranks", ordered_json::array()}};
  auto from = all.begin();
  for (const int64_t n : lengths) {
    report["ranks"].push_back(ordered_json::parse(from, from + n));
    from += n;
  }
  return report.dump(2, ' ', false, kReplace) + "\n";
}

}  // namespace snapkv::launch
