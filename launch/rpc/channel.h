// SPDX-License-Identifier: Apache-2.0
// How client and workers reach the job server: address, token, TLS; and when they try again.
#pragma once

#include <memory>
#include <random>
#include <string>

#include "CLI/CLI.hpp"
#include "absl/time/time.h"
#include "grpcpp/grpcpp.h"
#include "kernels/base/status.h"

namespace snapkv::launch {

struct ServerAddress {
  std::string server;      // --server HOST:PORT; else SNAPKV_SERVER
  std::string token_file;  // --token-file; else the environment's SNAPKV_TOKEN
  bool tls = false;        // --tls; implied by the files below
  std::string ca;          // --tls-ca: PEM of the authorities to trust; else the system's
  std::string cert, key;   // --tls-cert, --tls-key: PEM, for mutual TLS
};

// Adds --server and the flags above in the group "Server".
void AddServerFlags(CLI::App& app, ServerAddress& address);

// A channel with the token on every call. Connects when it is used. Messages of up to 4 MiB. Errors: no
// server, an unreadable file, a token that is empty or over 4 KB, a token without TLS to another host than
// this one (anybody on the way could read it).
absl::StatusOr<std::shared_ptr<grpc::Channel>> Connect(const ServerAddress& address);

// Waits between attempts: 0.2 s, then twice as much each time, at most 20 s, each with a random factor from
// 0.5 to 1; not less than what the server asked for.
class Backoff {
 public:
  Backoff();
  absl::Duration Next(const absl::Status& error);
  void Reset() { failures_ = 0; }

 private:
  std::mt19937_64 random_;
  int failures_ = 0;
};

// UNAVAILABLE, and RESOURCE_EXHAUSTED with a retry delay.
bool IsRetryable(const absl::Status& error);

}  // namespace snapkv::launch
