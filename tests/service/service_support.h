// SPDX-License-Identifier: Apache-2.0
// A job server in this process, and a scripted worker, for tests.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "grpcpp/grpcpp.h"
#include "runtime/service/server/server.h"
#include "snapkv/v1/jobs.grpc.pb.h"
#include "snapkv/v1/models.grpc.pb.h"
#include "snapkv/v1/summarizer.grpc.pb.h"
#include "snapkv/v1/workers.grpc.pb.h"
#include "tests/support/test_folder.h"

namespace snapkv::testing {

// A server on a free port of this machine, its state in a folder of its own unless told otherwise.
class TestServer {
 public:
  explicit TestServer(service::ServerOptions options = {});
  // Ends it; the state folder stays.
  void Stop() { server_.reset(); }
  // Again, on the same state.
  void Start();

  service::Server& server() { return *server_; }
  const std::string& address() const { return address_; }
  std::shared_ptr<grpc::Channel> Channel() const;
  const service::ServerOptions& options() const { return options_; }

 private:
  const TestFolder folder_;
  service::ServerOptions options_;
  std::unique_ptr<service::Server> server_;
  std::string address_;
};

// A call's context that gives up after `seconds`, with a token if there is one.
std::unique_ptr<grpc::ClientContext> Context(double seconds = 20, const std::string& token = "");

// The reason an error carries: the same in details and in the trailing metadata of its context, or a failure.
std::string ReasonIn(const grpc::Status& status, const grpc::ClientContext& context);

v1::CreateJobRequest JobOf(const std::vector<std::pair<std::string, std::string>>& documents);

// Takes leases as a worker would, without computing.
class ScriptedWorker {
 public:
  explicit ScriptedWorker(const std::shared_ptr<grpc::Channel>& channel,
                          const std::string& model = "models/smollm2", const std::string& host = "host:1");
  const std::string& name() const { return worker_.name(); }
  const v1::Worker& worker() const { return worker_; }
  std::vector<v1::Lease> Acquire(int count, double wait_s = 0);
  // The whole document.
  grpc::Status Read(const v1::Lease& lease, std::string& text);
  grpc::Status Complete(const v1::Lease& lease, const std::string& summary);
  grpc::Status Fail(const v1::Lease& lease, const std::string& reason, bool retry);
  grpc::Status Renew(const std::vector<v1::Lease>& leases, v1::RenewLeaseResponse& response);
  v1::Workers::Stub& stub() { return *stub_; }

 private:
  std::unique_ptr<v1::Workers::Stub> stub_;
  v1::Worker worker_;
};

// All results of a job, by document; a document that comes twice, or a gap in the sequence, is a failure.
std::map<std::string, v1::Result> ResultsOf(v1::Jobs::Stub& jobs, const std::string& job,
                                            bool follow = false);

}  // namespace snapkv::testing
