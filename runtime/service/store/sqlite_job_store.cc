// SPDX-License-Identifier: Apache-2.0
// Opening the store, its transactions and its readers.
#include "runtime/service/store/sqlite_job_store.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <random>
#include <utility>

#include "runtime/service/store/schema.h"

namespace snapkv::service {

absl::StatusOr<std::unique_ptr<JobStore>> JobStore::Open(StoreOptions options) {
  return SqliteJobStore::Open(std::move(options));
}

absl::StatusOr<std::unique_ptr<SqliteJobStore>> SqliteJobStore::Open(StoreOptions options) {
  if (options.folder.empty())
    return FailedPrecondition("the job store needs a state folder: give --state DIR");
  std::unique_ptr<SqliteJobStore> store(new SqliteJobStore(std::move(options)));
  RETURN_IF_ERROR(store->Initialize());
  return store;
}

SqliteJobStore::SqliteJobStore(StoreOptions options)
    : options_(std::move(options)), scheduler_(options_.limits.aging) {}

SqliteJobStore::~SqliteJobStore() {
  // The lock goes last: the connections write when they close.
  readers_.clear();
  writer_.reset();
  if (lock_fd_ >= 0) ::close(lock_fd_);
}

absl::Status SqliteJobStore::Initialize() {
  const std::string& folder = options_.folder;
  RETURN_IF_ERROR(MakeFolder(folder));
  const std::string lock = folder + "/lock";
  lock_fd_ = ::open(lock.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (lock_fd_ < 0) {
    if (errno == ENOSPC || errno == EDQUOT) return StorageFullError(lock);
    return FailedPrecondition(lock, ": cannot open: ", std::strerror(errno),
                              "; the state folder must be writable");
  }
  if (::flock(lock_fd_, LOCK_EX | LOCK_NB) != 0) {
    return FailedPrecondition(folder,
                              ": another snapkv-server uses this state folder; stop it or use another");
  }
  ASSIGN_OR_RETURN(files_, BlobFiles::Open(folder));
  const std::string path = folder + "/jobs.db";
  ASSIGN_OR_RETURN(writer_, Database::Open(path, false));
  RETURN_IF_ERROR(Migrate(*writer_, Migrations()));
  for (int i = 0; i < kReaders; ++i) {
    ASSIGN_OR_RETURN(std::unique_ptr<Database> reader, Database::Open(path, true));
    readers_.push_back(std::move(reader));
  }
  {
    ASSIGN_OR_RETURN(Rows rows, writer_->Query("SELECT bytes FROM secrets WHERE name = 'page_token'"));
    RETURN_IF_ERROR(rows.Next().status());
    token_secret_ = rows.Text(0);
  }
  {
    ASSIGN_OR_RETURN(Rows rows,
                     writer_->Query(absl::StrCat("SELECT ", kJobColumns, " FROM jobs WHERE state <= ?"),
                                    int64_t{v1::Job::CANCELLING}));
    while (true) {
      ASSIGN_OR_RETURN(const bool found, rows.Next());
      if (!found) break;
      scheduler_.Update(ReadJob(rows));
    }
  }
  return RemoveOrphans();
}

// A file belongs to a document that is being uploaded, or that waits for its result.
absl::Status SqliteJobStore::RemoveOrphans() {
  ASSIGN_OR_RETURN(const std::vector<int64_t> documents, files_->List());
  for (const int64_t id : documents) {
    ASSIGN_OR_RETURN(
        Rows rows, writer_->Query("SELECT 1 FROM documents WHERE id = ? AND uploaded = 1 AND state <= ?", id,
                                  int64_t{static_cast<int>(DocumentState::kLeased)}));
    ASSIGN_OR_RETURN(const bool wanted, rows.Next());
    if (!wanted) files_->Remove(id);
  }
  return absl::OkStatus();
}

void SqliteJobStore::SetListener(std::function<void(const StoreEvent&)> listener) {
  listener_ = std::move(listener);
}
void SqliteJobStore::SetCommitObserver(std::function<void(absl::Duration)> observer) {
  commit_observer_ = std::move(observer);
}

absl::Status SqliteJobStore::Write(absl::FunctionRef<absl::Status(Transaction&)> body) {
  std::vector<StoreEvent> events;
  std::vector<int64_t> files;
  std::optional<absl::Duration> commit_time;
  {
    std::lock_guard lock(write_mutex_);
    RETURN_IF_ERROR(WriteLocked(body, events, files, commit_time));
  }
  for (const int64_t document : files) files_->Remove(document);
  if (commit_observer_ && commit_time.has_value()) commit_observer_(*commit_time);
  if (listener_) {
    for (const StoreEvent& event : events) listener_(event);
  }
  return absl::OkStatus();
}

absl::Status SqliteJobStore::WriteLocked(absl::FunctionRef<absl::Status(Transaction&)> body,
                                         std::vector<StoreEvent>& events, std::vector<int64_t>& files,
                                         std::optional<absl::Duration>& commit_time) {
  // Left over only if a ROLLBACK failed, for want of memory or by a broken disk.
  if (writer_->InTransaction()) RETURN_IF_ERROR(writer_->Run("ROLLBACK"));
  RETURN_IF_ERROR(writer_->Run("BEGIN IMMEDIATE"));
  Transaction transaction(*writer_, ToMicros(options_.clock()), options_.limits.retention);
  const int64_t changes = writer_->TotalChanges();
  absl::Status status = body(transaction);
  if (status.ok()) status = transaction.Save();
  if (status.ok()) {
    const absl::Time begin = absl::Now();
    status = writer_->Run("COMMIT");
    // A transaction without changes writes nothing.
    if (writer_->TotalChanges() != changes) commit_time = absl::Now() - begin;
  }
  if (!status.ok()) {
    // SQLite may have rolled back by itself.
    if (writer_->InTransaction()) (void)writer_->Run("ROLLBACK");
    return status;
  }
  for (const JobRow& job : transaction.saved()) scheduler_.Update(job);
  events = std::move(transaction.events());
  files = transaction.files();
  return absl::OkStatus();
}

absl::Status SqliteJobStore::Read(absl::FunctionRef<absl::Status(Database&)> body) {
  std::unique_ptr<Database> reader;
  {
    std::unique_lock lock(readers_mutex_);
    reader_free_.wait(lock, [&] { return !readers_.empty(); });
    reader = std::move(readers_.back());
    readers_.pop_back();
  }
  absl::Status status = reader->Run("BEGIN");
  if (status.ok()) {
    status = body(*reader);
    const absl::Status end = reader->Run("ROLLBACK");
    if (status.ok()) status = end;
  }
  {
    std::lock_guard lock(readers_mutex_);
    readers_.push_back(std::move(reader));
  }
  reader_free_.notify_one();
  return status;
}

absl::StatusOr<StoreStats> SqliteJobStore::Stats() { return scheduler_.Stats(options_.clock()); }

int64_t RandomNumber() {
  // The system's generator; its constructor opens a device, so each thread keeps one.
  thread_local std::random_device random;
  return static_cast<int64_t>((uint64_t{random()} << 32) | random());
}

}  // namespace snapkv::service
