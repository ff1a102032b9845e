// SPDX-License-Identifier: Apache-2.0
// Holding back records whose turn has not come.
#include "launch/output/ordered_writer.h"

#include <utility>

namespace snapkv::launch {

absl::Status OrderedWriter::Put(int64_t sequence, std::string line) {
  if (!ordered_) return sink_(line);
  return Add(sequence, std::move(line));
}

absl::Status OrderedWriter::Skip(int64_t sequence) {
  if (!ordered_) return absl::OkStatus();
  return Add(sequence, "");
}

absl::Status OrderedWriter::Add(int64_t sequence, std::string line) {
  if (sequence < next_ || held_.contains(sequence))
    return Internal("document number ", sequence, " has two records");
  held_bytes_ += static_cast<int64_t>(line.size());
  held_skips_ += line.empty() ? 1 : 0;
  held_.emplace(sequence, std::move(line));
  while (!held_.empty() && held_.begin()->first == next_) RETURN_IF_ERROR(WriteFirst());
  return absl::OkStatus();
}

absl::Status OrderedWriter::WriteFirst() {
  const auto first = held_.begin();
  if (!first->second.empty()) {
    RETURN_IF_ERROR(sink_(first->second));
  } else {
    --held_skips_;
  }
  held_bytes_ -= static_cast<int64_t>(first->second.size());
  next_ = first->first + 1;
  held_.erase(first);
  return absl::OkStatus();
}

absl::Status OrderedWriter::Drain() {
  while (!held_.empty()) RETURN_IF_ERROR(WriteFirst());
  return absl::OkStatus();
}

}  // namespace snapkv::launch
