// SPDX-License-Identifier: Apache-2.0
// snapkv-prefill --server as a user runs it, against a server in this process.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <thread>

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

}  // namespace
}  // namespace snapkv::testing
