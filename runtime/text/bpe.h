// SPDX-License-Identifier: Apache-2.0
// Byte-pair encoding of one piece: the lowest-ranked adjacent pair is merged, leftmost first, until none is
// left.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "runtime/text/merge_queue.h"

namespace snapkv::runtime {

class BytePairEncoder {
 public:
  // Scratch memory of one caller; keep it between pieces.
  struct Workspace {
    struct Symbol {
      int32_t token;  // -1: merged into its left neighbour
      int32_t previous;
      int32_t next;
    };
    std::vector<Symbol> symbols;
    HeapMergeQueue short_queue;
    BucketMergeQueue long_queue;
  };

  // A byte without a token (-1) is dropped before merging, as the original tokenizers do.
  void SetByteToken(uint8_t byte, int32_t token) { byte_tokens_[byte] = token; }

  // Rank = order of the calls. A pair that is already there keeps its first rank.
  void AddMerge(int32_t left, int32_t right, int32_t result);

  // Appends the tokens of `piece`. O(n log n); at most about 24 bytes of memory per byte of the piece.
  // Errors: a piece of 2^31 - 1 bytes and more. Thread-safe with one workspace per caller.
  absl::Status Encode(std::string_view piece, Workspace* workspace, std::vector<int32_t>* tokens) const;

  BytePairEncoder() { byte_tokens_.fill(-1); }

 private:
  struct Merge {
    int32_t left;
    int32_t right;
    int32_t result;
  };

  // The rank of the pair's merge; -1 when there is none.
  int32_t RankOf(int32_t left, int32_t right) const;
  template <class Queue>
  void MergeAll(std::vector<Workspace::Symbol>& symbols, Queue& queue) const;

  std::array<int32_t, 256> byte_tokens_;
  std::vector<Merge> merges_;  // [rank]
  absl::flat_hash_map<uint64_t, int32_t> ranks_;
};

}  // namespace snapkv::runtime
