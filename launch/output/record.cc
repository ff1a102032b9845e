// SPDX-License-Identifier: Apache-2.0
// Records as JSON and text.
#include "launch/output/record.h"

#include <algorithm>
#include <cmath>

#include "runtime/hash/sha256.h"

namespace snapkv::launch {
namespace {

using nlohmann::ordered_json;

double PerSecond(int64_t tokens, double seconds) {
  return seconds > 0 && tokens > 0 ? static_cast<double>(tokens) / seconds : 0;
}

// To a tenth: what a clock can tell, and what a person can read.
double Tenths(double value) { return std::round(value * 10) / 10; }

int64_t Completion(const DocumentResult& result) {
  return result.completion_tokens >= 0 ? result.completion_tokens
                                       : static_cast<int64_t>(result.token_ids.size());
}

// Bytes that are not UTF-8 (of a flag, of a file's name) become U+FFFD.
std::string Dump(const ordered_json& json) {
  return json.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

ordered_json Usage(const DocumentResult& result) {
  return {{"prompt_tokens", result.prompt_tokens},
          {"completion_tokens", Completion(result)},
          {"total_tokens", result.prompt_tokens + Completion(result)}};
}

ordered_json Timings(const DocumentResult& result) {
  return {{"queue_ms", Tenths(result.queue_s * 1e3)},
          {"prefill_ms", Tenths(result.prefill_s * 1e3)},
          {"decode_ms", Tenths(result.decode_s * 1e3)},
          {"prefill_tokens_per_s", Tenths(PerSecond(result.prompt_tokens, result.prefill_s))},
          // The first token comes from prefill.
          {"decode_tokens_per_s", Tenths(PerSecond(Completion(result) - 1, result.decode_s))}};
}

ordered_json Cache(const DocumentResult& result) {
  return {{"policy", result.policy},
          {"rows_full", result.rows_full},
          {"rows_kept", result.rows_kept},
          {"bytes_full", result.bytes_full},
          {"bytes_kept", result.bytes_kept}};
}

void AddOptional(const DocumentResult& result, const RecordContext& context, ordered_json& record) {
  if (result.truncated.has_value()) {
    record["truncated"] = {{"tokens_full", result.truncated->tokens_full},
                           {"tokens_removed", result.truncated->tokens_removed},
                           {"bytes_removed", result.truncated->bytes_removed}};
  }
  if (context.token_ids) record["token_ids"] = result.token_ids;
}

ordered_json OrNull(int64_t number) { return number > 0 ? ordered_json(number) : ordered_json(nullptr); }

// `code` is a status name in short records, the reason in OpenAI ones.
ordered_json ShortError(const DocumentError& error) {
  return {{"code", absl::StatusCodeToString(error.status.code())},
          {"reason", error.reason},
          {"message", std::string(error.status.message())},
          {"line", OrNull(error.line)},
          {"column", OrNull(error.column)}};
}

ordered_json ShortRecord(const DocumentResult& result, const RecordContext& context) {
  const bool ok = result.error.ok();
  const ordered_json none;
  ordered_json record = {{"id", result.id},
                         {"summary", ok ? ordered_json(result.text) : none},
                         {"finish_reason", ok ? result.finish_reason : "error"},
                         {"usage", ok ? Usage(result) : none},
                         {"timings", ok ? Timings(result) : none},
                         {"cache", ok ? Cache(result) : none},
                         {"params_sha256", context.params_sha256},
                         {"error", ok ? none : ShortError(result.error)}};
  if (ok) AddOptional(result, context, record);
  return record;
}

ordered_json OpenAiBody(const DocumentResult& result, const RecordContext& context, const std::string& hash) {
  if (!result.error.ok()) {
    const int status = HttpStatus(result.error);
    return {{"error",
             {{"code", result.error.reason},
              {"message", std::string(result.error.status.message())},
              {"type", status < 500 ? "invalid_request_error" : "server_error"},
              {"param", nullptr}}}};
  }
  const ordered_json choice = {{"index", 0},
                               {"message", {{"role", "assistant"}, {"content", result.text}}},
                               {"logprobs", nullptr},
                               {"finish_reason", result.finish_reason}};
  return {{"id", "chatcmpl-" + hash},
          {"object", "chat.completion"},
          {"created", context.created_unix_s},
          {"model", context.model},
          {"choices", ordered_json::array({choice})},
          {"usage", Usage(result)}};
}

ordered_json OpenAiRecord(const DocumentResult& result, const RecordContext& context) {
  const bool ok = result.error.ok();
  const ordered_json none;
  const std::string hash = runtime::Sha256Hex(result.id).substr(0, 16);
  ordered_json error = none;
  if (!ok) {
    error = {{"code", result.error.reason},
             {"message", std::string(result.error.status.message())},
             {"line", OrNull(result.error.line)},
             {"column", OrNull(result.error.column)}};
  }
  ordered_json record = {{"id", "batch_req_" + hash},
                         {"custom_id", result.id},
                         {"response",
                          {{"status_code", ok ? 200 : HttpStatus(result.error)},
                           {"request_id", "req_" + hash},
                           {"body", OpenAiBody(result, context, hash)}}},
                         {"error", error},
                         {"cache", ok ? Cache(result) : none},
                         {"timings", ok ? Timings(result) : none},
                         {"params_sha256", context.params_sha256}};
  if (ok) AddOptional(result, context, record);
  return record;
}

}  // namespace

std::string ParamsSha256(const RunParams& params) {
  const DocumentParams& d = params.defaults;
  const ordered_json json = {{"model", params.model_name},
                             {"model_bytes", params.model_bytes},
                             {"model_fingerprint", params.model_fingerprint},
                             {"dtype", params.dtype},
                             {"prompt", d.prompt},
                             {"system", d.system},
                             {"max_tokens", d.max_tokens},
                             {"temperature", d.temperature},
                             {"top_k", d.top_k},
                             {"top_p", d.top_p},
                             {"min_p", d.min_p},
                             {"repeat_penalty", d.repeat_penalty},
                             {"seed", d.seed},
                             {"stop", d.stops},
                             {"stop_token_ids", d.stop_token_ids},
                             {"policy", params.policy},
                             {"capacity", params.capacity},
                             {"window", params.window},
                             {"kernel", params.kernel},
                             {"pool", params.pool},
                             {"group", params.group},
                             {"raw", params.raw},
                             {"encoding", params.encoding},
                             {"context", params.context},
                             {"overflow", params.overflow},
                             {"ignore_eos", params.ignore_eos}};
  return runtime::Sha256Hex(Dump(json));
}

int HttpStatus(const DocumentError& error) {
  if (error.reason.ends_with("_TOO_LARGE")) return 413;
  switch (error.status.code()) {
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kOutOfRange:
      return 400;
    case absl::StatusCode::kUnauthenticated:
      return 401;
    case absl::StatusCode::kPermissionDenied:
      return 403;
    case absl::StatusCode::kNotFound:
      return 404;
    case absl::StatusCode::kAlreadyExists:
    case absl::StatusCode::kAborted:
      return 409;
    case absl::StatusCode::kResourceExhausted:  // too large for the memory here, or too many at once
      return error.reason == "QUEUE_FULL" || error.reason == "QUOTA_EXCEEDED" ? 429 : 413;
    case absl::StatusCode::kCancelled:
      return 499;
    case absl::StatusCode::kUnimplemented:
      return 501;
    case absl::StatusCode::kUnavailable:
      return 503;
    case absl::StatusCode::kDeadlineExceeded:
      return 504;
    default:
      return 500;
  }
}

ordered_json Record(const DocumentResult& result, const RecordContext& context) {
  return result.form == RecordForm::kOpenAi ? OpenAiRecord(result, context) : ShortRecord(result, context);
}

std::string RecordLine(const DocumentResult& result, const RecordContext& context) {
  return Dump(Record(result, context)) + "\n";
}

std::string TextRecord(const DocumentResult& result, bool with_header) {
  const std::string body =
      result.error.ok() ? result.text : absl::StrCat("error: ", result.error.status.message());
  return with_header ? absl::StrCat("== ", result.id, " ==\n", body, "\n\n") : body + "\n";
}

}  // namespace snapkv::launch
