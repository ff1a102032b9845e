// SPDX-License-Identifier: Apache-2.0
// Load for a job server: queued jobs, watchers, concurrent uploads, and health probes while all of that goes
// on. Prints rates and latencies; not a test, since machines differ.
//
// load_generator HOST:PORT [--jobs 10000] [--watchers 200] [--uploads 64] [--probes 1000] [--pid
// PID_OF_SERVER]
#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <fstream>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "grpc/health/v1/health.grpc.pb.h"
#include "grpcpp/grpcpp.h"
#include "runtime/hash/sha256.h"
#include "snapkv/v1/jobs.grpc.pb.h"

namespace snapkv::testing {
namespace {

struct Options {
  std::string server;
  int jobs = 10'000;
  int watchers = 200;
  int uploads = 64;
  int probes = 1'000;
  int submitters = 8;
  int pid = 0;
};

std::shared_ptr<grpc::Channel> NewChannel(const Options& options) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  return grpc::CreateCustomChannel(options.server, grpc::InsecureChannelCredentials(), arguments);
}

// Milliseconds of calls, from any thread.
class Latencies {
 public:
  void Add(absl::Duration took) {
    const std::lock_guard lock(mutex_);
    ms_.push_back(absl::ToDoubleMilliseconds(took));
  }
  void Print(const char* what) {
    const std::lock_guard lock(mutex_);
    if (ms_.empty()) return;
    std::sort(ms_.begin(), ms_.end());
    const auto at = [&](double fraction) {
      return ms_[std::min(ms_.size() - 1, static_cast<size_t>(fraction * static_cast<double>(ms_.size())))];
    };
    std::printf("%-12s %6zu calls, p50 %.2f ms, p99 %.2f ms, most %.2f ms\n", what, ms_.size(), at(0.5),
                at(0.99), ms_.back());
  }

 private:
  std::mutex mutex_;
  std::vector<double> ms_;
};

// Counts the events of one job.
class Watcher final : public grpc::ClientReadReactor<v1::JobEvent> {
 public:
  Watcher(v1::Jobs::Stub& jobs, const std::string& job, std::atomic<int64_t>& events, std::atomic<int>& open)
      : events_(events), open_(open) {
    request_.set_name(job);
    jobs.async()->WatchJob(&context_, &request_, this);
    ++open_;
    StartRead(&event_);
    StartCall();
  }
  void Cancel() { context_.TryCancel(); }

 private:
  void OnReadDone(bool ok) override {
    if (!ok) return;
    ++events_;
    StartRead(&event_);
  }
  void OnDone(const grpc::Status&) override { --open_; }

  grpc::ClientContext context_;
  v1::WatchJobRequest request_;
  v1::JobEvent event_;
  std::atomic<int64_t>& events_;
  std::atomic<int>& open_;
};

std::string Submit(v1::Jobs::Stub& jobs, const std::string& id, bool open, Latencies& latencies) {
  v1::CreateJobRequest request;
  request.set_request_id(id);
  request.set_open(open);
  request.mutable_job()->set_model("models/load");
  if (!open) {
    request.add_documents()->set_document_id("d");
    request.mutable_documents(0)->set_content("A short document.");
  }
  v1::Job job;
  grpc::ClientContext context;
  const absl::Time start = absl::Now();
  const grpc::Status status = jobs.CreateJob(&context, request, &job);
  latencies.Add(absl::Now() - start);
  if (!status.ok()) std::fprintf(stderr, "CreateJob: %s\n", status.error_message().c_str());
  return job.name();
}

bool Upload(v1::Jobs::Stub& jobs, const std::string& job, const std::string& id, const std::string& data,
            Latencies& latencies) {
  const auto digest = runtime::Sha256(data);
  const absl::Time start = absl::Now();
  grpc::ClientContext context;
  v1::UploadStatus answer;
  const auto writer = jobs.UploadDocument(&context, &answer);
  v1::UploadDocumentRequest message;
  message.mutable_header()->set_job(job);
  message.mutable_header()->set_document_id(id);
  message.mutable_header()->set_size_bytes(static_cast<int64_t>(data.size()));
  message.mutable_header()->set_sha256(std::string(digest.begin(), digest.end()));
  bool ok = writer->Write(message);
  for (size_t at = 0; ok && at < data.size(); at += 64 << 10) {
    message.mutable_chunk()->set_offset(static_cast<int64_t>(at));
    message.mutable_chunk()->set_data(data.substr(at, 64 << 10));
    ok = writer->Write(message);
  }
  writer->WritesDone();
  const grpc::Status status = writer->Finish();
  latencies.Add(absl::Now() - start);
  if (!status.ok()) std::fprintf(stderr, "UploadDocument: %s\n", status.error_message().c_str());
  return status.ok() && answer.complete();
}

void Probe(const Options& options, std::atomic<bool>& stop, Latencies& latencies) {
  const auto health = grpc::health::v1::Health::NewStub(NewChannel(options));
  for (int i = 0; i < options.probes || !stop; ++i) {
    grpc::ClientContext context;
    grpc::health::v1::HealthCheckResponse response;
    const absl::Time start = absl::Now();
    const grpc::Status status = health->Check(&context, {}, &response);
    latencies.Add(absl::Now() - start);
    if (!status.ok() || response.status() != grpc::health::v1::HealthCheckResponse::SERVING)
      std::fprintf(stderr, "health: %s\n", status.error_message().c_str());
    absl::SleepFor(absl::Milliseconds(5));
  }
}

// The line of /proc/PID/status that begins with `key`.
std::string ProcStatus(int pid, const std::string& key) {
  std::ifstream in("/proc/" + std::to_string(pid) + "/status");
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with(key)) return line.substr(line.find_first_not_of(" \t", key.size() + 1));
  }
  return "?";
}

