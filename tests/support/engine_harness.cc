// SPDX-License-Identifier: Apache-2.0
// The engine on virtual ranks.
#include "tests/support/engine_harness.h"

#include <algorithm>
#include <deque>
#include <map>
#include <tuple>

#include "comm/thread_comm.h"
#include "runtime/engine/decode.h"
#include "tests/support/tensors.h"

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

absl::Status OnRanks(const runtime::Model& model, const RankGroup& group,
                     const std::function<absl::Status(const runtime::RankContext&)>& body) {
  std::deque<Allocator> allocators(static_cast<size_t>(group.ranks));
  return comm::RunRanks(group.ranks, absl::Seconds(300),
                        [&](comm::HostComm& host, comm::DeviceComm& device) -> absl::Status {
                          runtime::RankStats stats;
                          return body({model, host, device, Stream{group.device, group.threads},
                                       allocators[static_cast<size_t>(host.rank())], stats});
                        });
}

absl::Status ReplayAttention(const runtime::Model& model, const AttentionProblem& problem, int64_t window,
                             const RankGroup& group, runtime::PrefillObserver& observer) {
  ASSIGN_OR_RETURN(const runtime::Plan plan,
                   runtime::Plan::Create(problem.tokens, group.ranks, window, kernels::kKeyBlock));
  return OnRanks(model, group, [&](const runtime::RankContext& context) -> absl::Status {
    const std::vector<int32_t> positions = plan.Positions(context.rank());
    const int64_t local = static_cast<int64_t>(positions.size()), dim = problem.head_dim;
    const DType dtype = model.dtype();
    ASSIGN_OR_RETURN(Buffer q_buffer, Buffer::Of(context.allocator, MemoryKind::kActivation, Device::kCpu,
                                                 dtype, problem.heads, local, dim));
    ASSIGN_OR_RETURN(runtime::KvShard shard,
                     runtime::KvShard::Create(context.allocator, dtype, problem.kv_heads, local, dim));
    const TensorView q = q_buffer.View(dtype, problem.heads, local, dim);
    const auto fill = [&](const TensorView& to, const std::vector<float>& from) {
      for (int64_t i = 0; i < to.elements(); ++i) {
        const int64_t head = i / (local * dim), row = i / dim % local, e = i % dim;
        const int64_t at = (head * problem.tokens + positions[static_cast<size_t>(row)]) * dim + e;
        SetElement(to, i, double{from[static_cast<size_t>(at)]});
      }
    };
    fill(q, problem.q);
    fill(shard.k(), problem.k);
    fill(shard.v(), problem.v);
    ASSIGN_OR_RETURN(runtime::RingAttention ring, runtime::RingAttention::Create(context, plan));
    RETURN_IF_ERROR(ring.Run(context, q, shard));
    return observer.OnAttention(context, plan, 0, q, shard, ring);
  });
}

absl::StatusOr<EngineOutput> RunEngine(const runtime::Model& model, const std::vector<int32_t>& tokens,
                                       const EngineRun& run) {
  EngineOutput output;
  output.selections.resize(static_cast<size_t>(run.ranks));
  output.kv_use.resize(static_cast<size_t>(run.ranks));
  const RankGroup group{run.ranks, run.threads, run.device};
  RETURN_IF_ERROR(OnRanks(model, group, [&](const runtime::RankContext& context) -> absl::Status {
    const size_t rank = static_cast<size_t>(context.rank());
    const runtime::PrefillOptions options{.compression = run.compression,
                                          .headroom = run.generate,
                                          .keep_selections = true,
                                          .observer = run.observer};
    ASSIGN_OR_RETURN(runtime::PrefillResult result, runtime::Prefill(context, tokens, options));
    output.selections[rank] = std::move(result.selections);
    output.kv_use[rank] = context.allocator.kv_use();
    if (rank != 0) return absl::OkStatus();
    output.logits = result.logits;
    if (run.generate > 0) {
      RETURN_IF_ERROR(DecodeGreedy(model, context.stream, context.allocator, result.logits, *result.cache,
                                   run.generate, output.generated, output.margins));
    }
    result.cache.reset();
    output.result = std::move(result);
    return absl::OkStatus();
  }));
  return output;
}

}  // namespace snapkv::testing
