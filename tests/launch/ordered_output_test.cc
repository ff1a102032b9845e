// SPDX-License-Identifier: Apache-2.0
// OrderedWriter: any order in, one order out; and FileSet and CheckOutputs, which keep outputs off the
// inputs.
#include <gmock/gmock.h>
#include <sys/stat.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "launch/output/ordered_writer.h"
#include "launch/output/output_files.h"
#include "tests/launch/output_testing.h"

namespace snapkv::launch {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
namespace fs = std::filesystem;

class Collector {
 public:
  OrderedWriter::Sink sink() {
    return [this](const std::string& line) -> absl::Status {
      if (fails) return FailedPrecondition("full");
      lines.push_back(line);
      return absl::OkStatus();
    };
  }
  std::vector<std::string> lines;
  bool fails = false;
};

TEST(OrderedWriter, WithoutOrderAllPasses) {
  Collector out;
  OrderedWriter writer(false, out.sink());
  ASSERT_TRUE(writer.Put(5, "five").ok());
  ASSERT_TRUE(writer.Skip(0).ok());
  ASSERT_TRUE(writer.Put(1, "one").ok());
  EXPECT_THAT(out.lines, ElementsAre("five", "one"));
  EXPECT_EQ(writer.held(), 0);
  EXPECT_EQ(writer.held_bytes(), 0);
}

TEST(OrderedWriter, HoldsBackUntilItsTurn) {
  Collector out;
  OrderedWriter writer(true, out.sink());
  ASSERT_TRUE(writer.Put(2, "two").ok());
  ASSERT_TRUE(writer.Put(3, "three").ok());
  ASSERT_TRUE(writer.Skip(1).ok());
  EXPECT_THAT(out.lines, ElementsAre());
  EXPECT_EQ(writer.held(), 2) << "a skipped one is no record";
  EXPECT_EQ(writer.held_bytes(), 8);
  EXPECT_EQ(writer.next(), 0);
  ASSERT_TRUE(writer.Put(0, "zero").ok());
  EXPECT_THAT(out.lines, ElementsAre("zero", "two", "three"));
  EXPECT_EQ(writer.held(), 0);
  EXPECT_EQ(writer.held_bytes(), 0);
  EXPECT_EQ(writer.next(), 4);
}

TEST(OrderedWriter, EveryOrderGivesOneOrder) {
  std::vector<int> order(6);
  std::iota(order.begin(), order.end(), 0);
  do {
    for (int skipped = -1; skipped < 6; ++skipped) {
      Collector out;
      OrderedWriter writer(true, out.sink());
      for (const int i : order)
        ASSERT_TRUE((i == skipped ? writer.Skip(i) : writer.Put(i, std::to_string(i))).ok());
      std::vector<std::string> expected;
      for (int i = 0; i < 6; ++i)
        if (i != skipped) expected.push_back(std::to_string(i));
      ASSERT_EQ(out.lines, expected);
      ASSERT_EQ(writer.held(), 0);
      ASSERT_EQ(writer.held_bytes(), 0);
    }
  } while (std::next_permutation(order.begin(), order.end()));
}

TEST(OrderedWriter, AtTheEndOfAStoppedRunNothingIsLost) {
  Collector out;
  OrderedWriter writer(true, out.sink());
  ASSERT_TRUE(writer.Put(4, "four").ok());
  ASSERT_TRUE(writer.Skip(3).ok());
  ASSERT_TRUE(writer.Put(2, "two").ok());
  ASSERT_TRUE(writer.Drain().ok());
  EXPECT_THAT(out.lines, ElementsAre("two", "four"));
  EXPECT_EQ(writer.held(), 0);
  EXPECT_EQ(writer.held_bytes(), 0);
}

TEST(OrderedWriter, ANumberComesOnce) {
  Collector out;
  OrderedWriter writer(true, out.sink());
  ASSERT_TRUE(writer.Put(0, "zero").ok());
  ASSERT_TRUE(writer.Put(2, "two").ok());
  EXPECT_EQ(writer.Put(0, "again").code(), absl::StatusCode::kInternal);
  EXPECT_EQ(writer.Skip(2).code(), absl::StatusCode::kInternal);
  EXPECT_THAT(out.lines, ElementsAre("zero"));
}

TEST(OrderedWriter, ARefusedRecordStaysHeld) {
  Collector out;
  OrderedWriter writer(true, out.sink());
  ASSERT_TRUE(writer.Put(1, "one").ok());
  out.fails = true;
  EXPECT_FALSE(writer.Put(0, "zero").ok());
  EXPECT_EQ(writer.held(), 2);
  EXPECT_EQ(writer.held_bytes(), 7);
  out.fails = false;
  EXPECT_TRUE(writer.Drain().ok());
  EXPECT_THAT(out.lines, ElementsAre("zero", "one"));
  OrderedWriter straight(false, out.sink());
  out.fails = true;
  EXPECT_FALSE(straight.Put(0, "zero").ok());
}

TEST(FileSet, KnowsAFileByAnyName) {
  const TemporaryFolder folder;
  WriteBytes(folder / "a", "a");
  WriteBytes(folder / "b", "b");
  fs::create_hard_link(folder / "a", folder / "hard");
  fs::create_symlink("a", folder / "soft");
  FileSet set({"", "-", folder / "missing", folder.path(), "/dev/null"});
  for (const char* name : {"", "-", "/dev/null"}) EXPECT_FALSE(set.Find(name).has_value()) << name;
  EXPECT_FALSE(set.Find(folder.path()).has_value());
  set.Add(folder / "a");
  set.Add(folder / "hard");
  for (const std::string& path : {folder / "a", folder / "hard", folder / "soft", folder / "./a"})
    EXPECT_EQ(set.Find(path), folder / "a") << path;
  EXPECT_FALSE(set.Find(folder / "b").has_value());
  EXPECT_FALSE(set.Find(folder / "missing").has_value());
}

TEST(CheckOutputs, AnOutputMayNotBeAnInputAmongThousands) {
  const TemporaryFolder folder;
  std::vector<std::string> inputs;
  for (int i = 0; i < 3000; ++i) {
    inputs.push_back(folder / ("in-" + std::to_string(i)));
    WriteBytes(inputs.back(), "x");
  }
  fs::create_symlink("in-2999", folder / "soft");
  const FileSet set(inputs);
  EXPECT_TRUE(CheckOutputs({{.flag = "--output", .path = folder / "out"}}, set).ok());
  const absl::Status status = CheckOutputs({{.flag = "--output", .path = folder / "soft"}}, set);
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("--output " + (folder / "soft") + " is the input "));
  EXPECT_THAT(std::string(status.message()), HasSubstr("in-2999"));
  EXPECT_TRUE(absl::IsInvalidArgument(CheckOutputs(
      {{.flag = "--output", .path = folder / "out"}, {.flag = "--stats", .path = folder / "./out"}}, set)));
}

}  // namespace
}  // namespace snapkv::launch
