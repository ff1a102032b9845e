// SPDX-License-Identifier: Apache-2.0
// Jobs in memory, and faults.
#include "tests/e2e/fake_server.h"

#include <algorithm>
#include <chrono>

#include "absl/time/clock.h"
#include "grpcpp/health_check_service_interface.h"
#include "kernels/base/log.h"
#include "runtime/hash/sha256.h"
#include "runtime/service/grpc_status.h"

namespace snapkv::testing {
namespace {

using service::Reason;
using service::ServiceError;
using service::ToGrpc;

constexpr auto kSlice = std::chrono::milliseconds(10);

bool Ended(v1::Job::State state) { return state >= v1::Job::SUCCEEDED; }

void SetNow(google::protobuf::Timestamp* time) { time->set_seconds(absl::ToUnixSeconds(absl::Now())); }

}  // namespace

FakeJob::Stored* FakeJob::Find(const std::string& id) {
  for (Stored& stored : documents) {
    if (stored.document.document_id() == id) return &stored;
  }
  return nullptr;
}

struct FakeServer::State {
  struct Break {
    int64_t after;
    int count;
  };
  mutable std::mutex mutex;
  mutable std::condition_variable changed;
  std::deque<FakeJob> jobs;
  v1::Model model;
  Answer answer = DefaultAnswer;
  bool paused = false, closing = false, stopping = false, serving = true;
  std::string token;
  std::map<std::string, std::deque<absl::Status>> failures;
  std::map<std::string, int> lost, calls;
  std::map<std::string, Break> breaks;
  v1::CreateJobRequest last_create;
  v1::StreamResultsRequest last_stream;
  v1::ListJobsRequest last_list;
  std::vector<v1::UploadHeader> headers;
  int64_t uploaded_bytes = 0;

  FakeJob* Find(const std::string& name) {
    for (FakeJob& job : jobs) {
      if (job.job.name() == name) return &job;
    }
    return nullptr;
  }
  void Touch(FakeJob& job) {
    job.job.set_version(job.job.version() + 1);
    job.job.set_results(static_cast<int64_t>(job.results.size()));
    v1::Job::Counts& c = *job.job.mutable_counts();
    c.set_documents(static_cast<int64_t>(job.documents.size()));
    int64_t ok = 0, failed = 0, prompt = 0, completion = 0;
    for (const v1::Result& r : job.results) {
      ++(r.status().code() == 0 ? ok : failed);
      prompt += r.usage().prompt_tokens();
      completion += r.usage().completion_tokens();
    }
    c.set_succeeded(ok);
    c.set_failed(failed);
    c.set_queued(c.documents() - ok - failed);
    c.set_prompt_tokens(prompt);
    c.set_completion_tokens(completion);
    changed.notify_all();
  }
  void Seal(FakeJob& job) {
    job.job.set_state(v1::Job::QUEUED);
    Touch(job);
  }
  // What every call begins with; OK to go on.
  absl::Status Enter(const std::string& method, grpc::ServerContext& context) {
    ++calls[method];
    changed.notify_all();
    if (!token.empty()) {
      const auto& metadata = context.client_metadata();
      const auto it = metadata.find("authorization");
      if (it == metadata.end()) return ServiceError(Reason::kTokenMissing, "the call has no token");
      if (std::string(it->second.data(), it->second.size()) != "Bearer " + token)
        return ServiceError(Reason::kTokenInvalid, "the token is not known");
    }
    auto& queue = failures[method];
    if (queue.empty()) return absl::OkStatus();
    const absl::Status error = queue.front();
    queue.pop_front();
    return error;
  }
  absl::Status Leave(const std::string& method) {
    if (lost[method] == 0) return absl::OkStatus();
    --lost[method];
    return absl::UnavailableError("the connection broke");
  }
  // Whether the stream breaks now, behind `sent`.
  bool Breaks(const std::string& method, int64_t sent) {
    const auto it = breaks.find(method);
    if (it == breaks.end() || it->second.count == 0 || sent < it->second.after) return false;
    --it->second.count;
    return true;
  }
};

class FakeServer::JobsService final : public v1::Jobs::Service {
 public:
  explicit JobsService(State& state) : s_(state) {}

