// SPDX-License-Identifier: Apache-2.0
// Rows of the tables as structs, and their way from and to the database and the messages.
#pragma once

#include <cstdint>
#include <string>

#include "absl/time/time.h"
#include "runtime/service/store/database.h"
#include "snapkv/v1/common.pb.h"
#include "snapkv/v1/jobs.pb.h"

namespace snapkv::service {

// What is small about a job. Times are microseconds since 1970; 0: not yet.
struct JobRow {
  int64_t id = 0;
  std::string name;  // jobs/{job}
  std::string tenant;
  std::string model;
  std::string display_name;
  int64_t priority = 0;
  v1::Job::State state = v1::Job::STATE_UNSPECIFIED;
  int64_t version = 0;
  int64_t create_time = 0, queue_time = 0, start_time = 0, end_time = 0, expire_time = 0;
  v1::Status status;
  // While a job is UPLOADING, `queued` counts its complete documents.
  v1::Job::Counts counts;
  int64_t results = 0;
  bool deleted = false;

  bool ended() const { return state > v1::Job::CANCELLING; }
  // Its queued documents may be leased.
  bool runnable() const {
    return !deleted && (state == v1::Job::QUEUED || state == v1::Job::RUNNING) && counts.queued() > 0;
  }
};

// "SELECT <kJobColumns> FROM jobs ..." for ReadJob.
extern const char kJobColumns[];
JobRow ReadJob(const Rows& rows);
// Gives it its id.
absl::Status InsertJob(Database& database, JobRow& job);
// All that may change.
absl::Status UpdateJob(Database& database, const JobRow& job);
// NOT_FOUND / JOB_NOT_FOUND when the tenant has no such job.
absl::StatusOr<JobRow> FindJob(Database& database, const std::string& tenant, const std::string& name);
// The message; `spec` has what the client gave.
v1::Job ToProto(const JobRow& job, v1::Job spec);
absl::StatusOr<v1::Job> ReadSpec(Database& database, int64_t job);
absl::StatusOr<v1::Job> ToProto(Database& database, const JobRow& job);

enum class DocumentState : uint8_t { kUploading = 0, kQueued = 1, kLeased = 2, kDone = 3, kCancelled = 4 };

struct DocumentRow {
  int64_t id = 0;
  int64_t job = 0;
  std::string document_id;
  DocumentState state = DocumentState::kUploading;
  bool uploaded = false;  // its text is a file
  std::string media_type;
  int64_t size = 0;
  std::string sha256;
  int64_t committed = 0;
  int64_t attempt = 0;  // of the present or latest lease, and how many count
  int64_t lease = 0;    // its random number; kept until the next lease
  std::string worker;
  int64_t acquire_time = 0, deadline = 0;
};

extern const char kDocumentColumns[];
DocumentRow ReadDocumentRow(const Rows& rows);
// DOCUMENT_NOT_FOUND.
absl::StatusOr<DocumentRow> FindDocument(Database& database, const JobRow& job,
                                         const std::string& document_id);

// leases/{document}-{number}: finds its document without an index, and is never given twice.
struct LeaseName {
  int64_t document = 0;
  int64_t number = 0;
};
std::string LeaseText(const LeaseName& lease);
// False: not a name of ours.
bool ParseLease(const std::string& text, LeaseName& lease);

int64_t ToMicros(absl::Time time);
// Not negative; at most 200 years, so that it can be added to a time.
int64_t MicrosOf(absl::Duration duration);
google::protobuf::Timestamp ToTimestamp(int64_t micros);
// Equal messages give equal bytes.
std::string DeterministicBytes(const google::protobuf::MessageLite& message);

}  // namespace snapkv::service
