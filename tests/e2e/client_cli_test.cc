// SPDX-License-Identifier: Apache-2.0
// snapkv as a user runs it: submit, status, watch, results, cancel, delete, list, models, health.
#include <signal.h>

#include <fstream>

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

TEST(ClientSubmit, BadDocumentsAreRecordsAndTheRestGoesOn) {
  FakeServer server;
  const TestFolder folder;
  folder.Write("good.txt", "good");
  folder.Write("empty.txt", " \n");
  folder.Write("latin.txt", "caf\xe9");
  folder.Write("fails.txt", "FAIL-ME");
  const auto result = RunClientProgram(At(server, {"submit", folder.path(), "--wait"}));
  EXPECT_EQ(result.exit_code, 1) << result.ToString();
  std::map<std::string, std::string> reasons;
  for (const auto& record : JsonLines(result.out)) {
    const std::string id = record["id"];
    reasons[id.substr(id.rfind('/') + 1)] =
        record["error"].is_null() ? "" : record["error"]["reason"].get<std::string>();
  }
  const std::map<std::string, std::string> expected = {{"good.txt", ""},
                                                       {"empty.txt", "DOCUMENT_EMPTY"},
                                                       {"latin.txt", "DOCUMENT_NOT_UTF8"},
                                                       {"fails.txt", "CONTEXT_EXCEEDED"}};
  EXPECT_EQ(reasons, expected) << result.ToString();
  EXPECT_THAT(result.err, HasSubstr("DOCUMENT_EMPTY"));
}

TEST(ClientSubmit, WithoutWaitBadDocumentsAreNamedAndAllBadMakeNoJob) {
  FakeServer server;
  const TestFolder folder;
  folder.Write("empty.txt", "");
  const auto result = RunClientProgram(At(server, {"submit", folder.Path("empty.txt")}));
  EXPECT_EQ(result.exit_code, 1) << result.ToString();
  EXPECT_EQ(result.out, "");
  EXPECT_THAT(ClientErrors(result), ElementsAre(HasSubstr("DOCUMENT_EMPTY")));
  EXPECT_THAT(server.jobs(), SizeIs(0));
}

TEST(ClientSubmit, OneDocumentThatTheServerRefusesSpoilsNothing) {
  FakeServer server;
  const TestFolder folder;
  folder.Write("in.jsonl", TextLine("a", "x") + R"({"id":"b","text":"y","max_tokens":2000000})" + "\n" +
                               TextLine("c", "z"));
  const auto result = RunClientProgram(At(server, {"submit", folder.Path("in.jsonl"), "--wait"}));
  EXPECT_EQ(result.exit_code, 1) << result.ToString();
  const auto records = JsonLines(result.out);
  EXPECT_EQ(SortedIds(records), (Strings{"a", "b", "c"}));
  for (const auto& record : records) {
    if (record["id"] != "b") {
      EXPECT_TRUE(record["error"].is_null()) << record;
      continue;
    }
    EXPECT_EQ(record["error"]["reason"], "PARAMETER_INVALID");
    EXPECT_EQ(record["error"]["line"], 2);
  }
  const auto jobs = server.jobs();
  ASSERT_THAT(jobs, SizeIs(1));
  EXPECT_THAT(jobs[0].documents, SizeIs(2));
}

TEST(ClientSubmit, ParameterThatTheServerRefusesForTheJobIsOneError) {
  FakeServer server;
  server.FailNext("CreateJob",
                  service::ServiceError(service::Reason::kParameterInvalid, "capacity 3 must be over window"),
                  9);
  const auto result = RunClientProgram(At(server, {"submit", "-", "--capacity", "3"}), {.input = "x"});
  EXPECT_EQ(result.exit_code, 5) << result.ToString();
  EXPECT_THAT(ClientErrors(result), ElementsAre("PARAMETER_INVALID: capacity 3 must be over window"));
}