  grpc::Status CreateJob(grpc::ServerContext* context, const v1::CreateJobRequest* request,
                         v1::Job* response) override {
    const std::lock_guard lock(s_.mutex);
    return Done("CreateJob", *context, [&]() -> absl::Status {
      s_.last_create = *request;
      for (const v1::Document& document : request->documents()) {
        if (document.parameters().max_tokens() > 1'000'000)
          return ServiceError(Reason::kParameterInvalid, "documents[", document.document_id(),
                              "].parameters.max_tokens is over 1000000: lower it");
      }
      for (FakeJob& known : s_.jobs) {
        if (request->request_id().empty() || known.request_id != request->request_id()) continue;
        if (known.request != request->SerializeAsString())
          return ServiceError(Reason::kRequestIdReused, "the request id was used for another job");
        *response = known.job;
        return absl::OkStatus();
      }
      FakeJob& job = s_.jobs.emplace_back();
      job.request_id = request->request_id();
      job.request = request->SerializeAsString();
      job.job = request->job();
      job.job.set_name(absl::StrCat("jobs/j", s_.jobs.size()));
      if (job.job.model().empty()) job.job.set_model(s_.model.name());
      job.job.set_state(v1::Job::UPLOADING);
      SetNow(job.job.mutable_create_time());
      for (const v1::Document& document : request->documents()) {
        job.documents.push_back(
            {document, static_cast<int64_t>(document.content().size()), "", /*complete=*/true});
      }
      if (request->open()) {
        s_.Touch(job);
      } else {
        s_.Seal(job);
      }
      *response = job.job;
      return absl::OkStatus();
    });
  }

  grpc::Status UploadDocument(grpc::ServerContext* context,
                              grpc::ServerReader<v1::UploadDocumentRequest>* reader,
                              v1::UploadStatus* response) override {
    v1::UploadDocumentRequest part;
    v1::UploadHeader header;
    int64_t received = 0;
    {
      const std::lock_guard lock(s_.mutex);
      const absl::Status entered = s_.Enter("UploadDocument", *context);
      if (!entered.ok()) return ToGrpc(entered, *context);
    }
    while (reader->Read(&part)) {
      const std::lock_guard lock(s_.mutex);
      const absl::Status taken =
          part.has_header() ? Begin(header = part.header()) : Append(header, part.chunk());
      if (!taken.ok()) return ToGrpc(taken, *context);
      if (part.has_chunk()) received += static_cast<int64_t>(part.chunk().data().size());
      if (s_.Breaks("UploadDocument", received)) return ToGrpc(absl::UnavailableError("broken"), *context);
    }
    if (context->IsCancelled()) return grpc::Status::CANCELLED;
    const std::lock_guard lock(s_.mutex);
    const absl::Status left = s_.Leave("UploadDocument");
    if (!left.ok()) return ToGrpc(left, *context);
    FakeJob* job = s_.Find(header.job());
    if (job == nullptr) return ToGrpc(ServiceError(Reason::kJobNotFound, "no such job"), *context);
    Fill(*job, *job->Find(header.document_id()), *response);
    return grpc::Status::OK;
  }

  grpc::Status GetUploadStatus(grpc::ServerContext* context, const v1::GetUploadStatusRequest* request,
                               v1::UploadStatus* response) override {
    const std::lock_guard lock(s_.mutex);
    return Done("GetUploadStatus", *context, [&]() -> absl::Status {
      FakeJob* job = s_.Find(request->job());
      if (job == nullptr) return ServiceError(Reason::kJobNotFound, "no job ", request->job());
      FakeJob::Stored* stored = job->Find(request->document_id());
      if (stored == nullptr) return ServiceError(Reason::kDocumentNotFound, "no such document");
      Fill(*job, *stored, *response);
      return absl::OkStatus();
    });
  }

  grpc::Status SealJob(grpc::ServerContext* context, const v1::SealJobRequest* request,
                       v1::Job* response) override {
    return OnJob("SealJob", *context, request->name(), *response, [&](FakeJob& job) -> absl::Status {
      if (job.job.state() != v1::Job::UPLOADING)
        return ServiceError(Reason::kJobState, job.job.name(), " is not UPLOADING");
      for (const FakeJob::Stored& stored : job.documents) {
        if (!stored.complete)
          return ServiceError(Reason::kJobState, "not complete: ", stored.document.document_id());
      }
      s_.Seal(job);
      return absl::OkStatus();
    });
  }

  grpc::Status GetJob(grpc::ServerContext* context, const v1::GetJobRequest* request,
                      v1::Job* response) override {
    return OnJob("GetJob", *context, request->name(), *response, [](FakeJob&) { return absl::OkStatus(); });
  }

