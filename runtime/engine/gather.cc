// SPDX-License-Identifier: Apache-2.0
// Rows arrive rank by rank and are then put into the order of their positions, in place.
#include "runtime/engine/gather.h"

#include <algorithm>
#include <cstring>

#include "kernels/base/log.h"
#include "kernels/op/gather_rows.h"

namespace snapkv::runtime {
namespace {

// rows[destination[i]] = old rows[i], in place, one cycle at a time. `destination` is used up.
void PermuteRows(const TensorView& rows, std::vector<int32_t> destination) {
  const size_t bytes = static_cast<size_t>(rows.dim(1) * BlockBytes(rows.dtype));
  std::vector<char> carried(bytes), other(bytes);
  const auto at = [&](int32_t i) { return rows.as<char>() + static_cast<size_t>(i) * bytes; };
  for (size_t start = 0; start < destination.size(); ++start) {
    int32_t to = destination[start];
    if (to == static_cast<int32_t>(start)) continue;
    std::memcpy(carried.data(), at(static_cast<int32_t>(start)), bytes);
    while (to != static_cast<int32_t>(start)) {
      std::memcpy(other.data(), at(to), bytes);
      std::memcpy(at(to), carried.data(), bytes);
      carried.swap(other);
      const int32_t next = destination[static_cast<size_t>(to)];
      destination[static_cast<size_t>(to)] = to;
      to = next;
    }
    std::memcpy(at(to), carried.data(), bytes);
    destination[start] = to;
  }
}

}  // namespace

absl::Status LayerGather::Start(const RankContext& context, int64_t layer, const KvShard& shard,
                                const ShardSelection& selection, DecodeCache* cache) {
  const PhaseTimer timer(context.stats, Phase::kGather);
  layer_ = layer;
  cache_ = cache;
  for (const auto& rows : selection.rows)
    context.stats.AddTokens(Phase::kGather, static_cast<int64_t>(rows.size()));
  if (cache != nullptr) return Receive(context, layer, shard, selection, *cache);
  return Send(context, shard, selection);
}

absl::Status LayerGather::Send(const RankContext& context, const KvShard& shard,
                               const ShardSelection& selection) {
  int64_t total = 0;
  for (const auto& rows : selection.rows) total += static_cast<int64_t>(rows.size());
  const int64_t dim = shard.k().dim(2);
  const DType dtype = shard.k().dtype;
  ASSIGN_OR_RETURN(
      packed_, Buffer::Of(context.allocator, MemoryKind::kKvCompressed, Device::kCpu, dtype, 2, total, dim));
  const TensorView packed = packed_.View(dtype, 2, total, dim);
  std::vector<comm::Message> sends;
  for (const int kv : {0, 1}) {
    RETURN_IF_ERROR(kernels::GatherRows(context.stream, shard.kv()[kv], selection.rows, packed[kv]));
    int64_t at = 0;
    for (const auto& rows : selection.rows) {
      const int64_t n = static_cast<int64_t>(rows.size());
      if (n > 0) sends.push_back({packed[kv].Slice(0, at, at + n), kDecodeRank});
      at += n;
    }
  }
  ASSIGN_OR_RETURN(open_, context.device.StartExchange(context.stream, sends, {}));
  return absl::OkStatus();
}

absl::Status LayerGather::Receive(const RankContext& context, int64_t layer, const KvShard& shard,
                                  const ShardSelection& selection, DecodeCache& cache) {
  const auto& positions = selection.global.positions;
  const int64_t heads = static_cast<int64_t>(positions.size()), share = heads / shard.k().dim(0);
  const int64_t total = static_cast<int64_t>(positions[0].size());
  CHECK(cache.rows(layer) == total) << total << " rows for a cache of " << cache.rows(layer);
  // Per head: how many rows come from each rank, and where they belong in the end.
  std::vector<std::vector<int64_t>> counts(positions.size(),
                                           std::vector<int64_t>(static_cast<size_t>(plan_->ranks()), 0));
  destination_.assign(positions.size(), std::vector<int32_t>(static_cast<size_t>(total)));
  for (size_t h = 0; h < positions.size(); ++h) {
    std::vector<int> owner(positions[h].size());
    for (size_t i = 0; i < positions[h].size(); ++i) {
      owner[i] = plan_->Owner(positions[h][i]);
      ++counts[h][static_cast<size_t>(owner[i])];
    }
    std::vector<int64_t> next(counts[h].size(), 0);
    for (size_t r = 1; r < next.size(); ++r) next[r] = next[r - 1] + counts[h][r - 1];
    for (size_t i = 0; i < positions[h].size(); ++i)
      destination_[h][static_cast<size_t>(next[static_cast<size_t>(owner[i])]++)] = static_cast<int32_t>(i);
  }
  std::vector<comm::Message> receives;
  for (const int kv : {0, 1}) {
    for (int64_t h = 0; h < heads; ++h) {
      const TensorView head = kv == 0 ? cache.k(layer, h) : cache.v(layer, h);
      int64_t at = 0;
      for (int r = 0; r < plan_->ranks(); ++r) {
        const int64_t n = counts[static_cast<size_t>(h)][static_cast<size_t>(r)];
        const TensorView rows = head.Slice(0, at, at + n);
        at += n;
        if (r == context.rank()) {
          const auto& list = selection.rows[static_cast<size_t>(h)];
          RETURN_IF_ERROR(kernels::GatherRows(context.stream,
                                              shard.kv()[kv].Slice(0, h / share, h / share + 1),
                                              absl::MakeConstSpan(&list, 1), rows));
        } else if (n > 0) {
          receives.push_back({rows, r});
        }
      }
    }
  }
  ASSIGN_OR_RETURN(open_, context.device.StartExchange(context.stream, {}, receives));
  return absl::OkStatus();
}

absl::Status LayerGather::Finish(const RankContext& context) {
  if (!open_.has_value()) return absl::OkStatus();
  const PhaseTimer timer(context.stats, Phase::kGather);
  RETURN_IF_ERROR(context.device.FinishExchange(context.stream, *open_));
  open_.reset();
  packed_.Reset();
  if (cache_ == nullptr || plan_->ranks() == 1) return absl::OkStatus();
  for (size_t h = 0; h < destination_.size(); ++h) {
    const int64_t head = static_cast<int64_t>(h), rows = cache_->rows(layer_);
    PermuteRows(cache_->k(layer_, head).Slice(0, 0, rows), destination_[h]);
    PermuteRows(cache_->v(layer_, head).Slice(0, 0, rows), destination_[h]);
  }
  return absl::OkStatus();
}

}  // namespace snapkv::runtime
