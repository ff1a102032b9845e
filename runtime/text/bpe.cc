// SPDX-License-Identifier: Apache-2.0
// Byte-pair encoding with a linked list of symbols and a queue of candidate merges.
#include "runtime/text/bpe.h"

#include <limits>

#include "kernels/base/status.h"

namespace snapkv::runtime {
namespace {

uint64_t PairKey(int32_t left, int32_t right) {
  return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}

// Symbols from which on the queue for long pieces is faster (measured).
constexpr size_t kLongPiece = 4096;

}  // namespace

void BytePairEncoder::AddMerge(int32_t left, int32_t right, int32_t result) {
  ranks_.try_emplace(PairKey(left, right), static_cast<int32_t>(merges_.size()));
  merges_.push_back({left, right, result});
}

int32_t BytePairEncoder::RankOf(int32_t left, int32_t right) const {
  const auto it = ranks_.find(PairKey(left, right));
  return it == ranks_.end() ? -1 : it->second;
}

template <class Queue>
void BytePairEncoder::MergeAll(std::vector<Workspace::Symbol>& symbols, Queue& queue) const {
  const auto push = [&](int32_t left, int32_t right) {
    if (left < 0 || right < 0) return;
    const int32_t rank = RankOf(symbols[left].token, symbols[right].token);
    if (rank >= 0) queue.Push({rank, left});
  };
  for (size_t i = 0; i + 1 < symbols.size(); ++i) push(static_cast<int32_t>(i), static_cast<int32_t>(i + 1));
  while (const std::optional<MergeCandidate> top = queue.Pop()) {
    const Merge& merge = merges_[top->rank];
    Workspace::Symbol& left = symbols[top->left];
    // A symbol changed since the candidate was pushed: another merge was first.
    if (left.token != merge.left || left.next < 0 || symbols[left.next].token != merge.right) continue;
    Workspace::Symbol& right = symbols[left.next];
    left.token = merge.result;
    left.next = right.next;
    right.token = -1;
    if (right.next >= 0) symbols[right.next].previous = top->left;
    push(left.previous, top->left);
    push(top->left, left.next);
  }
}

absl::Status BytePairEncoder::Encode(std::string_view piece, Workspace* workspace,
                                     std::vector<int32_t>* tokens) const {
  if (piece.size() >= static_cast<size_t>(std::numeric_limits<int32_t>::max())) {
    return InvalidArgument("a piece of ", piece.size(), " bytes without a break is too long to tokenize");
  }
  auto& symbols = workspace->symbols;
  symbols.clear();
  symbols.reserve(piece.size());
  for (const char c : piece) {
    const int32_t token = byte_tokens_[static_cast<uint8_t>(c)];
    if (token < 0) continue;
    const auto index = static_cast<int32_t>(symbols.size());
    symbols.push_back({token, index - 1, index + 1});
  }
  if (symbols.empty()) return absl::OkStatus();
  symbols.back().next = -1;

  if (symbols.size() < kLongPiece) {
    MergeAll(symbols, workspace->short_queue);
  } else {
    MergeAll(symbols, workspace->long_queue);
  }
  for (int32_t i = 0; i >= 0; i = symbols[i].next) tokens->push_back(symbols[i].token);
  return absl::OkStatus();
}

}  // namespace snapkv::runtime
