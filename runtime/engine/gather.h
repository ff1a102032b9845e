// SPDX-License-Identifier: Apache-2.0
// LayerGather: brings one layer's kept rows to the decode rank while the next layer is computed.
#pragma once

#include <optional>
#include <vector>

#include "runtime/cache/decode_cache.h"
#include "runtime/cache/kv_shard.h"
#include "runtime/engine/context.h"
#include "runtime/engine/select.h"
#include "runtime/plan/plan.h"

namespace snapkv::runtime {

// One layer at a time: Start, compute something else, Finish. Counts per rank and head vary, down to zero. On
// the decode rank the rows end in ascending position in `cache`; elsewhere they are packed, sent and freed.
class LayerGather {
 public:
  explicit LayerGather(const Plan& plan) : plan_(&plan) {}

  // Packs this rank's rows (afterwards the shard may be overwritten) and starts the transfer. `cache` is null
  // except on the decode rank, where it has room for the rows. Nothing may be open.
  absl::Status Start(const RankContext& context, int64_t layer, const KvShard& shard,
                     const ShardSelection& selection, DecodeCache* cache);
  // Waits for the open layer; OK when none is open.
  absl::Status Finish(const RankContext& context);

 private:
  absl::Status Send(const RankContext& context, const KvShard& shard, const ShardSelection& selection);
  absl::Status Receive(const RankContext& context, int64_t layer, const KvShard& shard,
                       const ShardSelection& selection, DecodeCache& cache);

  const Plan* plan_;
  std::optional<comm::ExchangeId> open_;
  Buffer packed_;                 // senders: [2, kept rows, head_dim]
  DecodeCache* cache_ = nullptr;  // receiver
  int64_t layer_ = 0;
  std::vector<std::vector<int32_t>>
      destination_;  // receiver, per head: final row of the row that arrived as i-th
};

}  // namespace snapkv::runtime
