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
    struct Candidate {
      int32_t rank;
      int32_t left;  // symbol index
      int32_t left_token;
      int32_t right_token;  // with left_token: tells a stale entry
    };
    std::vector<Symbol> symbols;
    std::vector<Candidate> queue;
  };

  // A byte without a token (-1) is dropped before merging, as the original tokenizers do.
  void SetByteToken(uint8_t byte, int32_t token) { byte_tokens_[byte] = token; }

  // Rank = order of the calls. A pair that is already there keeps its first rank.
  void AddMerge(int32_t left, int32_t right, int32_t result);

  // Appends the tokens of `piece`. O(n log n). Errors: a piece of 2^31 - 1 bytes and more. Thread-safe with
  // one workspace per caller.
  absl::Status Encode(std::string_view piece, Workspace* workspace, std::vector<int32_t>* tokens) const;

  BytePairEncoder() { byte_tokens_.fill(-1); }

 private:
  struct Merge {
    int32_t rank;
    int32_t result;
  };

  const Merge* Find(int32_t left, int32_t right) const;
  void PushIfMergeable(int32_t left, int32_t right, Workspace* workspace) const;
  void MergeAll(Workspace* workspace) const;

  std::array<int32_t, 256> byte_tokens_;
  absl::flat_hash_map<uint64_t, Merge> merges_;
  int32_t next_rank_ = 0;
};

}  // namespace snapkv::runtime
