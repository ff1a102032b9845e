// SPDX-License-Identifier: Apache-2.0
// Checks of requests that need no database. Messages name the field, the value and the range; nothing is
// changed.
#pragma once

#include <string>
#include <string_view>

#include "runtime/service/reason.h"
#include "runtime/service/store/job_store.h"
#include "snapkv/v1/common.pb.h"
#include "snapkv/v1/jobs.pb.h"
#include "snapkv/v1/summarizer.pb.h"
#include "snapkv/v1/workers.pb.h"

namespace snapkv::service {

// --- Whole requests.

// In this order: request_id, job (display_name, model, parameters, priority, labels), number and bytes of the
// documents (JOB_TOO_LARGE, DOCUMENT_TOO_LARGE), then each document: its id (DOCUMENT_ID_INVALID,
// DOCUMENT_ID_DUPLICATE), media type, parameters, content. A job without documents must be open. An empty
// model passes: the server puts its default there.
absl::Status ValidateCreateJob(const v1::CreateJobRequest& request, const StoreLimits& limits,
                               int64_t max_inline_bytes);
absl::Status ValidateUploadHeader(const v1::UploadHeader& header, const StoreLimits& limits);
// 1 to max_chunk_bytes bytes, an offset that is not negative.
absl::Status ValidateChunk(const v1::Chunk& chunk, int64_t max_chunk_bytes);
// page_size is not negative, the filter can be read, the page token is at most 1 KiB.
absl::Status ValidateListJobs(const v1::ListJobsRequest& request);
absl::Status ValidateCancelJob(const v1::CancelJobRequest& request);
absl::Status ValidateSummarize(const v1::SummarizeRequest& request, int64_t max_inline_bytes);
absl::Status ValidateRegisterWorker(const v1::RegisterWorkerRequest& request);
// 1 to 64 leases, a wait of 0 to 30 s.
absl::Status ValidateAcquireLease(const v1::AcquireLeaseRequest& request);
absl::Status ValidateRenewLease(const v1::RenewLeaseRequest& request);

// --- Parts of them. `where` begins the message, e.g. "job.parameters".

// The ranges of common.proto. `of_job`: capacity, window and kernel may be set.
absl::Status ValidateParameters(const std::string& where, const v1::Parameters& parameters, bool of_job);
absl::Status ValidateDocumentId(const std::string& id);
// Empty, text/plain or application/json: PARAMETER_INVALID.
absl::Status ValidateMediaType(const std::string& where, const std::string& media_type);
// A document as a whole: DOCUMENT_EMPTY (nothing but white space), DOCUMENT_NOT_UTF8 with the byte offset
// (also NUL bytes), and for application/json the form of a conversation (PARAMETER_INVALID).
absl::Status ValidateContent(const std::string& where, const std::string& media_type, std::string_view text);
// A resource name of this collection ("jobs", "models", "workers", "leases"): COLLECTION/ID with an ID of 1
// to 256 bytes of UTF-8 without control characters. PARAMETER_INVALID.
absl::Status ValidateName(const std::string& where, const std::string& collection, const std::string& name);
// JOB_TOO_LARGE.
absl::Status CheckJobSize(int64_t documents, int64_t bytes, const StoreLimits& limits);
// 1 to max_document_bytes: DOCUMENT_EMPTY, DOCUMENT_TOO_LARGE.
absl::Status CheckDocumentSize(const std::string& document_id, int64_t bytes, const StoreLimits& limits);

// --- What a request means.

// "text/plain" for an empty one.
std::string MediaTypeOf(const std::string& media_type);
// 50 for 0, at most 1,000.
int PageSizeOf(int32_t page_size);
// The fields of a job in a request that the server ignores.
void ClearOutputOnly(v1::Job& job);

}  // namespace snapkv::service
