// SPDX-License-Identifier: Apache-2.0
// SQLite connections, statements and errors.
#include "runtime/service/store/database.h"

#include <sqlite3.h>

#include <cerrno>

#include "kernels/base/log.h"
#include "runtime/service/reason.h"

namespace snapkv::service {
namespace {

constexpr absl::Duration kStorageRetry = absl::Seconds(10);
constexpr int kBusyTimeoutMs = 5000;
// Per connection. FULL: a commit is on disk when it returns. The WAL shrinks to the limit after a checkpoint.
constexpr char kPragmas[] =
    "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON;"
    "PRAGMA journal_size_limit = 67108864; PRAGMA temp_store = MEMORY;";

}  // namespace

absl::Status StorageFullError(const std::string& what) {
  return WithRetryDelay(
      ServiceError(Reason::kStorageFull, what,
                   ": no space left on the server's disk; nothing was changed: delete jobs or make room, ",
                   "and try again"),
      kStorageRetry);
}

Rows::~Rows() {
  if (statement_ == nullptr) return;
  if (!cached_) {
    sqlite3_finalize(statement_);
    return;
  }
  sqlite3_reset(statement_);
  sqlite3_clear_bindings(statement_);
}

absl::StatusOr<bool> Rows::Next() {
  const int code = sqlite3_step(statement_);
  if (code == SQLITE_ROW) return true;
  if (code == SQLITE_DONE) return false;
  return database_->ErrorOf(code);
}

int64_t Rows::Int(int column) const { return sqlite3_column_int64(statement_, column); }

std::string Rows::Text(int column) const {
  const void* bytes = sqlite3_column_blob(statement_, column);
  const int size = sqlite3_column_bytes(statement_, column);
  return bytes == nullptr ? std::string() : std::string(static_cast<const char*>(bytes), size);
}

absl::Status Rows::Bind(int64_t value) {
  return database_->ErrorOf(sqlite3_bind_int64(statement_, ++bound_, value));
}

absl::Status Rows::Bind(const std::string& text) {
  return database_->ErrorOf(
      sqlite3_bind_text64(statement_, ++bound_, text.data(), text.size(), SQLITE_TRANSIENT, SQLITE_UTF8));
}

absl::Status Rows::Bind(Blob blob) {
  // A null pointer would be NULL, not an empty BLOB.
  const char* data = blob.bytes.empty() ? "" : blob.bytes.data();
  return database_->ErrorOf(
      sqlite3_bind_blob64(statement_, ++bound_, data, blob.bytes.size(), SQLITE_TRANSIENT));
}

absl::Status Rows::Bind(std::nullptr_t) {
  return database_->ErrorOf(sqlite3_bind_null(statement_, ++bound_));
}

absl::StatusOr<std::unique_ptr<Database>> Database::Open(const std::string& path, bool query_only) {
  sqlite3* handle = nullptr;
  // A query_only connection needs write access to the files of the WAL.
  const int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX;
  const int code = sqlite3_open_v2(path.c_str(), &handle, flags, nullptr);
  std::unique_ptr<Database> database(new Database(path, handle));
  if (handle == nullptr) return ResourceExhausted(path, ": no memory to open the database");
  RETURN_IF_ERROR(database->ErrorOf(code));
  sqlite3_extended_result_codes(handle, 1);
  sqlite3_busy_timeout(handle, kBusyTimeoutMs);
  RETURN_IF_ERROR(database->Execute(kPragmas));
  if (query_only) RETURN_IF_ERROR(database->Execute("PRAGMA query_only = ON"));
  return database;
}

Database::~Database() {
  for (const auto& [sql, statement] : statements_) sqlite3_finalize(statement);
  sqlite3_close(handle_);
}

absl::StatusOr<Rows> Database::Prepare(const std::string& sql, bool cached) {
  sqlite3_stmt* once = nullptr;
  sqlite3_stmt*& statement = cached ? statements_[sql] : once;
  if (statement == nullptr) {
    const unsigned flags = cached ? SQLITE_PREPARE_PERSISTENT : 0;
    RETURN_IF_ERROR(ErrorOf(
        sqlite3_prepare_v3(handle_, sql.data(), static_cast<int>(sql.size()), flags, &statement, nullptr)));
  }
  CHECK(!sqlite3_stmt_busy(statement));
  return Rows(this, statement, cached);
}

absl::Status Database::Execute(const std::string& sql) {
  return ErrorOf(sqlite3_exec(handle_, sql.c_str(), nullptr, nullptr, nullptr));
}

int64_t Database::LastId() const { return sqlite3_last_insert_rowid(handle_); }
int64_t Database::TotalChanges() const { return sqlite3_total_changes64(handle_); }
bool Database::InTransaction() const { return sqlite3_get_autocommit(handle_) == 0; }

absl::Status Database::ErrorOf(int code) const {
  if (code == SQLITE_OK) return absl::OkStatus();
  const int number = sqlite3_system_errno(handle_);
  const bool no_space = number == ENOSPC || number == EDQUOT;
  const std::string text = absl::StrCat(path_, ": ", sqlite3_errmsg(handle_), " (SQLite ", code, ")");
  switch (code & 0xff) {
    case SQLITE_FULL:
      return StorageFullError(path_);
    case SQLITE_IOERR:
      // The shared memory of the WAL is a file as well, and cannot grow either.
      if (no_space || code == SQLITE_IOERR_SHMSIZE) return StorageFullError(path_);
      return MakeError(Reason::kInternal, absl::StrCat(text, ", errno ", number, ": check the disk"));
    case SQLITE_CONSTRAINT:
      if (code != SQLITE_CONSTRAINT_UNIQUE && code != SQLITE_CONSTRAINT_PRIMARYKEY) {
        return MakeError(Reason::kInternal, text);
      }
      return absl::AlreadyExistsError(text);
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      return absl::UnavailableError(absl::StrCat(text, ": another process uses the state folder"));
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
      return DataLoss(text, ": the database is damaged; restore the state folder from a backup");
    case SQLITE_CANTOPEN:
    case SQLITE_PERM:
    case SQLITE_READONLY:
      if (no_space) return StorageFullError(path_);
      return FailedPrecondition(text, ": the state folder must be writable");
    default:
      return MakeError(Reason::kInternal, text);
  }
}

}  // namespace snapkv::service
