// SPDX-License-Identifier: Apache-2.0
// Every metric is moved by what it counts and by nothing else; promtool accepts names, units and help texts.
#include "runtime/service/metrics.h"

#include <gmock/gmock.h>

#include <cmath>
#include <limits>
#include <set>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "tests/service/metrics_testing.h"

namespace snapkv::service {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
// What differs, without the buckets of histograms.
Series Changes(const Series& before, const Series& after) {
  Series changes;
  for (const auto& [name, value] : after) {
    const auto old = before.find(name);
    if (old != before.end() && old->second == value) continue;
    if (!absl::StrContains(name, "_bucket{")) changes[name] = value - (old == before.end() ? 0 : old->second);
  }
  return changes;
}

// The change that `act` makes on metrics that have seen nothing.
template <class Act>
Series ChangesBy(const Act& act) {
  Metrics metrics("1.2.3");
  const Series before = ParseMetrics(metrics.Text());
  act(metrics);
  return Changes(before, ParseMetrics(metrics.Text()));
}

v1::Result Summary() {
  v1::Result result;
  result.mutable_usage()->set_prompt_tokens(1'000);
  result.mutable_usage()->set_completion_tokens(51);
  result.mutable_timings()->set_queue_ms(1'500);
  result.mutable_timings()->set_prefill_ms(500);
  result.mutable_timings()->set_decode_ms(400);
  result.mutable_cache()->set_bytes_full(4'096);
  result.mutable_cache()->set_bytes_kept(1'024);
  return result;
}

v1::Result Failure(const std::string& reason) {
  v1::Result result;
  result.mutable_status()->set_code(3);
  result.mutable_status()->set_reason(reason);
  return result;
}

TEST(MetricsTest, ResultWithASummary) {
  const Series changes = ChangesBy([](Metrics& m) { m.ObserveResult(Summary()); });
  EXPECT_EQ(changes, (Series{{"snapkv_documents_total{reason=\"OK\",result=\"succeeded\"}", 1},
                             {"snapkv_prompt_tokens_total", 1'000},
                             {"snapkv_generation_tokens_total", 51},
                             {"snapkv_cache_full_bytes_total", 4'096},
                             {"snapkv_cache_compressed_bytes_total", 1'024},
                             {"snapkv_time_to_first_token_seconds_count", 1},
                             {"snapkv_time_to_first_token_seconds_sum", 2},
                             {"snapkv_inter_token_latency_seconds_count", 1},
                             {"snapkv_inter_token_latency_seconds_sum", 0.4 / 50}}));
}

TEST(MetricsTest, ResultOfOneTokenHasNoInterTokenLatency) {
  v1::Result result = Summary();
  result.mutable_usage()->set_completion_tokens(1);
  const Series changes = ChangesBy([&](Metrics& m) { m.ObserveResult(result); });
  EXPECT_EQ(changes.count("snapkv_inter_token_latency_seconds_count"), 0u);
  EXPECT_EQ(changes.at("snapkv_time_to_first_token_seconds_count"), 1);
}

TEST(MetricsTest, ResultWithAnError) {
  v1::Result result = Failure("CONTEXT_EXCEEDED");
  result.mutable_usage()->set_prompt_tokens(9'000);
  result.mutable_timings()->set_queue_ms(1);
  const Series changes = ChangesBy([&](Metrics& m) { m.ObserveResult(result); });
  EXPECT_EQ(changes, (Series{{"snapkv_documents_total{reason=\"CONTEXT_EXCEEDED\",result=\"failed\"}", 1},
                             {"snapkv_prompt_tokens_total", 9'000}}));
}

TEST(MetricsTest, ReasonsOfWorkersMakeABoundedNumberOfSeries) {
  Metrics metrics("1.2.3");
  const size_t before = ParseMetrics(metrics.Text()).size();
  for (int i = 0; i < 1'000; ++i) metrics.ObserveResult(Failure(absl::StrCat("MADE_UP_", i, "\"\n{}")));
  metrics.ObserveResult(Failure(""));
  for (int i = 0; i < 1'000; ++i)
    metrics.RpcFinished(absl::StrCat("/made.Up/", i), 1'000 + i, absl::Seconds(1));
  const Series after = ParseMetrics(metrics.Text());
  EXPECT_EQ(after.size(), before + 2) << metrics.Text();
  EXPECT_EQ(after.at("snapkv_documents_total{reason=\"other\",result=\"failed\"}"), 1'001);
  EXPECT_EQ(after.at("snapkv_rpcs_total{code=\"UNKNOWN\",method=\"other\"}"), 1'000);
}

TEST(MetricsTest, FiguresThatAreNoNumbersAreLeftOut) {
  for (const double bad : {std::nan(""), std::numeric_limits<double>::infinity(), -1.0}) {
    v1::Result result = Summary();
    result.mutable_timings()->set_queue_ms(bad);
    result.mutable_timings()->set_decode_ms(bad);
    result.mutable_usage()->set_prompt_tokens(-5);
    result.mutable_cache()->set_bytes_full(-5);
    const Series changes = ChangesBy([&](Metrics& m) { m.ObserveResult(result); });
    EXPECT_EQ(changes, (Series{{"snapkv_documents_total{reason=\"OK\",result=\"succeeded\"}", 1},
                               {"snapkv_generation_tokens_total", 51},
                               {"snapkv_cache_compressed_bytes_total", 1'024}}))
        << bad;
  }
}

TEST(MetricsTest, TheQueue) {
  StoreStats stats;
  stats.jobs_waiting = 2;
  stats.jobs_running = 3;
  stats.documents_queued = 40;
  stats.documents_leased = 5;
  stats.oldest_queued = absl::Milliseconds(6'500);
  const Series changes = ChangesBy([&](Metrics& m) {
    m.SetQueue(stats);
    m.SetWorkers(7);
  });
  EXPECT_EQ(changes, (Series{{"snapkv_jobs{state=\"waiting\"}", 2},
                             {"snapkv_jobs{state=\"running\"}", 3},
                             {"snapkv_requests_waiting", 40},
                             {"snapkv_requests_running", 5},
                             {"snapkv_queue_age_seconds", 6.5},
                             {"snapkv_workers", 7}}));
  EXPECT_THAT(ChangesBy([&](Metrics& m) {
                m.SetQueue(stats);
                m.SetQueue(StoreStats());
              }),
              IsEmpty());
}

TEST(MetricsTest, JobsLeasesCommitsAndUploads) {
  EXPECT_EQ(ChangesBy([](Metrics& m) { m.JobCreated(); }), (Series{{"snapkv_jobs_created_total", 1}}));
  for (int state = v1::Job::State_MIN; state <= v1::Job::State_MAX; ++state) {
    const auto value = static_cast<v1::Job::State>(state);
    Series expected;
    if (state >= v1::Job::SUCCEEDED) {
      expected[absl::StrCat("snapkv_jobs_ended_total{state=\"", v1::Job::State_Name(value), "\"}")] = 1;
    }
    EXPECT_EQ(ChangesBy([&](Metrics& m) { m.JobEnded(value); }), expected) << v1::Job::State_Name(value);
  }
  EXPECT_EQ(ChangesBy([](Metrics& m) { m.LeaseExpired(3); }), (Series{{"snapkv_lease_expiries_total", 3}}));
  EXPECT_THAT(ChangesBy([](Metrics& m) { m.LeaseExpired(0); }), IsEmpty());
  EXPECT_EQ(ChangesBy([](Metrics& m) { m.UploadedBytes(65'536); }),
            (Series{{"snapkv_upload_bytes_total", 65'536}}));
  EXPECT_EQ(
      ChangesBy([](Metrics& m) { m.ObserveCommit(absl::Milliseconds(250)); }),
      (Series{{"snapkv_commit_duration_seconds_count", 1}, {"snapkv_commit_duration_seconds_sum", 0.25}}));
}

TEST(MetricsTest, TheDisk) {
  const Series changes = ChangesBy([](Metrics& m) { EXPECT_TRUE(m.UpdateDisk("/").ok()); });
  EXPECT_GT(changes.at("snapkv_state_disk_size_bytes"), 0);
  EXPECT_LE(changes.at("snapkv_state_disk_free_bytes"), changes.at("snapkv_state_disk_size_bytes"));
  Metrics metrics("1.2.3");
  EXPECT_THAT(std::string(metrics.UpdateDisk("/no/such/folder").message()), HasSubstr("/no/such/folder"));
}

TEST(MetricsTest, Rpcs) {
  EXPECT_EQ(
      ChangesBy([](Metrics& m) { m.RpcFinished("/snapkv.v1.Jobs/CreateJob", 0, absl::Milliseconds(20)); }),
      (Series{{"snapkv_rpcs_total{code=\"OK\",method=\"Jobs/CreateJob\"}", 1},
              {"snapkv_rpc_duration_seconds_count{method=\"Jobs/CreateJob\"}", 1},
              {"snapkv_rpc_duration_seconds_sum{method=\"Jobs/CreateJob\"}", 0.02}}));
  EXPECT_EQ(ChangesBy([](Metrics& m) {
              m.RpcFinished("/snapkv.v1.Jobs/UploadDocument", 8, absl::Seconds(9), Reason::kStorageFull);
            }),
            (Series{{"snapkv_rpcs_total{code=\"RESOURCE_EXHAUSTED\",method=\"Jobs/UploadDocument\"}", 1},
                    {"snapkv_rpc_errors_total{reason=\"STORAGE_FULL\"}", 1}}));
  for (const char* method : {"Jobs/GetJob", "Workers/AcquireLease", "Models/ListModels"}) {
    EXPECT_EQ(ChangesBy([&](Metrics& m) {
                m.RpcFinished(absl::StrCat("/snapkv.v1.", method), 16, absl::Seconds(1));
              }).count(absl::StrCat("snapkv_rpcs_total{code=\"UNAUTHENTICATED\",method=\"", method, "\"}")),
              1u);
  }
}

TEST(MetricsTest, OpenStreams) {
  const auto open = [](Metrics& m) {
    m.StreamOpened("/snapkv.v1.Jobs/WatchJob");
    m.StreamOpened("/snapkv.v1.Jobs/WatchJob");
    m.StreamOpened("/snapkv.v1.Summarizer/Summarize");
  };
  EXPECT_EQ(ChangesBy(open), (Series{{"snapkv_streams_open{method=\"Jobs/WatchJob\"}", 2},
                                     {"snapkv_streams_open{method=\"Summarizer/Summarize\"}", 1}}));
  EXPECT_EQ(ChangesBy([&](Metrics& m) {
              open(m);
              m.StreamClosed("/snapkv.v1.Jobs/WatchJob");
              m.StreamClosed("/snapkv.v1.Summarizer/Summarize");
            }),
            (Series{{"snapkv_streams_open{method=\"Jobs/WatchJob\"}", 1}}));
}

TEST(MetricsTest, BuildInfoAndStart) {
  Metrics metrics("1.2.3");
  const Series series = ParseMetrics(metrics.Text());
  EXPECT_EQ(series.at("snapkv_build_info{version=\"1.2.3\"}"), 1);
  EXPECT_GT(series.at("snapkv_start_time_seconds"), 1.7e9);
}

TEST(MetricsTest, ThreadsLoseNothing) {
  Metrics metrics("1.2.3");
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 500; ++i) {
        metrics.ObserveResult(Summary());
        metrics.RpcFinished("/snapkv.v1.Jobs/GetJob", i % 17, absl::Milliseconds(1));
        metrics.StreamOpened("/snapkv.v1.Jobs/WatchJob");
        metrics.SetQueue(StoreStats());
        if (i % 100 == 0) metrics.Text();
        metrics.StreamClosed("/snapkv.v1.Jobs/WatchJob");
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const Series series = ParseMetrics(metrics.Text());
  EXPECT_EQ(series.at("snapkv_documents_total{reason=\"OK\",result=\"succeeded\"}"), 2'000);
  EXPECT_EQ(series.at("snapkv_rpc_duration_seconds_count{method=\"Jobs/GetJob\"}"), 2'000);
  EXPECT_EQ(series.at("snapkv_streams_open{method=\"Jobs/WatchJob\"}"), 0);
}

// Metrics in which every family has moved.
void MoveAll(Metrics& metrics) {
  metrics.ObserveResult(Summary());
  metrics.ObserveResult(Failure("CONTEXT_EXCEEDED"));
  metrics.JobCreated();
  metrics.JobEnded(v1::Job::SUCCEEDED);
  metrics.LeaseExpired(1);
  StoreStats stats;
  stats.jobs_waiting = stats.jobs_running = stats.documents_queued = stats.documents_leased = 1;
  stats.oldest_queued = absl::Seconds(1);
  metrics.SetQueue(stats);
  metrics.SetWorkers(1);
  metrics.ObserveCommit(absl::Milliseconds(1));
  metrics.UploadedBytes(1);
  EXPECT_TRUE(metrics.UpdateDisk("/").ok());
  metrics.RpcFinished("/snapkv.v1.Jobs/GetJob", 5, absl::Milliseconds(1), Reason::kJobNotFound);
  metrics.StreamOpened("/snapkv.v1.Jobs/WatchJob");
}

TEST(MetricsTest, EveryFamilyCanMove) {
  Metrics metrics("1.2.3");
  MoveAll(metrics);
  std::set<std::string> families;
  const std::string text = metrics.Text();
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    if (absl::ConsumePrefix(&line, "# TYPE ")) families.insert(std::string(line.substr(0, line.find(' '))));
  }
  EXPECT_GE(families.size(), 20u);
  const Series series = ParseMetrics(metrics.Text());
  for (const std::string& family : families) {
    EXPECT_TRUE(absl::StartsWith(family, "snapkv_")) << family;
    double total = 0;
    for (const auto& [name, value] : series) {
      if (absl::StartsWith(name, family)) total += value;
    }
    EXPECT_GT(total, 0) << family << " was not moved by MoveAll: add what moves it";
  }
}

void ExpectPromtoolAccepts(const std::string& text) {
  const auto result = Promtool({"check", "metrics"}, text);
  EXPECT_EQ(result.exit_code, 0) << result.ToString() << "\n" << text;
  EXPECT_EQ(result.out + result.err, "");
  // It does find fault where there is some.
  EXPECT_NE(
      Promtool({"check", "metrics"}, text + "# TYPE snapkv_bad_total gauge\nsnapkv_bad_total 1\n").exit_code,
      0);
}

TEST(MetricsTest, PromtoolAcceptsTheText) {
  if (!HasPromtool()) GTEST_SKIP() << kNoPromtool;
  Metrics metrics("1.2.3");
  MoveAll(metrics);
  ExpectPromtoolAccepts(metrics.Text());
}

TEST(MetricsTest, PromtoolAcceptsWhatHttpServes) {
  Metrics metrics("1.2.3");
  MoveAll(metrics);
  const absl::StatusOr<int> port = metrics.Expose("127.0.0.1:0");
  ASSERT_TRUE(port.ok()) << port.status();
  ASSERT_GT(*port, 0);
  FetchMetrics(*port);
  const std::string body = FetchMetrics(*port);
  const Series served = ParseMetrics(body);
  for (const auto& [name, value] : ParseMetrics(metrics.Text())) {
    ASSERT_EQ(served.count(name), 1u) << name << " is not served:\n" << body;
    EXPECT_EQ(served.at(name), value) << name;
  }
  if (!HasPromtool()) GTEST_SKIP() << kNoPromtool;
  ExpectPromtoolAccepts(body);
}

TEST(MetricsTest, AddressesThatCannotBeServed) {
  Metrics first("1.2.3");
  const absl::StatusOr<int> port = first.Expose("127.0.0.1:0");
  ASSERT_TRUE(port.ok()) << port.status();
  Metrics second("1.2.3");
  for (const std::string& address :
       {absl::StrCat("127.0.0.1:", *port), std::string("203.0.113.1:9411"), std::string("127.0.0.1:99999"),
        std::string("nonsense"), std::string("")}) {
    const absl::StatusOr<int> refused = second.Expose(address);
    EXPECT_EQ(refused.status().code(), absl::StatusCode::kUnavailable) << address;
    EXPECT_THAT(std::string(refused.status().message()), HasSubstr("--metrics-port"));
    EXPECT_THAT(std::string(refused.status().message()), HasSubstr(absl::StrCat("'", address, "'")));
  }
  EXPECT_THAT(FetchMetrics(*port), HasSubstr("snapkv_build_info"));
  EXPECT_EQ(first.Expose("127.0.0.1:0").status().code(), absl::StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace snapkv::service
