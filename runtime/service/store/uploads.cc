// SPDX-License-Identifier: Apache-2.0
// Documents that arrive in pieces.
#include <utility>

#include "runtime/hash/sha256.h"
#include "runtime/service/store/sqlite_job_store.h"
#include "runtime/service/validate.h"

namespace snapkv::service {
namespace {

v1::UploadStatus StatusOf(const std::string& job, const DocumentRow& document) {
  v1::UploadStatus status;
  status.set_job(job);
  status.set_document_id(document.document_id);
  status.set_committed_size(document.committed);
  status.set_size_bytes(document.size);
  status.set_complete(document.state != DocumentState::kUploading && document.committed == document.size);
  return status;
}

absl::Status CheckUploading(const JobRow& job) {
  if (job.state == v1::Job::UPLOADING) return absl::OkStatus();
  const std::string& state = v1::Job::State_Name(job.state);
  return WithFigure(ServiceError(Reason::kJobState, job.name, " is ", state,
                                 ": documents can be added only while it is UPLOADING"),
                    "state", state);
}

absl::Status OffsetError(const DocumentRow& document, int64_t offset) {
  return WithFigure(
      ServiceError(Reason::kOffsetMismatch, "document '", document.document_id, "': the chunk begins at ",
                   offset, ", but ", document.committed, " bytes are committed; go on there"),
      "committed_size", absl::StrCat(document.committed));
}

absl::StatusOr<std::string> ParametersOf(Database& database, int64_t document) {
  ASSIGN_OR_RETURN(Rows rows, database.Query("SELECT parameters FROM contents WHERE document = ?", document));
  ASSIGN_OR_RETURN(const bool found, rows.Next());
  return found ? rows.Text(0) : std::string();
}

// Serialized parameters may differ in bytes and be equal.
bool SameParameters(const std::string& bytes, const v1::Parameters& parameters) {
  v1::Parameters parsed;
  return parsed.ParseFromString(bytes) && DeterministicBytes(parsed) == DeterministicBytes(parameters);
}

absl::StatusOr<bool> SameHeader(Database& database, const DocumentRow& document,
                                const v1::UploadHeader& header) {
  ASSIGN_OR_RETURN(const std::string parameters, ParametersOf(database, document.id));
  return document.size == header.size_bytes() && document.sha256 == header.sha256() &&
         document.media_type == MediaTypeOf(header.media_type()) &&
         SameParameters(parameters, header.parameters());
}

}  // namespace

absl::StatusOr<v1::UploadStatus> SqliteJobStore::BeginUpload(const std::string& tenant,
                                                             const v1::UploadHeader& header) {
  v1::UploadStatus status;
  RETURN_IF_ERROR(Write([&](Transaction& transaction) -> absl::Status {
    Database& database = transaction.database();
    ASSIGN_OR_RETURN(JobRow * job, transaction.Find(tenant, header.job()));
    RETURN_IF_ERROR(CheckUploading(*job));
    absl::StatusOr<DocumentRow> known = FindDocument(database, *job, header.document_id());
    if (known.ok()) {
      ASSIGN_OR_RETURN(const bool same, SameHeader(database, *known, header));
      status = StatusOf(job->name, *known);
      if (same) return absl::OkStatus();
      return ServiceError(Reason::kDocumentIdDuplicate, job->name, " has a document '", header.document_id(),
                          "' with another size, SHA-256, media type or other parameters; choose another id");
    }
    if (ReasonOf(known.status()) != Reason::kDocumentNotFound) return known.status();
    RETURN_IF_ERROR(CheckDocumentSize(header.document_id(), header.size_bytes(), options_.limits));
    RETURN_IF_ERROR(CheckJobSize(job->counts.documents() + 1, job->counts.bytes() + header.size_bytes(),
                                 options_.limits));
    RETURN_IF_ERROR(database.Run(
        "INSERT INTO documents (job, document_id, state, uploaded, media_type, size, sha256, committed) "
        "VALUES (?, ?, 0, 1, ?, ?, ?, 0)",
        job->id, header.document_id(), MediaTypeOf(header.media_type()), header.size_bytes(),
        Blob{header.sha256()}));
    RETURN_IF_ERROR(database.Run("INSERT INTO contents (document, parameters, text) VALUES (?, ?, NULL)",
                                 database.LastId(), Blob{header.parameters().SerializeAsString()}));
    job->counts.set_documents(job->counts.documents() + 1);
    job->counts.set_bytes(job->counts.bytes() + header.size_bytes());
    transaction.Changed(job);
    status.set_job(job->name);
    status.set_document_id(header.document_id());
    status.set_size_bytes(header.size_bytes());
    return absl::OkStatus();
  }));
  return status;
}

absl::StatusOr<DocumentRow> SqliteJobStore::FindUpload(const std::string& tenant, const std::string& name,
                                                       const std::string& document_id) {
  DocumentRow document;
  RETURN_IF_ERROR(Read([&](Database& database) -> absl::Status {
    ASSIGN_OR_RETURN(const JobRow job, FindJob(database, tenant, name));
    RETURN_IF_ERROR(CheckUploading(job));
    ASSIGN_OR_RETURN(document, FindDocument(database, job, document_id));
    return absl::OkStatus();
  }));
  return document;
}

absl::Status SqliteJobStore::DropUpload(const DocumentRow& document, absl::Status reason) {
  RETURN_IF_ERROR(Write([&](Transaction& transaction) -> absl::Status {
    ASSIGN_OR_RETURN(JobRow * job, transaction.Job(document.job));
    RETURN_IF_ERROR(CheckUploading(*job));
    RETURN_IF_ERROR(transaction.database().Run("DELETE FROM contents WHERE document = ?", document.id));
    RETURN_IF_ERROR(transaction.database().Run("DELETE FROM documents WHERE id = ?", document.id));
    job->counts.set_documents(job->counts.documents() - 1);
    job->counts.set_bytes(job->counts.bytes() - document.size);
    transaction.Changed(job);
    transaction.RemoveFile(document.id);
    return absl::OkStatus();
  }));
  return reason;
}

absl::Status SqliteJobStore::CheckUpload(const DocumentRow& document) {
  ASSIGN_OR_RETURN(const std::string text, files_->ReadUpload(document.id));
  const auto digest = runtime::Sha256(text);
  absl::Status status;
  if (static_cast<int64_t>(text.size()) != document.size ||
      document.sha256 != std::string(digest.begin(), digest.end())) {
    status =
        ServiceError(Reason::kChecksumMismatch, "document '", document.document_id, "': the SHA-256 of its ",
                     text.size(), " bytes is not the header's; they were dropped: begin the upload again");
  } else {
    status =
        ValidateContent(absl::StrCat("document '", document.document_id, "'"), document.media_type, text);
  }
  return status.ok() ? status : DropUpload(document, status);
}

absl::StatusOr<v1::UploadStatus> SqliteJobStore::Append(const std::string& tenant, const std::string& job,
                                                        const std::string& document_id,
                                                        const v1::Chunk& chunk) {
  int64_t id = 0;
  {
    ASSIGN_OR_RETURN(const DocumentRow found, FindUpload(tenant, job, document_id));
    id = found.id;
  }
  std::lock_guard lock(UploadLock(id));
  // Another stream may have got further, or dropped it, before the lock was ours.
  ASSIGN_OR_RETURN(DocumentRow document, FindUpload(tenant, job, document_id));
  if (document.id != id) return OffsetError(document, chunk.offset());
  if (chunk.offset() != document.committed) return OffsetError(document, chunk.offset());
  if (chunk.data().empty()) return StatusOf(job, document);
  if (document.state != DocumentState::kUploading) {
    return WithFigure(ServiceError(Reason::kOffsetMismatch, "document '", document_id, "' is complete with ",
                                   document.size, " bytes; send no more of it"),
                      "committed_size", absl::StrCat(document.size));
  }
  const int64_t end = document.committed + static_cast<int64_t>(chunk.data().size());
  if (end > document.size) {
    return DropUpload(document, ServiceError(Reason::kChecksumMismatch, "document '", document_id,
                                             "' has at least ", end, " bytes, its header says ",
                                             document.size, "; they were dropped: begin the upload again"));
  }
  const bool last = end == document.size;
  RETURN_IF_ERROR(files_->Append(id, document.committed, chunk.data(), last));
  if (last) {
    RETURN_IF_ERROR(CheckUpload(document));
    RETURN_IF_ERROR(files_->Publish(id));
  }
  document.committed = end;
  if (last) document.state = DocumentState::kQueued;
  const absl::Status written = Write([&](Transaction& transaction) -> absl::Status {
    ASSIGN_OR_RETURN(JobRow * row, transaction.Find(tenant, job));
    RETURN_IF_ERROR(CheckUploading(*row));
    RETURN_IF_ERROR(transaction.database().Run("UPDATE documents SET committed = ?, state = ? WHERE id = ?",
                                               end, static_cast<int64_t>(document.state), id));
    if (!last) return absl::OkStatus();
    row->counts.set_queued(row->counts.queued() + 1);
    transaction.Changed(row);
    return absl::OkStatus();
  });
  // The job ended meanwhile, and its files may have been removed before this one was written.
  const auto reason = ReasonOf(written);
  if (reason == Reason::kJobState || reason == Reason::kJobNotFound) files_->Remove(id);
  RETURN_IF_ERROR(written);
  return StatusOf(job, document);
}

absl::StatusOr<v1::UploadStatus> SqliteJobStore::GetUpload(const std::string& tenant, const std::string& name,
                                                           const std::string& document_id) {
  v1::UploadStatus status;
  RETURN_IF_ERROR(Read([&](Database& database) -> absl::Status {
    ASSIGN_OR_RETURN(const JobRow job, FindJob(database, tenant, name));
    ASSIGN_OR_RETURN(const DocumentRow document, FindDocument(database, job, document_id));
    status = StatusOf(job.name, document);
    return absl::OkStatus();
  }));
  return status;
}

}  // namespace snapkv::service
