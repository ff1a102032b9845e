// SPDX-License-Identifier: Apache-2.0
// Channels to the job server.
#include "launch/rpc/channel.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "runtime/service/reason.h"

namespace snapkv::launch {
namespace {

constexpr int kMaxMessageBytes = 4 << 20;
constexpr size_t kMaxTokenBytes = 4096;
constexpr absl::Duration kFirstWait = absl::Milliseconds(200);
constexpr absl::Duration kLongestWait = absl::Seconds(20);

absl::StatusOr<std::string> ReadFile(const std::string& path, const char* flag) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  if (in) text << in.rdbuf();
  if (!in) return NotFound(flag, ": cannot read ", path);
  return std::move(text).str();
}

absl::StatusOr<std::string> ReadToken(const ServerAddress& address) {
  std::string token;
  if (!address.token_file.empty()) {
    ASSIGN_OR_RETURN(token, ReadFile(address.token_file, "--token-file"));
  } else if (const char* variable = std::getenv("SNAPKV_TOKEN"); variable != nullptr) {
    token = variable;
  } else {
    return "";
  }
  absl::StripAsciiWhitespace(&token);
  if (token.empty()) return InvalidArgument("--token-file or SNAPKV_TOKEN: the token is empty");
  if (token.size() > kMaxTokenBytes)
    return InvalidArgument("--token-file or SNAPKV_TOKEN: the token has ", token.size(), " bytes, ",
                           kMaxTokenBytes, " are allowed");
  for (const char c : token) {
    if (!absl::ascii_isgraph(static_cast<unsigned char>(c)))
      return InvalidArgument("--token-file or SNAPKV_TOKEN: a token is one word of printable ASCII");
  }
  return token;
}

bool IsLoopback(const std::string& server) {
  return server.starts_with("127.") || server.starts_with("localhost:") || server.starts_with("[::1]:") ||
         server.starts_with("unix:");
}

// gRPC would wrap a port that is too large.
absl::Status CheckAddress(const std::string& server) {
  if (server.starts_with("unix:")) return absl::OkStatus();
  const size_t colon = server.rfind(':');
  int port = 0;
  if (colon == std::string::npos || colon == 0 || server.find('/') != std::string::npos ||
      !absl::SimpleAtoi(server.substr(colon + 1), &port) || port < 1 || port > 65'535)
    return InvalidArgument("--server '", server,
                           "': give HOST:PORT with a port from 1 to 65535, without http://");
  return absl::OkStatus();
}

// Puts the token on every call, also where there is no TLS, which gRPC's own credentials refuse.
class TokenInterceptor final : public grpc::experimental::Interceptor {
 public:
  explicit TokenInterceptor(const std::string& header) : header_(header) {}
  void Intercept(grpc::experimental::InterceptorBatchMethods* methods) override {
    using grpc::experimental::InterceptionHookPoints;
    if (methods->QueryInterceptionHookPoint(InterceptionHookPoints::PRE_SEND_INITIAL_METADATA))
      methods->GetSendInitialMetadata()->insert({"authorization", header_});
    methods->Proceed();
  }

 private:
  const std::string& header_;
};

class TokenInterceptorFactory final : public grpc::experimental::ClientInterceptorFactoryInterface {
 public:
  explicit TokenInterceptorFactory(const std::string& token) : header_("Bearer " + token) {}
  grpc::experimental::Interceptor* CreateClientInterceptor(grpc::experimental::ClientRpcInfo*) override {
    return new TokenInterceptor(header_);
  }

 private:
  const std::string header_;
};

absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> MakeCredentials(const ServerAddress& address) {
  if (address.cert.empty() != address.key.empty())
    return InvalidArgument("--tls-cert and --tls-key belong together: give both");
  if (!address.tls && address.ca.empty() && address.cert.empty()) return grpc::InsecureChannelCredentials();
  grpc::SslCredentialsOptions options;
  if (!address.ca.empty()) {
    ASSIGN_OR_RETURN(options.pem_root_certs, ReadFile(address.ca, "--tls-ca"));
  }
  if (!address.cert.empty()) {
    ASSIGN_OR_RETURN(options.pem_cert_chain, ReadFile(address.cert, "--tls-cert"));
    ASSIGN_OR_RETURN(options.pem_private_key, ReadFile(address.key, "--tls-key"));
  }
  return grpc::SslCredentials(options);
}

}  // namespace

void AddServerFlags(CLI::App& app, ServerAddress& address) {
  const std::string group = "Server";
  app.add_option("--server", address.server, "Job server, HOST:PORT")
      ->envname("SNAPKV_SERVER")
      ->type_name("HOST:PORT")
      ->group(group);
  app.add_option("--token-file", address.token_file,
                 "File with the bearer token (default: the environment's SNAPKV_TOKEN)")
      ->group(group);
  app.add_flag("--tls", address.tls, "Encrypt; trusts the system's authorities unless --tls-ca is given")
      ->group(group);
  app.add_option("--tls-ca", address.ca, "PEM file of the authorities to trust")->group(group);
  app.add_option("--tls-cert", address.cert, "PEM file of this side's certificate (mutual TLS)")
      ->group(group);
  app.add_option("--tls-key", address.key, "PEM file of its key")->group(group);
}

absl::StatusOr<std::shared_ptr<grpc::Channel>> Connect(const ServerAddress& address) {
  if (address.server.empty()) return InvalidArgument("--server HOST:PORT (or SNAPKV_SERVER) is missing");
  RETURN_IF_ERROR(CheckAddress(address.server));
  ASSIGN_OR_RETURN(const std::string token, ReadToken(address));
  ASSIGN_OR_RETURN(const auto credentials, MakeCredentials(address));
  const bool plain = !address.tls && address.ca.empty() && address.cert.empty();
  if (plain && !token.empty() && !IsLoopback(address.server))
    return InvalidArgument("--server ", address.server,
                           ": a token would travel in clear text; use --tls or --tls-ca");
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(kMaxMessageBytes);
  arguments.SetMaxSendMessageSize(kMaxMessageBytes);
  // A dead server is noticed within 30 s even while nothing is sent.
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, 20'000);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 10'000);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  // Our own back-off decides; the channel must not be slower than it.
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 200);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 2'000);
  std::vector<std::unique_ptr<grpc::experimental::ClientInterceptorFactoryInterface>> interceptors;
  if (!token.empty()) interceptors.push_back(std::make_unique<TokenInterceptorFactory>(token));
  return grpc::experimental::CreateCustomChannelWithInterceptors(address.server, credentials, arguments,
                                                                 std::move(interceptors));
}

Backoff::Backoff() : random_(std::random_device{}()) {}

absl::Duration Backoff::Next(const absl::Status& error) {
  const absl::Duration full = std::min(kLongestWait, kFirstWait * (int64_t{1} << std::min(failures_, 10)));
  ++failures_;
  const absl::Duration jittered = full * std::uniform_real_distribution<double>(0.5, 1.0)(random_);
  return std::max(jittered, service::RetryDelayOf(error).value_or(absl::ZeroDuration()));
}

bool IsRetryable(const absl::Status& error) {
  return absl::IsUnavailable(error) ||
         (absl::IsResourceExhausted(error) && service::RetryDelayOf(error).has_value());
}

}  // namespace snapkv::launch
