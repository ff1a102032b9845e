// SPDX-License-Identifier: Apache-2.0
// What the observers do on one rank.
#include "tests/support/engine_observers.h"

#include <optional>

#include "runtime/engine/scoring.h"
#include "runtime/engine/select.h"
#include "tests/support/tensors.h"

namespace snapkv::testing {
namespace {

// from: [heads, local, width] into to: [heads, tokens, width], rows to their positions.
void Scatter(const TensorView& from, const std::vector<int32_t>& positions, int64_t tokens,
             std::vector<float>& to) {
  const int64_t local = from.dim(1), width = from.dim(2);
  for (int64_t i = 0; i < from.elements(); ++i) {
    const int64_t head = i / (local * width), row = i / width % local;
    const int64_t at = (head * tokens + positions[static_cast<size_t>(row)]) * width + i % width;
    to[static_cast<size_t>(at)] = static_cast<float>(ElementAt(from, i));
  }
}

}  // namespace

runtime::CompressionOptions ConfigFromJson(const nlohmann::json& json) {
  runtime::CompressionOptions options;
  options.capacity = json.at("C");
  options.window = json.at("W");
  options.kernel = json.at("kernel");
  options.pool = json.at("pool") == "max" ? kernels::PoolMode::kMax : kernels::PoolMode::kAvg;
  options.group = kernels::GroupMode::kMean;
  return options;
}

CaptureObserver::CaptureObserver(const runtime::ModelConfig& c, int64_t tokens)
    : embedding_(static_cast<size_t>(tokens * c.hidden)) {
  for (int64_t i = 0; i < c.layers; ++i) {
    layers_.push_back({AttentionProblem(c.heads, c.kv_heads, c.head_dim, tokens),
                       std::vector<float>(static_cast<size_t>(c.heads * tokens * c.head_dim)),
                       std::vector<float>(static_cast<size_t>(c.heads * tokens)), embedding_});
  }
}

absl::Status CaptureObserver::OnHidden(const runtime::RankContext& context, const runtime::Plan& plan,
                                       int64_t layer, const TensorView& hidden) {
  std::vector<float>& to = layer < 0 ? embedding_ : layers_[static_cast<size_t>(layer)].hidden;
  Scatter(TensorView::Of(hidden.data, hidden.dtype, hidden.device, 1, hidden.dim(0), hidden.dim(1)),
          plan.Positions(context.rank()), plan.tokens(), to);
  return absl::OkStatus();
}

absl::Status CaptureObserver::OnAttention(const runtime::RankContext& context, const runtime::Plan& plan,
                                          int64_t layer, const TensorView& q, const runtime::KvShard& shard,
                                          const runtime::RingAttention& ring) {
  const std::vector<int32_t> positions = plan.Positions(context.rank());
  const int64_t local = q.dim(1);
  Layer& to = layers_[static_cast<size_t>(layer)];
  Scatter(q, positions, plan.tokens(), to.problem.q);
  Scatter(shard.k(), positions, plan.tokens(), to.problem.k);
  Scatter(shard.v(), positions, plan.tokens(), to.problem.v);
  const TestTensor out(q.dtype, {q.dim(0), local, q.dim(2)}), lse(DType::kF32, {q.dim(0), local});
  RETURN_IF_ERROR(ring.Finish(context, {0, local}, out, lse));
  Scatter(out, positions, plan.tokens(), to.out);
  Scatter(ViewOf(lse.view().data, DType::kF32, {q.dim(0), local, 1}), positions, plan.tokens(), to.lse);
  return absl::OkStatus();
}

SelectionObserver::SelectionObserver(std::vector<runtime::CompressionOptions> configs, int ranks,
                                     int64_t layers)
    : configs_(std::move(configs)),
      selections_(configs_.size(), std::vector<std::vector<runtime::Selection>>(
                                       static_cast<size_t>(ranks),
                                       std::vector<runtime::Selection>(static_cast<size_t>(layers)))),
      row_counts_(configs_.size(), std::vector<std::vector<std::vector<int64_t>>>(
                                       static_cast<size_t>(ranks),
                                       std::vector<std::vector<int64_t>>(static_cast<size_t>(layers)))) {}

absl::Status SelectionObserver::OnAttention(const runtime::RankContext& context,
                                            const runtime::Plan& prefill_plan, int64_t layer,
                                            const TensorView& q, const runtime::KvShard& shard,
                                            const runtime::RingAttention& ring) {
  const size_t rank = static_cast<size_t>(context.rank()), at = static_cast<size_t>(layer);
  for (size_t i = 0; i < configs_.size(); ++i) {
    // Who owns what does not depend on the window; where the prefix ends does.
    ASSIGN_OR_RETURN(const runtime::Plan plan, runtime::Plan::Create(prefill_plan.tokens(), context.ranks(),
                                                                     configs_[i].window, kernels::kKeyBlock));
    runtime::ShardSelection selection;
    if (runtime::Compresses(configs_[i], plan.tokens())) {
      ASSIGN_OR_RETURN(runtime::ShardScores scores, runtime::ShardScores::Create(context, plan, configs_[i]));
      RETURN_IF_ERROR(scores.Run(context, ring, q, shard));
      ASSIGN_OR_RETURN(selection, runtime::SelectGlobal(context, plan, configs_[i], scores));
    } else {
      selection = runtime::SelectAll(plan, context.rank(), shard.k().dim(0));
    }
    for (const auto& rows : selection.rows)
      row_counts_[i][rank][at].push_back(static_cast<int64_t>(rows.size()));
    selections_[i][rank][at] = std::move(selection.global);
  }
  return absl::OkStatus();
}

}  // namespace snapkv::testing
