// SPDX-License-Identifier: Apache-2.0
// Runs prompts through the engine on virtual ranks, for golden and invariance tests.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "runtime/engine/prefill.h"
#include "runtime/model/gguf.h"
#include "tests/support/attention_oracle.h"

namespace snapkv::testing {

// The model of `path` in `dtype`, loaded once per process and kept.
absl::StatusOr<const runtime::Model*> LoadedModel(const std::string& path, DType dtype,
                                                  Device device = Device::kCpu);

// Runs `body` once per virtual rank, each with an allocator and statistics of its own; the first error, if
// any.
struct RankGroup {
  int ranks = 1;
  int threads = 1;  // per rank
  Device device = Device::kCpu;
};
absl::Status OnRanks(const runtime::Model& model, const RankGroup& group,
                     const std::function<absl::Status(const runtime::RankContext&)>& body);

// Puts q, k, v of a whole prompt in place of a layer's projections (rounded to the model's dtype, whose shape
// they must have), runs the ring and calls observer.OnAttention(layer 0) on every rank.
absl::Status ReplayAttention(const runtime::Model& model, const AttentionProblem& problem, int64_t window,
                             const RankGroup& group, runtime::PrefillObserver& observer);

struct EngineRun {
  int ranks = 1;
  int threads = 2;  // per rank
  Device device = Device::kCpu;
  runtime::CompressionOptions compression{};
  int64_t generate = 0;                          // greedy tokens, not stopped at EOS
  runtime::PrefillObserver* observer = nullptr;  // called from every rank's thread
};

struct EngineOutput {
  std::vector<float> logits;
  std::vector<int32_t> generated;
  std::vector<double> margins;                              // of each generated token: top logit minus second
  std::vector<std::vector<runtime::Selection>> selections;  // [rank][layer]
  std::vector<MemoryUse> kv_use;                            // [rank]: peak of prefill
  runtime::PrefillResult result;                            // of the decode rank; its cache is dropped
};

// Prefill on thread_comm and greedy decoding on rank 0.
absl::StatusOr<EngineOutput> RunEngine(const runtime::Model& model, const std::vector<int32_t>& tokens,
                                       const EngineRun& run);

// Greedy decoding from a finished prefill; fills `generated` and `margins`.
absl::Status DecodeGreedy(const runtime::Model& model, const Stream& stream, Allocator& allocator,
                          const std::vector<float>& first_logits, runtime::DecodeCache& cache, int64_t count,
                          std::vector<int32_t>& generated, std::vector<double>& margins);

}  // namespace snapkv::testing
