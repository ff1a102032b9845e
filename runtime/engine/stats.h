// SPDX-License-Identifier: Apache-2.0
// RankStats: where one rank's time went.
#pragma once

#include <array>
#include <cstdint>

#include "absl/time/clock.h"
#include "runtime/model/model.h"

namespace snapkv::runtime {

enum class Phase : uint8_t {
  kLoad,  // reading and packing the weights
  kEmbed,
  kGemm,   // linear layers of prefill
  kOther,  // norms, RoPE, activations, residuals of prefill
  kAttention,
  kRingWait,  // waiting for a neighbour's K and V
  kScore,     // window broadcast and scores
  kPool,      // halo exchange and pooling
  kSelect,
  kGather,  // packing kept rows and waiting for them
  kDecode,
};
inline constexpr int kPhases = 11;
const char* PhaseName(Phase phase);

struct RankStats {
  std::array<double, kPhases> seconds{};
  std::array<int64_t, kPhases> tokens{};  // tokens of this rank that went through the phase

  double& operator[](Phase p) { return seconds[static_cast<size_t>(p)]; }
  void AddTokens(Phase p, int64_t n) { tokens[static_cast<size_t>(p)] += n; }
  // Moves what the model's parts took into kGemm and kOther.
  void Add(const ModelTimes& times) {
    (*this)[Phase::kGemm] += times.gemm;
    (*this)[Phase::kOther] += times.other;
  }
};

// Adds the time of its scope to a phase.
class PhaseTimer {
 public:
  PhaseTimer(RankStats& stats, Phase phase) : seconds_(stats[phase]), start_(absl::GetCurrentTimeNanos()) {}
  ~PhaseTimer() { seconds_ += static_cast<double>(absl::GetCurrentTimeNanos() - start_) * 1e-9; }
  PhaseTimer(const PhaseTimer&) = delete;
  PhaseTimer& operator=(const PhaseTimer&) = delete;

 private:
  double& seconds_;
  int64_t start_;
};

}  // namespace snapkv::runtime
