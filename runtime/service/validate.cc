// SPDX-License-Identifier: Apache-2.0
// Ranges of parameters, names, texts.
#include "runtime/service/validate.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <unordered_set>

#include "absl/strings/strip.h"
#include "runtime/service/conversation.h"
#include "runtime/service/job_filter.h"
#include "runtime/text/utf8.h"

namespace snapkv::service {
namespace {

constexpr int64_t kMaxPromptBytes = 64 << 10;
constexpr int64_t kMaxTokens = 1'000'000;
constexpr int64_t kMaxInt64 = INT64_MAX;
constexpr int kMaxStops = 16;
constexpr int64_t kMaxStopBytes = 1024;
constexpr int kMaxStopTokens = 64;
constexpr int64_t kMaxRequestId = 128;
constexpr int64_t kMaxDocumentId = 512;
constexpr int64_t kMaxLabels = 64;
constexpr int64_t kMaxTextBytes = 256;  // display names, labels, resource ids
constexpr int64_t kMaxReasonBytes = 1024;
constexpr size_t kMaxPageToken = 1024;
constexpr int kMaxPageSize = 1000;
constexpr int kDefaultPageSize = 50;
constexpr int kMaxLeases = 64;
constexpr double kMaxWaitSeconds = 30;
constexpr char kJson[] = "application/json";
constexpr char kPlain[] = "text/plain";

template <class... Args>
absl::Status Invalid(const Args&... args) {
  return ServiceError(Reason::kParameterInvalid, args...);
}

// The same status, with the place in front; unlike Annotate it keeps the reason.
absl::Status At(const std::string& where, const absl::Status& status) {
  if (status.ok()) return status;
  const auto reason = ReasonOf(status);
  const std::string message = absl::StrCat(where, ": ", status.message());
  return reason.has_value() ? MakeError(*reason, message) : absl::Status(status.code(), message);
}

absl::Status Bytes(const std::string& where, const std::string& text, int64_t least, int64_t most) {
  const auto size = static_cast<int64_t>(text.size());
  if (size >= least && size <= most) return absl::OkStatus();
  return Invalid(where, " has ", size, " bytes: it must have ", least, " to ", most);
}

absl::Status Integer(const std::string& where, int64_t value, int64_t least, int64_t most) {
  if (value >= least && value <= most) return absl::OkStatus();
  if (most == kMaxInt64) return Invalid(where, " is ", value, ": it must be at least ", least);
  return Invalid(where, " is ", value, ": it must be ", least, " to ", most);
}

absl::Status Real(const std::string& where, double value, double least, double most, bool above) {
  // Written so that NaN fails.
  if (value <= most && (above ? value > least : value >= least)) return absl::OkStatus();
  return Invalid(where, " is ", value, ": it must be ", above ? "above " : "", least,
                 above ? ", at most " : " to ", most);
}

// The offset of the first control character or ill-formed byte.
std::optional<size_t> FirstBad(const std::string& text) {
  for (size_t at = 0; at < text.size();) {
    const runtime::Utf8Step step = runtime::ReadUtf8(text, at);
    if (step.kind != runtime::Utf8Step::Kind::kOk) return at;
    const char32_t c = step.code_point;
    if (c < 0x20 || (c >= 0x7F && c < 0xA0)) return at;
    at += static_cast<size_t>(step.length);
  }
  return std::nullopt;
}

absl::Status PrintableText(const std::string& where, const std::string& text, int64_t least, int64_t most) {
  RETURN_IF_ERROR(Bytes(where, text, least, most));
  if (const auto bad = FirstBad(text); bad.has_value()) {
    return Invalid(where, " has a control character or a byte that is not UTF-8 at offset ", *bad);
  }
  return absl::OkStatus();
}

absl::Status ValidateRequestId(const std::string& id) {
  if (id.empty()) return absl::OkStatus();
  RETURN_IF_ERROR(Bytes("request_id", id, 1, kMaxRequestId));
  const auto good = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           std::string_view("._:-").find(c) != std::string_view::npos;
  };
  const auto bad = std::find_if_not(id.begin(), id.end(), good);
  if (bad == id.end()) return absl::OkStatus();
  return Invalid("request_id has a character outside [A-Za-z0-9._:-] at offset ", bad - id.begin());
}

absl::Status ValidateJob(const v1::Job& job) {
  RETURN_IF_ERROR(PrintableText("job.display_name", job.display_name(), 0, kMaxTextBytes));
  if (!job.model().empty()) RETURN_IF_ERROR(ValidateName("job.model", "models", job.model()));
  RETURN_IF_ERROR(ValidateParameters("job.parameters", job.parameters(), true));
  RETURN_IF_ERROR(Integer("job.priority", job.priority(), -100, 100));
  if (job.labels_size() > kMaxLabels) {
    return Invalid("job.labels has ", job.labels_size(), " pairs: at most ", kMaxLabels, " are kept");
  }
  for (const auto& [key, value] : job.labels()) {
    RETURN_IF_ERROR(PrintableText("a key of job.labels", key, 1, kMaxTextBytes));
    RETURN_IF_ERROR(PrintableText(absl::StrCat("job.labels['", key, "']"), value, 0, kMaxTextBytes));
  }
  return absl::OkStatus();
}

absl::Status ValidateInlineSize(int64_t bytes, int64_t max_inline_bytes) {
  if (bytes <= max_inline_bytes) return absl::OkStatus();
  return ServiceError(Reason::kJobTooLarge, "the inline documents have ", bytes,
                      " bytes together, more than ", max_inline_bytes,
                      " (--max-inline-bytes): create the job with `open` and send them by ",
                      "UploadDocument");
}

absl::Status ValidateDocument(const v1::Document& document, const StoreLimits& limits) {
  const std::string where = absl::StrCat("document '", document.document_id(), "'");
  RETURN_IF_ERROR(ValidateMediaType(where, document.media_type()));
  RETURN_IF_ERROR(ValidateParameters(where + ": parameters", document.parameters(), false));
  const auto size = static_cast<int64_t>(document.content().size());
  RETURN_IF_ERROR(CheckDocumentSize(document.document_id(), size, limits));
  return ValidateContent(where, document.media_type(), document.content());
}

}  // namespace

