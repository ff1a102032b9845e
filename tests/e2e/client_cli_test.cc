// SPDX-License-Identifier: Apache-2.0
// snapkv as a user runs it: submit, status, watch, results, cancel, delete, list, models, health.
#include <signal.h>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/e2e/client_program.h"

namespace snapkv::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;

TEST(ClientSubmit, SmallFilesTravelInOneCallAndComeBackAsRecords) {
  FakeServer server;
  const TestFolder folder;
  folder.Write("a.txt", "The first text.");
  folder.Write("b.txt", "The second text.");
  const auto result =
      RunClientProgram(At(server, {"submit", "a.txt", "b.txt", "--prompt", "Who?", "--capacity", "1024",
                                   "--temperature", "0.5", "--label", "team=x", "--priority", "7", "--wait"}),
                       {.folder = folder.path()});
  ASSERT_EQ(result.exit_code, 0) << result.ToString();
  const auto records = JsonLines(result.out);
  ASSERT_THAT(records, SizeIs(2)) << result.ToString();
  EXPECT_EQ(SortedIds(records), (Strings{"a.txt", "b.txt"}));
  EXPECT_EQ(records[0]["summary"], "Summary of a.txt.");
  EXPECT_EQ(records[0]["finish_reason"], "stop");
  EXPECT_EQ(records[0]["usage"]["total_tokens"], 103);
  EXPECT_EQ(records[0]["cache"]["rows_kept"], 64);
  EXPECT_EQ(records[0]["cache"]["policy"], "snapkv");
  EXPECT_EQ(records[0]["params_sha256"], std::string(64, 'b'));
  EXPECT_TRUE(records[0]["error"].is_null());
  EXPECT_FALSE(records[0].contains("token_ids"));
  const auto jobs = server.jobs();
  ASSERT_THAT(jobs, SizeIs(1));
  EXPECT_EQ(jobs[0].documents[0].document.content(), "The first text.");
  EXPECT_EQ(jobs[0].job.priority(), 7);
  EXPECT_EQ(jobs[0].job.labels().at("team"), "x");
  const v1::Parameters& p = jobs[0].job.parameters();
  EXPECT_EQ(p.prompt(), "Who?");
  EXPECT_EQ(p.capacity(), 1024);
  EXPECT_EQ(p.temperature(), 0.5);
  EXPECT_FALSE(p.has_max_tokens()) << "what was not given is the worker's to decide";
  EXPECT_FALSE(p.has_window());
  EXPECT_EQ(server.calls("UploadDocument"), 0);
  EXPECT_THAT(result.err, Not(HasSubstr("first text")));
}

TEST(ClientSubmit, WithoutWaitPrintsTheName) {
  FakeServer server;
  const auto result = RunClientProgram(At(server, {"submit", "-"}), {.input = "text"});
  EXPECT_EQ(result.exit_code, 0) << result.ToString();
  EXPECT_EQ(result.out, "jobs/j1\n");
  EXPECT_THAT(result.err, HasSubstr("request id cli-"));
}

TEST(ClientSubmit, LargeInputIsUploaded) {
  FakeServer server;
  const TestFolder folder;
  std::string lines;
  for (int i = 0; i < 40; ++i)
    lines += TextLine("d" + std::to_string(i), std::string(100'000, static_cast<char>('a' + i % 26)));
  folder.Write("in.jsonl", lines);
  const auto result = RunClientProgram(
      At(server, {"submit", folder.Path("in.jsonl"), "--wait", "-o", folder.Path("out.jsonl")}));
  ASSERT_EQ(result.exit_code, 0) << result.ToString();
  EXPECT_EQ(result.out, "");
  EXPECT_THAT(JsonLines(Slurp(folder.Path("out.jsonl"))), SizeIs(40));
  const auto jobs = server.jobs();
  ASSERT_THAT(jobs, SizeIs(1));
  EXPECT_THAT(jobs[0].documents, SizeIs(40));
  for (const FakeJob::Stored& stored : jobs[0].documents)
    EXPECT_EQ(stored.document.content().size(), 100'000U) << stored.document.document_id();
  EXPECT_EQ(server.calls("CreateJob"), 1);
  EXPECT_EQ(server.calls("SealJob"), 1);
  EXPECT_GT(server.calls("UploadDocument"), 20);
}

TEST(ClientStatus, ShowsAJob) {
  FakeServer server;
  v1::Job job;
  job.set_state(v1::Job::FAILED);
  job.set_display_name("evil \x1b[31m\xc2\x9b name");
  job.mutable_status()->set_reason("MODEL_NOT_FOUND");
  job.mutable_status()->set_message("no \x1b]0;x\x07 model");
  const std::string name = server.AddJob(job);
  const auto text = RunClientProgram(At(server, {"status", "j1"}));
  EXPECT_EQ(text.exit_code, 0) << text.ToString();
  EXPECT_THAT(text.out, HasSubstr("FAILED"));
  EXPECT_THAT(text.out, HasSubstr("MODEL_NOT_FOUND: no ?]0;x? model"));
  EXPECT_THAT(text.out + text.err, Not(HasSubstr("\x1b")));
  EXPECT_THAT(text.out, Not(HasSubstr("\xc2\x9b")));
  const auto json = RunClientProgram(At(server, {"status", name, "--json"}));
  EXPECT_EQ(json.exit_code, 0);
  const auto values = JsonLines(json.out);
  ASSERT_THAT(values, SizeIs(1));
  EXPECT_EQ(values[0]["state"], "FAILED");
  EXPECT_EQ(values[0]["display_name"], "evil \x1b[31m\xc2\x9b name");
  EXPECT_THAT(json.out, Not(HasSubstr("\xc2\x9b")));
}

TEST(ClientStatus, UnknownJobIsRefusedInOneSentence) {
  FakeServer server;
  const auto result = RunClientProgram(At(server, {"status", "jobs/none"}));
  EXPECT_EQ(result.exit_code, 5) << result.ToString();
  EXPECT_THAT(ClientErrors(result),
              ElementsAre("JOB_NOT_FOUND: there is no job jobs/none; see `snapkv list`"));
}

}  // namespace
}  // namespace snapkv::testing
