// SPDX-License-Identifier: Apache-2.0
// Flags of documents and sampling.
#include "launch/param_flags.h"

#include "launch/flag_types.h"

namespace snapkv::launch {

void AddSamplingFlags(CLI::App& app, const std::string& group, DocumentParams& p, bool show_defaults) {
  CLI::Option* const options[] = {
      app.add_option("--max-tokens", p.max_tokens, "tokens to generate at most")
          ->check(CLI::Range(int64_t{1}, int64_t{INT32_MAX})),
      app.add_option("--temperature", p.temperature, "0 takes the likeliest token")->check(RealRange(0, 100)),
      app.add_option("--top-k", p.top_k, "draw from the k likeliest tokens; 0: off")
          ->check(CLI::Range(int64_t{0}, int64_t{INT32_MAX})),
      app.add_option("--top-p", p.top_p,
                     "draw from the likeliest tokens that together have this probability; 1: off")
          ->check(RealRange(1e-6, 1)),
      app.add_option("--min-p", p.min_p,
                     "draw from tokens at least this probable beside the likeliest; 0: off")
          ->check(RealRange(0, 1)),
      app.add_option("--repeat-penalty", p.repeat_penalty,
                     "divides the logits of tokens generated before; 1: off")
          ->check(RealRange(0.01, 100)),
      app.add_option("--seed", p.seed, "of sampling; a document's draws depend on it and the document's id")
          ->check(IsUnsigned)};
  for (CLI::Option* const option : options) {
    if (show_defaults) option->capture_default_str();
    option->group(group);
  }
}

void AddStopFlags(CLI::App& app, const std::string& group, DocumentParams& p) {
  AddTexts(app, "--stop", p.stops, "text that ends the summary; repeatable")->check(IsUtf8)->group(group);
  app.add_option("--stop-token-id", p.stop_token_ids, "token that ends the summary; repeatable")
      ->check(CLI::Range(0, INT32_MAX))
      ->expected(1)
      ->allow_extra_args(false)
      ->take_all()
      ->group(group);
}

void AddInputFormatFlag(CLI::App& app, const std::string& group, InputFormat& format) {
  AddChoice(app, group, "--input-format", format,
            "of files; auto: *.jsonl and *.ndjson are JSONL, all else and stdin text",
            {{"auto", InputFormat::kAuto}, {"text", InputFormat::kText}, {"jsonl", InputFormat::kJsonl}});
}

void AddEncodingFlag(CLI::App& app, const std::string& group, std::string& encoding) {
  AddChoice(app, group, "--encoding", encoding, "of the input; latin1 is converted",
            {{"utf-8", std::string("utf-8")}, {"latin1", std::string("latin1")}});
}

void AddInputLimitFlags(CLI::App& app, const std::string& group, int64_t& max_document_bytes,
                        int64_t& max_line_bytes) {
  AddBytes(app, group, "--max-document-bytes", max_document_bytes, "a longer document is an error");
  AddBytes(app, group, "--max-line-bytes", max_line_bytes, "a longer JSONL line is an error");
}

}  // namespace snapkv::launch
