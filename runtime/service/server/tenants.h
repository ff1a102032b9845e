// SPDX-License-Identifier: Apache-2.0
// Tenants: who a call comes from, by its bearer token.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "grpcpp/grpcpp.h"
#include "runtime/service/reason.h"

namespace snapkv::service {

// The tenant whose token lets a process work as a worker: workers see the documents of all tenants.
inline constexpr char kWorkerTenant[] = "workers";

// Thread-safe.
class Tenants {
 public:
  // Lines of `tenant token`; empty lines and lines that begin with # do not count. A tenant may have several
  // tokens. No path: every caller is the tenant "default" and may be a worker. Errors name the line.
  static absl::StatusOr<std::unique_ptr<Tenants>> Open(const std::string& path);

  // Reads the file again; after an error what was there stays.
  absl::Status Reload();

  // The tenant of a call: TOKEN_MISSING, TOKEN_INVALID.
  absl::StatusOr<std::string> Authenticate(const grpc::ServerContextBase& context) const;
  // For the calls of workers: TOKEN_INVALID for another tenant.
  absl::Status AuthenticateWorker(const grpc::ServerContextBase& context) const;

  // Any token will do.
  bool open() const { return path_.empty(); }
  // Some token may be used by workers.
  bool has_workers() const;

 private:
  struct Entry {
    std::string tenant;
    std::array<uint8_t, 32> token_sha256;
  };
  using Entries = std::vector<Entry>;

  explicit Tenants(std::string path) : path_(std::move(path)) {}
  static absl::StatusOr<Entries> Read(const std::string& path);
  std::shared_ptr<const Entries> entries() const;

  const std::string path_;
  mutable std::mutex mutex_;
  std::shared_ptr<const Entries> entries_;  // guarded by mutex_
};

}  // namespace snapkv::service