absl::Status ValidateCreateJob(const v1::CreateJobRequest& request, const StoreLimits& limits,
                               int64_t max_inline_bytes) {
  RETURN_IF_ERROR(ValidateRequestId(request.request_id()));
  RETURN_IF_ERROR(ValidateJob(request.job()));
  if (request.documents_size() == 0 && !request.open()) {
    return Invalid(
        "the job has no documents: give at least one, or set `open` and send them by UploadDocument");
  }
  int64_t bytes = 0;
  for (const v1::Document& document : request.documents()) {
    bytes += static_cast<int64_t>(document.content().size());
  }
  RETURN_IF_ERROR(CheckJobSize(request.documents_size(), bytes, limits));
  RETURN_IF_ERROR(ValidateInlineSize(bytes, max_inline_bytes));
  std::unordered_set<std::string_view> ids;
  for (int i = 0; i < request.documents_size(); ++i) {
    const v1::Document& document = request.documents(i);
    const std::string& id = document.document_id();
    RETURN_IF_ERROR(At(absl::StrCat("documents[", i, "]"), ValidateDocumentId(id)));
    if (!ids.insert(id).second) {
      return ServiceError(Reason::kDocumentIdDuplicate, "documents[", i, "]: document_id '", id,
                          "' occurs twice in the job: every document needs an id of its own");
    }
    RETURN_IF_ERROR(ValidateDocument(document, limits));
  }
  return absl::OkStatus();
}

