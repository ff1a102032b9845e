// SPDX-License-Identifier: Apache-2.0
// snapkv's command line: help, version, and one bad value per flag.
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/e2e/client_program.h"

namespace snapkv::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;

TEST(ClientFlags, HelpAndVersion) {
  const auto version = RunClientProgram({"--version"});
  EXPECT_EQ(version.exit_code, 0);
  EXPECT_THAT(version.out, ::testing::MatchesRegex("snapkv [0-9.]+\n"));
  const auto help = RunClientProgram({"--help"});
  EXPECT_EQ(help.exit_code, 0);
  EXPECT_EQ(help.err, "");
  for (const char* command :
       {"submit", "status", "watch", "results", "cancel", "delete", "list", "models", "health", "batch"}) {
    EXPECT_THAT(help.out, HasSubstr(std::string("\n  ") + command + " ")) << command;
    const auto own = RunClientProgram({command, "--help"});
    EXPECT_EQ(own.exit_code, 0) << own.ToString();
    for (const char* flag : {"--server", "--token-file", "--tls-ca", "--json", "--progress", "--quiet",
                             "--timeout", "--connect-timeout"}) {
      EXPECT_THAT(own.out, HasSubstr(flag)) << command;
    }
  }
}

struct Bad {
  Strings flags;
  const char* said;  // in the one error
};

class ClientBadFlag : public ::testing::TestWithParam<Bad> {};

TEST_P(ClientBadFlag, IsUsage) {
  ProgramOptions options;
  options.input = "text";
  Strings flags = GetParam().flags;
  const auto result = RunClientProgram(flags, options);
  EXPECT_EQ(result.exit_code, 2) << result.ToString();
  EXPECT_EQ(result.out, "");
  ASSERT_THAT(ClientErrors(result), SizeIs(1)) << result.ToString();
  EXPECT_THAT(ClientErrors(result)[0], HasSubstr(GetParam().said));
  EXPECT_THAT(result.err, Not(HasSubstr("\x1b")));
}

// 127.0.0.1:9 is never reached: the flags are checked before.
Strings Submit(const Strings& flags) {
  Strings all = {"submit", "-", "--server", "127.0.0.1:9", "--connect-timeout", "0"};
  all.insert(all.end(), flags.begin(), flags.end());
  return all;
}
Strings Batch(const Strings& flags) {
  Strings all = {"batch", "-i", "-", "--server", "127.0.0.1:9", "--connect-timeout", "0"};
  all.insert(all.end(), flags.begin(), flags.end());
  return all;
}
Strings On(const std::string& command, const Strings& flags) {
  Strings all = {command, "--server", "127.0.0.1:9", "--connect-timeout", "0"};
  all.insert(all.end(), flags.begin(), flags.end());
  return all;
}

INSTANTIATE_TEST_SUITE_P(
    Flags, ClientBadFlag,
    ::testing::Values(
        Bad{{}, "give one of the commands"}, Bad{{"nonsense"}, "give one of the commands"},
        Bad{{"--json"}, "commands"}, Bad{{"status", "x"}, "--server"},
        Bad{{"status", "x", "--server", "nohost"}, "HOST:PORT"},
        Bad{{"status", "x", "--server", "h.example:1", "--token-file", "/dev/null"}, "token is empty"},
        Bad{On("status", {"x", "--tls-cert", "f"}), "--tls-key"},
        Bad{On("status", {"x", "--tls-key", "f"}), "--tls-cert"}, Bad{On("status", {}), "NAME"},
        Bad{On("status", {"x", "y"}), "y"}, Bad{On("status", {"bad\x1bname"}), "names look like"},
        Bad{On("status", {"x", "--nonsense"}), "--nonsense"},
        Bad{On("status", {"x", "--timeout", "0"}), "--timeout"},
        Bad{On("status", {"x", "--timeout", "nan"}), "--timeout"},
        Bad{On("status", {"x", "--connect-timeout", "-1"}), "--connect-timeout"},
        Bad{On("watch", {"x", "--progress", "loud"}), "--progress"}, Bad{On("watch", {}), "NAME"},
        Bad{On("cancel", {"x", "--reason", "\xff"}), "--reason"}, Bad{On("cancel", {}), "NAME"},
        Bad{On("delete", {}), "NAME"}, Bad{On("results", {}), "NAME"},
        Bad{On("results", {"x", "--after", "-1"}), "--after"},
        Bad{On("results", {"x", "--after", "z"}), "--after"}, Bad{On("results", {"x", "--force"}), "--force"},
        Bad{On("results", {"x", "-o", ""}), "--output"}, Bad{On("list", {"--state", "DONE"}), "--state"},
        Bad{On("list", {"--page-size", "0"}), "--page-size"},
        Bad{On("list", {"--page-size", "1001"}), "--page-size"},
        Bad{On("list", {"--filter", ""}), "--filter"}, Bad{On("health", {"--service", ""}), "--service"},
        Bad{On("models", {"x"}), "x"}));

