// SPDX-License-Identifier: Apache-2.0
// OrderedWriter: records as they finish, or (--ordered) in the order of their documents.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "kernels/base/status.h"

namespace snapkv::launch {

// Documents are numbered 0, 1, 2, ... as they are read; each number is given to Put or Skip once, in any
// order. One thread uses it.
class OrderedWriter {
 public:
  using Sink = std::function<absl::Status(const std::string& line)>;
  // Without `ordered` every record goes straight to the sink.
  OrderedWriter(bool ordered, Sink sink) : ordered_(ordered), sink_(std::move(sink)) {}

  // The record of document `sequence`. Writes it and those it held back, or holds it back until all before it
  // came. An error is the sink's: the record that it refused stays held, those behind it too. A number that
  // came before is INTERNAL.
  absl::Status Put(int64_t sequence, std::string line);
  // Document `sequence` gets no record (it is already in the file).
  absl::Status Skip(int64_t sequence);
  // Writes what is held in the order of numbers, though some before are missing: at the end of a run that was
  // stopped, so that no finished work is lost.
  absl::Status Drain();

  int64_t held() const { return static_cast<int64_t>(held_.size()) - held_skips_; }  // records
  int64_t held_bytes() const { return held_bytes_; }
  int64_t next() const { return next_; }  // the first number that did not come

 private:
  absl::Status Add(int64_t sequence, std::string line);  // "" for a skipped one
  absl::Status WriteFirst();

  bool ordered_;
  Sink sink_;
  std::map<int64_t, std::string> held_;
  int64_t held_skips_ = 0;
  int64_t held_bytes_ = 0;
  int64_t next_ = 0;
};

}  // namespace snapkv::launch