absl::Status ValidateUploadHeader(const v1::UploadHeader& header, const StoreLimits& limits) {
  RETURN_IF_ERROR(ValidateName("header.job", "jobs", header.job()));
  RETURN_IF_ERROR(At("header", ValidateDocumentId(header.document_id())));
  RETURN_IF_ERROR(CheckDocumentSize(header.document_id(), header.size_bytes(), limits));
  if (header.sha256().size() != 32) {
    return Invalid("header.sha256 has ", header.sha256().size(),
                   " bytes: the SHA-256 of the whole document has 32");
  }
  RETURN_IF_ERROR(ValidateMediaType("header", header.media_type()));
  return ValidateParameters("header.parameters", header.parameters(), false);
}

absl::Status ValidateChunk(const v1::Chunk& chunk, int64_t max_chunk_bytes) {
  RETURN_IF_ERROR(Integer("chunk.offset", chunk.offset(), 0, kMaxInt64));
  return Bytes("chunk.data", chunk.data(), 1, max_chunk_bytes);
}

absl::Status ValidateListJobs(const v1::ListJobsRequest& request) {
  RETURN_IF_ERROR(Integer("page_size", request.page_size(), 0, INT32_MAX));
  if (request.page_token().size() > kMaxPageToken) {
    return ServiceError(Reason::kPageTokenInvalid,
                        "the page token is not one of this server; begin without one");
  }
  return ParseFilter(request.filter()).status();
}

absl::Status ValidateCancelJob(const v1::CancelJobRequest& request) {
  RETURN_IF_ERROR(Bytes("reason", request.reason(), 0, kMaxReasonBytes));
  if (runtime::ValidateUtf8(request.reason()).has_value()) return Invalid("reason is not UTF-8");
  return absl::OkStatus();
}

absl::Status ValidateSummarize(const v1::SummarizeRequest& request, int64_t max_inline_bytes) {
  if (!request.model().empty()) RETURN_IF_ERROR(ValidateName("model", "models", request.model()));
  RETURN_IF_ERROR(ValidateMediaType("the document", request.media_type()));
  RETURN_IF_ERROR(ValidateParameters("parameters", request.parameters(), false));
  const auto size = static_cast<int64_t>(request.content().size());
  if (size > max_inline_bytes) {
    return ServiceError(Reason::kDocumentTooLarge, "the document has ", size, " bytes, more than ",
                        max_inline_bytes, " (--max-inline-bytes): submit it as a job with UploadDocument");
  }
  return ValidateContent("the document", request.media_type(), request.content());
}

absl::Status ValidateRegisterWorker(const v1::RegisterWorkerRequest& request) {
  const v1::Worker& worker = request.worker();
  RETURN_IF_ERROR(PrintableText("worker.display_name", worker.display_name(), 0, kMaxTextBytes));
  RETURN_IF_ERROR(ValidateName("worker.model", "models", worker.model()));
  RETURN_IF_ERROR(PrintableText("worker.model_fingerprint", worker.model_fingerprint(), 1, kMaxTextBytes));
  RETURN_IF_ERROR(Integer("worker.max_context", worker.max_context(), 1, kMaxInt64));
  RETURN_IF_ERROR(Integer("worker.max_batch", worker.max_batch(), 1, INT32_MAX));
  RETURN_IF_ERROR(Integer("worker.ranks", worker.ranks(), 1, INT32_MAX));
  RETURN_IF_ERROR(PrintableText("worker.dtype", worker.dtype(), 0, kMaxTextBytes));
  return PrintableText("worker.version", worker.version(), 0, kMaxTextBytes);
}

absl::Status ValidateAcquireLease(const v1::AcquireLeaseRequest& request) {
  RETURN_IF_ERROR(ValidateName("worker", "workers", request.worker()));
  RETURN_IF_ERROR(Integer("max_leases", request.max_leases(), 1, kMaxLeases));
  const double wait = static_cast<double>(request.wait().seconds()) + request.wait().nanos() * 1e-9;
  return Real("wait in seconds", wait, 0, kMaxWaitSeconds, false);
}