  grpc::Status CancelJob(grpc::ServerContext* context, const v1::CancelJobRequest* request,
                         v1::Job* response) override {
    return OnJob("CancelJob", *context, request->name(), *response, [&](FakeJob& job) {
      if (!Ended(job.job.state())) {
        job.job.set_state(v1::Job::CANCELLED);
        job.job.mutable_status()->set_code(1);
        job.job.mutable_status()->set_reason("CANCELLED");
        job.job.mutable_status()->set_message(request->reason());
        s_.Touch(job);
      }
      return absl::OkStatus();
    });
  }

  grpc::Status DeleteJob(grpc::ServerContext* context, const v1::DeleteJobRequest* request,
                         google::protobuf::Empty*) override {
    v1::Job ignored;
    return OnJob("DeleteJob", *context, request->name(), ignored, [&](FakeJob& job) -> absl::Status {
      if (!Ended(job.job.state()))
        return ServiceError(Reason::kJobState, job.job.name(), " has not ended: cancel it first");
      job.job.set_name("deleted");
      return absl::OkStatus();
    });
  }

  grpc::Status ListJobs(grpc::ServerContext* context, const v1::ListJobsRequest* request,
                        v1::ListJobsResponse* response) override {
    const std::lock_guard lock(s_.mutex);
    return Done("ListJobs", *context, [&]() -> absl::Status {
      s_.last_list = *request;
      const size_t begin = request->page_token().empty() ? 0 : std::stoul(request->page_token());
      const auto size = static_cast<size_t>(request->page_size());
      for (size_t i = begin; i < std::min(begin + size, s_.jobs.size()); ++i)
        *response->add_jobs() = s_.jobs[s_.jobs.size() - 1 - i].job;
      if (begin + size < s_.jobs.size()) response->set_next_page_token(std::to_string(begin + size));
      return absl::OkStatus();
    });
  }

  grpc::Status WatchJob(grpc::ServerContext* context, const v1::WatchJobRequest* request,
                        grpc::ServerWriter<v1::JobEvent>* writer) override {
    std::unique_lock lock(s_.mutex);
    const absl::Status entered = s_.Enter("WatchJob", *context);
    if (!entered.ok()) return ToGrpc(entered, *context);
    int64_t version = request->after_version();
    for (int64_t sent = 0;; ++sent) {
      FakeJob* job = nullptr;
      while ((job = s_.Find(request->name())) != nullptr && job->job.version() <= version) {
        if (context->IsCancelled() || s_.stopping) return grpc::Status::CANCELLED;
        s_.changed.wait_for(lock, kSlice);
      }
      if (job == nullptr) return ToGrpc(ServiceError(Reason::kJobNotFound, "no such job"), *context);
      if (s_.Breaks("WatchJob", sent)) return ToGrpc(absl::UnavailableError("broken"), *context);
      v1::JobEvent event;
      *event.mutable_job() = job->job;
      version = job->job.version();
      lock.unlock();
      const bool open = writer->Write(event);
      lock.lock();
      if (!open || Ended(event.job().state())) return grpc::Status::OK;
    }
  }

  grpc::Status StreamResults(grpc::ServerContext* context, const v1::StreamResultsRequest* request,
                             grpc::ServerWriter<v1::Result>* writer) override {
    std::unique_lock lock(s_.mutex);
    const absl::Status entered = s_.Enter("StreamResults", *context);
    if (!entered.ok()) return ToGrpc(entered, *context);
    s_.last_stream = *request;
    auto next = static_cast<size_t>(request->after_sequence());
    for (int64_t sent = 0;;) {
      const FakeJob* job = s_.Find(request->name());
      if (job == nullptr)
        return ToGrpc(ServiceError(Reason::kJobNotFound, "no job ", request->name()), *context);
      if (context->IsCancelled() || s_.stopping) return grpc::Status::CANCELLED;
      if (s_.Breaks("StreamResults", sent)) return ToGrpc(absl::UnavailableError("broken"), *context);
      if (next < job->results.size()) {
        const v1::Result result = job->results[next++];
        ++sent;
        lock.unlock();
        if (!writer->Write(result)) return grpc::Status::CANCELLED;
        lock.lock();
      } else if (!request->follow() || Ended(job->job.state())) {
        return grpc::Status::OK;
      } else {
        s_.changed.wait_for(lock, kSlice);
      }
    }
  }

