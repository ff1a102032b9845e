// SPDX-License-Identifier: Apache-2.0
// FakeServer: the Jobs, Models and Health services in this process, in memory, with faults on demand, for
// tests of the client.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "grpcpp/grpcpp.h"
#include "runtime/service/reason.h"
#include "snapkv/v1/jobs.grpc.pb.h"
#include "snapkv/v1/models.grpc.pb.h"

namespace snapkv::testing {

namespace v1 = snapkv::v1;

// What the server has of a job.
struct FakeJob {
  v1::Job job;
  std::string request_id, request;  // of CreateJob, serialised
  struct Stored {
    v1::Document document;  // content: what has arrived
    int64_t size = 0;
    std::string sha256;
    bool complete = false;
  };
  std::vector<Stored> documents;  // in the order of their arrival
  std::vector<v1::Result> results;
  Stored* Find(const std::string& id);
};

// Listens on a free port of this machine. Jobs that are sealed are worked on at once, a document after the
// other. Thread-safe.
class FakeServer {
 public:
  using Answer = std::function<v1::Result(const v1::Document&)>;

  FakeServer();
  ~FakeServer();
  FakeServer(const FakeServer&) = delete;
  FakeServer& operator=(const FakeServer&) = delete;

  std::string address() const;
  // The process dies, as far as clients can see; what was acknowledged stays. Start: it is there again.
  void Stop();
  void Start();

  // --- How it behaves.
  void SetAnswer(Answer answer);  // default: DefaultAnswer
  void SetPaused(bool paused);    // documents wait while it is
  void PauseFromAnswer();         // the same, from within an Answer
  void SetToken(const std::string& token);
  void SetServing(bool serving);
  v1::Model& model();  // of ListModels and GetModel; change it before calls are made
  v1::Limits& limits() { return *model().mutable_limits(); }
  // The next `count` calls of a method fail before anything happens.
  void FailNext(const std::string& method, const absl::Status& error, int count = 1);
  // The next `count` calls of a method do their work, and then the answer is lost: UNAVAILABLE.
  void LoseAnswers(const std::string& method, int count = 1);
  // The next `count` streams of a method break (UNAVAILABLE) behind `messages` messages.
  void BreakStreams(const std::string& method, int messages, int count = 1);
  // UploadDocument takes this much of each stream's data and breaks, `count` times.
  void BreakUploads(int64_t bytes, int count);

  // --- What has happened.
  int calls(const std::string& method) const;
  std::vector<FakeJob> jobs() const;  // oldest first
  FakeJob job(const std::string& name) const;
  v1::CreateJobRequest last_create() const;
  std::vector<v1::UploadHeader> upload_headers() const;
  int64_t uploaded_bytes() const;  // of all chunks that arrived
  v1::StreamResultsRequest last_stream() const;
  v1::ListJobsRequest last_list() const;

  // --- As if others had done it.
  std::string AddJob(v1::Job job, std::vector<v1::Document> documents = {});  // its name
  void Finish(const std::string& name, v1::Job::State state, const std::string& reason,
              const std::string& message);
  bool WaitFor(const std::function<bool(const FakeServer&)>& condition) const;  // 20 s

  // "Summary of ID." with figures; a document whose text holds "FAIL-ME" fails with CONTEXT_EXCEEDED.
  static v1::Result DefaultAnswer(const v1::Document& document);

 private:
  class JobsService;
  class ModelsService;
  struct State;
  void Work();

  std::unique_ptr<State> state_;
  std::unique_ptr<JobsService> jobs_service_;
  std::unique_ptr<ModelsService> models_service_;
  std::unique_ptr<grpc::Server> server_;
  int port_ = 0;
  std::thread worker_;
};

}  // namespace snapkv::testing
