// SPDX-License-Identifier: Apache-2.0
// Text while it is being generated: complete characters only, and stop strings found across token borders.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/text/tokenizer.h"

namespace snapkv::runtime {

// Turns token ids into UTF-8 text, one at a time. What it returns, joined, is the decoded bytes of all tokens
// that are not control tokens, with every ill-formed part replaced by U+FFFD. Not thread-safe.
class StreamDecoder {
 public:
  // `tokenizer` must outlive the decoder.
  explicit StreamDecoder(const Tokenizer* tokenizer) : tokenizer_(tokenizer) {}

  // The text that is complete now; at most 3 bytes are held back. Control tokens give nothing.
  // Error: an id outside the vocabulary.
  absl::StatusOr<std::string> Append(int32_t id);

  // The end: one U+FFFD when a character is incomplete, else "". The decoder is as new afterwards.
  std::string Flush();

 private:
  const Tokenizer* tokenizer_;
  std::string pending_;  // a truncated sequence
};

// Finds the first stop string in text that arrives in parts. The stop string that ends first counts (of those
// that end together, the longest), so the result does not depend on where the parts are cut. Not thread-safe.
class StopMatcher {
 public:
  // No stop strings: everything passes. Errors: an empty stop string, or one that is not UTF-8.
  static absl::StatusOr<StopMatcher> Create(std::vector<std::string> stops);

  // The text that is certain to stand before any stop string; a suffix that may become one is held back.
  // After a match: the text up to it, later "".
  std::string Append(std::string_view text);

  // The end of the text: what was held back; "" after a match. Nothing may be appended afterwards.
  std::string Flush();

  bool matched() const { return matched_; }
  // Which stop string was found; only when matched().
  const std::string& match() const { return stops_[match_].text; }

 private:
  struct Stop {
    std::string text;
    std::vector<size_t> border;  // border[n]: length of the longest proper border of the first n bytes
    size_t state = 0;            // bytes of `text` that the end of the input matches
  };

  explicit StopMatcher(std::vector<Stop> stops) : stops_(std::move(stops)) {}
  static size_t Step(const Stop& stop, char byte);

  std::vector<Stop> stops_;
  std::string held_;
  bool matched_ = false;
  size_t match_ = 0;
};

}  // namespace snapkv::runtime
