// SPDX-License-Identifier: Apache-2.0
// snapkv-prefill --server as a user runs it, against a server in this process.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "absl/time/clock.h"

#include "kernels/base/log.h"
#include "runtime/service/reason.h"
#include "tests/e2e/batch_support.h"
#include "tests/support/fake_workers.h"

namespace snapkv::testing {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kText[] =
    "A document of some length, which is the same in all of these tests; it says little.";

Strings WorkerFlags(const FakeWorkers& server, const Strings& more = {}) {
  return Join(WithSmallModel({"--server", server.address(), "--max-tokens", "8", "--ignore-eos"}), more);
}

std::unique_ptr<Program> StartWorker(const FakeWorkers& server, const Strings& more = {}, int ranks = 0) {
  ProgramOptions options;
  options.argv = PrefillCommand(WorkerFlags(server, more), ranks);
  options.timeout = std::chrono::seconds(120);
  auto program = Program::Start(std::move(options));
  CHECK(program.ok()) << program.status();
  return *std::move(program);
}

// Ends the worker as an operator does.
ProgramResult EndWorker(Program& program, int signal_number = SIGTERM) {
  kill(program.pid(), signal_number);
  const ProgramResult result = program.Wait();
  EXPECT_FALSE(result.timed_out) << result.ToString();
  return result;
}

// Polls the program, so that its pipes do not fill, until `done`.
bool PollUntil(Program& program, const std::function<bool()>& done) {
  while (!done()) {
    if (!program.Poll(milliseconds(20))) return done();
  }
  return true;
}

TEST(Worker, GivesTheSummariesThatABatchGives) {
  const TestFolder folder;
  std::string lines;
  for (int i = 0; i < 9; ++i)
    lines += BatchLine("d" + std::to_string(i), std::string(kText) + std::to_string(i * i),
                       {{"temperature", 0.9}});
  const std::string input = folder.Write("in.jsonl", lines);
  const ProgramResult batch =
      RunPrefill(WithSmallModel({"--max-tokens", "8", "--ignore-eos", "--input", input, "--capacity", "64",
                                 "--seed", "4", "--return-token-ids"}));
  ASSERT_EQ(batch.exit_code, 0) << batch.ToString();
  const auto records = RecordsById(batch.out);
  for (const int ranks : {0, 2}) {
    FakeWorkers server;
    for (int i = 0; i < 9; ++i) {
      FakeDocument document;
      document.id = "d" + std::to_string(i);
      document.content = std::string(kText) + std::to_string(i * i);
      document.parameters.set_temperature(0.9);
      document.parameters.set_seed(4);
      document.parameters.set_capacity(64);
      server.Add(document);
    }
    const auto program = StartWorker(server, {"--max-batch", "3", "--lease-ahead", "2"}, ranks);
    ASSERT_TRUE(PollUntil(*program, [&] { return server.done() == 9; })) << program->err();
    const ProgramResult result = EndWorker(*program);
    // mpirun says 143 or 1 after a signal to itself.
    if (ranks == 0) {
      EXPECT_EQ(result.exit_code, 143) << result.ToString();
    }
    ASSERT_EQ(server.registered().size(), 1u);
    const v1::Worker worker = server.registered()[0];
    EXPECT_EQ(worker.model(), "models/small");
    EXPECT_EQ(worker.max_context(), 4096);
    EXPECT_EQ(worker.max_batch(), 3);
    EXPECT_EQ(worker.ranks(), std::max(1, ranks));
    EXPECT_EQ(worker.dtype(), "f32");
    EXPECT_FALSE(worker.model_fingerprint().empty() || worker.version().empty() ||
                 worker.display_name().empty());
    for (const auto& [id, record] : records) {
      const FakeDocument document = server.document(id);
      EXPECT_EQ(document.results, 1) << id;
      ASSERT_TRUE(document.completed) << id << document.result.DebugString();
      EXPECT_EQ(document.result.summary(), record["summary"].get<std::string>()) << id;
      EXPECT_EQ(std::vector<int32_t>(document.result.token_ids().begin(), document.result.token_ids().end()),
                TokenIds(record))
          << id;
      EXPECT_EQ(document.result.usage().prompt_tokens(), record["usage"]["prompt_tokens"].get<int64_t>());
      EXPECT_EQ(document.result.cache().rows_kept(), 64);
      EXPECT_EQ(document.result.finish_reason(), v1::FINISH_REASON_LENGTH);
      EXPECT_EQ(document.result.params_sha256().size(), 64u);
      EXPECT_NEAR(document.result.timings().queue_ms(), 5000, 1000);
      EXPECT_GT(document.result.timings().prefill_ms(), 0);
    }
    EXPECT_THAT(result.err, HasSubstr("registered server=" + server.address()));
    EXPECT_THAT(result.err, HasSubstr("document done job=jobs/j1 document=d0"));
    EXPECT_THAT(result.err, Not(HasSubstr("which is the same"))) << "text in the log";
  }
}

FakeDocument Document(const std::string& id, const std::string& content) {
  FakeDocument document;
  document.id = id;
  document.content = content;
  return document;
}

TEST(Worker, DocumentsFailForReasonsOfTheirOwn) {
  FakeWorkers server;
  server.Add("first", kText);
  server.Add("long", std::string(5000, 'x'));
  FakeDocument cut = Document("cut", std::string(5000, 'x'));
  cut.parameters.set_overflow(v1::OVERFLOW_MIDDLE);
  server.Add(cut);
  server.Add("latin1", "caf\xE9 and more text");
  server.Add("nul", std::string("a\0b", 3));
  server.Add("empty", " \n ");
  FakeDocument window = Document("window", kText);
  window.parameters.set_window(64);
  window.parameters.set_capacity(32);
  server.Add(window);
  FakeDocument huge = Document("huge", std::string(900, 'y'));
  huge.parameters.set_capacity(3000);
  huge.parameters.set_max_tokens(3000);
  server.Add(huge);
  FakeDocument chat = Document(
      "chat", R"([{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello"}])");
  chat.media_type = "application/json";
  server.Add(chat);
  FakeDocument bad_chat = Document("bad_chat", R"([{"role": "robot", "content": "Hello"}])");
  bad_chat.media_type = "application/json";
  server.Add(bad_chat);
  FakeDocument image = Document("image", "x");
  image.media_type = "image/png";
  server.Add(image);
  server.Add("last", kText);
  const auto program = StartWorker(server, {"--cache-bytes", "600K"});
  ASSERT_TRUE(PollUntil(*program, [&] { return server.done() == 12; })) << program->err();
  EXPECT_EQ(EndWorker(*program).exit_code, 143);
  for (const char* id : {"first", "last", "chat", "cut"})
    EXPECT_TRUE(server.document(id).completed) << id << server.document(id).result.DebugString();
  EXPECT_EQ(server.document("first").result.summary(), server.document("last").result.summary());
  const v1::Result shortened = server.document("cut").result;
  EXPECT_GT(shortened.truncation().bytes_removed(), 900);
  EXPECT_LE(shortened.usage().prompt_tokens() + 8, 4096);
  EXPECT_GT(shortened.usage().prompt_tokens(), 4000);
  const int invalid = static_cast<int>(absl::StatusCode::kInvalidArgument);
  const auto expect = [&](const std::string& id, int code, const std::string& reason, const Strings& words) {
    const FakeDocument document = server.document(id);
    EXPECT_FALSE(document.completed) << id;
    EXPECT_EQ(document.results, 1) << id;
    EXPECT_EQ(document.attempts, 1) << id;
    EXPECT_EQ(document.result.status().code(), code) << id;
    EXPECT_EQ(document.result.status().reason(), reason) << id;
    for (const std::string& word : words)
      EXPECT_THAT(document.result.status().message(), HasSubstr(word)) << id;
  };
  const int64_t prompt = server.document("long").result.usage().prompt_tokens();
  EXPECT_GT(prompt, 5000);
  expect("long", invalid, "CONTEXT_EXCEEDED", {std::to_string(prompt), "4096"});
  expect("latin1", invalid, "DOCUMENT_NOT_UTF8", {"offset 3"});
  expect("nul", invalid, "DOCUMENT_NOT_UTF8", {"offset 1"});
  expect("empty", invalid, "DOCUMENT_EMPTY", {"empty"});
  expect("window", invalid, "PARAMETER_INVALID", {"capacity", "window"});
  expect("huge", static_cast<int>(absl::StatusCode::kResourceExhausted), "CACHE_EXCEEDED", {"--cache-bytes"});
  expect("bad_chat", invalid, "PARAMETER_INVALID", {"role"});
  expect("image", invalid, "PARAMETER_INVALID", {"image/png"});
}

