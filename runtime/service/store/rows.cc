// SPDX-License-Identifier: Apache-2.0
// Reading and writing rows.
#include "runtime/service/store/rows.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "runtime/service/reason.h"

namespace snapkv::service {

const char kJobColumns[] =
    "id, name, tenant, model, display_name, priority, state, version, create_time, queue_time, start_time, "
    "end_time, expire_time, status_code, status_reason, status_message, documents, queued, running, "
    "succeeded, "
    "failed, cancelled, bytes, prompt_tokens, completion_tokens, results, deleted";

JobRow ReadJob(const Rows& rows) {
  JobRow job;
  int c = 0;
  job.id = rows.Int(c++);
  job.name = rows.Text(c++);
  job.tenant = rows.Text(c++);
  job.model = rows.Text(c++);
  job.display_name = rows.Text(c++);
  job.priority = rows.Int(c++);
  job.state = static_cast<v1::Job::State>(rows.Int(c++));
  job.version = rows.Int(c++);
  job.create_time = rows.Int(c++);
  job.queue_time = rows.Int(c++);
  job.start_time = rows.Int(c++);
  job.end_time = rows.Int(c++);
  job.expire_time = rows.Int(c++);
  job.status.set_code(static_cast<int32_t>(rows.Int(c++)));
  job.status.set_reason(rows.Text(c++));
  job.status.set_message(rows.Text(c++));
  job.counts.set_documents(rows.Int(c++));
  job.counts.set_queued(rows.Int(c++));
  job.counts.set_running(rows.Int(c++));
  job.counts.set_succeeded(rows.Int(c++));
  job.counts.set_failed(rows.Int(c++));
  job.counts.set_cancelled(rows.Int(c++));
  job.counts.set_bytes(rows.Int(c++));
  job.counts.set_prompt_tokens(rows.Int(c++));
  job.counts.set_completion_tokens(rows.Int(c++));
  job.results = rows.Int(c++);
  job.deleted = rows.Int(c++) != 0;
  return job;
}

namespace {

// "Not yet" is NULL in the database.
absl::Status BindTime(Rows& rows, int64_t micros) {
  return micros == 0 ? rows.Bind(nullptr) : rows.Bind(micros);
}

// From state to deleted, in the order of kJobColumns.
absl::Status BindChanging(Rows& rows, const JobRow& job) {
  RETURN_IF_ERROR(rows.Bind(int64_t{job.state}));
  RETURN_IF_ERROR(rows.Bind(job.version));
  for (const int64_t time :
       {job.create_time, job.queue_time, job.start_time, job.end_time, job.expire_time}) {
    RETURN_IF_ERROR(BindTime(rows, time));
  }
  RETURN_IF_ERROR(rows.Bind(int64_t{job.status.code()}));
  RETURN_IF_ERROR(rows.Bind(job.status.reason()));
  RETURN_IF_ERROR(rows.Bind(job.status.message()));
  const v1::Job::Counts& n = job.counts;
  for (const int64_t count :
       {n.documents(), n.queued(), n.running(), n.succeeded(), n.failed(), n.cancelled(), n.bytes(),
        n.prompt_tokens(), n.completion_tokens(), job.results, int64_t{job.deleted}}) {
    RETURN_IF_ERROR(rows.Bind(count));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status InsertJob(Database& database, JobRow& job) {
  const std::string sql = absl::StrCat("INSERT INTO jobs (", kJobColumns, ") VALUES (NULL",
                                       ",?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)");
  ASSIGN_OR_RETURN(Rows rows,
                   database.Query(sql, job.name, job.tenant, job.model, job.display_name, job.priority));
  RETURN_IF_ERROR(BindChanging(rows, job));
  RETURN_IF_ERROR(rows.Next().status());
  job.id = database.LastId();
  return absl::OkStatus();
}

absl::Status UpdateJob(Database& database, const JobRow& job) {
  ASSIGN_OR_RETURN(
      Rows rows,
      database.Query("UPDATE jobs SET state = ?, version = ?, create_time = ?, queue_time = ?, start_time = "
                     "?, end_time = ?, "
                     "expire_time = ?, status_code = ?, status_reason = ?, status_message = ?, documents = "
                     "?, queued = ?, "
                     "running = ?, succeeded = ?, failed = ?, cancelled = ?, bytes = ?, prompt_tokens = ?, "
                     "completion_tokens = ?, results = ?, deleted = ? WHERE id = ?"));
  RETURN_IF_ERROR(BindChanging(rows, job));
  RETURN_IF_ERROR(rows.Bind(job.id));
  return rows.Next().status();
}

absl::StatusOr<JobRow> FindJob(Database& database, const std::string& tenant, const std::string& name) {
  ASSIGN_OR_RETURN(Rows rows,
                   database.Query(absl::StrCat("SELECT ", kJobColumns,
                                               " FROM jobs WHERE name = ? AND tenant = ? AND deleted = 0"),
                                  name, tenant));
  ASSIGN_OR_RETURN(const bool found, rows.Next());
  if (!found) {
    return ServiceError(Reason::kJobNotFound, "'", name,
                        "': there is no such job; it may have been deleted, or belong to another tenant");
  }
  return ReadJob(rows);
}

v1::Job ToProto(const JobRow& row, v1::Job spec) {
  spec.set_name(row.name);
  spec.set_display_name(row.display_name);
  spec.set_model(row.model);
  spec.set_priority(static_cast<int32_t>(row.priority));
  spec.set_state(row.state);
  *spec.mutable_counts() = row.counts;
  if (row.status.code() != 0) *spec.mutable_status() = row.status;
  spec.set_version(row.version);
  spec.set_tenant(row.tenant);
  *spec.mutable_create_time() = ToTimestamp(row.create_time);
  if (row.start_time != 0) *spec.mutable_start_time() = ToTimestamp(row.start_time);
  if (row.end_time != 0) *spec.mutable_end_time() = ToTimestamp(row.end_time);
  if (row.expire_time != 0) *spec.mutable_expire_time() = ToTimestamp(row.expire_time);
  spec.set_results(row.results);
  return spec;
}

absl::StatusOr<v1::Job> ReadSpec(Database& database, int64_t job) {
  ASSIGN_OR_RETURN(Rows rows, database.Query("SELECT spec FROM job_specs WHERE job = ?", job));
  ASSIGN_OR_RETURN(const bool found, rows.Next());
  v1::Job spec;
  if (!found || !spec.ParseFromString(rows.Text(0))) {
    return DataLoss(database.path(), ": the specification of job ", job,
                    " is damaged; restore from a backup");
  }
  return spec;
}

absl::StatusOr<v1::Job> ToProto(Database& database, const JobRow& job) {
  ASSIGN_OR_RETURN(v1::Job spec, ReadSpec(database, job.id));
  return ToProto(job, std::move(spec));
}

const char kDocumentColumns[] =
    "id, job, document_id, state, uploaded, media_type, size, sha256, committed, attempt, lease, worker, "
    "acquire_time, deadline";

DocumentRow ReadDocumentRow(const Rows& rows) {
  DocumentRow document;
  int c = 0;
  document.id = rows.Int(c++);
  document.job = rows.Int(c++);
  document.document_id = rows.Text(c++);
  document.state = static_cast<DocumentState>(rows.Int(c++));
  document.uploaded = rows.Int(c++) != 0;
  document.media_type = rows.Text(c++);
  document.size = rows.Int(c++);
  document.sha256 = rows.Text(c++);
  document.committed = rows.Int(c++);
  document.attempt = rows.Int(c++);
  document.lease = rows.Int(c++);
  document.worker = rows.Text(c++);
  document.acquire_time = rows.Int(c++);
  document.deadline = rows.Int(c++);
  return document;
}

absl::StatusOr<DocumentRow> FindDocument(Database& database, const JobRow& job,
                                         const std::string& document_id) {
  ASSIGN_OR_RETURN(Rows rows,
                   database.Query(absl::StrCat("SELECT ", kDocumentColumns,
                                               " FROM documents WHERE job = ? AND document_id = ?"),
                                  job.id, document_id));
  ASSIGN_OR_RETURN(const bool found, rows.Next());
  if (!found) {
    return ServiceError(Reason::kDocumentNotFound, job.name, " has no document '", document_id,
                        "'; begin its upload with a header");
  }
  return ReadDocumentRow(rows);
}

std::string LeaseText(const LeaseName& lease) {
  return absl::StrFormat("leases/%d-%016x", lease.document, static_cast<uint64_t>(lease.number));
}

bool ParseLease(const std::string& text, LeaseName& lease) {
  absl::string_view rest = text;
  if (!absl::ConsumePrefix(&rest, "leases/")) return false;
  const std::pair<absl::string_view, absl::string_view> parts = absl::StrSplit(rest, absl::MaxSplits('-', 1));
  uint64_t number = 0;
  if (!absl::SimpleAtoi(parts.first, &lease.document) || !absl::SimpleHexAtoi(parts.second, &number)) {
    return false;
  }
  lease.number = static_cast<int64_t>(number);
  return LeaseText(lease) == text;
}

int64_t ToMicros(absl::Time time) { return absl::ToUnixMicros(time); }

int64_t MicrosOf(absl::Duration duration) {
  constexpr absl::Duration kLongest = absl::Hours(24 * 365 * 200);
  return absl::ToInt64Microseconds(std::clamp(duration, absl::ZeroDuration(), kLongest));
}

google::protobuf::Timestamp ToTimestamp(int64_t micros) {
  google::protobuf::Timestamp timestamp;
  int64_t seconds = micros / 1'000'000;
  if (micros % 1'000'000 < 0) --seconds;
  timestamp.set_seconds(seconds);
  timestamp.set_nanos(static_cast<int32_t>((micros - seconds * 1'000'000) * 1000));
  return timestamp;
}

std::string DeterministicBytes(const google::protobuf::MessageLite& message) {
  std::string bytes;
  {
    google::protobuf::io::StringOutputStream stream(&bytes);
    google::protobuf::io::CodedOutputStream coded(&stream);
    coded.SetSerializationDeterministic(true);
    message.SerializeToCodedStream(&coded);
  }
  return bytes;
}

}  // namespace snapkv::service