INSTANTIATE_TEST_SUITE_P(
    Submit, ClientBadFlag,
    ::testing::Values(
        Bad{On("submit", {}), "name files"}, Bad{Submit({"--prompt", "\xff"}), "--prompt"},
        Bad{Submit({"--system", "\xff"}), "--system"}, Bad{Submit({"--max-tokens", "0"}), "--max-tokens"},
        Bad{Submit({"--temperature", "-1"}), "--temperature"},
        Bad{Submit({"--temperature", "nan"}), "--temperature"}, Bad{Submit({"--top-k", "-1"}), "--top-k"},
        Bad{Submit({"--top-p", "0"}), "--top-p"}, Bad{Submit({"--min-p", "2"}), "--min-p"},
        Bad{Submit({"--repeat-penalty", "0"}), "--repeat-penalty"}, Bad{Submit({"--seed", "-1"}), "--seed"},
        Bad{Submit({"--stop", ""}), "--stop"}, Bad{Submit({"--stop-token-id", "-1"}), "--stop-token-id"},
        Bad{Submit({"--capacity", "0"}), "--capacity"}, Bad{Submit({"--window", "0"}), "--window"},
        Bad{Submit({"--kernel", "4"}), "--kernel"}, Bad{Submit({"--kernel", "0"}), "--kernel"},
        Bad{Submit({"--overflow", "cut"}), "--overflow"}, Bad{Submit({"--model", "a b"}), "--model"},
        Bad{Submit({"--priority", "101"}), "--priority"}, Bad{Submit({"--priority", "x"}), "--priority"},
        Bad{Submit({"--label", "novalue"}), "--label"}, Bad{Submit({"--label", "=v"}), "--label"},
        Bad{Submit({"--label", "a=1", "--label", "a=2"}), "--label"},
        Bad{Submit({"--display-name", "\xff"}), "--display-name"},
        Bad{Submit({"--request-id", "a b"}), "--request-id"},
        Bad{Submit({"--request-id", ""}), "--request-id"},
        Bad{Submit({"--resume-job", "a b"}), "--resume-job"},
        Bad{Submit({"--resume-job", "a", "--request-id", "b"}), "--resume-job"},
        Bad{Submit({"--upload-parallel", "0"}), "--upload-parallel"},
        Bad{Submit({"--input-format", "xml"}), "--input-format"},
        Bad{Submit({"--encoding", "utf-16"}), "--encoding"},
        Bad{Submit({"--max-document-bytes", "0"}), "--max-document-bytes"},
        Bad{Submit({"--max-line-bytes", "1X"}), "--max-line-bytes"}, Bad{Submit({"-o", "x"}), "--wait"},
        Bad{Submit({"--wait", "--force"}), "--force"}));

INSTANTIATE_TEST_SUITE_P(Batch, ClientBadFlag,
                         ::testing::Values(Bad{On("batch", {}), "--input"},
                                           Bad{Batch({"--resume"}), "--resume"},
                                           Bad{Batch({"--resume", "--force", "-o", "x"}), "--force"},
                                           Bad{Batch({"--retry-errors"}), "--retry-errors"},
                                           Bad{Batch({"--kernel", "2"}), "--kernel"},
                                           Bad{Batch({"-i", ""}), "--input"}));

TEST(ClientFlags, TextsAreTakenAsTheyAre) {
  FakeServer server;
  const TestFolder folder;
  folder.Write("[a,b].txt", "x");
  const auto result = RunClientProgram(
      At(server, {"submit", "[a,b].txt", "--stop", "[x,y]", "--stop", "{}", "--label", "k=[1,2]",
                  "--priority", "-5", "--display-name", "n", "--seed", "18446744073709551615"}),
      {.folder = folder.path()});
  EXPECT_EQ(result.exit_code, 0) << result.ToString();
  const auto jobs = server.jobs();
  ASSERT_THAT(jobs, SizeIs(1));
  EXPECT_EQ(jobs[0].documents[0].document.document_id(), "[a,b].txt");
  ASSERT_EQ(jobs[0].job.parameters().stop_size(), 2);
  EXPECT_EQ(jobs[0].job.parameters().stop(0), "[x,y]");
  EXPECT_EQ(jobs[0].job.parameters().stop(1), "{}");
  EXPECT_EQ(jobs[0].job.labels().at("k"), "[1,2]");
  EXPECT_EQ(jobs[0].job.priority(), -5);
  EXPECT_EQ(jobs[0].job.parameters().seed(), UINT64_MAX);
}

TEST(ClientFlags, ServerFromTheEnvironment) {
  FakeServer server;
  const auto result = RunClientProgram({"health"}, {.environment = {{"SNAPKV_SERVER", server.address()}}});
  EXPECT_EQ(result.exit_code, 0) << result.ToString();
  const auto flag =
      RunClientProgram(At(server, {"health"}), {.environment = {{"SNAPKV_SERVER", "127.0.0.1:1"}}});
  EXPECT_EQ(flag.exit_code, 0) << "the flag goes first\n" << flag.ToString();
}

TEST(ClientFlags, ClosedStandardStreams) {
  const auto full = RunProgram({.argv = {"/bin/sh", "-c", std::string(SNAPKV_CLIENT) + " --help >&-"}});
  ASSERT_TRUE(full.ok());
  EXPECT_EQ(full->exit_code, 6) << full->ToString();
}

}  // namespace
}  // namespace snapkv::testing