TEST(ClientSubmit, BrokenUploadsGoOnAtTheCommittedOffset) {
  FakeServer server;
  const TestFolder folder;
  std::string lines;
  for (int i = 0; i < 3; ++i) lines += TextLine("d" + std::to_string(i), std::string(3'000'000, 'a' + i));
  folder.Write("in.jsonl", lines);
  server.BreakUploads(/*bytes=*/1'000'000, /*count=*/5);
  const auto result = RunClientProgram(At(server, {"submit", folder.Path("in.jsonl"), "--wait"}));
  EXPECT_EQ(result.exit_code, 0) << result.ToString();
  EXPECT_THAT(JsonLines(result.out), SizeIs(3));
  EXPECT_EQ(server.uploaded_bytes(), 9'000'000) << "some bytes were sent twice, or never";
  EXPECT_GE(server.calls("GetUploadStatus"), 5);
}

TEST(ClientSubmit, KilledInMidUploadGoesOnWithResumeJob) {
  FakeServer server;
  const TestFolder folder;
  std::string lines;
  for (int i = 0; i < 8; ++i) lines += TextLine("d" + std::to_string(i), std::string(2'000'000, 'a' + i));
  folder.Write("in.jsonl", lines);
  server.BreakUploads(/*bytes=*/500'000, /*count=*/1'000'000);
  const Strings flags = {"submit", folder.Path("in.jsonl"), "--upload-parallel", "2"};
  auto program = Program::Start(ClientProgram(At(server, flags)));
  ASSERT_TRUE(program.ok()) << program.status();
  ASSERT_TRUE(server.WaitFor([](const FakeServer& s) { return s.uploaded_bytes() > 3'000'000; }));
  ::kill((*program)->pid(), SIGKILL);
  (*program)->Wait();
  ASSERT_THAT(server.jobs(), SizeIs(1));
  EXPECT_EQ(server.jobs()[0].job.state(), v1::Job::UPLOADING);
  server.BreakUploads(0, 0);
  Strings resumed = flags;
  resumed.insert(resumed.end(), {"--resume-job", "j1", "--wait"});
  const auto result = RunClientProgram(At(server, resumed));
  EXPECT_EQ(result.exit_code, 0) << result.ToString();
  EXPECT_THAT(JsonLines(result.out), SizeIs(8));
  EXPECT_THAT(server.jobs(), SizeIs(1));
  EXPECT_EQ(server.uploaded_bytes(), 16'000'000);
  // Nothing is left to do: once more is only a question.
  const auto again = RunClientProgram(At(server, resumed));
  EXPECT_EQ(again.exit_code, 0) << again.ToString();
  EXPECT_THAT(JsonLines(again.out), SizeIs(8));
  EXPECT_EQ(server.uploaded_bytes(), 16'000'000);
}

TEST(ClientSubmit, ChangedDocumentIsNotMixedWithWhatTheServerHas) {
  FakeServer server;
  const TestFolder folder;
  const std::string big(1'500'000, 'x');
  folder.Write("in.jsonl", TextLine("a", big) + TextLine("b", big));
  v1::Job job;
  job.set_state(v1::Job::UPLOADING);
  v1::Document other;
  other.set_document_id("a");
  other.set_content("something else");
  server.AddJob(job, {other});
  const auto result = RunClientProgram(At(server, {"submit", folder.Path("in.jsonl"), "--resume-job", "j1"}));
  EXPECT_EQ(result.exit_code, 1) << result.ToString();
  EXPECT_THAT(ClientErrors(result), ElementsAre(HasSubstr("DOCUMENT_ID_DUPLICATE: a")));
  EXPECT_EQ(server.jobs()[0].documents[0].document.content(), "something else");
}

TEST(ClientSubmit, LostAnswersMakeNoSecondJob) {
  FakeServer server;
  server.LoseAnswers("CreateJob", 2);
  const auto small = RunClientProgram(At(server, {"submit", "-"}), {.input = "text"});
  EXPECT_EQ(small.exit_code, 0) << small.ToString();
  EXPECT_EQ(small.out, "jobs/j1\n");
  EXPECT_THAT(server.jobs(), SizeIs(1));
  server.LoseAnswers("CreateJob", 1);
  server.LoseAnswers("SealJob", 1);
  server.LoseAnswers("UploadDocument", 1);
  const auto large = RunClientProgram(At(server, {"submit", "-"}), {.input = std::string(2'000'000, 'x')});
  EXPECT_EQ(large.exit_code, 0) << large.ToString();
  EXPECT_EQ(large.out, "jobs/j2\n");
  EXPECT_THAT(server.jobs(), SizeIs(2));
}

TEST(ClientSubmit, RequestIdMakesARepeatedCallSafe) {
  FakeServer server;
  const Strings flags = {"submit", "-", "--request-id", "mine"};
  EXPECT_EQ(RunClientProgram(At(server, flags), {.input = "text"}).out, "jobs/j1\n");
  EXPECT_EQ(RunClientProgram(At(server, flags), {.input = "text"}).out, "jobs/j1\n");
  const auto other = RunClientProgram(At(server, flags), {.input = "another text"});
  EXPECT_EQ(other.exit_code, 5);
  EXPECT_THAT(ClientErrors(other), ElementsAre(HasSubstr("REQUEST_ID_REUSED")));
  EXPECT_THAT(server.jobs(), SizeIs(1));
}

TEST(ClientSubmit, JsonTellsNameAndRequestId) {
  FakeServer server;
  const auto result = RunClientProgram(At(server, {"submit", "-", "--json", "--quiet"}), {.input = "text"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.err, "");
  const auto values = JsonLines(result.out);
  ASSERT_THAT(values, SizeIs(1));
  EXPECT_EQ(values[0]["name"], "jobs/j1");
  EXPECT_THAT(values[0]["request_id"].get<std::string>(), ::testing::StartsWith("cli-"));
}

TEST(ClientSubmit, InputThatCannotBeReadOrIsEmpty) {
  FakeServer server;
  const TestFolder folder;
  folder.Write("none.jsonl", "\n");
  EXPECT_EQ(RunClientProgram(At(server, {"submit", folder.Path("absent.txt")})).exit_code, 3);
  EXPECT_EQ(RunClientProgram(At(server, {"submit", folder.Path("none.jsonl")})).exit_code, 3);
  EXPECT_THAT(server.jobs(), SizeIs(0));
}

TEST(ClientSubmit, MemoryDoesNotGrowWithTheInput) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers hold freed memory back";
#endif
  FakeServer server;
  const TestFolder folder;
  {
    std::ofstream file(folder.Path("in.jsonl"));
    for (int i = 0; i < 180; ++i) file << TextLine("d" + std::to_string(i), std::string(1'000'000, 'x'));
  }
  auto program = Program::Start(ClientProgram(At(server, {"submit", folder.Path("in.jsonl")})));
  ASSERT_TRUE(program.ok()) << program.status();
  // Not ProgramResult's figure: that one begins with the memory of this process.
  int64_t peak_kib = 0;
  while ((*program)->Poll(std::chrono::milliseconds(20))) {
    std::ifstream status(absl::StrCat("/proc/", (*program)->pid(), "/status"));
    for (std::string key; status >> key;) {
      if (key == "VmHWM:") status >> peak_kib;
    }
  }
  const auto result = (*program)->Wait();
  EXPECT_EQ(result.exit_code, 0) << result.ToString();
  EXPECT_GT(peak_kib, 0);
  EXPECT_LT(peak_kib, 90'000) << "for an input of 180 MB";
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

TEST(ClientErrors, ServerThatCannotBeReached) {
  FakeServer server;
  const std::string address = server.address();
  server.Stop();
  const auto result = RunClientProgram({"status", "j1", "--server", address, "--connect-timeout", "1"});
  EXPECT_EQ(result.exit_code, 4) << result.ToString();
  EXPECT_THAT(ClientErrors(result), ElementsAre(HasSubstr("UNAVAILABLE: cannot reach " + address)));
  EXPECT_GT(result.seconds, 0.9);
  EXPECT_LT(result.seconds, 20);
}

TEST(ClientErrors, ServerThatComesBackInTimeIsWaitedFor) {
  FakeServer server;
  server.AddJob(v1::Job());
  server.Stop();
  auto program = Program::Start(ClientProgram(At(server, {"status", "j1"})));
  ASSERT_TRUE(program.ok()) << program.status();
  EXPECT_TRUE((*program)->WaitForOutput("trying again"));
  server.Start();
  const auto result = (*program)->Wait();
  EXPECT_EQ(result.exit_code, 0) << result.ToString();
  EXPECT_THAT(result.err, HasSubstr("answers again"));
}

TEST(ClientErrors, ServerThatDoesNotAnswer) {
  // A socket that listens and never answers.
  FakeServer server;
  server.FailNext("GetJob", absl::DeadlineExceededError("late"), 99);
  const auto result =
      RunClientProgram(At(server, {"status", "j1", "--timeout", "0.2", "--connect-timeout", "1"}));
  EXPECT_EQ(result.exit_code, 4) << result.ToString();
  EXPECT_THAT(ClientErrors(result), ElementsAre(HasSubstr("DEADLINE_EXCEEDED")));
}

TEST(ClientErrors, Tokens) {
  FakeServer server;
  server.SetToken("secret");
  server.AddJob(v1::Job());
  const auto missing = RunClientProgram(At(server, {"status", "j1"}));
  EXPECT_EQ(missing.exit_code, 4);
  EXPECT_THAT(ClientErrors(missing), ElementsAre(HasSubstr("TOKEN_MISSING")));
  EXPECT_THAT(ClientErrors(missing), ElementsAre(HasSubstr("--token-file")));
  const TestFolder folder;
  folder.Write("token", "wrong\n");
  const auto wrong = RunClientProgram(At(server, {"status", "j1", "--token-file", folder.Path("token")}));
  EXPECT_EQ(wrong.exit_code, 4);
  EXPECT_THAT(ClientErrors(wrong), ElementsAre(HasSubstr("TOKEN_INVALID")));
  EXPECT_THAT(wrong.err, Not(HasSubstr("wrong")));
  const auto good =
      RunClientProgram(At(server, {"status", "j1"}), {.environment = {{"SNAPKV_TOKEN", "secret"}}});
  EXPECT_EQ(good.exit_code, 0) << good.ToString();
  const auto unreadable =
      RunClientProgram(At(server, {"status", "j1", "--token-file", folder.Path("absent")}));
  EXPECT_EQ(unreadable.exit_code, 4) << unreadable.ToString();
}

TEST(ClientErrors, BusyServerIsAskedAgain) {
  FakeServer server;
  server.FailNext(
      "CreateJob",
      service::WithRetryDelay(service::ServiceError(service::Reason::kQueueFull, "the queue is full"),
                              absl::Milliseconds(50)),
      2);
  const auto result = RunClientProgram(At(server, {"submit", "-"}), {.input = "x"});
  EXPECT_EQ(result.exit_code, 0) << result.ToString();
  EXPECT_THAT(result.err, HasSubstr("QUEUE_FULL"));
  // Without a delay it is an answer, and final.
  server.FailNext("CreateJob",
                  service::ServiceError(service::Reason::kQuotaExceeded, "you have 5 jobs, 5 are allowed"));
  const auto refused = RunClientProgram(At(server, {"submit", "-"}), {.input = "x"});
  EXPECT_EQ(refused.exit_code, 5) << refused.ToString();
  EXPECT_THAT(ClientErrors(refused), ElementsAre(HasSubstr("QUOTA_EXCEEDED: you have 5 jobs")));
}

TEST(ClientErrors, FullQueueEndsWhenPatienceDoes) {
  FakeServer server;
  server.FailNext(
      "CreateJob",
      service::WithRetryDelay(service::ServiceError(service::Reason::kQueueFull, "the queue is full"),
                              absl::Milliseconds(50)),
      1'000);
  const auto result = RunClientProgram(At(server, {"submit", "-", "--connect-timeout", "1"}), {.input = "x"});
  EXPECT_EQ(result.exit_code, 5) << result.ToString();
}

TEST(ClientWatch, FollowsAJobToItsEndAcrossBrokenStreams) {
  FakeServer server;
  server.SetPaused(true);
  ASSERT_EQ(RunClientProgram(At(server, {"submit", "-"}), {.input = "FAIL-ME"}).exit_code, 0);
  server.BreakStreams("WatchJob", 0, 1);
  auto program = Program::Start(ClientProgram(At(server, {"watch", "j1"})));
  ASSERT_TRUE(program.ok()) << program.status();
  EXPECT_TRUE((*program)->WaitForOutput("jobs/j1: QUEUED"));
  server.Stop();
  server.Start();
  server.SetPaused(false);
  const auto result = (*program)->Wait();
  EXPECT_EQ(result.exit_code, 1) << result.ToString();
  EXPECT_THAT(result.out, HasSubstr("SUCCEEDED"));
  EXPECT_THAT(result.out, HasSubstr("1 of 1 document done, 1 failed"));
  EXPECT_GE(server.calls("WatchJob"), 2);
}

TEST(ClientWatch, JsonHasALinePerChange) {
  FakeServer server;
  ASSERT_EQ(RunClientProgram(At(server, {"submit", "-"}), {.input = "x"}).exit_code, 0);
  const auto result = RunClientProgram(At(server, {"watch", "j1", "--json"}));
  EXPECT_EQ(result.exit_code, 0);
  const auto values = JsonLines(result.out);
  ASSERT_FALSE(values.empty());
  EXPECT_EQ(values.back()["state"], "SUCCEEDED");
  EXPECT_EQ(values.back()["counts"]["succeeded"], 1);
}

TEST(ClientWatch, JobsThatDidNotSucceed) {
  for (const v1::Job::State state : {v1::Job::FAILED, v1::Job::CANCELLED, v1::Job::EXPIRED}) {
    FakeServer server;
    v1::Job job;
    job.set_state(state);
    job.mutable_status()->set_reason("WHY");
    job.mutable_status()->set_message("because");
    server.AddJob(job);
    const auto result = RunClientProgram(At(server, {"watch", "j1"}));
    EXPECT_EQ(result.exit_code, 7) << result.ToString();
    EXPECT_THAT(ClientErrors(result), ElementsAre(::testing::AllOf(HasSubstr(v1::Job::State_Name(state)),
                                                                   HasSubstr("WHY: because"))));
  }
}

TEST(ClientWatch, BarOnRequestAndNoneUnderQuiet) {
  FakeServer server;
  ASSERT_EQ(RunClientProgram(At(server, {"submit", "-"}), {.input = "x"}).exit_code, 0);
  const auto bar = RunClientProgram(At(server, {"watch", "j1", "--progress", "bar"}));
  EXPECT_THAT(bar.err, HasSubstr("1/1"));
  EXPECT_THAT(bar.err, Not(HasSubstr("\x1b")));
  const auto quiet = RunClientProgram(At(server, {"watch", "j1", "--quiet"}));
  EXPECT_EQ(quiet.err, "");
}

TEST(ClientResults, GoOnAtTheLastSequenceAfterABreak) {
  FakeServer server;
  const TestFolder folder;
  std::string lines;
  for (int i = 0; i < 50; ++i) lines += TextLine("d" + std::to_string(i), "x");
  folder.Write("in.jsonl", lines);
  ASSERT_EQ(RunClientProgram(At(server, {"submit", folder.Path("in.jsonl")})).exit_code, 0);
  server.BreakStreams("StreamResults", 7, 3);
  const auto all = RunClientProgram(At(server, {"results", "j1", "--follow"}));
  EXPECT_EQ(all.exit_code, 0) << all.ToString();
  const auto records = JsonLines(all.out);
  ASSERT_THAT(records, SizeIs(50));
  for (size_t i = 0; i < 50; ++i) EXPECT_EQ(records[i]["id"], "d" + std::to_string(i));
  EXPECT_EQ(server.last_stream().after_sequence(), 21);
  const auto some = RunClientProgram(At(server, {"results", "j1", "--after", "48", "--return-token-ids"}));
  const auto last = JsonLines(some.out);
  ASSERT_THAT(last, SizeIs(2));
  EXPECT_EQ(last[0]["token_ids"], (std::vector<int>{7, 8, 9}));
}

TEST(ClientResults, OfAJobThatGoesOn) {
  FakeServer server;
  server.SetPaused(true);
  ASSERT_EQ(RunClientProgram(At(server, {"submit", "-"}), {.input = "x"}).exit_code, 0);
  const auto now = RunClientProgram(At(server, {"results", "j1"}));
  EXPECT_EQ(now.exit_code, 0);
  EXPECT_EQ(now.out, "");
  EXPECT_THAT(now.err, HasSubstr("--follow waits"));
  auto program = Program::Start(ClientProgram(At(server, {"results", "j1", "--follow"})));
  ASSERT_TRUE(program.ok());
  ASSERT_TRUE(server.WaitFor([](const FakeServer& s) { return s.calls("StreamResults") == 2; }));
  server.Finish("jobs/j1", v1::Job::CANCELLED, "CANCELLED", "by hand");
  EXPECT_EQ((*program)->Wait().exit_code, 7);
}

TEST(ClientResults, Outputs) {
  FakeServer server;
  ASSERT_EQ(RunClientProgram(At(server, {"submit", "-", "--wait"}), {.input = "x"}).exit_code, 0);
  const TestFolder folder;
  const std::string out = folder.Write("out.jsonl", "precious\n");
  EXPECT_EQ(RunClientProgram(At(server, {"results", "j1", "-o", out})).exit_code, 6);
  EXPECT_EQ(Slurp(out), "precious\n");
  EXPECT_EQ(RunClientProgram(At(server, {"results", "j1", "-o", out, "--force"})).exit_code, 0);
  EXPECT_THAT(JsonLines(Slurp(out)), SizeIs(1));
  EXPECT_EQ(RunClientProgram(At(server, {"results", "j1", "-o", folder.Path("no/such")})).exit_code, 6);
  EXPECT_EQ(RunClientProgram(At(server, {"results", "j1", "-o", "/dev/full"})).exit_code, 6);
}

TEST(ClientSignals, EndTheWaitAndNotTheJob) {
  const TestFolder folder;
  folder.Write("a.txt", "x");
  for (const int signal : {SIGINT, SIGTERM}) {
    FakeServer server;
    server.SetPaused(true);
    auto program = Program::Start(ClientProgram(At(server, {"submit", folder.Path("a.txt"), "--wait"})));
    ASSERT_TRUE(program.ok());
    ASSERT_TRUE(server.WaitFor([](const FakeServer& s) { return s.calls("StreamResults") > 0; }));
    ::kill((*program)->pid(), signal);
    const auto result = (*program)->Wait();
    EXPECT_EQ(result.exit_code, 128 + signal) << result.ToString();
    EXPECT_THAT(result.err, HasSubstr("snapkv results --follow jobs/j1"));
    EXPECT_EQ(server.calls("CancelJob"), 0);
    EXPECT_LT(result.seconds, 20);
  }
}

TEST(ClientSignals, EndTheSearchForAServer) {
  FakeServer server;
  server.Stop();
  auto program = Program::Start(ClientProgram(At(server, {"status", "j1"})));
  ASSERT_TRUE(program.ok());
  EXPECT_TRUE((*program)->WaitForOutput("trying again"));
  ::kill((*program)->pid(), SIGTERM);
  EXPECT_EQ((*program)->Wait().exit_code, 143);
}

TEST(ClientList, PagesFiltersAndEscapes) {
  FakeServer server;
  for (int i = 0; i < 5; ++i) {
    v1::Job job;
    job.set_display_name(i == 4 ? "\x1b[2Jnew" : "old");
    job.set_state(v1::Job::SUCCEEDED);
    server.AddJob(job);
  }
  const auto first = RunClientProgram(
      At(server, {"list", "--page-size", "2", "--state", "SUCCEEDED", "--filter", "labels.team = \"x\""}));
  EXPECT_EQ(first.exit_code, 0) << first.ToString();
  EXPECT_EQ(server.last_list().filter(), "state = SUCCEEDED AND labels.team = \"x\"");
  EXPECT_THAT(first.out, HasSubstr("?[2Jnew"));
  EXPECT_THAT(first.out, Not(HasSubstr("jobs/j3")));
  EXPECT_THAT(first.err, HasSubstr("--all"));
  const auto all = RunClientProgram(At(server, {"list", "--page-size", "2", "--all", "--json"}));
  Strings names;
  for (const auto& job : JsonLines(all.out)) names.push_back(job["name"]);
  EXPECT_EQ(names, (Strings{"jobs/j5", "jobs/j4", "jobs/j3", "jobs/j2", "jobs/j1"}));
}

TEST(ClientCancelAndDelete, Work) {
  FakeServer server;
  server.SetPaused(true);
  ASSERT_EQ(RunClientProgram(At(server, {"submit", "-"}), {.input = "x"}).exit_code, 0);
  const auto early = RunClientProgram(At(server, {"delete", "j1"}));
  EXPECT_EQ(early.exit_code, 5);
  EXPECT_THAT(ClientErrors(early), ElementsAre(HasSubstr("JOB_STATE")));
  const auto cancelled = RunClientProgram(At(server, {"cancel", "j1", "--reason", "not needed"}));
  EXPECT_EQ(cancelled.exit_code, 0) << cancelled.ToString();
  EXPECT_THAT(cancelled.out, HasSubstr("CANCELLED"));
  EXPECT_THAT(cancelled.out, HasSubstr("not needed"));
  EXPECT_EQ(RunClientProgram(At(server, {"delete", "j1"})).exit_code, 0);
  EXPECT_EQ(RunClientProgram(At(server, {"status", "j1"})).exit_code, 5);
}

TEST(ClientModelsAndHealth, Work) {
  FakeServer server;
  const auto models = RunClientProgram(At(server, {"models"}));
  EXPECT_EQ(models.exit_code, 0);
  EXPECT_THAT(models.out, HasSubstr("models/tiny"));
  const auto json = JsonLines(RunClientProgram(At(server, {"models", "--json"})).out);
  ASSERT_THAT(json, SizeIs(1));
  EXPECT_EQ(json[0]["max_context"], 8192);
  const auto serving = RunClientProgram(At(server, {"health"}));
  EXPECT_EQ(serving.exit_code, 0);
  EXPECT_EQ(serving.out, "SERVING\n");
  EXPECT_EQ(RunClientProgram(At(server, {"health", "--service", "no.such"})).exit_code, 5);
  server.SetServing(false);
  const auto not_serving = RunClientProgram(At(server, {"health"}));
  EXPECT_EQ(not_serving.exit_code, 5);
  EXPECT_EQ(not_serving.out, "NOT_SERVING\n");
  server.Stop();
  EXPECT_EQ(RunClientProgram(At(server, {"health"})).exit_code, 4);
}

}  // namespace
}  // namespace snapkv::testing
