// SPDX-License-Identifier: Apache-2.0
// Safe text, sentences of errors and exit codes of the client.
#include "launch/client/text.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "launch/exit_codes.h"
#include "nlohmann/json.hpp"
#include "runtime/service/reason.h"

namespace snapkv::launch {
namespace {

using service::Reason;
using service::ServiceError;
using ::testing::HasSubstr;

TEST(Printable, ControlsAndReorderingAreReplaced) {
  EXPECT_EQ(Printable("plain \xc3\xa9\xe4\xb8\xad\xf0\x9f\x99\x82"),
            "plain \xc3\xa9\xe4\xb8\xad\xf0\x9f\x99\x82");
  EXPECT_EQ(Printable("a\x1b[31mb"), "a?[31mb");
  EXPECT_EQ(Printable("a\nb\tc\rd"), "a b c?d");
  EXPECT_EQ(Printable(std::string("a\0b", 3)), "a?b");
  EXPECT_EQ(Printable("a\x7f"), "a?");
  EXPECT_EQ(Printable("a\xc2\x9b"), "a?") << "CSI as one character";
  EXPECT_EQ(Printable("a\xe2\x80\xae z"), "a? z") << "right-to-left override";
  EXPECT_EQ(Printable("a\xe2\x81\xa6"), "a?");
  EXPECT_EQ(Printable("a\xff"), "a\xef\xbf\xbd");
  EXPECT_EQ(Printable(""), "");
  EXPECT_EQ(Printable(std::string(10, 'x'), 4), "xxxx...");
}

TEST(SafeJson, SameValueWithoutControls) {
  for (int c = 1; c < 0xC0; ++c) {
    std::string text = "x";
    if (c < 0x80) {
      text += static_cast<char>(c);
    } else {
      text += {'\xc2', static_cast<char>(c)};
    }
    const nlohmann::json value = {{"k", text}};
    const std::string safe = SafeJson(value.dump());
    EXPECT_EQ(nlohmann::json::parse(safe), value) << c;
    for (size_t i = 0; i < safe.size(); ++i) {
      const auto byte = static_cast<unsigned char>(safe[i]);
      EXPECT_TRUE(byte >= 0x20 && byte != 0x7F) << c;
      if (byte == 0xC2 && i + 1 < safe.size()) {
        EXPECT_GE(static_cast<unsigned char>(safe[i + 1]), 0xA0) << c;
      }
    }
  }
  EXPECT_EQ(SafeJson(""), "");
  EXPECT_EQ(SafeJson("\xc2"), "\xc2");
}

TEST(ErrorSentence, HasReasonAndAdvice) {
  EXPECT_EQ(ErrorSentence(ServiceError(Reason::kJobNotFound, "there is no job jobs/x"), "h:1"),
            "JOB_NOT_FOUND: there is no job jobs/x; see `snapkv list`");
  EXPECT_EQ(ErrorSentence(ServiceError(Reason::kJobState, "seal it first"), "h:1"),
            "JOB_STATE: seal it first");
  EXPECT_EQ(ErrorSentence(absl::UnavailableError("failed to connect to all addresses; last error: UNKNOWN: "
                                                 "ipv4:1.2.3.4:5: Connection refused"),
                          "h:1"),
            "UNAVAILABLE: cannot reach h:1 (ipv4:1.2.3.4:5: Connection refused); check --server, and that "
            "snapkv-server runs there");
  EXPECT_THAT(ErrorSentence(absl::DeadlineExceededError("Deadline Exceeded"), "h:1"),
              HasSubstr("h:1 does not answer in time; try again"));
  EXPECT_THAT(ErrorSentence(ServiceError(Reason::kTokenMissing, "no token"), "h:1"),
              HasSubstr("--token-file"));
  EXPECT_EQ(ErrorSentence(ServiceError(Reason::kJobState, "bad \x1b[2J"), "h:1"), "JOB_STATE: bad ?[2J");
  EXPECT_THAT(ErrorSentence(absl::UnknownError(""), "h:1"), HasSubstr("the connection to h:1 broke"));
}

TEST(RpcExitCode, TellsUnreachableFromRefused) {
  EXPECT_EQ(RpcExitCode(absl::UnavailableError("x")), kExitUnreachable);
  EXPECT_EQ(RpcExitCode(absl::DeadlineExceededError("x")), kExitUnreachable);
  EXPECT_EQ(RpcExitCode(absl::InternalError("RST_STREAM")), kExitUnreachable);
  EXPECT_EQ(RpcExitCode(absl::UnauthenticatedError("x")), kExitUnreachable);
  EXPECT_EQ(RpcExitCode(ServiceError(Reason::kTokenInvalid, "x")), kExitUnreachable);
  EXPECT_EQ(RpcExitCode(ServiceError(Reason::kDraining, "x")), kExitUnreachable);
  EXPECT_EQ(RpcExitCode(ServiceError(Reason::kInternal, "x")), kExitServerRefused);
  EXPECT_EQ(RpcExitCode(ServiceError(Reason::kJobNotFound, "x")), kExitServerRefused);
  EXPECT_EQ(RpcExitCode(ServiceError(Reason::kQueueFull, "x")), kExitServerRefused);
  EXPECT_EQ(RpcExitCode(service::WithRetryDelay(ServiceError(Reason::kQueueFull, "x"), absl::Seconds(1))),
            kExitServerRefused);
  EXPECT_EQ(RpcExitCode(absl::InvalidArgumentError("x")), kExitServerRefused);
  EXPECT_EQ(RpcExitCode(absl::UnimplementedError("x")), kExitServerRefused);
}

TEST(IsTransient, OnlyWhatMayPass) {
  EXPECT_TRUE(IsTransient(absl::UnavailableError("x")));
  EXPECT_TRUE(IsTransient(ServiceError(Reason::kDraining, "x")));
  EXPECT_TRUE(
      IsTransient(service::WithRetryDelay(ServiceError(Reason::kStorageFull, "x"), absl::Seconds(1))));
  EXPECT_TRUE(IsTransient(absl::UnknownError("x")));
  EXPECT_FALSE(IsTransient(ServiceError(Reason::kStorageFull, "x")));
  EXPECT_FALSE(IsTransient(ServiceError(Reason::kInternal, "x")));
  EXPECT_FALSE(IsTransient(absl::InvalidArgumentError("x")));
  EXPECT_FALSE(IsTransient(absl::UnauthenticatedError("x")));
}

}  // namespace
}  // namespace snapkv::launch
