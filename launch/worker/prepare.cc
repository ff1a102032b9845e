// SPDX-License-Identifier: Apache-2.0
// Parameters, text, tokens, hash.
#include "launch/worker/prepare.h"

#include <cmath>
#include <utility>

#include "launch/document_run.h"
#include "launch/input/text_file.h"
#include "launch/worker/outcome.h"
#include "runtime/service/conversation.h"
#include "runtime/text/utf8.h"

namespace snapkv::launch {
namespace {

DocumentError Bad(const std::string& message) { return {InvalidArgument(message), "PARAMETER_INVALID"}; }

// `value` when it lies in [least, most]; `above`: not least itself. NaN is outside.
template <class T, class To>
DocumentError Set(const char* name, T value, T least, T most, To& to, bool above = false) {
  if (!(above ? value > least : value >= least) || !(value <= most))
    return Bad(absl::StrCat(name, " is ", value, ", expected a number ", above ? "above " : "from ", least,
                            " to ", most));
  to = static_cast<To>(value);
  return {};
}

DocumentError ReadConversation(const std::string& bytes, Document& document) {
  if (const auto bad = runtime::ValidateUtf8(bytes); bad.has_value())
    return {InvalidArgument(document.id, ": not UTF-8 at byte offset ", *bad), "DOCUMENT_NOT_UTF8"};
  auto messages = service::ParseConversation(bytes);
  if (!messages.ok()) return {Annotate(messages.status(), document.id), ReasonText(messages.status())};
  document.messages = *std::move(messages);
  return {};
}

PromptOptions MakePromptOptions(int64_t context, Overflow overflow) {
  PromptOptions options;
  options.context = context;
  options.overflow = overflow;
  return options;
}

}  // namespace

DocumentError ApplyParameters(const v1::Parameters& p, DocumentParams& params,
                              runtime::CompressionOptions& compression, Overflow& overflow) {
  constexpr int64_t kMost = INT32_MAX;
  DocumentError error;
  const auto set = [&](bool has, auto&&... arguments) {
    if (has && error.ok()) error = Set(std::forward<decltype(arguments)>(arguments)...);
  };
  if (p.has_prompt()) params.prompt = p.prompt();
  if (p.has_system()) params.system = p.system();
  if (p.has_seed()) params.seed = p.seed();
  set(p.has_max_tokens(), "max_tokens", p.max_tokens(), int64_t{1}, kMost, params.max_tokens);
  set(p.has_temperature(), "temperature", p.temperature(), 0.0, 100.0, params.temperature);
  set(p.has_top_k(), "top_k", p.top_k(), int64_t{0}, kMost, params.top_k);
  set(p.has_top_p(), "top_p", p.top_p(), 0.0, 1.0, params.top_p, true);
  set(p.has_min_p(), "min_p", p.min_p(), 0.0, 1.0, params.min_p);
  set(p.has_repeat_penalty(), "repeat_penalty", p.repeat_penalty(), 0.0, 100.0, params.repeat_penalty, true);
  set(p.has_capacity(), "capacity", p.capacity(), int64_t{1}, kMost, compression.capacity);
  set(p.has_window(), "window", p.window(), int64_t{1}, kMost, compression.window);
  set(p.has_kernel(), "kernel", p.kernel(), int64_t{1}, int64_t{1} << 20, compression.kernel);
  if (!error.ok()) return error;
  if (p.stop_size() > 0) params.stops.assign(p.stop().begin(), p.stop().end());
  for (const std::string& stop : params.stops) {
    if (stop.empty()) return Bad("stop: a text that ends the summary must not be empty");
  }
  if (p.stop_token_ids_size() > 0)
    params.stop_token_ids.assign(p.stop_token_ids().begin(), p.stop_token_ids().end());
  if (p.overflow() == v1::OVERFLOW_ERROR) overflow = Overflow::kError;
  if (p.overflow() == v1::OVERFLOW_MIDDLE) overflow = Overflow::kMiddle;
  if (const absl::Status status = runtime::ValidateCompression(compression); !status.ok())
    return {status, "PARAMETER_INVALID"};
  return {};
}

LeasePreparer::LeasePreparer(std::shared_ptr<const runtime::Tokenizer> tokenizer,
                             const PrepareOptions& options)
    : options_(options),
      refuses_(tokenizer, MakePromptOptions(options.context, Overflow::kError)),
      cuts_(tokenizer, MakePromptOptions(options.context, Overflow::kMiddle)) {}

PreparedLease LeasePreparer::Prepare(const v1::Lease& lease, std::string bytes) const {
  const Flags& flags = *options_.flags;
  PreparedLease prepared;
  prepared.compression = flags.compression;
  Document document;
  document.id = lease.document_id();
  document.params = flags.params;
  Overflow overflow = flags.overflow;
  DocumentError error = ApplyParameters(lease.parameters(), document.params, prepared.compression, overflow);
  if (error.ok()) {
    RunParams run = options_.run;
    run.defaults = document.params;
    run.capacity = prepared.compression.capacity;
    run.window = prepared.compression.window;
    run.kernel = prepared.compression.kernel;
    run.overflow = overflow == Overflow::kMiddle ? "middle" : "error";
    prepared.params_sha256 = ParamsSha256(run);
    const std::string& type = lease.media_type();
    if (type == "application/json") {
      error = ReadConversation(bytes, document);
    } else if (type.empty() || type == "text/plain" || type.starts_with("text/plain;")) {
      error = DecodeText(std::move(bytes), document.id, "utf-8", document.text);
    } else {
      error = Bad(
          absl::StrCat(document.id, ": media type '", type, "' is neither text/plain nor application/json"));
    }
  }
  if (!error.ok()) {
    prepared.document.document = std::move(document);
    prepared.document.error = std::move(error);
    return prepared;
  }
  prepared.document = (overflow == Overflow::kMiddle ? cuts_ : refuses_).Build(std::move(document));
  if (!prepared.document.error.ok()) return prepared;
  const int64_t cache_bytes = runtime::DecodeCacheBytes(
      *options_.config, options_.dtype, prepared.compression,
      static_cast<int64_t>(prepared.document.tokens.size()), prepared.document.document.params.max_tokens);
  prepared.document.error = CheckCacheBytes(cache_bytes, flags.cache_bytes, 0);
  return prepared;
}

}  // namespace snapkv::launch
