// SPDX-License-Identifier: Apache-2.0
// snapkv batch: records for lines, exactly one each, whatever dies on the way.
#include <signal.h>

#include <filesystem>
#include <fstream>
#include <random>

#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/e2e/client_program.h"

namespace snapkv::testing {
namespace {

using nlohmann::ordered_json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;

std::string OpenAiLine(const std::string& id, const std::string& content, int max_tokens) {
  const ordered_json body = {{"model", "any"},
                             {"messages", ordered_json::array({{{"role", "system"}, {"content", "Be brief."}},
                                                               {{"role", "user"}, {"content", content}}})},
                             {"max_tokens", max_tokens}};
  return ordered_json(
             {{"custom_id", id}, {"method", "POST"}, {"url", "/v1/chat/completions"}, {"body", body}})
             .dump() +
         "\n";
}

class ClientBatch : public ::testing::Test {
 protected:
  // in.jsonl with `n` documents d0, d1, ... of `bytes` bytes.
  Strings WriteInput(int n, size_t bytes = 20) {
    std::string lines;
    Strings ids;
    for (int i = 0; i < n; ++i) {
      ids.push_back("d" + std::to_string(i));
      lines += TextLine(ids.back(), std::string(bytes, 'x'));
    }
    folder_.Write("in.jsonl", lines);
    std::sort(ids.begin(), ids.end());
    return ids;
  }
  Strings Batch(const Strings& flags = {}) {
    Strings all = At(server_, {"batch", "-i", in_, "-o", out_});
    all.insert(all.end(), flags.begin(), flags.end());
    return all;
  }
  ProgramResult Run(const Strings& flags = {}) { return RunClientProgram(Batch(flags)); }
  std::vector<ordered_json> Records() { return JsonLines(Slurp(out_)); }
  bool HasSideFile() const { return std::filesystem::exists(out_ + ".snapkv-job"); }
  // Starts it, waits for the condition, and kills it.
  void KillWhen(const Strings& flags, const std::function<bool(const FakeServer&)>& condition) {
    auto program = Program::Start(ClientProgram(Batch(flags)));
    ASSERT_TRUE(program.ok()) << program.status();
    const bool reached = server_.WaitFor(condition);
    ::kill((*program)->pid(), SIGKILL);
    const auto result = (*program)->Wait();
    ASSERT_TRUE(reached) << result.ToString();
    ASSERT_EQ(result.signal, SIGKILL) << result.ToString();
  }
  int64_t OutputLines() const {
    std::ifstream file(out_);
    int64_t lines = 0;
    for (std::string line; std::getline(file, line);) ++lines;
    return lines;
  }