TEST(Worker, AConversationIsWhatABatchMakesOfIt) {
  const TestFolder folder;
  const Json messages = {{{"role", "system"}, {"content", "Be brief."}},
                         {{"role", "user"}, {"content", kText}}};
  const Json line = {{"custom_id", "c"},
                     {"method", "POST"},
                     {"url", "/v1/chat/completions"},
                     {"body", {{"model", "m"}, {"messages", messages}}}};
  const std::string input = folder.Write("in.jsonl", line.dump() + "\n");
  const ProgramResult batch = RunPrefill(
      WithSmallModel({"--input", input, "--max-tokens", "8", "--ignore-eos", "--return-token-ids"}));
  FakeWorkers server;
  FakeDocument chat = Document("c", messages.dump());
  chat.media_type = "application/json";
  server.Add(chat);
  const auto program = StartWorker(server);
  ASSERT_TRUE(PollUntil(*program, [&] { return server.done() == 1; })) << program->err();
  const v1::Result result = server.document("c").result;
  EXPECT_EQ(std::vector<int32_t>(result.token_ids().begin(), result.token_ids().end()),
            TokenIds(ParseRecord(batch.out)));
}

TEST(Worker, ANumericFailureIsAnErrorOfTheDocument) {
  const TestFolder folder;
  FakeWorkers server;
  server.Add("good", kText);
  server.Add("z", "Zero.");
  ProgramOptions options;
  options.argv = PrefillCommand({"--model", ModelWithoutZ(folder), "--dtype", "f32", "--threads", "1",
                                 "--server", server.address(), "--max-tokens", "4"});
  const auto program = *Program::Start(std::move(options));
  ASSERT_TRUE(PollUntil(*program, [&] { return server.done() == 2; })) << program->err();
  EXPECT_TRUE(server.document("good").completed);
  const v1::Status status = server.document("z").result.status();
  EXPECT_EQ(status.code(), static_cast<int>(absl::StatusCode::kInternal));
  EXPECT_EQ(status.reason(), "INTERNAL");
  EXPECT_THAT(status.message(), HasSubstr("NaN"));
}

