// SPDX-License-Identifier: Apache-2.0
// Tables, indexes, migrations.
#include "runtime/service/store/schema.h"

namespace snapkv::service {
namespace {

// "snkv": marks the file as ours.
constexpr int64_t kApplicationId = 0x736e6b76;

// Times are microseconds since 1970, UTC; NULL: not yet. States of jobs are those of v1::Job, states of
// documents those of DocumentRow. What changes often (jobs, documents) is apart from what is large
// (job_specs, contents): SQLite writes whole rows.
constexpr char kVersion1[] = R"sql(
CREATE TABLE secrets (name TEXT PRIMARY KEY, bytes BLOB NOT NULL) WITHOUT ROWID;
INSERT INTO secrets VALUES ('page_token', randomblob(32));

CREATE TABLE jobs (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  name TEXT NOT NULL UNIQUE,
  tenant TEXT NOT NULL,
  model TEXT NOT NULL,
  display_name TEXT NOT NULL,
  priority INTEGER NOT NULL,
  state INTEGER NOT NULL,
  version INTEGER NOT NULL,
  create_time INTEGER NOT NULL,
  queue_time INTEGER,
  start_time INTEGER,
  end_time INTEGER,
  expire_time INTEGER,
  status_code INTEGER NOT NULL,
  status_reason TEXT NOT NULL,
  status_message TEXT NOT NULL,
  documents INTEGER NOT NULL,
  queued INTEGER NOT NULL,
  running INTEGER NOT NULL,
  succeeded INTEGER NOT NULL,
  failed INTEGER NOT NULL,
  cancelled INTEGER NOT NULL,
  bytes INTEGER NOT NULL,
  prompt_tokens INTEGER NOT NULL,
  completion_tokens INTEGER NOT NULL,
  results INTEGER NOT NULL,
  deleted INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX jobs_tenant ON jobs (tenant) WHERE deleted = 0;
CREATE INDEX jobs_expire ON jobs (expire_time);

-- A serialized v1::Job with what the client gave: parameters and labels.
CREATE TABLE job_specs (job INTEGER PRIMARY KEY REFERENCES jobs (id), spec BLOB NOT NULL);
CREATE TABLE labels (
  job INTEGER NOT NULL REFERENCES jobs (id), key TEXT NOT NULL, value TEXT NOT NULL, PRIMARY KEY (job, key)
) WITHOUT ROWID;
CREATE TABLE requests (
  tenant TEXT NOT NULL, request_id TEXT NOT NULL, sha256 BLOB NOT NULL,
  job INTEGER NOT NULL REFERENCES jobs (id), create_time INTEGER NOT NULL, PRIMARY KEY (tenant, request_id)
) WITHOUT ROWID;
CREATE INDEX requests_time ON requests (create_time);
CREATE INDEX requests_job ON requests (job);

-- Documents of a job run in the order of their id.
CREATE TABLE documents (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  job INTEGER NOT NULL REFERENCES jobs (id),
  document_id TEXT NOT NULL,
  state INTEGER NOT NULL,
  uploaded INTEGER NOT NULL,   -- 0: the text is in contents; 1: it is a file
  media_type TEXT NOT NULL,
  size INTEGER NOT NULL,
  sha256 BLOB NOT NULL,
  committed INTEGER NOT NULL,
  attempt INTEGER NOT NULL DEFAULT 0,
  lease INTEGER,
  worker TEXT,
  acquire_time INTEGER,
  deadline INTEGER,
  UNIQUE (job, document_id)
);
CREATE INDEX documents_job ON documents (job);
CREATE INDEX documents_uploading ON documents (job) WHERE state = 0;
CREATE INDEX documents_queued ON documents (job) WHERE state = 1;
CREATE INDEX documents_leased ON documents (job) WHERE state = 2;
CREATE INDEX documents_deadline ON documents (deadline) WHERE state = 2;
CREATE INDEX documents_worker ON documents (worker) WHERE state = 2;

-- Parameters of a document and, if it came inline, its text (at most 1 MiB per job); gone once it has a result.
CREATE TABLE contents (document INTEGER PRIMARY KEY REFERENCES documents (id), parameters BLOB NOT NULL, text BLOB);

CREATE TABLE results (
  document INTEGER PRIMARY KEY REFERENCES documents (id),
  job INTEGER NOT NULL REFERENCES jobs (id),
  sequence INTEGER NOT NULL,
  lease INTEGER,               -- that made it: a repeated CompleteDocument is recognised
  result BLOB NOT NULL,
  UNIQUE (job, sequence),
  UNIQUE (job, document)
);

-- Jobs to be emptied step by step: everything = 0: texts nobody will read any more; 1: the whole job.
CREATE TABLE purges (job INTEGER PRIMARY KEY REFERENCES jobs (id), everything INTEGER NOT NULL, after INTEGER NOT NULL);
)sql";

constexpr Migration kMigrations[] = {{1, kVersion1}};

absl::StatusOr<int64_t> ReadInt(Database& database, const std::string& sql) {
  ASSIGN_OR_RETURN(Rows rows, database.Query(sql));
  ASSIGN_OR_RETURN(const bool found, rows.Next());
  return found ? rows.Int(0) : 0;
}

absl::Status Step(Database& database, const Migration& migration) {
  absl::Status status = database.Execute(absl::StrCat("BEGIN EXCLUSIVE;", migration.sql,
                                                      ";PRAGMA application_id = ", kApplicationId,
                                                      ";PRAGMA user_version = ", migration.to, ";COMMIT"));
  if (database.InTransaction()) (void)database.Execute("ROLLBACK");
  return status;
}

}  // namespace

absl::Span<const Migration> Migrations() { return kMigrations; }

absl::Status Migrate(Database& database, absl::Span<const Migration> migrations) {
  ASSIGN_OR_RETURN(const int64_t version, ReadInt(database, "PRAGMA user_version"));
  ASSIGN_OR_RETURN(const int64_t application, ReadInt(database, "PRAGMA application_id"));
  ASSIGN_OR_RETURN(const int64_t tables, ReadInt(database, "SELECT count(*) FROM sqlite_master"));
  const int newest = migrations.back().to;
  if (tables > 0 && application != kApplicationId) {
    return FailedPrecondition(database.path(),
                              ": not a job database of snapkv-server; give it a folder of its own");
  }
  if (version > newest) {
    return FailedPrecondition(database.path(), ": its schema has version ", version,
                              ", this program knows versions up to ", newest,
                              "; use the newer snapkv-server, or another state folder");
  }
  for (const Migration& migration : migrations) {
    if (migration.to <= version) continue;
    RETURN_IF_ERROR(Step(database, migration));
  }
  return absl::OkStatus();
}

}  // namespace snapkv::service
