// SPDX-License-Identifier: Apache-2.0
// Generate: the tokens of one document after its prefill, on the decode rank, while the other ranks stand by.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "runtime/engine/prefill.h"
#include "runtime/text/tokenizer.h"

namespace snapkv::runtime {

struct GenerateOptions {
  int64_t max_tokens = 256;
  kernels::SampleParams sampling;  // `step` is set here
  bool ignore_eos = false;         // go on to max_tokens
  std::vector<std::string> stops;  // the text ends before the first of these
  // At least four times in this time the decode rank shows the others that it is alive (--comm-timeout).
  absl::Duration comm_timeout = absl::Seconds(60);
  // Receives text as it becomes final; may be empty.
  std::function<void(const std::string&)> on_text;
};

struct Generation {
  std::vector<int32_t> token_ids;  // with the one that ended it
  std::string text;                // without control tokens
  std::string finish_reason;       // "stop" (end token or stop string) or "length"
  double seconds = 0;              // of decoding; the first token comes from prefill
};

// Every rank calls it. On the decode rank: draws max_tokens tokens or fewer from prefill's logits and cache
// (whose headroom is at least max_tokens - 1); the repetition penalty looks at generated tokens only, since a
// summary repeats words of its document. Elsewhere: waits for it and returns an empty Generation. An error of
// the decode rank is returned on all.
absl::StatusOr<Generation> Generate(const RankContext& context, const Tokenizer* tokenizer,
                                    PrefillResult& prefill, const GenerateOptions& options);

}  // namespace snapkv::runtime
