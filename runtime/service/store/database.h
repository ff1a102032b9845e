// SPDX-License-Identifier: Apache-2.0
// Database: one SQLite connection with cached statements, and every SQLite error as an absl::Status.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>

#include "kernels/base/status.h"

struct sqlite3;
struct sqlite3_stmt;

namespace snapkv::service {

// RESOURCE_EXHAUSTED / STORAGE_FULL with a retry delay; `what` names the file or the folder.
absl::Status StorageFullError(const std::string& what);

// Bytes as a BLOB; std::string arguments are TEXT.
struct Blob {
  std::string_view bytes;
};

class Database;

// One execution of a statement. A cached one goes back to its connection with it, so the same SQL text cannot
// be executed again before.
class Rows {
 public:
  Rows(Rows&& other) noexcept
      : database_(other.database_),
        statement_(other.statement_),
        cached_(other.cached_),
        bound_(other.bound_) {
    other.statement_ = nullptr;
  }
  Rows& operator=(Rows&&) = delete;
  ~Rows();

  // The next row; false: there is none.
  absl::StatusOr<bool> Next();

  // Columns of the present row, from 0. NULL is 0 or empty.
  int64_t Int(int column) const;
  std::string Text(int column) const;  // also of BLOBs

  // Binds the next parameter, in order. Bytes are copied.
  absl::Status Bind(int64_t value);
  absl::Status Bind(const std::string& text);
  absl::Status Bind(Blob blob);
  absl::Status Bind(std::nullptr_t);

 private:
  friend class Database;
  Rows(Database* database, sqlite3_stmt* statement, bool cached)
      : database_(database), statement_(statement), cached_(cached) {}
  Database* database_;
  sqlite3_stmt* statement_;
  bool cached_;
  int bound_ = 0;
};

// Not thread-safe: its owner holds a mutex.
class Database {
 public:
  // Opens or creates `path` in WAL mode with synchronous=FULL. `query_only` connections refuse to write.
  static absl::StatusOr<std::unique_ptr<Database>> Open(const std::string& path, bool query_only);
  Database(const Database&) = delete;
  Database& operator=(const Database&) = delete;
  ~Database();

  // A statement with its parameters, ready for Next().
  template <class... Args>
  absl::StatusOr<Rows> Query(const std::string& sql, const Args&... args) {
    ASSIGN_OR_RETURN(Rows rows, Prepare(sql, true));
    absl::Status status;
    ((status.ok() ? status = rows.Bind(args) : status), ...);
    RETURN_IF_ERROR(status);
    return rows;
  }
  // The same without parameters yet, not cached: for SQL that is put together from what a client sent.
  absl::StatusOr<Rows> QueryOnce(const std::string& sql) { return Prepare(sql, false); }
  // Query, to its end. A broken UNIQUE is ALREADY_EXISTS.
  template <class... Args>
  absl::Status Run(const std::string& sql, const Args&... args) {
    ASSIGN_OR_RETURN(Rows rows, Query(sql, args...));
    return rows.Next().status();
  }
  // Statements without parameters, separated by ";".
  absl::Status Execute(const std::string& sql);

  int64_t LastId() const;
  // Rows changed since the connection was opened.
  int64_t TotalChanges() const;
  bool InTransaction() const;
  const std::string& path() const { return path_; }

 private:
  friend class Rows;
  Database(std::string path, sqlite3* handle) : path_(std::move(path)), handle_(handle) {}
  absl::StatusOr<Rows> Prepare(const std::string& sql, bool cached);
  // The one place where SQLite's codes become ours.
  absl::Status ErrorOf(int code) const;

  std::string path_;
  sqlite3* handle_;
  std::unordered_map<std::string, sqlite3_stmt*> statements_;
};

}  // namespace snapkv::service
