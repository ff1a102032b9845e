// SPDX-License-Identifier: Apache-2.0
// Streaming text: UTF-8 completion, and one Knuth-Morris-Pratt automaton per stop string.
#include "runtime/text/stream_decoder.h"

#include <algorithm>
#include <utility>

#include "kernels/base/status.h"
#include "runtime/text/utf8.h"

namespace snapkv::runtime {

absl::StatusOr<std::string> StreamDecoder::Append(int32_t id) {
  if (!tokenizer_->InVocabulary(id)) {
    return InvalidArgument("token id ", id, " is outside the vocabulary of ", tokenizer_->vocab_size(),
                           " tokens");
  }
  std::string out;
  if (tokenizer_->IsControl(id)) return out;
  const std::string text = std::exchange(pending_, "") + tokenizer_->TokenBytes(id);
  for (size_t pos = 0; pos < text.size();) {
    const Utf8Step step = ReadUtf8(text, pos);
    switch (step.kind) {
      case Utf8Step::Kind::kOk:
        out.append(text, pos, step.length);
        break;
      case Utf8Step::Kind::kBad:
        AppendUtf8(kReplacementCharacter, &out);
        break;
      case Utf8Step::Kind::kTruncated:
        pending_ = text.substr(pos);
        break;
    }
    pos += step.length;
  }
  return out;
}

std::string StreamDecoder::Flush() {
  std::string out;
  if (!pending_.empty()) AppendUtf8(kReplacementCharacter, &out);
  pending_.clear();
  return out;
}

absl::StatusOr<StopMatcher> StopMatcher::Create(std::vector<std::string> stops) {
  std::vector<Stop> prepared;
  for (std::string& text : stops) {
    if (text.empty()) return InvalidArgument("--stop: a stop string is empty; leave it out");
    if (const auto bad = ValidateUtf8(text)) {
      return InvalidArgument("--stop: a stop string is not UTF-8 at byte offset ", *bad);
    }
    Stop stop;
    stop.border.assign(text.size() + 1, 0);
    for (size_t n = 1, border = 0; n < text.size(); ++n) {
      while (border > 0 && text[border] != text[n]) border = stop.border[border];
      if (text[border] == text[n]) ++border;
      stop.border[n + 1] = border;
    }
    stop.text = std::move(text);
    prepared.push_back(std::move(stop));
  }
  return StopMatcher(std::move(prepared));
}

size_t StopMatcher::Step(const Stop& stop, char byte) {
  size_t state = stop.state;
  while (state > 0 && stop.text[state] != byte) state = stop.border[state];
  return stop.text[state] == byte ? state + 1 : 0;
}

std::string StopMatcher::Append(std::string_view text) {
  if (matched_) return "";
  size_t open = 0;  // the longest suffix that may become a stop string
  for (const char byte : text) {
    held_.push_back(byte);
    open = 0;
    for (size_t i = 0; i < stops_.size(); ++i) {
      Stop& stop = stops_[i];
      stop.state = Step(stop, byte);
      open = std::max(open, stop.state);
      if (stop.state < stop.text.size()) continue;
      if (!matched_ || stop.text.size() > stops_[match_].text.size()) match_ = i;
      matched_ = true;
    }
    if (matched_) {
      std::string before = held_.substr(0, held_.size() - stops_[match_].text.size());
      held_.clear();
      return before;
    }
  }
  if (text.empty()) return "";
  std::string ready = held_.substr(0, held_.size() - open);
  held_.erase(0, ready.size());
  return ready;
}

std::string StopMatcher::Flush() { return std::exchange(held_, ""); }

}  // namespace snapkv::runtime
