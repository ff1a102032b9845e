// SPDX-License-Identifier: Apache-2.0
// Finds special tokens in raw text: leftmost first, and the longest of those that begin at one place.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"

namespace snapkv::runtime {

class SpecialTokens {
 public:
  // The work per byte of text is bounded by the longest token.
  static constexpr size_t kMaxTokenBytes = 1024;

  struct Match {
    size_t begin;
    size_t end;
    int32_t token;
  };

  // `text`: 1..kMaxTokenBytes bytes, not added before. `always`: found also when control tokens are not asked
  // for (user-defined tokens).
  void Add(std::string_view text, int32_t token, bool always);

  // The first match at or after `from`; begin == end == text.size() and token -1 when there is none.
  Match Find(std::string_view text, size_t from, bool with_control) const;

 private:
  struct Node {
    int32_t token = -1;
    bool always = false;
  };
  // The longest token that begins at text[from]; end == from when there is none.
  Match LongestAt(std::string_view text, size_t from, bool with_control) const;

  // A trie; node 0 is the root. Edge key: node * 256 + byte.
  std::vector<Node> nodes_ = {Node{}};
  absl::flat_hash_map<uint64_t, uint32_t> edges_;
  bool begins_token_[256] = {};
};

}  // namespace snapkv::runtime