 private:
  template <class F>
  grpc::Status Done(const std::string& method, grpc::ServerContext& context, const F& work) {
    absl::Status status = s_.Enter(method, context);
    if (status.ok()) status = work();
    if (status.ok()) status = s_.Leave(method);
    return ToGrpc(status, context);
  }
  template <class F>
  grpc::Status OnJob(const std::string& method, grpc::ServerContext& context, const std::string& name,
                     v1::Job& response, const F& work) {
    const std::lock_guard lock(s_.mutex);
    return Done(method, context, [&]() -> absl::Status {
      FakeJob* job = s_.Find(name);
      if (job == nullptr) return ServiceError(Reason::kJobNotFound, "there is no job ", name);
      RETURN_IF_ERROR(work(*job));
      response = job->job;
      return absl::OkStatus();
    });
  }
  static void Fill(const FakeJob& job, const FakeJob::Stored& stored, v1::UploadStatus& out) {
    out.set_job(job.job.name());
    out.set_document_id(stored.document.document_id());
    out.set_committed_size(static_cast<int64_t>(stored.document.content().size()));
    out.set_size_bytes(stored.size);
    out.set_complete(stored.complete);
  }
  absl::Status Begin(const v1::UploadHeader& header) {
    s_.headers.push_back(header);
    FakeJob* job = s_.Find(header.job());
    if (job == nullptr) return ServiceError(Reason::kJobNotFound, "no job ", header.job());
    if (job->job.state() != v1::Job::UPLOADING) return ServiceError(Reason::kJobState, "it is not UPLOADING");
    if (header.size_bytes() > s_.model.limits().max_document_bytes())
      return ServiceError(Reason::kDocumentTooLarge, "the document has ", header.size_bytes(), " bytes, ",
                          s_.model.limits().max_document_bytes(), " are allowed");
    if (header.parameters().max_tokens() > 1'000'000)
      return ServiceError(Reason::kParameterInvalid, "max_tokens is over 1000000");
    FakeJob::Stored* stored = job->Find(header.document_id());
    if (stored != nullptr) {
      if (stored->size == header.size_bytes() &&
          (stored->sha256.empty() || stored->sha256 == header.sha256()))
        return absl::OkStatus();
      return ServiceError(Reason::kDocumentIdDuplicate, "the id was given to another document");
    }
    FakeJob::Stored fresh{{}, header.size_bytes(), header.sha256(), false};
    fresh.document.set_document_id(header.document_id());
    fresh.document.set_media_type(header.media_type());
    if (header.has_parameters()) *fresh.document.mutable_parameters() = header.parameters();
    job->documents.push_back(fresh);
    s_.Touch(*job);
    return absl::OkStatus();
  }
  absl::Status Append(const v1::UploadHeader& header, const v1::Chunk& chunk) {
    FakeJob::Stored& stored = *s_.Find(header.job())->Find(header.document_id());
    std::string& content = *stored.document.mutable_content();
    if (chunk.offset() != static_cast<int64_t>(content.size())) {
      return service::WithFigure(ServiceError(Reason::kOffsetMismatch, "the offset must be ", content.size()),
                                 "committed_size", std::to_string(content.size()));
    }
    content += chunk.data();
    s_.uploaded_bytes += static_cast<int64_t>(chunk.data().size());
    if (static_cast<int64_t>(content.size()) < stored.size) return absl::OkStatus();
    const auto digest = runtime::Sha256(content);
    if (std::string(digest.begin(), digest.end()) != stored.sha256) {
      content.clear();
      return ServiceError(Reason::kChecksumMismatch, "the SHA-256 is another");
    }
    stored.complete = true;
    s_.changed.notify_all();
    return absl::OkStatus();
  }

  State& s_;
};

class FakeServer::ModelsService final : public v1::Models::Service {
 public:
  explicit ModelsService(State& state) : s_(state) {}
  grpc::Status ListModels(grpc::ServerContext* context, const v1::ListModelsRequest*,
                          v1::ListModelsResponse* response) override {
    const std::lock_guard lock(s_.mutex);
    const absl::Status entered = s_.Enter("ListModels", *context);
    if (entered.ok()) *response->add_models() = s_.model;
    return ToGrpc(entered, *context);
  }
  grpc::Status GetModel(grpc::ServerContext* context, const v1::GetModelRequest* request,
                        v1::Model* response) override {
    const std::lock_guard lock(s_.mutex);
    absl::Status status = s_.Enter("GetModel", *context);
    if (status.ok() && request->name() != s_.model.name())
      status = ServiceError(Reason::kModelNotFound, "no worker has registered ", request->name());
    *response = s_.model;
    return ToGrpc(status, *context);
  }