TEST(Worker, CancelledAndLostDocumentsStopAtOnce) {
  for (const int ranks : {0, 2}) {
    FakeWorkers server;
    for (const char* id : {"cancelled", "lost", "kept"}) {
      FakeDocument document = Document(id, kText);
      document.parameters.set_max_tokens(id == std::string("kept") ? 40 : 3800);
      server.Add(document);
    }
    const auto program = StartWorker(server, {"--max-batch", "3", "--log-format", "text"}, ranks);
    const auto decodes = [&](const std::string& id) {
      const FakeDocument document = server.document(id);
      return !document.progress.empty() && document.progress.back().generated_tokens() > 0;
    };
    ASSERT_TRUE(PollUntil(*program, [&] { return decodes("cancelled") && decodes("lost"); }))
        << program->err();
    server.Cancel("cancelled");
    server.Lose("lost");
    const absl::Time start = absl::Now();
    ASSERT_TRUE(program->WaitForOutput("cancelled, work stopped job=jobs/j1 document=cancelled"))
        << program->err();
    ASSERT_TRUE(program->WaitForOutput("lease lost, work stopped job=jobs/j1 document=lost"))
        << program->err();
    EXPECT_LT(absl::Now() - start, absl::Seconds(3)) << "of 3,800 tokens";
    ASSERT_TRUE(PollUntil(*program, [&] { return server.done() == 2; })) << program->err();
    EXPECT_TRUE(server.document("kept").completed);
    EXPECT_EQ(server.document("kept").result.token_ids_size(), 40);
    EXPECT_EQ(server.document("cancelled").results, 0);
    EXPECT_EQ(server.document("lost").results, 0);
    EndWorker(*program);
  }
}

