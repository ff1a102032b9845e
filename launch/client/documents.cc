// SPDX-License-Identifier: Apache-2.0
// Conversions between documents, messages and records.
#include "launch/client/documents.h"

#include <algorithm>
#include <cstring>

#include "launch/client/text.h"
#include "runtime/hash/sha256.h"
#include "runtime/service/reason.h"

namespace snapkv::launch {
namespace {

using service::Reason;

void SetGiven(const Document& document, v1::Parameters& out) {
  const auto given = [&](const char* name) {
    return std::find(document.given.begin(), document.given.end(), name) != document.given.end();
  };
  const DocumentParams& p = document.params;
  if (given("prompt")) out.set_prompt(p.prompt);
  if (given("system")) out.set_system(p.system);
  if (given("max_tokens") || given("max_completion_tokens")) out.set_max_tokens(p.max_tokens);
  if (given("temperature")) out.set_temperature(p.temperature);
  if (given("top_k")) out.set_top_k(p.top_k);
  if (given("top_p")) out.set_top_p(p.top_p);
  if (given("min_p")) out.set_min_p(p.min_p);
  if (given("repeat_penalty")) out.set_repeat_penalty(p.repeat_penalty);
  if (given("seed")) out.set_seed(p.seed);
  if (given("stop")) out.mutable_stop()->Assign(p.stops.begin(), p.stops.end());
  if (given("stop_token_ids"))
    out.mutable_stop_token_ids()->Assign(p.stop_token_ids.begin(), p.stop_token_ids.end());
}

// [{"role", "content"}, ...]
std::string Conversation(const std::vector<runtime::ChatMessage>& messages) {
  auto json = nlohmann::ordered_json::array();
  for (const runtime::ChatMessage& message : messages)
    json.push_back({{"role", message.role}, {"content", message.content}});
  return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace

v1::Document ToProto(Document document) {
  v1::Document proto;
  proto.set_document_id(document.id);
  v1::Parameters parameters;
  SetGiven(document, parameters);
  if (parameters.ByteSizeLong() > 0) *proto.mutable_parameters() = std::move(parameters);
  if (document.messages.empty()) {
    proto.set_content(std::move(document.text));
  } else {
    proto.set_content(Conversation(document.messages));
    proto.set_media_type("application/json");
  }
  return proto;
}

DocumentIndex::Key DocumentIndex::KeyOf(const std::string& id) {
  const auto digest = runtime::Sha256(id);
  Key key{};
  std::memcpy(key.data(), digest.data(), sizeof(key));
  return key;
}

void DocumentIndex::Add(const std::string& id, const DocumentNote& note) {
  const std::lock_guard lock(mutex_);
  const bool fresh = notes_.emplace(KeyOf(id), note).second;
  if (fresh && note.finished) ++finished_;
}

std::optional<DocumentNote> DocumentIndex::Find(const std::string& id) const {
  const std::lock_guard lock(mutex_);
  const auto it = notes_.find(KeyOf(id));
  return it == notes_.end() ? std::nullopt : std::optional(it->second);
}

bool DocumentIndex::Finish(const std::string& id) {
  const std::lock_guard lock(mutex_);
  const auto it = notes_.find(KeyOf(id));
  if (it == notes_.end() || it->second.finished) return false;
  it->second.finished = true;
  ++finished_;
  return true;
}

int64_t DocumentIndex::size() const {
  const std::lock_guard lock(mutex_);
  return static_cast<int64_t>(notes_.size());
}

int64_t DocumentIndex::unfinished() const {
  const std::lock_guard lock(mutex_);
  return static_cast<int64_t>(notes_.size()) - finished_;
}

DocumentResult ToDocumentResult(const v1::Result& result, const DocumentNote& note) {
  if (result.status().code() != 0) {
    absl::Status status(static_cast<absl::StatusCode>(result.status().code()), result.status().message());
    std::string reason = result.status().reason();
    if (reason.empty()) reason = absl::StatusCodeToString(status.code());
    return ToFailedResult(result.document_id(), note, {std::move(status), std::move(reason)});
  }
  DocumentResult r;
  r.id = result.document_id();
  r.form = note.form;
  r.text = result.summary();
  r.token_ids.assign(result.token_ids().begin(), result.token_ids().end());
  r.completion_tokens = result.usage().completion_tokens();
  r.finish_reason = result.finish_reason() == v1::FINISH_REASON_LENGTH ? "length" : "stop";
  r.prompt_tokens = result.usage().prompt_tokens();
  r.rows_full = result.cache().rows_full();
  r.rows_kept = result.cache().rows_kept();
  r.bytes_full = result.cache().bytes_full();
  r.bytes_kept = result.cache().bytes_kept();
  r.policy = r.rows_kept == r.rows_full ? "full" : "snapkv";
  r.queue_s = result.timings().queue_ms() / 1e3;
  r.prefill_s = result.timings().prefill_ms() / 1e3;
  r.decode_s = result.timings().decode_ms() / 1e3;
  if (result.has_truncation()) {
    const v1::Truncation& t = result.truncation();
    r.truncated = Truncation{t.tokens_full(), t.tokens_removed(), t.bytes_removed()};
  }
  return r;
}

DocumentResult ToFailedResult(const std::string& id, const DocumentNote& note, DocumentError error) {
  DocumentResult r;
  r.id = id;
  r.form = note.form;
  r.error = std::move(error);
  if (r.error.line == 0) r.error.line = note.line;
  return r;
}

DocumentError ToDocumentError(const absl::Status& status) {
  const auto reason = service::ReasonOf(status);
  return {absl::Status(status.code(), Printable(std::string(status.message()))),
          reason.has_value() ? service::ReasonName(*reason) : absl::StatusCodeToString(status.code())};
}

bool IsDocumentRefusal(const absl::Status& status) {
  const auto reason = service::ReasonOf(status);
  if (!reason.has_value()) return false;
  switch (*reason) {
    case Reason::kDocumentEmpty:
    case Reason::kDocumentNotUtf8:
    case Reason::kDocumentTooLarge:
    case Reason::kDocumentIdDuplicate:
    case Reason::kDocumentIdInvalid:
    case Reason::kParameterInvalid:
    case Reason::kChecksumMismatch:
      return true;
    default:
      return false;
  }
}

}  // namespace snapkv::launch
