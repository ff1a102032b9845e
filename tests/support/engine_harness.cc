// SPDX-License-Identifier: Apache-2.0
// The engine on virtual ranks.
#include "tests/support/engine_harness.h"

#include <algorithm>
#include <deque>
#include <map>
#include <mutex>
#include <tuple>

#include "comm/thread_comm.h"
#include "runtime/engine/decode.h"

namespace snapkv::testing {
namespace {

struct Loaded {
  runtime::GgufFile file;
  std::unique_ptr<runtime::Model> model;
};

Allocator& WeightAllocator() {
  static auto* allocator = new Allocator();  // kept for the process, like the models
  return *allocator;
}

}  // namespace

absl::StatusOr<const runtime::Model*> LoadedModel(const std::string& path, DType dtype, Device device) {
  static auto* models = new std::map<std::tuple<std::string, DType, Device>, std::unique_ptr<Loaded>>();
  const auto key = std::tuple(path, dtype, device);
  if (const auto it = models->find(key); it != models->end()) return it->second->model.get();
  ASSIGN_OR_RETURN(runtime::GgufFile file, runtime::GgufFile::Open(path));
  auto loaded = std::make_unique<Loaded>(Loaded{std::move(file), nullptr});
  ASSIGN_OR_RETURN(loaded->model, runtime::Model::Load(loaded->file, Stream{device, 2}, WeightAllocator(),
                                                       {.dtype = dtype}));
  return ((*models)[key] = std::move(loaded))->model.get();
}

absl::Status DecodeGreedy(const runtime::Model& model, const Stream& stream, Allocator& allocator,
                          const std::vector<float>& first_logits, runtime::DecodeCache& cache, int64_t count,
                          std::vector<int32_t>& generated, std::vector<double>& margins) {
  ASSIGN_OR_RETURN(runtime::Decoder decoder, runtime::Decoder::Create(model, stream, allocator, 1));
  runtime::RankStats stats;
  std::vector<float> logits = first_logits;
  for (int64_t i = 0; i < count; ++i) {
    const auto top = std::max_element(logits.begin(), logits.end());
    generated.push_back(static_cast<int32_t>(top - logits.begin()));
    double second = -1e30;
    for (const float& x : logits)
      if (&x != &*top) second = std::max(second, double{x});
    margins.push_back(double{*top} - second);
    if (i + 1 == count) break;
    runtime::DecodeCache* caches[] = {&cache};
    RETURN_IF_ERROR(decoder.Step({generated.back()}, caches,
                                 TensorView::Of(logits.data(), DType::kF32, Device::kCpu, 1, logits.size()),
                                 stats));
  }
  return absl::OkStatus();
}

absl::StatusOr<EngineOutput> RunEngine(const runtime::Model& model, const std::vector<int32_t>& tokens,
                                       const EngineRun& run) {
  EngineOutput output;
  output.selections.resize(static_cast<size_t>(run.ranks));
  output.kv_use.resize(static_cast<size_t>(run.ranks));
  std::deque<Allocator> allocators(static_cast<size_t>(run.ranks));
  RETURN_IF_ERROR(comm::RunRanks(
      run.ranks, absl::Seconds(300), [&](comm::HostComm& host, comm::DeviceComm& device) -> absl::Status {
        const size_t rank = static_cast<size_t>(host.rank());
        runtime::RankStats stats;
        const Stream stream{run.device, run.threads};
        const runtime::RankContext context{model, host, device, stream, allocators[rank], stats};
        const runtime::PrefillOptions options{.compression = run.compression,
                                              .headroom = run.generate,
                                              .keep_selections = true,
                                              .observer = run.observer};
        ASSIGN_OR_RETURN(runtime::PrefillResult result, runtime::Prefill(context, tokens, options));
        output.selections[rank] = std::move(result.selections);
        output.kv_use[rank] = allocators[rank].kv_use();
        if (host.rank() != 0) return absl::OkStatus();
        output.logits = result.logits;
        if (run.generate > 0) {
          RETURN_IF_ERROR(DecodeGreedy(model, stream, allocators[rank], result.logits, *result.cache,
                                       run.generate, output.generated, output.margins));
        }
        result.cache.reset();
        output.result = std::move(result);
        return absl::OkStatus();
      }));
  return output;
}

}  // namespace snapkv::testing
