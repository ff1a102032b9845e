// SPDX-License-Identifier: Apache-2.0
// Sending, asking where it stands, sending the rest.
#include "launch/client/upload.h"

#include <algorithm>

#include "launch/client/documents.h"
#include "runtime/hash/sha256.h"
#include "runtime/service/reason.h"

namespace snapkv::launch {
namespace {

using service::Reason;

// A connection slower than this for a whole document is not worth waiting for.
constexpr int64_t kSlowestBytesPerSecond = 32 << 10;
// Of one document: what a document that changes while it is read, or a server that contradicts itself, costs.
constexpr int kMostContradictions = 5;

bool Has(const absl::Status& status, Reason reason) { return service::ReasonOf(status) == reason; }

}  // namespace

Uploader::Uploader(Session& session, UploadOptions options)
    : session_(session), options_(std::move(options)) {
  for (int i = 0; i < options_.parallel; ++i) threads_.emplace_back([this] { Run(); });
}

Uploader::~Uploader() {
  {
    const std::lock_guard lock(mutex_);
    status_.Update(absl::CancelledError("the upload was given up"));
  }
  Join();
}

void Uploader::Join() {
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
    changed_.notify_all();
  }
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

absl::Status Uploader::Add(v1::Document document) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock,
                [&] { return !status_.ok() || waiting_.size() < static_cast<size_t>(options_.parallel); });
  RETURN_IF_ERROR(status_);
  waiting_.push_back(std::move(document));
  changed_.notify_all();
  return absl::OkStatus();
}

absl::Status Uploader::Finish() {
  Join();
  const std::lock_guard lock(mutex_);
  return status_;
}

void Uploader::Run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return !waiting_.empty() || ended_ || !status_.ok(); });
    if (!status_.ok() || waiting_.empty()) return;
    const v1::Document document = std::move(waiting_.front());
    waiting_.pop_front();
    changed_.notify_all();
    lock.unlock();
    absl::Status status = Upload(document);
    if (IsDocumentRefusal(status)) {
      options_.refused(document.document_id(), status);
      status = absl::OkStatus();
    }
    lock.lock();
    if (!status.ok()) {
      status_.Update(status);
      changed_.notify_all();
    }
  }
}

absl::StatusOr<v1::UploadStatus> Uploader::Ask(const v1::Document& document) {
  v1::GetUploadStatusRequest request;
  request.set_job(options_.job);
  request.set_document_id(document.document_id());
  auto answer = session_.Call<v1::UploadStatus>(
      options_.patience, [&](grpc::ClientContext& context, v1::UploadStatus& status) {
        return session_.jobs().GetUploadStatus(&context, request, &status);
      });
  if (Has(answer.status(), Reason::kDocumentNotFound)) return v1::UploadStatus();
  return answer;
}

absl::Status Uploader::Upload(const v1::Document& document) {
  const auto digest = runtime::Sha256(document.content());
  const std::string sha256(digest.begin(), digest.end());
  const auto size = static_cast<int64_t>(document.content().size());
  Retry retry(session_, options_.patience);
  bool ask = options_.repeated;
  int64_t offset = 0;
  int contradictions = 0;
  for (;;) {
    if (ask) {
      ASSIGN_OR_RETURN(const v1::UploadStatus found, Ask(document));
      if (found.complete() && found.size_bytes() == size) return absl::OkStatus();
      if (found.complete()) {
        return service::ServiceError(Reason::kDocumentIdDuplicate, "the job has a document of this id with ",
                                     found.size_bytes(), " bytes, this one has ", size,
                                     ": it was changed after a part of the job was submitted");
      }
      if (found.committed_size() > offset) retry.Succeeded();
      offset = std::min(found.committed_size(), size);
    }
    const auto sent = Send(document, sha256, offset);
    ask = true;
    if (sent.ok() && sent->complete()) {
      retry.Succeeded();
      return absl::OkStatus();
    }
    if (sent.ok() || Has(sent.status(), Reason::kOffsetMismatch) ||
        Has(sent.status(), Reason::kChecksumMismatch)) {
      if (++contradictions <= kMostContradictions) continue;
      return sent.ok() ? Internal(options_.job, ": the server does not complete the document ",
                                  document.document_id())
                       : sent.status();
    }
    if (!retry.Again(sent.status())) return sent.status();
  }
}

absl::StatusOr<v1::UploadStatus> Uploader::Send(const v1::Document& document, const std::string& sha256,
                                                int64_t offset) {
  const std::string& content = document.content();
  const auto size = static_cast<int64_t>(content.size());
  CallContext call(session_,
                   session_.options().call_timeout + absl::Seconds((size - offset) / kSlowestBytesPerSecond));
  v1::UploadStatus answer;
  const auto writer = session_.jobs().UploadDocument(call.get(), &answer);
  v1::UploadDocumentRequest request;
  v1::UploadHeader& header = *request.mutable_header();
  header.set_job(options_.job);
  header.set_document_id(document.document_id());
  header.set_size_bytes(size);
  header.set_sha256(sha256);
  header.set_media_type(document.media_type());
  if (document.has_parameters()) *header.mutable_parameters() = document.parameters();
  bool open = writer->Write(request);
  while (open && offset < size) {
    const int64_t n = std::min(options_.chunk_bytes, size - offset);
    v1::Chunk& chunk = *request.mutable_chunk();
    chunk.set_offset(offset);
    chunk.set_data(content.data() + offset, static_cast<size_t>(n));
    open = writer->Write(request);
    offset += n;
  }
  if (open) writer->WritesDone();
  const absl::Status status = service::FromGrpc(writer->Finish());
  if (!status.ok()) return status;
  return answer;
}

}  // namespace snapkv::launch