absl::Status ValidateRenewLease(const v1::RenewLeaseRequest& request) {
  RETURN_IF_ERROR(ValidateName("worker", "workers", request.worker()));
  return Integer("the number of leases", request.leases_size(), 0, kMaxLeases);
}

absl::Status ValidateParameters(const std::string& where, const v1::Parameters& p, bool of_job) {
  const std::string in = where + ".";
  RETURN_IF_ERROR(Bytes(in + "prompt", p.prompt(), 0, kMaxPromptBytes));
  RETURN_IF_ERROR(Bytes(in + "system", p.system(), 0, kMaxPromptBytes));
  if (p.has_max_tokens()) RETURN_IF_ERROR(Integer(in + "max_tokens", p.max_tokens(), 1, kMaxTokens));
  if (p.has_temperature()) RETURN_IF_ERROR(Real(in + "temperature", p.temperature(), 0, 100, false));
  if (p.has_top_k()) RETURN_IF_ERROR(Integer(in + "top_k", p.top_k(), 0, kMaxInt64));
  if (p.has_top_p()) RETURN_IF_ERROR(Real(in + "top_p", p.top_p(), 0, 1, true));
  if (p.has_min_p()) RETURN_IF_ERROR(Real(in + "min_p", p.min_p(), 0, 1, false));
  if (p.has_repeat_penalty()) RETURN_IF_ERROR(Real(in + "repeat_penalty", p.repeat_penalty(), 0, 100, true));
  if (p.stop_size() > kMaxStops) {
    return Invalid(in, "stop has ", p.stop_size(), " texts: at most ", kMaxStops, " are allowed");
  }
  for (int i = 0; i < p.stop_size(); ++i) {
    RETURN_IF_ERROR(Bytes(absl::StrCat(in, "stop[", i, "]"), p.stop(i), 1, kMaxStopBytes));
  }
  if (p.stop_token_ids_size() > kMaxStopTokens) {
    return Invalid(in, "stop_token_ids has ", p.stop_token_ids_size(), " tokens: at most ", kMaxStopTokens,
                   " are allowed");
  }
  for (int i = 0; i < p.stop_token_ids_size(); ++i) {
    RETURN_IF_ERROR(Integer(absl::StrCat(in, "stop_token_ids[", i, "]"), p.stop_token_ids(i), 0, INT32_MAX));
  }
  if (!v1::Overflow_IsValid(p.overflow()))
    return Invalid(in, "overflow is ", p.overflow(), ": it is not known");
  if (!of_job && (p.has_capacity() || p.has_window() || p.has_kernel())) {
    return Invalid(in,
                   p.has_capacity() ? "capacity"
                   : p.has_window() ? "window"
                                    : "kernel",
                   " may be set for a whole job only, as its documents share it");
  }
  if (p.has_window()) RETURN_IF_ERROR(Integer(in + "window", p.window(), 1, kMaxInt64));
  if (p.has_capacity()) RETURN_IF_ERROR(Integer(in + "capacity", p.capacity(), 2, kMaxInt64));
  if (p.has_capacity() && p.has_window() && p.capacity() <= p.window()) {
    return Invalid(in, "capacity is ", p.capacity(), ": it must be more than the window, ", p.window());
  }
  if (p.has_kernel() && (p.kernel() < 1 || p.kernel() % 2 == 0)) {
    return Invalid(in, "kernel is ", p.kernel(), ": it must be odd and at least 1");
  }
  return absl::OkStatus();
}

absl::Status ValidateDocumentId(const std::string& id) {
  const auto size = static_cast<int64_t>(id.size());
  if (size < 1 || size > kMaxDocumentId) {
    return ServiceError(Reason::kDocumentIdInvalid, "document_id has ", size, " bytes: it must have 1 to ",
                        kMaxDocumentId);
  }
  if (const auto bad = FirstBad(id); bad.has_value()) {
    return ServiceError(Reason::kDocumentIdInvalid,
                        "document_id has a control character or a byte that is not UTF-8 at offset ", *bad);
  }
  return absl::OkStatus();
}

