// SPDX-License-Identifier: Apache-2.0
// The side file of a batch.
#include "launch/client/batch_jobs.h"

#include <filesystem>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/launch/output_testing.h"

namespace snapkv::launch {
namespace {

using ::testing::SizeIs;

TEST(BatchJobs, AreFoundAgainAndRemovedAtTheEnd) {
  const TemporaryFolder folder;
  const std::string path = folder / "out.jsonl.snapkv-job";
  EXPECT_EQ(BatchJobs::PathFor(folder / "out.jsonl"), path);
  BatchJobs jobs(path, "p");
  ASSERT_TRUE(jobs.Load().ok());
  EXPECT_THAT(jobs.All(), SizeIs(0));
  ASSERT_TRUE(jobs.Put({.request_id = "r1", .first = 0}).ok());
  ASSERT_TRUE(jobs.Put({.request_id = "r1", .name = "jobs/a", .first = 0, .end = 7, .after = 3}).ok());
  ASSERT_TRUE(jobs.Put({.request_id = "r2", .first = 7}).ok());
  BatchJobs again(path, "p");
  ASSERT_TRUE(again.Load().ok());
  const auto all = again.All();
  ASSERT_THAT(all, SizeIs(2));
  EXPECT_EQ(all[0].name, "jobs/a");
  EXPECT_EQ(all[0].end, 7);
  EXPECT_EQ(all[0].after, 3);
  EXPECT_EQ(all[1].request_id, "r2");
  EXPECT_EQ(all[1].end, -1);
  BatchJobs other(path, "q");
  ASSERT_TRUE(other.Load().ok());
  EXPECT_THAT(other.All(), SizeIs(0)) << "of other parameters";
  ASSERT_TRUE(again.Remove("r1").ok());
  EXPECT_TRUE(std::filesystem::exists(path));
  ASSERT_TRUE(again.Remove("r2").ok());
  EXPECT_FALSE(std::filesystem::exists(path));
  EXPECT_TRUE(again.Remove("r2").ok());
}

TEST(BatchJobs, DamagedFilesAreLeftOut) {
  const TemporaryFolder folder;
  const std::string path = folder / "f";
  const char* const texts[] = {
      "",
      "x",
      "[]",
      "{\"version\":2,\"params_sha256\":\"p\",\"jobs\":[]}",
      "{\"version\":1,\"params_sha256\":7,\"jobs\":[]}",
      "{\"version\":1,\"params_sha256\":\"p\",\"jobs\":{}}",
      "{\"version\":1,\"params_sha256\":\"p\",\"jobs\":[{\"request_id\":\"r\"}]}",
      "{\"version\":1,\"params_sha256\":\"p\",\"jobs\":[{\"request_id\":\"r\",\"name\":\"n\",\"first\":-1,"
      "\"end\":1,\"after\":0}]}",
  };
  for (const char* text : texts) {
    WriteBytes(path, text);
    BatchJobs jobs(path, "p");
    EXPECT_TRUE(jobs.Load().ok()) << text;
    EXPECT_THAT(jobs.All(), SizeIs(0)) << text;
  }
}

TEST(BatchJobs, WithoutAFileToGoOnWithNothingIsKept) {
  EXPECT_EQ(BatchJobs::PathFor(""), "");
  EXPECT_EQ(BatchJobs::PathFor("-"), "");
  EXPECT_EQ(BatchJobs::PathFor("/dev/null"), "");
  BatchJobs jobs("", "p");
  EXPECT_TRUE(jobs.Load().ok());
  EXPECT_TRUE(jobs.Put({.request_id = "r"}).ok());
  EXPECT_THAT(jobs.All(), SizeIs(1));
}

TEST(BatchJobs, FolderThatIsGone) {
  BatchJobs jobs("/no/such/folder/x", "p");
  EXPECT_FALSE(jobs.Put({.request_id = "r"}).ok());
}

}  // namespace
}  // namespace snapkv::launch
