// SPDX-License-Identifier: Apache-2.0
// Server: the job server as a whole; store, services, health, reflection and the clock that drives them.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "runtime/service/server/context.h"

namespace snapkv::service {

struct ServerOptions {
  std::string version;              // of the program
  std::string state;                // folder
  std::vector<std::string> listen;  // HOST:PORT; port 0 takes a free one
  std::string token_file;           // see Tenants; "": no tokens
  bool insecure = false;            // may listen beyond this machine without tokens
  // PEM files; both or none.
  std::string tls_cert, tls_key;
  std::string tls_client_ca;    // clients must show a certificate of these authorities
  std::string metrics_address;  // HOST:PORT of the Prometheus exposition; "": none
  std::string default_model = "models/smollm2";
  StoreLimits store;
  ServiceLimits limits;
  absl::Duration drain_timeout = absl::Seconds(30);
};

class Server {
 public:
  // Opens the state folder and serves when it returns. Errors name the flag: an address that is in use, that
  // is not this machine's without a token (FAILED_PRECONDITION), files that cannot be read.
  static absl::StatusOr<std::unique_ptr<Server>> Start(const ServerOptions& options);
  virtual ~Server() = default;

  // Of each listen address, as bound.
  virtual const std::vector<int>& ports() const = 0;
  // On SIGHUP.
  virtual absl::Status ReloadTokens() = 0;
  // Takes no more jobs, tells the workers, waits until they have handed in or handed back what they hold, at
  // most drain_timeout. Health says NOT_SERVING. What is still leased then stays leased on disk, for the next
  // server.
  virtual void Drain() = 0;
  // Makes a Drain that waits return.
  virtual void HurryUp() = 0;
};

}  // namespace snapkv::service
