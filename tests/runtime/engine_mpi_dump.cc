// SPDX-License-Identifier: Apache-2.0
// engine_mpi_dump MODEL JOB.json OUT.safetensors: one prefill over MPI ranks, and what every configuration of
// the job keeps. JOB is {"ids": [...], "configs": [{"C", "W", "kernel", "pool"}]}; OUT holds `logits` f32 and
// `CONFIG.kept` i32 [layer, head, C] by the index of the configuration. For engine_smollm2_test.
#include <fstream>
#include <iostream>
#include <string>
#include <vector>

#include "comm/bootstrap.h"
#include "runtime/model/safetensors.h"
#include "tests/support/engine_observers.h"
#include "tests/support/golden.h"
#include "tests/support/tensors.h"

namespace snapkv::testing {
namespace {

// Of everything that was selected: the same on every rank.
uint64_t Fingerprint(const SelectionObserver& observer, int rank) {
  uint64_t hash = 1469598103934665603u;  // FNV-1a
  const auto add = [&](uint64_t x) { hash = (hash ^ x) * 1099511628211u; };
  for (size_t i = 0; i < observer.configs().size(); ++i)
    for (const runtime::Selection& layer : observer.selections(i, rank))
      for (const auto& head : layer.positions) {
        add(head.size());
        for (const int32_t p : head) add(static_cast<uint64_t>(p));
      }
  return hash;
}

absl::Status Write(const std::string& path, const SelectionObserver& observer,
                   const std::vector<float>& logits) {
  runtime::SafetensorsWriter writer;
  RETURN_IF_ERROR(writer.Add("logits", ViewOf(logits, {static_cast<int64_t>(logits.size())})));
  std::vector<std::vector<int32_t>> kept(observer.configs().size());
  for (size_t i = 0; i < kept.size(); ++i) {
    const auto& layers = observer.selections(i, 0);
    for (const runtime::Selection& layer : layers)
      for (const auto& head : layer.positions) kept[i].insert(kept[i].end(), head.begin(), head.end());
    const int64_t n = static_cast<int64_t>(layers.size()),
                  heads = static_cast<int64_t>(layers[0].positions.size());
    RETURN_IF_ERROR(
        writer.Add(std::to_string(i) + ".kept",
                   ViewOf(kept[i], {n, heads, static_cast<int64_t>(kept[i].size()) / n / heads})));
  }
  return writer.Write(path);
}

absl::Status Run(comm::World& world, const std::string& model_path, const std::string& job_path,
                 const std::string& out_path) {
  ASSIGN_OR_RETURN(const nlohmann::json job, LoadJson(job_path));
  ASSIGN_OR_RETURN(const runtime::GgufFile file, runtime::GgufFile::Open(model_path));
  Allocator allocator;
  const Stream stream{Device::kCpu, 1};
  auto loaded = runtime::Model::Load(file, stream, allocator, {.head = world.rank() == 0});
  RETURN_IF_ERROR(world.host().Agree(loaded.status()));
  const std::unique_ptr<runtime::Model> model = *std::move(loaded);

  std::vector<runtime::CompressionOptions> configs;
  for (const auto& c : job.at("configs")) configs.push_back(ConfigFromJson(c));
  SelectionObserver observer(configs, world.size(), model->config().layers);
  runtime::RankStats stats;
  const runtime::RankContext context{*model, world.host(), world.device(), stream, allocator, stats};
  ASSIGN_OR_RETURN(const runtime::PrefillResult result,
                   runtime::Prefill(context, job.at("ids").get<std::vector<int32_t>>(),
                                    {.compression = configs.at(0), .observer = &observer}));
  ASSIGN_OR_RETURN(const std::vector<uint64_t> prints,
                   world.host().AllGather(Fingerprint(observer, world.rank())));
  for (size_t r = 1; r < prints.size(); ++r)
    if (prints[r] != prints[0]) return Internal("rank ", r, " selected otherwise than rank 0");
  return world.host().Agree(world.rank() == 0 ? Write(out_path, observer, result.logits) : absl::OkStatus());
}

}  // namespace
}  // namespace snapkv::testing

int main(int argc, char** argv) {
  auto world = snapkv::comm::Bootstrap(&argc, &argv, {absl::Seconds(300)});
  if (!world.ok() || argc != 4) {
    std::cerr << "engine_mpi_dump MODEL JOB.json OUT.safetensors: " << world.status() << "\n";
    return 2;
  }
  const absl::Status status = snapkv::testing::Run(**world, argv[1], argv[2], argv[3]);
  if (!status.ok()) snapkv::comm::AbortJob(**world, status);
  return (*world)->Finalize().ok() ? 0 : 1;
}
