// SPDX-License-Identifier: Apache-2.0
// The token file.
#include "runtime/service/server/tenants.h"

#include <algorithm>
#include <fstream>
#include <sstream>

#include "absl/strings/ascii.h"
#include "runtime/hash/sha256.h"

namespace snapkv::service {
namespace {

constexpr size_t kMaxTokenBytes = 4096;
constexpr char kDefaultTenant[] = "default";
constexpr char kScheme[] = "bearer ";

// Takes the same time wherever they differ.
bool SameDigest(const std::array<uint8_t, 32>& a, const std::array<uint8_t, 32>& b) {
  uint8_t difference = 0;
  for (size_t i = 0; i < a.size(); ++i) difference = static_cast<uint8_t>(difference | (a[i] ^ b[i]));
  return difference == 0;
}

bool IsName(const std::string& tenant) {
  return tenant.size() <= 64 && std::all_of(tenant.begin(), tenant.end(), [](unsigned char c) {
           return absl::ascii_isalnum(c) || c == '_' || c == '-' || c == '.';
         });
}

}  // namespace

absl::StatusOr<std::unique_ptr<Tenants>> Tenants::Open(const std::string& path) {
  std::unique_ptr<Tenants> tenants(new Tenants(path));
  if (!path.empty()) RETURN_IF_ERROR(tenants->Reload());
  return tenants;
}

absl::Status Tenants::Reload() {
  if (open()) return absl::OkStatus();
  ASSIGN_OR_RETURN(Entries read, Read(path_));
  const std::lock_guard lock(mutex_);
  entries_ = std::make_shared<const Entries>(std::move(read));
  return absl::OkStatus();
}

absl::StatusOr<Tenants::Entries> Tenants::Read(const std::string& path) {
  std::ifstream in(path);
  if (!in) return NotFound("--token-file: cannot read ", path);
  Entries entries;
  int number = 0;
  for (std::string line; std::getline(in, line);) {
    ++number;
    absl::StripAsciiWhitespace(&line);
    if (line.empty() || line[0] == '#') continue;
    std::istringstream words(line);
    std::string tenant, token, more;
    words >> tenant >> token >> more;
    const std::string where = absl::StrCat("--token-file ", path, ", line ", number, ": ");
    if (token.empty() || !more.empty()) return InvalidArgument(where, "expected 'tenant token'");
    if (!IsName(tenant))
      return InvalidArgument(where, "a tenant is up to 64 letters, digits, '_', '-' and '.'");
    if (token.size() > kMaxTokenBytes)
      return InvalidArgument(where, "the token has ", token.size(), " bytes, ", kMaxTokenBytes,
                             " are allowed");
    entries.push_back({tenant, runtime::Sha256(token)});
  }
  if (in.bad()) return NotFound("--token-file: cannot read ", path);
  if (entries.empty()) return InvalidArgument("--token-file ", path, " has no 'tenant token' line");
  return entries;
}

std::shared_ptr<const Tenants::Entries> Tenants::entries() const {
  const std::lock_guard lock(mutex_);
  return entries_;
}

bool Tenants::has_workers() const {
  if (open()) return true;
  const auto list = entries();
  return std::any_of(list->begin(), list->end(),
                     [](const Entry& entry) { return entry.tenant == kWorkerTenant; });
}

absl::StatusOr<std::string> Tenants::Authenticate(const grpc::ServerContextBase& context) const {
  if (open()) return kDefaultTenant;
  const auto& metadata = context.client_metadata();
  const auto header = metadata.find("authorization");
  if (header == metadata.end()) {
    return ServiceError(Reason::kTokenMissing,
                        "this server needs a token: send 'authorization: Bearer TOKEN' (snapkv: "
                        "--token-file or SNAPKV_TOKEN)");
  }
  std::string value(header->second.data(), header->second.size());
  const std::string scheme = absl::AsciiStrToLower(value.substr(0, sizeof(kScheme) - 1));
  if (scheme != kScheme)
    return ServiceError(Reason::kTokenInvalid, "authorization is not of the form 'Bearer TOKEN'");
  value.erase(0, scheme.size());
  if (value.size() > kMaxTokenBytes)
    return ServiceError(Reason::kTokenInvalid, "the token has more than ", kMaxTokenBytes, " bytes");
  const auto digest = runtime::Sha256(value);
  const auto list = entries();
  const Entry* found = nullptr;
  for (const Entry& entry : *list) {  // all of them: the time does not tell which one it was
    if (SameDigest(entry.token_sha256, digest)) found = &entry;
  }
  if (found == nullptr) return ServiceError(Reason::kTokenInvalid, "the server does not know this token");
  return found->tenant;
}

absl::Status Tenants::AuthenticateWorker(const grpc::ServerContextBase& context) const {
  ASSIGN_OR_RETURN(const std::string tenant, Authenticate(context));
  if (open() || tenant == kWorkerTenant) return absl::OkStatus();
  return ServiceError(Reason::kTokenInvalid,
                      "workers see the documents of all tenants: use a token of tenant '", kWorkerTenant,
                      "', this one is of '", tenant, "'");
}

}  // namespace snapkv::service
