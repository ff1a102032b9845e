// SPDX-License-Identifier: Apache-2.0
// WorkerSession against a server in this process: what it takes, renews, hands in, and what it survives.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "absl/time/clock.h"
#include "launch/worker/outcome.h"
#include "launch/worker/session.h"
#include "runtime/service/reason.h"
#include "tests/support/fake_workers.h"

namespace snapkv::launch {
namespace {

using service::Reason;
using service::ServiceError;
using std::chrono::milliseconds;
using testing::FakeDocument;
using testing::FakeWorkers;
using ::testing::HasSubstr;
using Fate = LeaseBook::Fate;

constexpr absl::Duration kLong = absl::Seconds(30);

std::string DocumentText(int i) {
  return std::string(500, static_cast<char>('a' + i % 26)) + std::to_string(i);
}

// A session whose documents are their own bytes.
std::unique_ptr<WorkerSession> MakeSession(const FakeWorkers& server,
                                           const std::function<void(SessionOptions&)>& change = {}) {
  SessionOptions options;
  ServerAddress address;
  address.server = server.address();
  auto channel = Connect(address);
  CHECK(channel.ok()) << channel.status();
  options.channel = *std::move(channel);
  options.server = server.address();
  options.worker.set_model("models/m");
  options.worker.set_model_fingerprint("f");
  options.worker.set_max_batch(2);
  options.lease_ahead = 1;
  options.acquire_wait = absl::Milliseconds(100);
  options.prepare = [](const v1::Lease& lease, std::string bytes) {
    PreparedLease prepared;
    prepared.document.document.id = lease.document_id();
    prepared.document.tokens.assign(bytes.begin(), bytes.end());
    if (bytes.starts_with("bad"))
      prepared.document.error = {InvalidArgument("a bad one"), "CONTEXT_EXCEEDED"};
    return prepared;
  };
  if (change) change(options);
  return std::make_unique<WorkerSession>(std::move(options));
}

std::string TextOf(const PreparedLease& lease) {
  return {lease.document.tokens.begin(), lease.document.tokens.end()};
}

v1::Result Summary(const std::string& text) {
  v1::Result result;
  result.set_summary(text);
  return result;
}

// Takes and completes documents until `count` have been.
void Work(WorkerSession& session, int count) {
  for (int i = 0; i < count; ++i) {
    auto lease = session.Take(kLong);
    ASSERT_TRUE(lease.has_value()) << "document " << i << " of " << count;
    session.Complete(lease->ticket, Summary("sum of " + lease->lease.document_id()));
  }
}

TEST(WorkerSession, TakesReadsAndHandsIn) {
  FakeWorkers server;
  for (int i = 0; i < 20; ++i) server.Add("d" + std::to_string(i), DocumentText(i));
  const auto session = MakeSession(server);
  for (int i = 0; i < 20; ++i) {
    auto lease = session->Take(kLong);
    ASSERT_TRUE(lease.has_value()) << i;
    const std::string id = "d" + std::to_string(i);
    EXPECT_EQ(lease->lease.document_id(), id) << "in the server's order";
    EXPECT_EQ(TextOf(*lease), DocumentText(i));
    EXPECT_NEAR(lease->queue_s, 5, 0.5);
    session->Complete(lease->ticket, Summary("sum of " + id));
  }
  EXPECT_EQ(session->Finish(), 0);
  EXPECT_EQ(server.done(), 20);
  for (int i = 0; i < 20; ++i) {
    const FakeDocument document = server.document("d" + std::to_string(i));
    EXPECT_EQ(document.results, 1) << i;
    EXPECT_EQ(document.attempts, 1) << i;
    EXPECT_EQ(document.result.summary(), "sum of d" + std::to_string(i));
  }
}

TEST(WorkerSession, HoldsABatchAndAFewMore) {
  FakeWorkers server;
  for (int i = 0; i < 20; ++i) server.Add("d" + std::to_string(i), DocumentText(i));
  const auto session = MakeSession(server, [](SessionOptions& o) {
    o.worker.set_max_batch(3);
    o.lease_ahead = 2;
  });
  ASSERT_TRUE(server.WaitUntil([&] { return server.most_held() == 5; }));
  ASSERT_TRUE(session->Take(kLong).has_value());
  std::this_thread::sleep_for(milliseconds(500));
  EXPECT_EQ(server.most_held(), 5) << "those that are worked on count";
}

TEST(WorkerSession, RenewsWithProgressWhatItHolds) {
  FakeWorkers server({.lease = milliseconds(600)});
  server.Add("slow", DocumentText(1));
  server.Add("waits", DocumentText(2));
  const auto session = MakeSession(server);
  auto slow = session->Take(kLong);
  ASSERT_TRUE(slow.has_value());
  v1::Progress progress;
  progress.set_phase(v1::Progress::PHASE_PREFILL);
  progress.set_prefill_fraction(0.25);
  session->SetProgress(slow->ticket, progress);
  std::this_thread::sleep_for(milliseconds(2500));
  session->SetTokens(slow->ticket, 17);
  ASSERT_TRUE(server.WaitUntil([&] {
    const FakeDocument document = server.document("slow");
    return !document.progress.empty() && document.progress.back().generated_tokens() == 17;
  }));
  const FakeDocument document = server.document("slow");
  EXPECT_EQ(document.attempts, 1) << "the lease has expired";
  EXPECT_GE(document.renewals, 6) << "of a lease of 0.6 s in 2.5 s";
  EXPECT_EQ(document.progress.back().prefill_fraction(), 0.25);
  EXPECT_EQ(server.document("waits").attempts, 1);
  EXPECT_EQ(server.document("waits").progress.back().phase(), v1::Progress::PHASE_WAITING);
  EXPECT_EQ(server.document("waits").progress.back().prompt_tokens(), 501);
  session->Complete(slow->ticket, Summary("done"));
  EXPECT_TRUE(server.WaitForDone(1));
}

TEST(WorkerSession, AReadGoesOnWhereItBroke) {
  FakeWorkers server({.lease = milliseconds(60'000), .chunk_bytes = 64});
  server.Add("d", DocumentText(3));
  server.BreakReads(100, 3);
  const auto session = MakeSession(server);
  auto lease = session->Take(kLong);
  ASSERT_TRUE(lease.has_value());
  EXPECT_EQ(TextOf(*lease), DocumentText(3));
}

TEST(WorkerSession, ADocumentThatIsDamagedOnTheWayIsReadAgain) {
  FakeWorkers server;
  server.Add("d", DocumentText(3));
  server.BreakReads(0, 2);
  const auto session = MakeSession(server);
  auto lease = session->Take(kLong);
  ASSERT_TRUE(lease.has_value());
  EXPECT_EQ(TextOf(*lease), DocumentText(3));
}

TEST(WorkerSession, ADocumentThatIsDamagedAtTheServerFails) {
  FakeWorkers server;
  FakeDocument document;
  document.id = "d";
  document.content = DocumentText(3);
  document.sha256 = std::string(32, 'x');
  server.Add(document);
  server.Add("good", DocumentText(4));
  const auto session = MakeSession(server);
  ASSERT_TRUE(server.WaitForDone(1));
  const v1::Status status = server.document("d").result.status();
  EXPECT_EQ(status.code(), static_cast<int>(absl::StatusCode::kDataLoss));
  EXPECT_EQ(status.reason(), "CHECKSUM_MISMATCH");
  EXPECT_THAT(status.message(), HasSubstr("d: its SHA-256"));
  Work(*session, 1);
  EXPECT_TRUE(server.WaitForDone(2));
}

TEST(WorkerSession, WhatCannotBePreparedFailsForGood) {
  FakeWorkers server;
  server.Add("b", "bad document");
  server.Add("large", std::string(2000, 'x'));
  server.Add("good", "good document");
  const auto session = MakeSession(server, [](SessionOptions& o) { o.max_document_bytes = 1999; });
  Work(*session, 1);
  ASSERT_TRUE(server.WaitForDone(3));
  EXPECT_EQ(server.document("b").result.status().reason(), "CONTEXT_EXCEEDED");
  EXPECT_EQ(server.document("b").result.status().message(), "a bad one");
  EXPECT_EQ(server.document("b").result.usage().prompt_tokens(), 12);
  EXPECT_EQ(server.document("large").result.status().reason(), "DOCUMENT_TOO_LARGE");
  EXPECT_THAT(server.document("large").result.status().message(), HasSubstr("2000"));
  EXPECT_TRUE(server.document("good").completed);
}

TEST(WorkerSession, CancelledAndLostLeasesEndTheWork) {
  for (const bool quiet : {false, true}) {  // by the watch; by the next renewal
    FakeWorkers server({.lease = milliseconds(quiet ? 600 : 60'000)});
    server.set_quiet(quiet);
    for (const char* id : {"cancelled", "lost", "waiting"}) server.Add(id, DocumentText(1));
    const auto session = MakeSession(server);
    auto cancelled = session->Take(kLong), lost = session->Take(kLong);
    ASSERT_TRUE(cancelled.has_value() && lost.has_value());
    ASSERT_TRUE(server.WaitUntil([&] { return server.most_held() == 3; }));
    EXPECT_EQ(session->FateOf(cancelled->ticket), Fate::kHeld);
    server.Cancel("cancelled");
    server.Cancel("waiting");
    server.Lose("lost");
    ASSERT_TRUE(server.WaitUntil([&] {
      return session->FateOf(cancelled->ticket) == Fate::kCancelled &&
             session->FateOf(lost->ticket) == Fate::kLost;
    })) << quiet;
    session->Drop(cancelled->ticket);
    session->Drop(lost->ticket);
    // The server learns that the cancelled ones have stopped, the one the engine never saw included.
    EXPECT_TRUE(server.WaitForDone(2)) << quiet;
    if (!quiet) {
      EXPECT_EQ(server.document("cancelled").result.status().reason(), "CANCELLED");
    }
    EXPECT_EQ(server.document("lost").results, 0);
    EXPECT_EQ(server.document("lost").refused, 0);
  }
}

TEST(WorkerSession, ALateResultIsDroppedAndTheWorkerGoesOn) {
  FakeWorkers server;
  server.Add("late", DocumentText(1));
  server.Add("next", DocumentText(2));
  const auto session = MakeSession(server);
  auto late = session->Take(kLong);
  ASSERT_TRUE(late.has_value());
  server.Fail("CompleteDocument", ServiceError(Reason::kLeaseLost, "too late"));
  session->Complete(late->ticket, Summary("late"));
  Work(*session, 1);
  EXPECT_TRUE(server.WaitForDone(1));
  EXPECT_EQ(server.document("late").results, 0);
  EXPECT_EQ(server.document("next").results, 1);
  EXPECT_EQ(session->FateOf(late->ticket), Fate::kLost);
}

TEST(WorkerSession, WaitsForAServerThatComesLater) {
  FakeWorkers server;
  server.Stop();
  const auto session = MakeSession(server);
  EXPECT_FALSE(session->Take(absl::Milliseconds(700)).has_value());
  EXPECT_TRUE(session->fatal().ok());
  server.Add("d", DocumentText(1));
  server.Start(false);
  Work(*session, 1);
  EXPECT_TRUE(server.WaitForDone(1));
}

TEST(WorkerSession, ConnectTimeoutEndsTheWait) {
  FakeWorkers server;
  server.Stop();
  const auto session = MakeSession(server, [](SessionOptions& o) { o.connect_timeout = absl::Seconds(1); });
  ASSERT_TRUE(server.WaitUntil([&] { return !session->fatal().ok(); }));
  EXPECT_TRUE(absl::IsUnavailable(session->fatal())) << session->fatal();
  EXPECT_THAT(std::string(session->fatal().message()), HasSubstr("--connect-timeout"));
  EXPECT_EQ(session->Finish(), 0);
}

TEST(WorkerSession, WorkGoesOnWhileTheServerIsAwayAndResultsComeLate) {
  for (const bool forget : {false, true}) {
    FakeWorkers server({.lease = milliseconds(60'000)});
    for (int i = 0; i < 3; ++i) server.Add("d" + std::to_string(i), DocumentText(i));
    const auto session = MakeSession(server);
    auto first = session->Take(kLong);
    ASSERT_TRUE(server.WaitUntil([&] { return server.most_held() == 3; }));
    auto second = session->Take(kLong);
    ASSERT_TRUE(first.has_value() && second.has_value());
    server.Stop();
    session->Complete(first->ticket, Summary("sum of d0"));
    std::this_thread::sleep_for(milliseconds(500));
    EXPECT_TRUE(session->fatal().ok());
    EXPECT_EQ(session->FateOf(second->ticket), Fate::kHeld);
    session->Complete(second->ticket, Summary("sum of d1"));
    server.Start(forget);
    Work(*session, 1);  // the one that was waiting all the time
    EXPECT_TRUE(server.WaitForDone(3)) << forget;
    for (int i = 0; i < 3; ++i) {
      EXPECT_EQ(server.document("d" + std::to_string(i)).results, 1) << i;
      EXPECT_EQ(server.document("d" + std::to_string(i)).attempts, 1) << i;
    }
    // The same worker goes on, registered again if it was forgotten.
    server.Add("d3", DocumentText(3));
    Work(*session, 1);
    EXPECT_TRUE(server.WaitForDone(4));
    EXPECT_EQ(server.registered().size(), forget ? 2u : 1u);
  }
}

TEST(WorkerSession, LeasesThatExpiredWhileTheServerWasAwayAreFencedOff) {
  FakeWorkers server({.lease = milliseconds(500)});
  server.Add("d", DocumentText(1));
  const auto session = MakeSession(server);
  auto lease = session->Take(kLong);
  ASSERT_TRUE(lease.has_value());
  server.Stop();
  std::this_thread::sleep_for(milliseconds(700));
  session->Complete(lease->ticket, Summary("late"));
  server.Start(true);
  // It comes again, as another attempt.
  auto again = session->Take(kLong);
  ASSERT_TRUE(again.has_value());
  EXPECT_EQ(again->lease.attempt(), 2);
  session->Complete(again->ticket, Summary("in time"));
  EXPECT_TRUE(server.WaitForDone(1));
  EXPECT_EQ(server.document("d").result.summary(), "in time");
  EXPECT_EQ(server.document("d").results, 1);
}

TEST(WorkerSession, TooManyWaitingResultsStopTheTaking) {
  FakeWorkers server({.lease = milliseconds(60'000)});
  for (int i = 0; i < 30; ++i) server.Add("d" + std::to_string(i), DocumentText(i));
  server.Fail("CompleteDocument", absl::UnavailableError("not now"), 4);
  const auto session = MakeSession(server, [](SessionOptions& o) { o.most_results = 4; });
  int taken = 0;
  while (!session->congested()) {
    auto lease = session->Take(kLong);
    ASSERT_TRUE(lease.has_value());
    session->Complete(lease->ticket, Summary("x"));
    ++taken;
    ASSERT_LT(taken, 20);
  }
  Work(*session, 30 - taken);
  EXPECT_TRUE(server.WaitForDone(30));
}

TEST(WorkerSession, AResultThatIsRefusedBecomesAFailure) {
  FakeWorkers server;
  server.Add("d", DocumentText(1));
  server.Fail("CompleteDocument", ServiceError(Reason::kParameterInvalid, "summary is too long"));
  const auto session = MakeSession(server);
  Work(*session, 1);
  ASSERT_TRUE(server.WaitForDone(1));
  const FakeDocument document = server.document("d");
  EXPECT_FALSE(document.completed);
  EXPECT_EQ(document.result.status().reason(), "INTERNAL");
  EXPECT_THAT(document.result.status().message(), HasSubstr("summary is too long"));
}

TEST(WorkerSession, ErrorsThatEndTheWorker) {
  struct Case {
    absl::Status error;
    std::string method;
  };
  const Case cases[] = {
      {ServiceError(Reason::kModelMismatch, "models/m has another content"), "RegisterWorker"},
      {ServiceError(Reason::kTokenInvalid, "the token is not known"), "RegisterWorker"},
      {ServiceError(Reason::kParameterInvalid, "display_name is bad"), "RegisterWorker"},
      {absl::UnimplementedError("no such service"), "RegisterWorker"},
      {ServiceError(Reason::kTokenInvalid, "the token is not known any more"), "AcquireLease"},
  };
  for (const Case& c : cases) {
    FakeWorkers server;
    server.Fail(c.method, c.error);
    const auto session = MakeSession(server);
    ASSERT_TRUE(server.WaitUntil([&] { return !session->fatal().ok(); })) << c.error;
    EXPECT_EQ(session->fatal().code(), c.error.code());
    EXPECT_THAT(std::string(session->fatal().message()), HasSubstr(std::string(c.error.message())));
    EXPECT_THAT(std::string(session->fatal().message()), HasSubstr(server.address()));
    EXPECT_EQ(session->Finish(), 0);
  }
}

TEST(WorkerSession, ErrorsThatPass) {
  FakeWorkers server;
  for (int i = 0; i < 4; ++i) server.Add("d" + std::to_string(i), DocumentText(i));
  server.Fail("RegisterWorker", ServiceError(Reason::kDraining, "not now"));
  server.Fail("AcquireLease", service::WithRetryDelay(ServiceError(Reason::kStorageFull, "disk full"),
                                                      absl::Milliseconds(100)));
  server.Fail("ReadDocument", absl::UnavailableError("gone"));
  server.Fail("RenewLease", absl::UnavailableError("gone"));
  server.Fail("WatchLeases", absl::UnavailableError("gone"), 2);
  server.Fail(
      "CompleteDocument",
      service::WithRetryDelay(ServiceError(Reason::kStorageFull, "disk full"), absl::Milliseconds(100)), 2);
  const auto session = MakeSession(server);
  Work(*session, 4);
  EXPECT_TRUE(server.WaitForDone(4));
  EXPECT_TRUE(server.WaitUntil([&] { return server.watched(); }));
  EXPECT_TRUE(session->fatal().ok()) << session->fatal();
}

TEST(WorkerSession, AnOrderlyEndHandsBackWhatWasNotBegun) {
  FakeWorkers server({.lease = milliseconds(60'000)});
  for (int i = 0; i < 6; ++i) server.Add("d" + std::to_string(i), DocumentText(i));
  const auto session = MakeSession(server);
  auto lease = session->Take(kLong);
  ASSERT_TRUE(lease.has_value());
  ASSERT_TRUE(server.WaitUntil([&] { return server.most_held() == 3; }));
  session->StopTaking();
  session->Complete(lease->ticket, Summary("done"));
  const absl::Time start = absl::Now();
  EXPECT_EQ(session->Finish(), 0);
  EXPECT_LT(absl::Now() - start, absl::Seconds(10));
  EXPECT_EQ(server.done(), 1);
  EXPECT_EQ(server.document("d1").handed_back, 1);
  EXPECT_EQ(server.document("d1").attempts, 0) << "handing back is no attempt";
  EXPECT_EQ(server.document("d2").handed_back, 1);
}

TEST(WorkerSession, AnEndWithoutAServerGivesUp) {
  FakeWorkers server({.lease = milliseconds(60'000)});
  for (int i = 0; i < 3; ++i) server.Add("d" + std::to_string(i), DocumentText(i));
  const auto session = MakeSession(server, [](SessionOptions& o) { o.finish_time = absl::Seconds(2); });
  auto lease = session->Take(kLong);
  ASSERT_TRUE(lease.has_value());
  ASSERT_TRUE(server.WaitUntil([&] { return server.most_held() == 3; }));
  server.Stop();
  session->Complete(lease->ticket, Summary("nobody hears it"));
  const absl::Time start = absl::Now();
  EXPECT_EQ(session->Finish(), 1);
  EXPECT_LT(absl::Now() - start, absl::Seconds(20));
}

TEST(WorkerSession, DrainHandsBackAndWaitsForTheServersReturn) {
  for (const bool forget : {true, false}) {
    FakeWorkers server({.lease = milliseconds(1500)});
    for (int i = 0; i < 3; ++i) server.Add("d" + std::to_string(i), DocumentText(i));
    const auto session = MakeSession(server);
    auto lease = session->Take(kLong);
    ASSERT_TRUE(lease.has_value());
    ASSERT_TRUE(server.WaitUntil([&] { return server.most_held() == 3 && server.watched(); }));
    server.Drain();
    ASSERT_TRUE(server.WaitUntil(
        [&] { return server.document("d1").handed_back == 1 && server.document("d2").handed_back == 1; }));
    EXPECT_EQ(session->FateOf(lease->ticket), Fate::kHeld) << "what is being worked on goes on";
    std::this_thread::sleep_for(milliseconds(600));
    EXPECT_LE(server.drains_seen(), 2) << "it asks for leases";
    server.Stop();
    session->Complete(lease->ticket, Summary("kept"));
    server.Start(forget);
    Work(*session, 2);
    EXPECT_TRUE(server.WaitForDone(3)) << forget;
    EXPECT_EQ(server.document("d0").result.summary(), "kept");
  }
}

TEST(WorkerSession, InteractiveTextArrivesWholeAndBeforeTheResult) {
  FakeWorkers server({.lease = milliseconds(60'000)});
  server.Add("batch", DocumentText(1));
  FakeDocument document;
  document.id = "live";
  document.content = DocumentText(2);
  document.interactive = true;
  server.set_readable(false);
  server.Add(document);
  const auto session = MakeSession(server);
  ASSERT_TRUE(server.WaitUntil([&] { return server.most_held() == 2; }));
  server.set_readable(true);
  // The one somebody waits for goes first. (The other may have been ready before it.)
  std::optional<PreparedLease> live;
  while (!live.has_value() || !live->lease.interactive()) {
    live = session->Take(kLong);
    ASSERT_TRUE(live.has_value());
  }
  std::string whole;
  for (int i = 0; i < 500; ++i) {
    const std::string piece = "w" + std::to_string(i) + " ";
    session->Emit(live->ticket, piece);
    whole += piece;
    if (i == 100) {
      EXPECT_TRUE(server.WaitUntil([&] { return !server.document("live").deltas.empty(); }))
          << "nothing comes before the end";
    }
  }
  session->Complete(live->ticket, Summary(whole));
  ASSERT_TRUE(server.WaitUntil([&] { return server.document("live").results == 1; }));
  EXPECT_EQ(server.document("live").deltas, whole);
  EXPECT_TRUE(server.document("live").deltas_ended);
}

TEST(WorkerSession, InteractiveDocumentsOvertakeTheOthers) {
  LeaseBook book;
  for (const bool interactive : {false, true, false, true}) {
    v1::Lease lease;
    lease.set_name("l" + std::to_string(book.held()));
    lease.set_interactive(interactive);
    PreparedLease prepared;
    prepared.ticket = book.Add(lease);
    prepared.lease = lease;
    book.Ready(std::move(prepared));
  }
  std::string order;
  while (auto taken = book.Take(absl::ZeroDuration())) order += taken->lease.name() + " ";
  EXPECT_EQ(order, "l1 l3 l0 l2 ");
}

TEST(WorkerSession, ABrokenStreamOfTextLosesNoResult) {
  FakeWorkers server;
  FakeDocument document;
  document.id = "live";
  document.content = DocumentText(2);
  document.interactive = true;
  server.Add(document);
  server.Fail("StreamDeltas", absl::UnavailableError("gone"));
  const auto session = MakeSession(server);
  auto live = session->Take(kLong);
  ASSERT_TRUE(live.has_value());
  for (int i = 0; i < 100; ++i) session->Emit(live->ticket, "text ");
  session->Complete(live->ticket, Summary("whole"));
  EXPECT_TRUE(server.WaitForDone(1));
  EXPECT_EQ(server.document("live").result.summary(), "whole");
}

TEST(WorkerSession, EndsAtAnyMoment) {
  FakeWorkers server;
  for (int i = 0; i < 40; ++i) {
    FakeDocument document;
    document.id = "d" + std::to_string(i);
    document.content = DocumentText(i);
    document.interactive = i % 2 == 0;
    server.Add(document);
  }
  for (int i = 0; i < 20; ++i) {
    const auto session = MakeSession(server);
    if (auto lease = session->Take(absl::Milliseconds(20 * i)); lease.has_value()) {
      session->Emit(lease->ticket, "text");
      session->Complete(lease->ticket, Summary("x"));
    }
  }
}

}  // namespace
}  // namespace snapkv::launch
