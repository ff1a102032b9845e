// SPDX-License-Identifier: Apache-2.0
// One field after another.
#include "launch/worker/outcome.h"

#include "runtime/service/reason.h"

namespace snapkv::launch {

v1::Status ToStatus(const DocumentError& error) {
  v1::Status status;
  status.set_code(static_cast<int32_t>(error.status.code()));
  status.set_reason(error.reason);
  status.set_message(std::string(error.status.message()));
  return status;
}

std::string ReasonText(const absl::Status& status) {
  const auto reason = service::ReasonOf(status);
  return reason.has_value() ? service::ReasonName(*reason) : absl::StatusCodeToString(status.code());
}

v1::Result ToResult(const DocumentResult& result, const std::string& params_sha256) {
  v1::Result out;
  out.set_document_id(result.id);
  out.set_summary(result.text);
  out.set_finish_reason(result.finish_reason == "stop"     ? v1::FINISH_REASON_STOP
                        : result.finish_reason == "length" ? v1::FINISH_REASON_LENGTH
                                                           : v1::FINISH_REASON_UNSPECIFIED);
  out.mutable_usage()->set_prompt_tokens(result.prompt_tokens);
  out.mutable_usage()->set_completion_tokens(static_cast<int64_t>(result.token_ids.size()));
  out.mutable_timings()->set_queue_ms(result.queue_s * 1e3);
  out.mutable_timings()->set_prefill_ms(result.prefill_s * 1e3);
  out.mutable_timings()->set_decode_ms(result.decode_s * 1e3);
  out.mutable_cache()->set_rows_full(result.rows_full);
  out.mutable_cache()->set_rows_kept(result.rows_kept);
  out.mutable_cache()->set_bytes_full(result.bytes_full);
  out.mutable_cache()->set_bytes_kept(result.bytes_kept);
  if (result.truncated.has_value()) {
    out.mutable_truncation()->set_tokens_full(result.truncated->tokens_full);
    out.mutable_truncation()->set_tokens_removed(result.truncated->tokens_removed);
    out.mutable_truncation()->set_bytes_removed(result.truncated->bytes_removed);
  }
  out.set_params_sha256(params_sha256);
  out.mutable_token_ids()->Assign(result.token_ids.begin(), result.token_ids.end());
  return out;
}

}  // namespace snapkv::launch
