// SPDX-License-Identifier: Apache-2.0
// Prefill observers: record a prompt's attention, or select with many configurations in one prefill.
#pragma once

#include <vector>

#include "nlohmann/json.hpp"
#include "runtime/engine/prefill.h"
#include "tests/support/attention_oracle.h"

namespace snapkv::testing {

// A configuration as the golden files write it: {"C", "W", "kernel", "pool": "max" | "avg"}, mean over the
// group.
runtime::CompressionOptions ConfigFromJson(const nlohmann::json& json);

// Puts together, from all ranks, what each layer saw and made. Ranks write to places of their own.
class CaptureObserver : public runtime::PrefillObserver {
 public:
  struct Layer {
    AttentionProblem problem;
    std::vector<float> out;     // [heads, tokens, head_dim]
    std::vector<float> lse;     // [heads, tokens]
    std::vector<float> hidden;  // [tokens, hidden], after the layer
  };
  CaptureObserver(const runtime::ModelConfig& config, int64_t tokens);

  absl::Status OnHidden(const runtime::RankContext& context, const runtime::Plan& plan, int64_t layer,
                        const TensorView& hidden) override;
  absl::Status OnAttention(const runtime::RankContext& context, const runtime::Plan& plan, int64_t layer,
                           const TensorView& q, const runtime::KvShard& shard,
                           const runtime::RingAttention& ring) override;

  const Layer& layer(int64_t i) const { return layers_[static_cast<size_t>(i)]; }
  const std::vector<float>& embedding() const { return embedding_; }  // [tokens, hidden]

 private:
  std::vector<Layer> layers_;
  std::vector<float> embedding_;
};

// Selects in every layer with each of several configurations, next to what the prefill itself does: one
// prefill answers them all. Configurations that would not compress the prompt keep everything.
class SelectionObserver : public runtime::PrefillObserver {
 public:
  SelectionObserver(std::vector<runtime::CompressionOptions> configs, int ranks, int64_t layers);

  absl::Status OnHidden(const runtime::RankContext&, const runtime::Plan&, int64_t,
                        const TensorView&) override {
    return absl::OkStatus();
  }
  absl::Status OnAttention(const runtime::RankContext& context, const runtime::Plan& plan, int64_t layer,
                           const TensorView& q, const runtime::KvShard& shard,
                           const runtime::RingAttention& ring) override;

  const std::vector<runtime::CompressionOptions>& configs() const { return configs_; }
  // [layer], as `rank` saw it.
  const std::vector<runtime::Selection>& selections(size_t config, int rank) const {
    return selections_[config][static_cast<size_t>(rank)];
  }
  // How many local rows `rank` kept: [layer][head].
  const std::vector<std::vector<int64_t>>& row_counts(size_t config, int rank) const {
    return row_counts_[config][static_cast<size_t>(rank)];
  }

 private:
  std::vector<runtime::CompressionOptions> configs_;
  std::vector<std::vector<std::vector<runtime::Selection>>> selections_;
  std::vector<std::vector<std::vector<std::vector<int64_t>>>> row_counts_;
};

// Calls several observers in turn.
class ObserverList : public runtime::PrefillObserver {
 public:
  explicit ObserverList(std::vector<runtime::PrefillObserver*> observers)
      : observers_(std::move(observers)) {}
  absl::Status OnHidden(const runtime::RankContext& context, const runtime::Plan& plan, int64_t layer,
                        const TensorView& hidden) override {
    for (auto* o : observers_) RETURN_IF_ERROR(o->OnHidden(context, plan, layer, hidden));
    return absl::OkStatus();
  }
  absl::Status OnAttention(const runtime::RankContext& context, const runtime::Plan& plan, int64_t layer,
                           const TensorView& q, const runtime::KvShard& shard,
                           const runtime::RingAttention& ring) override {
    for (auto* o : observers_) RETURN_IF_ERROR(o->OnAttention(context, plan, layer, q, shard, ring));
    return absl::OkStatus();
  }

 private:
  std::vector<runtime::PrefillObserver*> observers_;
};

}  // namespace snapkv::testing
