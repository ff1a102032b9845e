// SPDX-License-Identifier: Apache-2.0
// Submission: documents become one job. A small one is a single call, a larger one is uploaded and sealed.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "launch/client/upload.h"

namespace snapkv::launch {

struct SubmissionOptions {
  v1::Job job;             // model, parameters, priority, labels, display name
  std::string request_id;  // never empty: calls are repeated
  int64_t inline_bytes = int64_t{1} << 20;
  int64_t message_bytes = int64_t{4} << 20;
  int64_t chunk_bytes = int64_t{256} << 10;
  int parallel = 4;
  Patience patience = Patience::kConnect;
  // An earlier run may have got some way with this request_id.
  bool repeated = false;
  // The job is there; documents may follow. An error ends the submission.
  std::function<absl::Status(const v1::Job&)> created = [](const v1::Job&) { return absl::OkStatus(); };
  // As in UploadOptions; also for documents that travelled inline.
  std::function<void(const std::string& document_id, const absl::Status& status)> refused;
};

// Limits of the server (its defaults where it does not tell), for a model or for any.
v1::Limits DefaultLimits();
absl::StatusOr<v1::Limits> FetchLimits(Session& session, const std::string& model);

// Makes the sizes no greater than the server allows.
void Limit(const v1::Limits& limits, SubmissionOptions& options);

// One thread calls it. The content of CreateJob depends on the documents and options alone, so that a
// repeated run makes the same call.
class Submission {
 public:
  Submission(Session& session, SubmissionOptions options);
  // Goes on with a job that exists; one that is not UPLOADING any more takes nothing, and needs nothing.
  Submission(Session& session, SubmissionOptions options, const v1::Job& existing);

  absl::Status Add(v1::Document document);
  // Creates the job if that has not happened, sends the rest, seals. FAILED_PRECONDITION / JOB_STATE names
  // documents that are missing; INVALID_ARGUMENT without a reason when no document was given or accepted.
  absl::StatusOr<v1::Job> Finish();

  // What Add was given.
  int64_t documents() const { return documents_; }
  int64_t bytes() const { return bytes_; }
  // "" before the job is created.
  const std::string& name() const { return created_.name(); }

 private:
  absl::StatusOr<v1::Job> Create(const std::string& request_id, bool open, bool with_documents);
  absl::Status Open();
  void StartUploads();
  absl::StatusOr<v1::Job> Seal();

  Session& session_;
  SubmissionOptions options_;
  v1::CreateJobRequest request_;  // its documents are those that travel inline
  int64_t inline_bytes_ = 0;
  int64_t request_bytes_ = 0;
  int64_t documents_ = 0, bytes_ = 0;
  std::atomic<int64_t> refused_ = 0;
  v1::Job created_;
  std::unique_ptr<Uploader> uploader_;
};

}  // namespace snapkv::launch