 private:
  State& s_;
};

v1::Result FakeServer::DefaultAnswer(const v1::Document& document) {
  v1::Result result;
  result.set_document_id(document.document_id());
  if (document.content().find("FAIL-ME") != std::string::npos) {
    result.mutable_status()->set_code(3);
    result.mutable_status()->set_reason("CONTEXT_EXCEEDED");
    result.mutable_status()->set_message("the prompt has 9000 tokens, the context is 8192");
    result.set_finish_reason(v1::FINISH_REASON_ERROR);
  } else {
    result.set_summary("Summary of " + document.document_id() + ".");
    result.set_finish_reason(v1::FINISH_REASON_STOP);
    result.mutable_usage()->set_prompt_tokens(100);
    result.mutable_usage()->set_completion_tokens(3);
    for (const int32_t id : {7, 8, 9}) result.add_token_ids(id);
    result.mutable_timings()->set_queue_ms(5);
    result.mutable_timings()->set_prefill_ms(50);
    result.mutable_timings()->set_decode_ms(20);
    result.mutable_cache()->set_rows_full(100);
    result.mutable_cache()->set_rows_kept(64);
    result.mutable_cache()->set_bytes_full(1000);
    result.mutable_cache()->set_bytes_kept(640);
  }
  result.set_params_sha256(std::string(64, 'b'));
  result.set_worker("workers/w1");
  result.set_attempt(1);
  return result;
}

FakeServer::FakeServer() : state_(std::make_unique<State>()) {
  state_->model.set_name("models/tiny");
  state_->model.set_ready(true);
  state_->model.set_max_context(8192);
  state_->model.set_workers(1);
  v1::Limits& limits = *state_->model.mutable_limits();
  limits.set_max_chunk_bytes(1 << 20);
  limits.set_max_document_bytes(16 << 20);
  limits.set_max_inline_bytes(1 << 20);
  limits.set_max_job_documents(50'000);
  limits.set_max_job_bytes(200'000'000);
  grpc::EnableDefaultHealthCheckService(true);
  Start();
  worker_ = std::thread([this] { Work(); });
}

FakeServer::~FakeServer() {
  Stop();
  {
    const std::lock_guard lock(state_->mutex);
    state_->closing = true;
    state_->changed.notify_all();
  }
  worker_.join();
}

void FakeServer::Start() {
  {
    const std::lock_guard lock(state_->mutex);
    state_->stopping = false;
  }
  jobs_service_ = std::make_unique<JobsService>(*state_);
  models_service_ = std::make_unique<ModelsService>(*state_);
  grpc::ServerBuilder builder;
  builder.AddListeningPort(absl::StrCat("127.0.0.1:", port_), grpc::InsecureServerCredentials(), &port_);
  builder.RegisterService(jobs_service_.get());
  builder.RegisterService(models_service_.get());
  // The client's keep-alive is more frequent than servers allow by default.
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 1'000);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  server_ = builder.BuildAndStart();
  CHECK(server_ != nullptr) << "no port to listen on";
  server_->GetHealthCheckService()->SetServingStatus(state_->serving);
}

void FakeServer::Stop() {
  if (!server_) return;
  {
    const std::lock_guard lock(state_->mutex);
    state_->stopping = true;
    state_->changed.notify_all();
  }
  server_->Shutdown(std::chrono::system_clock::now());
  server_ = nullptr;
}

std::string FakeServer::address() const { return absl::StrCat("127.0.0.1:", port_); }

void FakeServer::Work() {
  std::unique_lock lock(state_->mutex);
  while (!state_->closing) {
    bool worked = false;
    for (FakeJob& job : state_->jobs) {
      const bool open = job.job.state() == v1::Job::QUEUED || job.job.state() == v1::Job::RUNNING;
      if (state_->paused || !open) continue;
      worked = true;
      job.job.set_state(v1::Job::RUNNING);
      if (job.results.size() < job.documents.size()) {
        v1::Result result = state_->answer(job.documents[job.results.size()].document);
        result.set_sequence(static_cast<int64_t>(job.results.size()) + 1);
        job.results.push_back(result);
      }
      if (job.results.size() == job.documents.size()) job.job.set_state(v1::Job::SUCCEEDED);
      state_->Touch(job);
    }
    // Others get the lock between two documents.
    if (worked) {
      lock.unlock();
      lock.lock();
    } else {
      state_->changed.wait_for(lock, kSlice);
    }
  }
}

void FakeServer::SetAnswer(Answer answer) {
  const std::lock_guard lock(state_->mutex);
  state_->answer = std::move(answer);
}
void FakeServer::SetPaused(bool paused) {
  const std::lock_guard lock(state_->mutex);
  state_->paused = paused;
}
void FakeServer::PauseFromAnswer() { state_->paused = true; }
void FakeServer::SetToken(const std::string& token) {
  const std::lock_guard lock(state_->mutex);
  state_->token = token;
}
void FakeServer::SetServing(bool serving) {
  state_->serving = serving;
  server_->GetHealthCheckService()->SetServingStatus(serving);
}
v1::Model& FakeServer::model() { return state_->model; }

void FakeServer::FailNext(const std::string& method, const absl::Status& error, int count) {
  const std::lock_guard lock(state_->mutex);
  for (int i = 0; i < count; ++i) state_->failures[method].push_back(error);
}
void FakeServer::LoseAnswers(const std::string& method, int count) {
  const std::lock_guard lock(state_->mutex);
  state_->lost[method] = count;
}
void FakeServer::BreakStreams(const std::string& method, int messages, int count) {
  const std::lock_guard lock(state_->mutex);
  state_->breaks[method] = {messages, count};
}
void FakeServer::BreakUploads(int64_t bytes, int count) {
  const std::lock_guard lock(state_->mutex);
  state_->breaks["UploadDocument"] = {bytes, count};
}

int FakeServer::calls(const std::string& method) const {
  const std::lock_guard lock(state_->mutex);
  const auto it = state_->calls.find(method);
  return it == state_->calls.end() ? 0 : it->second;
}
std::vector<FakeJob> FakeServer::jobs() const {
  const std::lock_guard lock(state_->mutex);
  return {state_->jobs.begin(), state_->jobs.end()};
}
FakeJob FakeServer::job(const std::string& name) const {
  const std::lock_guard lock(state_->mutex);
  const FakeJob* job = state_->Find(name);
  return job == nullptr ? FakeJob() : *job;
}
v1::CreateJobRequest FakeServer::last_create() const {
  const std::lock_guard lock(state_->mutex);
  return state_->last_create;
}
std::vector<v1::UploadHeader> FakeServer::upload_headers() const {
  const std::lock_guard lock(state_->mutex);
  return state_->headers;
}
int64_t FakeServer::uploaded_bytes() const {
  const std::lock_guard lock(state_->mutex);
  return state_->uploaded_bytes;
}
v1::StreamResultsRequest FakeServer::last_stream() const {
  const std::lock_guard lock(state_->mutex);
  return state_->last_stream;
}
v1::ListJobsRequest FakeServer::last_list() const {
  const std::lock_guard lock(state_->mutex);
  return state_->last_list;
}

std::string FakeServer::AddJob(v1::Job job, std::vector<v1::Document> documents) {
  const std::lock_guard lock(state_->mutex);
  FakeJob& added = state_->jobs.emplace_back();
  added.job = std::move(job);
  if (added.job.name().empty()) added.job.set_name(absl::StrCat("jobs/j", state_->jobs.size()));
  for (v1::Document& document : documents) {
    const auto size = static_cast<int64_t>(document.content().size());
    added.documents.push_back({std::move(document), size, "", true});
  }
  state_->Touch(added);
  return added.job.name();
}

void FakeServer::Finish(const std::string& name, v1::Job::State state, const std::string& reason,
                        const std::string& message) {
  const std::lock_guard lock(state_->mutex);
  FakeJob& job = *state_->Find(name);
  job.job.set_state(state);
  job.job.mutable_status()->set_code(9);
  job.job.mutable_status()->set_reason(reason);
  job.job.mutable_status()->set_message(message);
  state_->Touch(job);
}

bool FakeServer::WaitFor(const std::function<bool(const FakeServer&)>& condition) const {
  for (int i = 0; i < 2'000; ++i) {
    if (condition(*this)) return true;
    absl::SleepFor(absl::Milliseconds(10));
  }
  return false;
}

}  // namespace snapkv::testing
