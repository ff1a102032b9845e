// SPDX-License-Identifier: Apache-2.0
// The state folder: versions of the schema, folders that are not ours, one process at a time.
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>

#include "runtime/service/store/schema.h"
#include "tests/service/store_testing.h"

namespace snapkv::service {
namespace {

using ::testing::HasSubstr;

class SchemaTest : public StoreTest {
 protected:
  std::unique_ptr<Database> Connect(const std::string& name = "state/jobs.db") {
    auto database = Database::Open(folder_.path() + "/" + name, false);
    EXPECT_TRUE(database.ok()) << database.status();
    return *std::move(database);
  }
  static std::string ReadText(Database& database, const std::string& sql) {
    auto rows = database.Query(sql);
    EXPECT_TRUE(rows.ok()) << rows.status();
    EXPECT_TRUE(*rows->Next()) << sql;
    return rows->Text(0);
  }
  absl::Status OpenStatus() { return JobStore::Open(Options()).status(); }
};

TEST_F(SchemaTest, ANewerSchemaIsRefusedWithBothNumbers) {
  Create(JobOf(1));
  Close();
  const int newest = Migrations().back().to;
  const int newer = newest + 1;
  ASSERT_OK(Connect()->Execute(absl::StrCat("PRAGMA user_version = ", newer)));
  const absl::Status refused = OpenStatus();
  EXPECT_TRUE(absl::IsFailedPrecondition(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()),
              HasSubstr(absl::StrCat("has version ", newer, ", this program knows versions up to ", newest)));
  // Nothing was touched: with its own version it opens.
  ASSERT_OK(Connect()->Execute(absl::StrCat("PRAGMA user_version = ", newest)));
  Open();
  EXPECT_EQ(store_->ListJobs(kTenant, {})->jobs_size(), 1);
}

TEST_F(SchemaTest, VersionsAreNumberedFromOne) {
  int expected = 1;
  for (const Migration& migration : Migrations()) EXPECT_EQ(migration.to, expected++);
  EXPECT_EQ(ReadText(*Connect(), "PRAGMA user_version"), absl::StrCat(Migrations().back().to));
}

TEST_F(SchemaTest, EveryOlderVersionOpens) {
  // A folder as each older program has left it, brought up to date.
  for (const Migration& last : Migrations()) {
    Close();
    std::filesystem::remove_all(folder_.path() + "/state");
    std::filesystem::create_directories(folder_.path() + "/state");
    ASSERT_OK(Migrate(*Connect(), Migrations().subspan(0, last.to)));
    Open();
    ASSERT_NE(store_, nullptr);
    const v1::Job job = Create(JobOf(1));
    ASSERT_OK(store_->CompleteDocument(Complete(Acquire(1).at(0)), kWorker));
    EXPECT_EQ(Get(job.name()).state(), v1::Job::SUCCEEDED);
  }
}

TEST_F(SchemaTest, StepsRunOnceAndInOrder) {
  const Migration steps[] = {{1, "CREATE TABLE t (a); INSERT INTO t VALUES ('one')"},
                             {2, "ALTER TABLE t ADD COLUMN b; UPDATE t SET b = a || ' two'"},
                             {3, "UPDATE t SET b = b || ' three'"}};
  const auto database = Connect("other.db");
  ASSERT_OK(Migrate(*database, absl::MakeSpan(steps).subspan(0, 1)));
  EXPECT_EQ(ReadText(*database, "PRAGMA user_version"), "1");
  ASSERT_OK(Migrate(*database, steps));
  EXPECT_EQ(ReadText(*database, "SELECT b FROM t"), "one two three");
  ASSERT_OK(Migrate(*database, steps));
  EXPECT_EQ(ReadText(*database, "SELECT b FROM t"), "one two three");
  const absl::Status refused = Migrate(*database, absl::MakeSpan(steps).subspan(0, 2));
  EXPECT_TRUE(absl::IsFailedPrecondition(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()),
              HasSubstr("has version 3, this program knows versions up to 2"));
}

TEST_F(SchemaTest, AFailedStepLeavesTheOldVersion) {
  const Migration steps[] = {{1, "CREATE TABLE t (a); INSERT INTO t VALUES ('one')"},
                             {2, "UPDATE t SET a = 'two'; INSERT INTO none VALUES (1)"}};
  const auto database = Connect("other.db");
  EXPECT_FALSE(Migrate(*database, steps).ok());
  EXPECT_EQ(ReadText(*database, "PRAGMA user_version"), "1");
  EXPECT_EQ(ReadText(*database, "SELECT a FROM t"), "one");
  EXPECT_FALSE(database->InTransaction());
}

TEST_F(SchemaTest, ADatabaseOfOthersIsLeftAlone) {
  Close();
  std::filesystem::remove_all(folder_.path() + "/state");
  std::filesystem::create_directories(folder_.path() + "/state");
  ASSERT_OK(Connect()->Execute("CREATE TABLE theirs (a)"));
  const absl::Status refused = OpenStatus();
  EXPECT_TRUE(absl::IsFailedPrecondition(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()), HasSubstr("not a job database of snapkv-server"));
}

TEST_F(SchemaTest, AFileThatIsNoDatabase) {
  Close();
  std::filesystem::remove(folder_.path() + "/state/jobs.db");
  std::ofstream(folder_.path() + "/state/jobs.db") << std::string(5000, 'x');
  const absl::Status refused = OpenStatus();
  EXPECT_TRUE(absl::IsDataLoss(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()), HasSubstr("jobs.db"));
}

TEST_F(SchemaTest, OneProcessAtATime) {
  const absl::Status second = OpenStatus();
  EXPECT_TRUE(absl::IsFailedPrecondition(second)) << second;
  EXPECT_THAT(std::string(second.message()), HasSubstr("another snapkv-server uses this state folder"));
  Close();
  EXPECT_TRUE(OpenStatus().ok());
}

TEST_F(SchemaTest, FoldersThatCannotBeUsed) {
  StoreOptions options;
  EXPECT_TRUE(absl::IsFailedPrecondition(JobStore::Open(options).status()));
  options.folder = folder_.path() + "/file";
  std::ofstream(options.folder) << "x";
  const absl::Status file = JobStore::Open(options).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(file)) << file;
  EXPECT_THAT(std::string(file.message()), HasSubstr("/file: not a folder"));
  options.folder = folder_.path() + "/a/b/c";
  EXPECT_TRUE(JobStore::Open(options).ok()) << "folders on the way are made";
}

}  // namespace
}  // namespace snapkv::service
