// SPDX-License-Identifier: Apache-2.0
// Between the engine's types and those of documents.
#include "launch/document_run.h"

#include <utility>

#include "launch/flags.h"
#include "runtime/hash/sha256.h"

namespace snapkv::launch {
namespace {

uint64_t SeedOf(uint64_t seed, const std::string& id) {
  const std::string hash = runtime::Sha256Hex(std::to_string(seed) + "\n" + id);
  return std::stoull(hash.substr(0, 16), nullptr, 16);
}

}  // namespace

runtime::GenerateOptions MakeGenerateOptions(const DocumentParams& params, const std::string& id,
                                             bool ignore_eos) {
  runtime::GenerateOptions options;
  options.max_tokens = params.max_tokens;
  options.sampling.temperature = static_cast<float>(params.temperature);
  options.sampling.top_k = params.top_k;
  options.sampling.top_p = params.top_p;
  options.sampling.min_p = params.min_p;
  options.sampling.repeat_penalty = static_cast<float>(params.repeat_penalty);
  options.sampling.seed = SeedOf(params.seed, id);
  options.ignore_eos = ignore_eos;
  options.stops = params.stops;
  options.stop_token_ids = params.stop_token_ids;
  return options;
}

DocumentError EngineError(const absl::Status& status, int64_t line) {
  const bool memory = absl::IsResourceExhausted(status);
  return {status, memory ? "OUT_OF_MEMORY" : "INTERNAL", line, 0};
}

DocumentError CheckCacheBytes(int64_t cache_bytes, int64_t limit, int64_t line) {
  if (limit == 0 || cache_bytes <= limit) return {};
  return {ResourceExhausted("the document's cache takes ", cache_bytes, " bytes, --cache-bytes allows ",
                            limit, "; raise it, or lower --capacity or --max-tokens"),
          "CACHE_EXCEEDED", line, 0};
}

void SetPrefill(const runtime::PrefillResult& prefill, double seconds, DocumentResult& result) {
  result.rows_full = prefill.rows_full;
  result.rows_kept = prefill.rows_kept;
  result.bytes_full = prefill.bytes_full;
  result.bytes_kept = prefill.bytes_kept;
  result.prefill_s = seconds;
}

void SetGeneration(runtime::Generation generation, const runtime::DocumentTimes& times,
                   runtime::CachePolicy policy, DocumentResult& result) {
  result.text = std::move(generation.text);
  result.token_ids = std::move(generation.token_ids);
  result.finish_reason = generation.finish_reason;
  result.policy = PolicyName(policy);
  result.decode_s = times.decode_s;
}

}  // namespace snapkv::launch
