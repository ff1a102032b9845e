// SPDX-License-Identifier: Apache-2.0
// The trie of special tokens.
#include "runtime/text/special_tokens.h"

namespace snapkv::runtime {

void SpecialTokens::Add(std::string_view text, int32_t token, bool always) {
  uint32_t node = 0;
  for (const char c : text) {
    const auto byte = static_cast<uint8_t>(c);
    const auto [edge, added] =
        edges_.try_emplace(uint64_t{node} * 256 + byte, static_cast<uint32_t>(nodes_.size()));
    if (added) nodes_.push_back(Node{});
    node = edge->second;
  }
  nodes_[node] = {token, always};
  begins_token_[static_cast<uint8_t>(text.front())] = true;
}

SpecialTokens::Match SpecialTokens::LongestAt(std::string_view text, size_t from, bool with_control) const {
  Match best = {from, from, -1};
  uint32_t node = 0;
  for (size_t pos = from; pos < text.size(); ++pos) {
    const auto edge = edges_.find(uint64_t{node} * 256 + static_cast<uint8_t>(text[pos]));
    if (edge == edges_.end()) break;
    node = edge->second;
    if (nodes_[node].token >= 0 && (with_control || nodes_[node].always)) {
      best = {from, pos + 1, nodes_[node].token};
    }
  }
  return best;
}

SpecialTokens::Match SpecialTokens::Find(std::string_view text, size_t from, bool with_control) const {
  for (size_t pos = from; pos < text.size(); ++pos) {
    if (!begins_token_[static_cast<uint8_t>(text[pos])]) continue;
    const Match match = LongestAt(text, pos, with_control);
    if (match.token >= 0) return match;
  }
  return {text.size(), text.size(), -1};
}

}  // namespace snapkv::runtime