  FakeServer server_;
  TestFolder folder_;
  const std::string in_ = folder_.Path("in.jsonl"), out_ = folder_.Path("out.jsonl");
};

TEST_F(ClientBatch, BothFormsAndBadLines) {
  folder_.Write("in.jsonl", TextLine("short", "text") + "\xef\xbb\xbfnot json\n\r\n" +
                                OpenAiLine("chat", "FAIL-ME not", 17) + OpenAiLine("fails", "FAIL-ME", 5) +
                                R"({"id":"seeded","text":"t","seed":0,"stop":["a","b"],"prompt":""})" + "\n" +
                                TextLine("short", "again"));
  server_.SetAnswer([](const v1::Document& document) {
    v1::Result result = FakeServer::DefaultAnswer(document);
    if (document.document_id() == "chat") {
      v1::Document harmless;
      harmless.set_document_id("chat");
      result = FakeServer::DefaultAnswer(harmless);
    }
    return result;
  });
  const auto result = Run({"--max-tokens", "99", "--model", "tiny"});
  EXPECT_EQ(result.exit_code, 1) << result.ToString();
  const auto records = Records();
  ASSERT_THAT(records, SizeIs(6)) << result.ToString();
  std::map<std::string, ordered_json> by_id;
  for (const auto& record : records)
    by_id[record.contains("custom_id") ? record["custom_id"] : record["id"]] = record;
  EXPECT_EQ(by_id["short"]["summary"], "Summary of short.");
  EXPECT_EQ(by_id["line-2"]["error"]["reason"], "LINE_INVALID");
  EXPECT_EQ(by_id["line-2"]["error"]["line"], 2);
  EXPECT_EQ(by_id["line-7"]["error"]["reason"], "DOCUMENT_ID_DUPLICATE");
  const ordered_json& chat = by_id["chat"];
  EXPECT_EQ(chat["response"]["status_code"], 200);
  EXPECT_EQ(chat["response"]["body"]["model"], "tiny");
  EXPECT_EQ(chat["response"]["body"]["choices"][0]["message"]["content"], "Summary of chat.");
  EXPECT_EQ(chat["response"]["body"]["usage"]["total_tokens"], 103);
  EXPECT_EQ(by_id["fails"]["response"]["status_code"], 400);
  EXPECT_EQ(by_id["fails"]["error"]["code"], "CONTEXT_EXCEEDED");
  EXPECT_EQ(by_id["fails"]["error"]["line"], 5);
  for (const auto& record : records) EXPECT_EQ(record["params_sha256"], records[0]["params_sha256"]);
  EXPECT_FALSE(HasSideFile());

  auto jobs = server_.jobs();
  ASSERT_THAT(jobs, SizeIs(1));
  EXPECT_EQ(jobs[0].job.model(), "models/tiny");
  EXPECT_EQ(jobs[0].job.parameters().max_tokens(), 99);
  const v1::Document& sent = jobs[0].Find("chat")->document;
  EXPECT_EQ(sent.media_type(), "application/json");
  EXPECT_EQ(ordered_json::parse(sent.content()),
            ordered_json::parse(
                R"([{"role":"system","content":"Be brief."},{"role":"user","content":"FAIL-ME not"}])"));
  EXPECT_EQ(sent.parameters().max_tokens(), 17);
  EXPECT_FALSE(sent.parameters().has_temperature());
  EXPECT_FALSE(jobs[0].Find("short")->document.has_parameters());
  const v1::Parameters& seeded = jobs[0].Find("seeded")->document.parameters();
  EXPECT_TRUE(seeded.has_seed());
  EXPECT_TRUE(seeded.has_prompt());
  EXPECT_EQ(seeded.stop_size(), 2);
  EXPECT_FALSE(seeded.has_max_tokens());
}

TEST_F(ClientBatch, OrderedAndToStdout) {
  std::string lines;
  for (int i = 0; i < 30; ++i) lines += i % 7 == 3 ? "bad\n" : TextLine("d" + std::to_string(i), "x");
  const auto result = RunClientProgram(At(server_, {"batch", "-i", "-", "--ordered"}), {.input = lines});
  EXPECT_EQ(result.exit_code, 1) << result.ToString();
  const auto records = JsonLines(result.out);
  ASSERT_THAT(records, SizeIs(30));
  for (int i = 0; i < 30; ++i)
    EXPECT_EQ(records[i]["id"], i % 7 == 3 ? "line-" + std::to_string(i + 1) : "d" + std::to_string(i));
}

TEST_F(ClientBatch, SplitsAtTheServersLimits) {
  server_.limits().set_max_job_documents(10);
  server_.limits().set_max_job_bytes(5'000);
  const Strings ids = WriteInput(35, 600);  // eight fit 5,000 bytes
  const auto result = Run();
  EXPECT_EQ(result.exit_code, 0) << result.ToString();
  EXPECT_EQ(SortedIds(Records()), ids);
  const auto jobs = server_.jobs();
  ASSERT_THAT(jobs, SizeIs(5));
  for (const FakeJob& job : jobs) EXPECT_LE(job.documents.size(), 8U);
}

TEST_F(ClientBatch, ExistingOutputNeedsForceOrResume) {
  WriteInput(2);
  folder_.Write("out.jsonl", "precious\n");
  EXPECT_EQ(Run().exit_code, 6);
  EXPECT_EQ(Run({"--resume"}).exit_code, 6);
  EXPECT_EQ(Slurp(out_), "precious\n");
  EXPECT_THAT(server_.jobs(), SizeIs(0));
  EXPECT_EQ(Run({"--force"}).exit_code, 0);
  EXPECT_THAT(Records(), SizeIs(2));
  const auto other = Run({"--resume", "--prompt", "another"});
  EXPECT_EQ(other.exit_code, 6) << other.ToString();
  EXPECT_THAT(other.err, HasSubstr("params_sha256"));
  const auto nothing = Run({"--resume"});
  EXPECT_EQ(nothing.exit_code, 0) << nothing.ToString();
  EXPECT_THAT(server_.jobs(), SizeIs(1)) << "there was nothing left to submit";
  EXPECT_EQ(RunClientProgram(At(server_, {"batch", "-i", in_, "-o", in_})).exit_code, 2);
}

TEST_F(ClientBatch, KilledWhileResultsCome) {
  const Strings ids = WriteInput(200);
  // Stops in the middle until the program has been killed.
  std::atomic<int> answered = 0;
  server_.SetAnswer([&](const v1::Document& document) {
    if (++answered == 100) server_.PauseFromAnswer();
    return FakeServer::DefaultAnswer(document);
  });
  KillWhen({}, [&](const FakeServer&) { return OutputLines() >= 100; });
  EXPECT_TRUE(HasSideFile());
  server_.SetPaused(false);
  const auto result = Run({"--resume"});
  EXPECT_EQ(result.exit_code, 0) << result.ToString();
  EXPECT_EQ(SortedIds(Records()), ids);
  EXPECT_THAT(server_.jobs(), SizeIs(1)) << "the job was found again";
  EXPECT_FALSE(HasSideFile());
}

TEST_F(ClientBatch, KilledInMidUpload) {
  const Strings ids = WriteInput(10, 1'500'000);
  server_.BreakUploads(400'000, 1'000'000);
  KillWhen({}, [](const FakeServer& s) { return s.uploaded_bytes() > 4'000'000; });
  server_.BreakUploads(0, 0);
  const auto result = Run({"--resume"});
  EXPECT_EQ(result.exit_code, 0) << result.ToString();
  EXPECT_EQ(SortedIds(Records()), ids);
  EXPECT_THAT(server_.jobs(), SizeIs(1));
  EXPECT_EQ(server_.uploaded_bytes(), 15'000'000) << "nothing was sent twice";
}

TEST_F(ClientBatch, KilledBeforeTheAnswerOfCreateJob) {
  const Strings ids = WriteInput(10);
  server_.LoseAnswers("CreateJob", 1'000);
  KillWhen({}, [](const FakeServer& s) { return s.calls("CreateJob") >= 1 && !s.jobs().empty(); });
  server_.LoseAnswers("CreateJob", 0);
  const auto result = Run({"--resume"});
  EXPECT_EQ(result.exit_code, 0) << result.ToString();
  EXPECT_EQ(SortedIds(Records()), ids);
  EXPECT_THAT(server_.jobs(), SizeIs(1));
}

TEST_F(ClientBatch, InputThatChangedSinceCreateJobIsSubmittedAnew) {
  WriteInput(10);
  server_.LoseAnswers("CreateJob", 1'000);
  KillWhen({}, [](const FakeServer& s) { return s.calls("CreateJob") >= 1 && !s.jobs().empty(); });
  server_.LoseAnswers("CreateJob", 0);
  const Strings ids = WriteInput(12);
  const auto result = Run({"--resume"});
  EXPECT_EQ(result.exit_code, 0) << result.ToString();
  EXPECT_EQ(SortedIds(Records()), ids);
  EXPECT_FALSE(HasSideFile());
}

TEST_F(ClientBatch, KilledAgainAndAgainAlsoTheServer) {
  server_.limits().set_max_job_documents(40);
  const Strings ids = WriteInput(150, 30'000);  // jobs that are uploaded, and one that is not
  server_.SetAnswer([](const v1::Document& document) {
    absl::SleepFor(absl::Milliseconds(4));
    return FakeServer::DefaultAnswer(document);
  });
  std::mt19937 random(20260731);
  int kills = 0;
  for (int round = 0; round < 12; ++round) {
    auto program = Program::Start(ClientProgram(Batch({"--resume"})));
    ASSERT_TRUE(program.ok());
    const auto patience = std::chrono::milliseconds(30 + random() % 300);
    if (round % 3 == 1) {
      server_.Stop();
      server_.Start();
    }
    (*program)->Poll(patience);
    ::kill((*program)->pid(), SIGKILL);
    kills += (*program)->Wait().signal == SIGKILL ? 1 : 0;
  }
  EXPECT_GT(kills, 0);
  const auto result = Run({"--resume"});
  EXPECT_EQ(result.exit_code, 0) << result.ToString();
  EXPECT_EQ(SortedIds(Records()), ids) << kills << " kills";
  EXPECT_FALSE(HasSideFile());
}

TEST_F(ClientBatch, GoesOnBehindWhatIsOnTheDisk) {
  const Strings ids = WriteInput(400);
  server_.SetAnswer([](const v1::Document& document) {
    absl::SleepFor(absl::Milliseconds(10));
    return FakeServer::DefaultAnswer(document);
  });
  // Results of two seconds and more: the side file says by now which are on the disk.
  KillWhen({}, [&](const FakeServer&) { return OutputLines() >= 300; });
  const auto result = Run({"--resume"});
  EXPECT_EQ(result.exit_code, 0) << result.ToString();
  EXPECT_EQ(SortedIds(Records()), ids);
  EXPECT_GT(server_.last_stream().after_sequence(), 0);
}

TEST_F(ClientBatch, ServerThatDiesInBetween) {
  const Strings ids = WriteInput(300, 10'000);
  std::atomic<int> answered = 0;
  server_.SetAnswer([&](const v1::Document& document) {
    if (++answered == 150) server_.PauseFromAnswer();
    return FakeServer::DefaultAnswer(document);
  });
  auto program = Program::Start(ClientProgram(Batch()));
  ASSERT_TRUE(program.ok());
  ASSERT_TRUE(server_.WaitFor([&](const FakeServer&) { return OutputLines() >= 100; }));
  server_.Stop();
  EXPECT_TRUE((*program)->WaitForOutput("trying again"));
  server_.Start();
  server_.SetPaused(false);
  const auto result = (*program)->Wait();
  EXPECT_EQ(result.exit_code, 0) << result.ToString();
  EXPECT_EQ(SortedIds(Records()), ids);
}

TEST_F(ClientBatch, SignalLeavesWorkThatResumeFetches) {
  const Strings ids = WriteInput(20);
  server_.SetPaused(true);
  auto program = Program::Start(ClientProgram(Batch()));
  ASSERT_TRUE(program.ok());
  ASSERT_TRUE(server_.WaitFor([](const FakeServer& s) { return s.calls("StreamResults") > 0; }));
  ::kill((*program)->pid(), SIGINT);
  const auto stopped = (*program)->Wait();
  EXPECT_EQ(stopped.exit_code, 130) << stopped.ToString();
  EXPECT_THAT(stopped.err, HasSubstr("--resume"));
  EXPECT_TRUE(HasSideFile());
  server_.SetPaused(false);
  const auto result = Run({"--resume"});
  EXPECT_EQ(result.exit_code, 0) << result.ToString();
  EXPECT_EQ(SortedIds(Records()), ids);
  EXPECT_THAT(server_.jobs(), SizeIs(1));
}

TEST_F(ClientBatch, RetryErrors) {
  folder_.Write("in.jsonl", TextLine("a", "x") + TextLine("b", "FAIL-ME") + TextLine("c", "y") + "bad\n");
  EXPECT_EQ(Run().exit_code, 1);
  EXPECT_EQ(Run({"--resume"}).exit_code, 1) << "the errors are still there";
  server_.SetAnswer([](const v1::Document& document) {
    v1::Document harmless;
    harmless.set_document_id(document.document_id());
    return FakeServer::DefaultAnswer(harmless);
  });
  const auto result = Run({"--resume", "--retry-errors"});
  EXPECT_EQ(result.exit_code, 1) << result.ToString();
  const auto records = Records();
  EXPECT_EQ(SortedIds(records), (Strings{"a", "b", "c", "line-4"}));
  int errors = 0;
  for (const auto& record : records) errors += record["error"].is_null() ? 0 : 1;
  EXPECT_EQ(errors, 1);
  ASSERT_THAT(server_.jobs(), SizeIs(2));
  EXPECT_THAT(server_.jobs()[1].documents, SizeIs(1));
}

TEST_F(ClientBatch, RetryErrorsOfABatchThatWasKilled) {
  folder_.Write("in.jsonl", TextLine("a", "FAIL-ME") + TextLine("b", "x") + TextLine("c", "FAIL-ME"));
  std::atomic<int> answered = 0;
  server_.SetAnswer([&](const v1::Document& document) {
    if (++answered == 2) server_.PauseFromAnswer();
    if (answered <= 3) return FakeServer::DefaultAnswer(document);
    v1::Document harmless;
    harmless.set_document_id(document.document_id());
    return FakeServer::DefaultAnswer(harmless);
  });
  KillWhen({}, [&](const FakeServer&) { return OutputLines() == 2; });
  server_.SetPaused(false);
  const auto result = Run({"--resume", "--retry-errors"});
  EXPECT_EQ(result.exit_code, 0) << result.ToString();
  const auto records = Records();
  EXPECT_EQ(SortedIds(records), (Strings{"a", "b", "c"}));
  for (const auto& record : records) EXPECT_TRUE(record["error"].is_null()) << record;
  ASSERT_THAT(server_.jobs(), SizeIs(2));
  EXPECT_THAT(server_.jobs()[1].documents, SizeIs(2));
}

TEST_F(ClientBatch, StrictEndsAtABadLine) {
  folder_.Write("in.jsonl", TextLine("a", "x") + "bad\n" + TextLine("c", "y"));
  const auto result = Run({"--strict"});
  EXPECT_EQ(result.exit_code, 7) << result.ToString();
  EXPECT_EQ(SortedIds(Records()), (Strings{"line-2"}));
  EXPECT_FALSE(HasSideFile());
}

TEST_F(ClientBatch, StrictEndsAtAFailedDocumentAndCancels) {
  server_.limits().set_max_job_documents(2);
  folder_.Write("in.jsonl",
                TextLine("a", "x") + TextLine("b", "FAIL-ME") + TextLine("c", "x") + TextLine("d", "x"));
  std::atomic<int> answered = 0;
  server_.SetAnswer([&](const v1::Document& document) {
    if (++answered == 2) server_.PauseFromAnswer();
    return FakeServer::DefaultAnswer(document);
  });
  const auto result = Run({"--strict"});
  EXPECT_EQ(result.exit_code, 7) << result.ToString();
  EXPECT_THAT(result.err, HasSubstr("--strict"));
  EXPECT_GE(server_.calls("CancelJob"), 1);
  EXPECT_FALSE(HasSideFile());
}

TEST_F(ClientBatch, JobThatSomebodyCancels) {
  const Strings ids = WriteInput(10);
  server_.SetPaused(true);
  auto program = Program::Start(ClientProgram(Batch()));
  ASSERT_TRUE(program.ok());
  ASSERT_TRUE(server_.WaitFor([](const FakeServer& s) { return s.calls("StreamResults") > 0; }));
  server_.Finish("jobs/j1", v1::Job::CANCELLED, "CANCELLED", "by hand");
  const auto cancelled = (*program)->Wait();
  EXPECT_EQ(cancelled.exit_code, 7) << cancelled.ToString();
  EXPECT_THAT(cancelled.err, HasSubstr("by hand"));
  server_.SetPaused(false);
  const auto result = Run({"--resume"});
  EXPECT_EQ(result.exit_code, 0) << result.ToString();
  EXPECT_EQ(SortedIds(Records()), ids);
  EXPECT_THAT(server_.jobs(), SizeIs(2));
}

TEST_F(ClientBatch, JobThatIsGoneOrHasExpiredIsSubmittedAgain) {
  for (const bool gone : {true, false}) {
    const Strings ids = WriteInput(10);
    server_.SetPaused(true);
    const int before = server_.calls("StreamResults");
    KillWhen({"--force"}, [&](const FakeServer& s) { return s.calls("StreamResults") > before; });
    const std::string name = server_.jobs().back().job.name();
    server_.Finish(name, v1::Job::EXPIRED, "EXPIRED", "too old");
    if (gone) {
      EXPECT_EQ(RunClientProgram(At(server_, {"delete", name})).exit_code, 0);
    }
    server_.SetPaused(false);
    const auto result = Run({"--resume"});
    EXPECT_EQ(result.exit_code, 0) << result.ToString();
    EXPECT_EQ(SortedIds(Records()), ids);
    EXPECT_FALSE(HasSideFile());
  }
}

TEST_F(ClientBatch, ResultsForDocumentsThatTheInputNoLongerHasAreKept) {
  WriteInput(10);
  server_.SetPaused(true);
  KillWhen({}, [](const FakeServer& s) { return s.calls("StreamResults") > 0; });
  const Strings fewer = WriteInput(6);
  server_.SetPaused(false);
  const auto result = Run({"--resume"});
  EXPECT_EQ(result.exit_code, 0) << result.ToString();
  EXPECT_THAT(Records(), SizeIs(10));
}

TEST_F(ClientBatch, DamagedSideFileIsNotTrusted) {
  const Strings ids = WriteInput(10);
  folder_.Write("out.jsonl.snapkv-job", "{\"version\": 1, \"jobs\": [7]}");
  const auto result = Run({"--resume"});
  EXPECT_EQ(result.exit_code, 0) << result.ToString();
  EXPECT_EQ(SortedIds(Records()), ids);
  EXPECT_THAT(result.err, HasSubstr("damaged"));
}

TEST_F(ClientBatch, OutputThatCannotBeWritten) {
  WriteInput(10);
  const auto full = RunClientProgram(At(server_, {"batch", "-i", in_, "-o", "/dev/full"}));
  EXPECT_EQ(full.exit_code, 6) << full.ToString();
  const auto none = RunClientProgram(At(server_, {"batch", "-i", in_, "-o", folder_.Path("no/such")}));
  EXPECT_EQ(none.exit_code, 6) << none.ToString();
}

TEST_F(ClientBatch, ServerErrors) {
  WriteInput(3);
  server_.FailNext("CreateJob", service::ServiceError(service::Reason::kModelNotFound, "no model models/x"));
  const auto refused = Run({"--model", "x"});
  EXPECT_EQ(refused.exit_code, 5) << refused.ToString();
  EXPECT_THAT(ClientErrors(refused), ElementsAre("MODEL_NOT_FOUND: no model models/x; see `snapkv models`"));
  server_.Stop();
  const auto away = Run({"--connect-timeout", "1", "--force"});
  EXPECT_EQ(away.exit_code, 4) << away.ToString();
}

TEST_F(ClientBatch, DryRun) {
  folder_.Write("in.jsonl", TextLine("a", "x") + "bad\n" + OpenAiLine("b", "y", 3));
  const auto result = RunClientProgram({"batch", "--dry-run", "-i", in_});
  EXPECT_EQ(result.exit_code, 1) << result.ToString();
  EXPECT_THAT(result.out, HasSubstr("2 documents"));
  EXPECT_THAT(ClientErrors(result), ElementsAre(HasSubstr("LINE_INVALID: line 2 column 1")));
  EXPECT_EQ(RunClientProgram({"batch", "--dry-run", "-i", in_, "--strict"}).exit_code, 7);
  EXPECT_EQ(RunClientProgram({"batch", "--dry-run", "-i", in_, "-o", in_}).exit_code, 2);
}

// Random bytes, and lines that are nearly right: the program always comes to its end with a documented code.
TEST_F(ClientBatch, DryRunOfRandomInput) {
  std::mt19937 random(7411);
  const Strings seeds = {TextLine("a", "text"), OpenAiLine("b", "text", 3),
                         R"({"id":"c","path":"nowhere","seed":1,"stop":["x"]})"
                         "\n"};
  for (int round = 0; round < 60; ++round) {
    std::string bytes;
    const int lines = 1 + static_cast<int>(random() % 40);
    for (int i = 0; i < lines; ++i) {
      std::string line = seeds[random() % seeds.size()];
      const int changes = static_cast<int>(random() % 6);
      for (int c = 0; c < changes && !line.empty(); ++c) {
        const size_t at = random() % line.size();
        switch (random() % 4) {
          case 0:
            line[at] = static_cast<char>(random());
            break;
          case 1:
            line.erase(at, 1 + random() % 5);
            break;
          case 2:
            line.insert(at, 1, "{}[]\",:\\\n0e-"[random() % 12]);
            break;
          default:
            line.insert(at, line.substr(random() % line.size(), random() % 20));
            break;
        }
      }
      bytes += round % 5 == 0 ? std::string(random() % 200, static_cast<char>(random())) : line;
    }
    const auto result = RunClientProgram({"batch", "--dry-run", "-i", "-"}, {.input = bytes});
    EXPECT_TRUE(result.exit_code == 0 || result.exit_code == 1) << "round " << round << "\n"
                                                                << result.ToString();
    for (const char c : result.err + result.out) {
      ASSERT_TRUE(c == '\n' || static_cast<unsigned char>(c) >= 0x20)
          << "round " << round << ": a control character";
    }
  }
}

}  // namespace
}  // namespace snapkv::testing