TEST(Worker, GoesOnOverARestartOfTheServer) {
  for (const bool forget : {false, true}) {
    FakeWorkers server({.lease = milliseconds(30'000)});
    for (int i = 0; i < 12; ++i) {
      FakeDocument document = Document("d" + std::to_string(i), kText);
      document.parameters.set_max_tokens(300);
      server.Add(document);
    }
    const auto program = StartWorker(server, {"--max-batch", "2", "--lease-ahead", "1"}, 2);
    ASSERT_TRUE(PollUntil(*program, [&] { return server.done() >= 2; })) << program->err();
    server.Stop();
    ASSERT_TRUE(program->WaitForOutput("the server is away")) << program->err();
    for (int i = 0; i < 10; ++i) program->Poll(milliseconds(100));
    server.Start(forget);
    ASSERT_TRUE(PollUntil(*program, [&] { return server.done() == 12; })) << program->err();
    for (int i = 0; i < 12; ++i) {
      EXPECT_EQ(server.document("d" + std::to_string(i)).results, 1) << i;
      EXPECT_EQ(server.document("d" + std::to_string(i)).attempts, 1) << i << ": work was thrown away";
    }
    EXPECT_EQ(server.registered().size(), forget ? 2u : 1u);
    EndWorker(*program);
  }
}

TEST(Worker, SignalsFinishWhatIsOpenAndHandBackTheRest) {
  for (const int signal_number : {SIGTERM, SIGINT}) {
    FakeWorkers server({.lease = milliseconds(600)});  // progress is told three times in it
    for (int i = 0; i < 8; ++i) {
      FakeDocument document = Document("d" + std::to_string(i), kText);
      document.parameters.set_max_tokens(3000);
      server.Add(document);
    }
    const auto program = StartWorker(server, {"--max-batch", "1", "--lease-ahead", "3"});
    ASSERT_TRUE(PollUntil(*program, [&] {
      const FakeDocument first = server.document("d0");
      return !first.progress.empty() && first.progress.back().generated_tokens() > 0;
    })) << program->err();
    const ProgramResult result = EndWorker(*program, signal_number);
    EXPECT_EQ(result.exit_code, 128 + signal_number) << result.ToString();
    int done = 0, handed_back = 0;
    for (int i = 0; i < 8; ++i) {
      const FakeDocument document = server.document("d" + std::to_string(i));
      done += document.completed ? 1 : 0;
      handed_back += document.handed_back;
      EXPECT_EQ(document.attempts, document.completed ? 1 : 0) << i << ": an attempt is lost";
    }
    EXPECT_GE(done, 1);
    EXPECT_LT(done, 8);
    EXPECT_GE(handed_back, 1) << result.ToString();
  }
}

TEST(Worker, TimeLimitEndsIt) {
  FakeWorkers server;
  for (int i = 0; i < 500; ++i) {
    FakeDocument document = Document("d" + std::to_string(i), kText);
    document.parameters.set_max_tokens(500);
    server.Add(document);
  }
  const auto program = StartWorker(server, {"--time-limit", "2", "--max-batch", "2"});
  const ProgramResult result = program->Wait();
  EXPECT_EQ(result.exit_code, 124) << result.ToString();
  for (int i = 0; i < 500; ++i) {
    const FakeDocument document = server.document("d" + std::to_string(i));
    EXPECT_EQ(document.attempts, document.results) << i << ": neither done nor handed back";
  }
}

TEST(Worker, DrainKeepsTheWorkerForTheServersReturn) {
  FakeWorkers server;
  for (int i = 0; i < 6; ++i) server.Add(Document("d" + std::to_string(i), kText));
  const auto program = StartWorker(server, {"--max-batch", "1"}, 2);
  ASSERT_TRUE(PollUntil(*program, [&] { return server.done() >= 1 && server.watched(); })) << program->err();
  server.Drain();
  ASSERT_TRUE(program->WaitForOutput("the server drains")) << program->err();
  server.Stop();
  for (int i = 0; i < 5; ++i) program->Poll(milliseconds(100));
  server.Start(true);
  ASSERT_TRUE(PollUntil(*program, [&] { return server.done() == 6; })) << program->err();
  for (int i = 0; i < 6; ++i) EXPECT_EQ(server.document("d" + std::to_string(i)).results, 1) << i;
  EndWorker(*program);
}

TEST(Worker, ErrorsThatEndItHaveACodeAndSayWhy) {
  const TestFolder folder;
  const std::string good = folder.Write("good", "secret-token\n"), bad = folder.Write("bad", "other-token");
  {
    FakeWorkers server({.fingerprint = "another"});
    for (const int ranks : {0, 2}) {
      const ProgramResult result = RunPrefill(WorkerFlags(server), ranks);
      EXPECT_EQ(result.exit_code, 5) << result.ToString();
      EXPECT_THAT(result.err,
                  AllOf(HasSubstr("error: --server " + server.address()), HasSubstr("another content")));
    }
  }
  {
    FakeWorkers server({.token = "secret-token"});
    const ProgramResult missing = RunPrefill(WorkerFlags(server));
    EXPECT_EQ(missing.exit_code, 4) << missing.ToString();
    EXPECT_THAT(missing.err, HasSubstr("--token-file"));
    const ProgramResult wrong = RunPrefill(WorkerFlags(server, {"--token-file", bad}));
    EXPECT_EQ(wrong.exit_code, 4) << wrong.ToString();
    EXPECT_THAT(wrong.err, AllOf(HasSubstr("not known"), Not(HasSubstr("other-token"))));
    const ProgramResult unreadable = RunPrefill(WorkerFlags(server, {"--token-file", folder.Path("none")}));
    EXPECT_EQ(unreadable.exit_code, 4) << unreadable.ToString();
    server.Add("d", kText);
    const auto program = StartWorker(server, {"--token-file", good});
    ASSERT_TRUE(PollUntil(*program, [&] { return server.done() == 1; })) << program->err();
  }
  FakeWorkers server;
  server.Stop();
  const ProgramResult away = RunPrefill(WorkerFlags(server, {"--connect-timeout", "1"}));
  EXPECT_EQ(away.exit_code, 4) << away.ToString();
  EXPECT_THAT(away.err, AllOf(HasSubstr("waiting for the server"), HasSubstr("--connect-timeout")));
}

TEST(Worker, FlagsThatDoNotBelongTogether) {
  const Strings with = {"--model", SmallModel(), "--server", "127.0.0.1:1"};
  const std::vector<Strings> wrong = {
      {"--input", "x.txt"},
      {"--token-ids", "x.json"},
      {"--output", "x.jsonl"},
      {"--raw"},
      {"--dry-run"},
      {"--ordered"},
      {"--print-tokens"},
      {"--format", "jsonl"},
      {"--strict"},
      {"--resume"},
      {"--force"},
      {"--list-models"},
      {"--dump-logits", "x"},
      {"--encoding", "latin1"},
  };
  for (const Strings& flags : wrong) {
    const ProgramResult result = RunPrefill(Join(with, flags));
    EXPECT_EQ(result.exit_code, 2) << result.ToString();
    EXPECT_THAT(result.err, AllOf(HasSubstr(flags[0]), HasSubstr("--server"))) << flags[0];
  }
  for (const Strings& flags : std::vector<Strings>{{"--lease-ahead", "2"},
                                                   {"--model-name", "m"},
                                                   {"--token-file", "f"},
                                                   {"--tls"},
                                                   {"--connect-timeout", "3"},
                                                   {"--hold-results", "3"}}) {
    const ProgramResult result = RunPrefill(Join({"--model", SmallModel(), "--input", "x"}, flags));
    EXPECT_EQ(result.exit_code, 2) << result.ToString();
    EXPECT_THAT(result.err, HasSubstr(flags[0] + " has no meaning without --server"));
  }
  EXPECT_EQ(RunPrefill({"--model", SmallModel(), "--server", "nowhere"}).exit_code, 2);
  EXPECT_EQ(RunPrefill({"--model", SmallModel(), "--server", ""}).exit_code, 2);
  EXPECT_EQ(RunPrefill(Join(with, {"--tls-cert", "x"})).exit_code, 2);
  // A variable for the client does not make a batch a worker.
  const TestFolder folder;
  ProgramOptions options;
  options.environment["SNAPKV_SERVER"] = "127.0.0.1:1";
  const ProgramResult batch =
      RunPrefill(WithSmallModel({"--input", folder.Write("a.txt", kText), "--max-tokens", "2"}), 0, options);
  EXPECT_EQ(batch.exit_code, 0) << batch.ToString();
}

TEST(Worker, JsonLogs) {
  FakeWorkers server;
  server.Add("one", kText);
  server.Add("two", "caf\xE9");
  const auto program = StartWorker(server, {"--log-format", "json", "--model-name", "m.1"});
  ASSERT_TRUE(PollUntil(*program, [&] { return server.done() == 2; })) << program->err();
  const ProgramResult result = EndWorker(*program);
  EXPECT_EQ(server.registered()[0].model(), "models/m.1");
  std::istringstream lines(result.err);
  std::map<std::string, int> events;
  for (std::string line; std::getline(lines, line);) {
    const Json json = Json::parse(line, nullptr, false);
    ASSERT_TRUE(json.is_object()) << line;
    for (const char* key : {"time", "level", "event"}) EXPECT_TRUE(json.contains(key)) << line;
    const std::string event = json["event"];
    ++events[event];
    if (event == "document done" || event == "lease taken") {
      for (const char* key : {"job", "document", "lease", "attempt"}) EXPECT_TRUE(json.contains(key)) << line;
    }
  }
  EXPECT_EQ(events["registered"], 1);
  EXPECT_EQ(events["lease taken"], 2);
  EXPECT_EQ(events["document done"], 1);
  EXPECT_EQ(events["document failed"], 1);
}

TEST(Worker, TextIsStreamedForThoseWhoReadAlong) {
  FakeWorkers server;
  FakeDocument document = Document("-", kText);
  document.interactive = true;
  document.parameters.set_max_tokens(200);
  server.Add(document);
  const auto program = StartWorker(server);
  ASSERT_TRUE(PollUntil(*program, [&] { return server.done() == 1; })) << program->err();
  const FakeDocument done = server.document("-");
  EXPECT_FALSE(done.deltas.empty());
  EXPECT_EQ(done.deltas, done.result.summary());
  EXPECT_TRUE(done.deltas_ended);
}

// Seconds of processor time of a process so far.
double CpuSeconds(pid_t pid) {
  std::ifstream in("/proc/" + std::to_string(pid) + "/stat");
  std::string stat((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  std::istringstream fields(stat.substr(stat.rfind(')') + 2));
  std::string skip;
  for (int i = 0; i < 11; ++i) fields >> skip;
  double user = 0, system = 0;
  fields >> user >> system;
  return (user + system) / static_cast<double>(sysconf(_SC_CLK_TCK));
}

TEST(Worker, AnIdleWorkerCostsNothing) {
  FakeWorkers server;
  server.Add("d", kText);
  const auto program = StartWorker(server, {}, 2);
  ASSERT_TRUE(PollUntil(*program, [&] { return server.done() == 1; })) << program->err();
  std::vector<pid_t> ranks;
  for (const pid_t pid : program->Descendants()) {
    if (std::filesystem::read_symlink("/proc/" + std::to_string(pid) + "/exe").filename() == "snapkv-prefill")
      ranks.push_back(pid);
  }
  ASSERT_EQ(ranks.size(), 2u);
  double before = 0, after = 0;
  for (const pid_t pid : ranks) before += CpuSeconds(pid);
  for (int i = 0; i < 50; ++i) program->Poll(milliseconds(100));
  for (const pid_t pid : ranks) after += CpuSeconds(pid);
  std::cout << "two idle ranks: " << (after - before) / 5 * 100 << " % of a processor\n";
  EXPECT_LT(after - before, 1.0) << "seconds of two ranks in 5 s";
  // And it is still there.
  server.Add("e", kText);
  ASSERT_TRUE(PollUntil(*program, [&] { return server.done() == 2; })) << program->err();
}

}  // namespace
}  // namespace snapkv::testing
