// SPDX-License-Identifier: Apache-2.0
// CreateJob, uploads, SealJob.
#include "launch/client/submission.h"

#include <algorithm>
#include <utility>

#include "launch/client/documents.h"
#include "launch/client/job_text.h"
#include "launch/client/streams.h"
#include "runtime/service/reason.h"

namespace snapkv::launch {
namespace {

using service::Reason;

int64_t Known(int64_t value, int64_t otherwise) { return value > 0 ? value : otherwise; }

}  // namespace

v1::Limits DefaultLimits() {
  v1::Limits limits;
  limits.set_max_message_bytes(4 << 20);
  limits.set_max_chunk_bytes(1 << 20);
  limits.set_max_document_bytes(16 << 20);
  limits.set_max_inline_bytes(1 << 20);
  limits.set_max_job_documents(50'000);
  limits.set_max_job_bytes(200'000'000);
  return limits;
}

absl::StatusOr<v1::Limits> FetchLimits(Session& session, const std::string& model) {
  v1::Limits told;
  absl::Status status;
  if (!model.empty()) {
    v1::GetModelRequest request;
    request.set_name(model);
    const auto found =
        session.Call<v1::Model>(Patience::kConnect, [&](grpc::ClientContext& context, v1::Model& answer) {
          return session.models().GetModel(&context, request, &answer);
        });
    status = found.status();
    if (found.ok()) told = found->limits();
  } else {
    const v1::ListModelsRequest request;
    const auto found = session.Call<v1::ListModelsResponse>(
        Patience::kConnect, [&](grpc::ClientContext& context, v1::ListModelsResponse& answer) {
          return session.models().ListModels(&context, request, &answer);
        });
    status = found.status();
    if (found.ok() && found->models_size() > 0) told = found->models(0).limits();
  }
  // A model that no worker has registered yet is CreateJob's to judge.
  if (!status.ok() && !absl::IsNotFound(status) && !absl::IsUnimplemented(status)) return status;
  v1::Limits limits = DefaultLimits();
  limits.set_max_message_bytes(Known(told.max_message_bytes(), limits.max_message_bytes()));
  limits.set_max_chunk_bytes(Known(told.max_chunk_bytes(), limits.max_chunk_bytes()));
  limits.set_max_document_bytes(Known(told.max_document_bytes(), limits.max_document_bytes()));
  limits.set_max_inline_bytes(Known(told.max_inline_bytes(), limits.max_inline_bytes()));
  limits.set_max_job_documents(Known(told.max_job_documents(), limits.max_job_documents()));
  limits.set_max_job_bytes(Known(told.max_job_bytes(), limits.max_job_bytes()));
  return limits;
}

void Limit(const v1::Limits& limits, SubmissionOptions& options) {
  options.inline_bytes = std::min(options.inline_bytes, limits.max_inline_bytes());
  options.message_bytes = std::min(options.message_bytes, limits.max_message_bytes());
  options.chunk_bytes = std::min(options.chunk_bytes, limits.max_chunk_bytes());
}

Submission::Submission(Session& session, SubmissionOptions options)
    : session_(session), options_(std::move(options)) {
  const auto tell = std::move(options_.refused);
  options_.refused = [this, tell](const std::string& id, const absl::Status& status) {
    ++refused_;
    tell(id, status);
  };
  *request_.mutable_job() = options_.job;
}

Submission::Submission(Session& session, SubmissionOptions options, const v1::Job& existing)
    : Submission(session, std::move(options)) {
  options_.repeated = true;
  created_ = existing;
  if (created_.state() == v1::Job::UPLOADING) StartUploads();
}

absl::StatusOr<v1::Job> Submission::Create(const std::string& request_id, bool open, bool with_documents) {
  v1::CreateJobRequest bare;
  if (!with_documents) *bare.mutable_job() = options_.job;
  v1::CreateJobRequest& request = with_documents ? request_ : bare;
  request.set_request_id(request_id);
  request.set_open(open);
  return session_.Call<v1::Job>(options_.patience, [&](grpc::ClientContext& context, v1::Job& job) {
    return session_.jobs().CreateJob(&context, request, &job);
  });
}

void Submission::StartUploads() {
  uploader_ = std::make_unique<Uploader>(session_, UploadOptions{.job = created_.name(),
                                                                 .parallel = options_.parallel,
                                                                 .chunk_bytes = options_.chunk_bytes,
                                                                 .repeated = options_.repeated,
                                                                 .patience = options_.patience,
                                                                 .refused = options_.refused});
}

// The job, with what was gathered until now, and open for more.
absl::Status Submission::Open() {
  auto job = Create(options_.request_id, /*open=*/true, /*with_documents=*/true);
  std::vector<v1::Document> again;
  if (request_.documents_size() > 0 && IsDocumentRefusal(job.status())) {
    // One of the documents spoils the call: sent one by one, the others are taken.
    again.assign(std::make_move_iterator(request_.mutable_documents()->begin()),
                 std::make_move_iterator(request_.mutable_documents()->end()));
    job = Create(options_.request_id + ".u", /*open=*/true, /*with_documents=*/false);
  }
  if (!job.ok()) return job.status();
  request_.clear_documents();
  created_ = *std::move(job);
  RETURN_IF_ERROR(options_.created(created_));
  if (created_.state() != v1::Job::UPLOADING) return absl::OkStatus();
  StartUploads();
  for (v1::Document& document : again) RETURN_IF_ERROR(uploader_->Add(std::move(document)));
  return absl::OkStatus();
}

absl::Status Submission::Add(v1::Document document) {
  ++documents_;
  bytes_ += static_cast<int64_t>(document.content().size());
  if (created_.name().empty()) {
    inline_bytes_ += static_cast<int64_t>(document.content().size());
    // Without adding up the whole request for every document.
    request_bytes_ += static_cast<int64_t>(document.ByteSizeLong()) + 16;
    // A quarter is for the job itself.
    if (inline_bytes_ <= options_.inline_bytes && request_bytes_ <= options_.message_bytes / 4 * 3) {
      *request_.add_documents() = std::move(document);
      return absl::OkStatus();
    }
    RETURN_IF_ERROR(Open());
  }
  return uploader_ ? uploader_->Add(std::move(document)) : absl::OkStatus();
}

absl::StatusOr<v1::Job> Submission::Finish() {
  if (created_.name().empty()) {
    if (documents_ == 0) return InvalidArgument("there is no document to submit");
    auto job = Create(options_.request_id, /*open=*/false, /*with_documents=*/true);
    if (job.ok()) {
      created_ = *std::move(job);
      RETURN_IF_ERROR(options_.created(created_));
      return created_;
    }
    if (!IsDocumentRefusal(job.status())) return job.status();
    RETURN_IF_ERROR(Open());
  }
  if (!uploader_) return GetJob(session_, created_.name(), options_.patience);
  RETURN_IF_ERROR(uploader_->Finish());
  if (!options_.repeated && documents_ > 0 && refused_ == documents_) {
    v1::CancelJobRequest cancel;
    cancel.set_name(created_.name());
    cancel.set_reason("no document of it was accepted");
    session_
        .Call<v1::Job>(options_.patience,
                       [&](grpc::ClientContext& context, v1::Job& job) {
                         return session_.jobs().CancelJob(&context, cancel, &job);
                       })
        .status()
        .IgnoreError();
    return InvalidArgument("no document was accepted");
  }
  return Seal();
}

absl::StatusOr<v1::Job> Submission::Seal() {
  v1::SealJobRequest request;
  request.set_name(created_.name());
  auto sealed = session_.Call<v1::Job>(options_.patience, [&](grpc::ClientContext& context, v1::Job& job) {
    return session_.jobs().SealJob(&context, request, &job);
  });
  if (sealed.ok() || service::ReasonOf(sealed.status()) != Reason::kJobState) return sealed;
  // The answer to an earlier try may have been lost.
  const auto now = GetJob(session_, created_.name(), options_.patience);
  const bool done = now.ok() && now->state() != v1::Job::UPLOADING && now->state() != v1::Job::EXPIRED &&
                    now->state() != v1::Job::CANCELLED;
  return done ? now : sealed;
}

}  // namespace snapkv::launch
