// SPDX-License-Identifier: Apache-2.0
// Records as lines of JSON.
#include "launch/record.h"

#include "launch/sha256.h"

namespace snapkv::launch {
namespace {

using nlohmann::ordered_json;

double PerSecond(int64_t tokens, double seconds) {
  return seconds > 0 ? static_cast<double>(tokens) / seconds : 0;
}

}  // namespace

std::string ParamsSha256(const Flags& flags, const std::string& model_name, int64_t model_bytes,
                         const char* dtype) {
  const auto& c = flags.compression;
  const ordered_json params = {{"model", model_name},
                               {"model_bytes", model_bytes},
                               {"dtype", dtype},
                               {"prompt", flags.prompt},
                               {"system", flags.system},
                               {"raw", flags.raw},
                               {"encoding", flags.encoding},
                               {"max_tokens", flags.max_tokens},
                               {"context", flags.context},
                               {"policy", static_cast<int>(c.policy)},
                               {"capacity", c.capacity},
                               {"window", c.window},
                               {"kernel", c.kernel},
                               {"pool", static_cast<int>(c.pool)},
                               {"group", static_cast<int>(c.group)},
                               {"temperature", flags.temperature},
                               {"repeat_penalty", flags.repeat_penalty},
                               {"seed", flags.seed},
                               {"ignore_eos", flags.ignore_eos},
                               {"stop", flags.stops}};
  // Flags may hold bytes that are not UTF-8; for the hash they may be replaced.
  return Sha256Hex(params.dump(-1, ' ', false, ordered_json::error_handler_t::replace));
}

ordered_json SuccessRecord(const Flags& flags, const std::string& id, const std::string& params_sha256,
                           int64_t prompt_tokens, const runtime::PrefillResult& prefill,
                           const runtime::Generation& generation, const DocumentTimes& times) {
  const int64_t completion = static_cast<int64_t>(generation.token_ids.size());
  ordered_json record = {
      {"id", id},
      {"summary", generation.text},
      {"finish_reason", generation.finish_reason},
      {"usage",
       {{"prompt_tokens", prompt_tokens},
        {"completion_tokens", completion},
        {"total_tokens", prompt_tokens + completion}}},
      {"timings",
       {{"queue_ms", 0.0},
        {"prefill_ms", times.prefill_s * 1e3},
        {"decode_ms", times.decode_s * 1e3},
        {"prefill_tokens_per_s", PerSecond(prompt_tokens, times.prefill_s)},
        // The first token comes from prefill.
        {"decode_tokens_per_s", PerSecond(completion - 1, times.decode_s)}}},
      {"cache",
       {{"policy", flags.compression.policy == runtime::CachePolicy::kFull ? "full" : "snapkv"},
        {"rows_full", prefill.rows_full},
        {"rows_kept", prefill.rows_kept},
        {"bytes_full", prefill.bytes_full},
        {"bytes_kept", prefill.bytes_kept}}},
      {"params_sha256", params_sha256},
      {"error", nullptr}};
  if (flags.return_token_ids) record["token_ids"] = generation.token_ids;
  return record;
}

ordered_json ErrorRecord(const std::string& id, const std::string& params_sha256,
                         const DocumentError& error) {
  return {{"id", id},
          {"summary", nullptr},
          {"finish_reason", "error"},
          {"usage", nullptr},
          {"timings", nullptr},
          {"cache", nullptr},
          {"params_sha256", params_sha256},
          {"error",
           {{"code", absl::StatusCodeToString(error.status.code())},
            {"reason", error.reason},
            {"message", std::string(error.status.message())},
            {"line", nullptr},
            {"column", nullptr}}}};
}

std::string ToLine(const ordered_json& record) {
  return record.dump(-1, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace snapkv::launch