int Run(const Options& options) {
  const auto jobs = v1::Jobs::NewStub(NewChannel(options));
  Latencies health, submit, upload;
  std::atomic<bool> stop{false};
  std::thread prober([&] { Probe(options, stop, health); });
  const std::string open_job = Submit(*jobs, "", true, submit);
  std::atomic<int64_t> events{0};
  std::atomic<int> open{0};
  std::vector<std::unique_ptr<Watcher>> watchers;
  for (int i = 0; i < options.watchers; ++i)
    watchers.push_back(std::make_unique<Watcher>(*jobs, open_job, events, open));

  const std::string run = std::to_string(absl::ToUnixNanos(absl::Now()));
  std::atomic<int> next{0};
  std::atomic<int> uploaded{0};
  std::vector<std::thread> threads;
  const absl::Time start = absl::Now();
  const std::string data(1 << 20, 'x');
  for (int i = 0; i < options.uploads; ++i) {
    threads.emplace_back([&, i] {
      const auto stub = v1::Jobs::NewStub(NewChannel(options));
      uploaded += Upload(*stub, open_job, "upload-" + std::to_string(i), data, upload) ? 1 : 0;
    });
  }
  for (int i = 0; i < options.submitters; ++i) {
    threads.emplace_back([&] {
      const auto stub = v1::Jobs::NewStub(NewChannel(options));
      for (int job = next++; job < options.jobs; job = next++)
        Submit(*stub, run + "-" + std::to_string(job), false, submit);
    });
  }
  for (std::thread& thread : threads) thread.join();
  const double seconds = absl::ToDoubleSeconds(absl::Now() - start);
  stop = true;
  prober.join();
  std::printf("%d jobs and %d uploads of 1 MiB in %.2f s: %.0f submissions/s\n", options.jobs,
              uploaded.load(), seconds, options.jobs / seconds);
  health.Print("health");
  submit.Print("CreateJob");
  upload.Print("upload");
  std::printf("%d watchers open, %lld events\n", open.load(), static_cast<long long>(events.load()));
  if (options.pid > 0) {
    std::printf("server: resident %s (peak %s), %s threads\n", ProcStatus(options.pid, "VmRSS").c_str(),
                ProcStatus(options.pid, "VmHWM").c_str(), ProcStatus(options.pid, "Threads").c_str());
  }
  for (const auto& watcher : watchers) watcher->Cancel();
  while (open > 0) absl::SleepFor(absl::Milliseconds(10));
  return uploaded == options.uploads ? 0 : 1;
}

}  // namespace
}  // namespace snapkv::testing

int main(int argc, char** argv) {
  snapkv::testing::Options options;
  CLI::App app{"Load for a job server"};
  app.add_option("server", options.server)->required();
  app.add_option("--jobs", options.jobs);
  app.add_option("--watchers", options.watchers);
  app.add_option("--uploads", options.uploads);
  app.add_option("--probes", options.probes);
  app.add_option("--submitters", options.submitters);
  app.add_option("--pid", options.pid);
  CLI11_PARSE(app, argc, argv);
  return snapkv::testing::Run(options);
}