absl::Status ValidateMediaType(const std::string& where, const std::string& media_type) {
  const std::string type = MediaTypeOf(media_type);
  if (type == kPlain || type == kJson) return absl::OkStatus();
  return Invalid(where, ": media_type is '", media_type.substr(0, kMaxTextBytes), "': it must be ", kPlain,
                 " or ", kJson);
}

absl::Status ValidateContent(const std::string& where, const std::string& media_type, std::string_view text) {
  std::string_view body = text;
  if (body.substr(0, 3) == "\xEF\xBB\xBF") body.remove_prefix(3);
  if (body.find_first_not_of(" \t\r\n\v\f") == std::string_view::npos) {
    return ServiceError(Reason::kDocumentEmpty, where, ": the document is empty, or nothing but white space");
  }
  if (const size_t nul = text.find('\0'); nul != std::string_view::npos) {
    return ServiceError(Reason::kDocumentNotUtf8, where, ": NUL byte at offset ", nul, ": this is not text");
  }
  if (const auto bad = runtime::ValidateUtf8(text); bad.has_value()) {
    return ServiceError(Reason::kDocumentNotUtf8, where, ": not UTF-8 at byte offset ", *bad,
                        "; convert it, e.g. with iconv -t utf-8");
  }
  return media_type == kJson ? At(where, ParseConversation(text).status()) : absl::OkStatus();
}

absl::Status ValidateName(const std::string& where, const std::string& collection, const std::string& name) {
  absl::string_view id = name;
  if (!absl::ConsumePrefix(&id, collection + "/")) {
    return Invalid(where, " is '", name.substr(0, kMaxTextBytes), "': it must be ", collection,
                   "/ and an id");
  }
  return PrintableText(absl::StrCat(where, ": the id behind ", collection, "/"), std::string(id), 1,
                       kMaxTextBytes);
}

absl::Status CheckJobSize(int64_t documents, int64_t bytes, const StoreLimits& limits) {
  if (documents > limits.max_job_documents) {
    return ServiceError(Reason::kJobTooLarge, "the job has ", documents, " documents, more than ",
                        limits.max_job_documents, " (--max-job-documents): make several jobs of it");
  }
  if (bytes > limits.max_job_bytes) {
    return ServiceError(Reason::kJobTooLarge, "the documents of the job have ", bytes, " bytes, more than ",
                        limits.max_job_bytes, " (--max-job-bytes): make several jobs of it");
  }
  return absl::OkStatus();
}

absl::Status CheckDocumentSize(const std::string& document_id, int64_t bytes, const StoreLimits& limits) {
  if (bytes < 1) {
    return ServiceError(Reason::kDocumentEmpty, "document '", document_id, "' has ", bytes,
                        " bytes: it must have at least 1");
  }
  if (bytes > limits.max_document_bytes) {
    return ServiceError(Reason::kDocumentTooLarge, "document '", document_id, "' has ", bytes,
                        " bytes, more than ", limits.max_document_bytes,
                        " (--max-document-bytes): shorten it or split it");
  }
  return absl::OkStatus();
}

std::string MediaTypeOf(const std::string& media_type) { return media_type.empty() ? kPlain : media_type; }

int PageSizeOf(int32_t page_size) {
  return page_size == 0 ? kDefaultPageSize : std::min(page_size, kMaxPageSize);
}

void ClearOutputOnly(v1::Job& job) {
  job.clear_name();
  job.clear_state();
  job.clear_counts();
  job.clear_status();
  job.clear_version();
  job.clear_tenant();
  job.clear_create_time();
  job.clear_start_time();
  job.clear_end_time();
  job.clear_expire_time();
  job.clear_results();
}

}  // namespace snapkv::service
