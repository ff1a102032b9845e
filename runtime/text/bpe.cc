// SPDX-License-Identifier: Apache-2.0
// Byte-pair encoding with a linked list of symbols and a heap of candidate merges.
#include "runtime/text/bpe.h"

#include <algorithm>
#include <limits>

#include "kernels/base/status.h"

namespace snapkv::runtime {
namespace {

uint64_t PairKey(int32_t left, int32_t right) {
  return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}

// Heap order: the candidate to merge first (lowest rank, then leftmost) is on top.
bool MergesLater(const BytePairEncoder::Workspace::Candidate& a,
                 const BytePairEncoder::Workspace::Candidate& b) {
  return a.rank != b.rank ? a.rank > b.rank : a.left > b.left;
}

}  // namespace

void BytePairEncoder::AddMerge(int32_t left, int32_t right, int32_t result) {
  merges_.try_emplace(PairKey(left, right), Merge{next_rank_, result});
  ++next_rank_;
}

const BytePairEncoder::Merge* BytePairEncoder::Find(int32_t left, int32_t right) const {
  const auto it = merges_.find(PairKey(left, right));
  return it == merges_.end() ? nullptr : &it->second;
}

void BytePairEncoder::PushIfMergeable(int32_t left, int32_t right, Workspace* workspace) const {
  if (left < 0 || right < 0) return;
  const int32_t left_token = workspace->symbols[left].token;
  const int32_t right_token = workspace->symbols[right].token;
  const Merge* merge = Find(left_token, right_token);
  if (merge == nullptr) return;
  workspace->queue.push_back({merge->rank, left, left_token, right_token});
  std::push_heap(workspace->queue.begin(), workspace->queue.end(), MergesLater);
}

void BytePairEncoder::MergeAll(Workspace* workspace) const {
  auto& symbols = workspace->symbols;
  auto& queue = workspace->queue;
  while (!queue.empty()) {
    const Workspace::Candidate top = queue.front();
    std::pop_heap(queue.begin(), queue.end(), MergesLater);
    queue.pop_back();
    const int32_t right = symbols[top.left].next;
    // A symbol changed since the candidate was pushed: another merge was first.
    if (symbols[top.left].token != top.left_token || right < 0 || symbols[right].token != top.right_token) {
      continue;
    }
    symbols[top.left].token = Find(top.left_token, top.right_token)->result;
    symbols[top.left].next = symbols[right].next;
    symbols[right].token = -1;
    if (symbols[right].next >= 0) symbols[symbols[right].next].previous = top.left;
    PushIfMergeable(symbols[top.left].previous, top.left, workspace);
    PushIfMergeable(top.left, symbols[top.left].next, workspace);
  }
}

absl::Status BytePairEncoder::Encode(std::string_view piece, Workspace* workspace,
                                     std::vector<int32_t>* tokens) const {
  if (piece.size() >= static_cast<size_t>(std::numeric_limits<int32_t>::max())) {
    return InvalidArgument("a piece of ", piece.size(), " bytes without a break is too long to tokenize");
  }
  auto& symbols = workspace->symbols;
  symbols.clear();
  for (const char c : piece) {
    const int32_t token = byte_tokens_[static_cast<uint8_t>(c)];
    if (token < 0) continue;
    const auto index = static_cast<int32_t>(symbols.size());
    symbols.push_back({token, index - 1, index + 1});
  }
  if (symbols.empty()) return absl::OkStatus();
  symbols.back().next = -1;

  auto& queue = workspace->queue;
  queue.clear();
  for (size_t i = 0; i + 1 < symbols.size(); ++i) {
    const Merge* merge = Find(symbols[i].token, symbols[i + 1].token);
    if (merge == nullptr) continue;
    queue.push_back({merge->rank, static_cast<int32_t>(i), symbols[i].token, symbols[i + 1].token});
  }
  std::make_heap(queue.begin(), queue.end(), MergesLater);
  MergeAll(workspace);
  for (int32_t i = 0; i >= 0; i = symbols[i].next) tokens->push_back(symbols[i].token);
  return absl::OkStatus();
}

}  // namespace snapkv::runtime
