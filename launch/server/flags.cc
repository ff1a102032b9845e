// SPDX-License-Identifier: Apache-2.0
// Flags by CLI11: groups, defaults, checks.
#include "launch/server/flags.h"

#include <CLI/CLI.hpp>
#include <cstdio>

#include "absl/strings/numbers.h"
#include "launch/exit_codes.h"

#ifndef SNAPKV_VERSION
#error "SNAPKV_VERSION comes from CMake"
#endif

namespace snapkv::launch {
namespace {

// A number of bytes with K, M or G.
CLI::Option* AddBytes(CLI::App& app, const char* name, int64_t& bytes, const char* text,
                      int64_t most = INT64_MAX) {
  return app.add_option(name, bytes, text)
      ->transform(CLI::AsSizeValue(false))
      ->check(CLI::Range(int64_t{1}, most))
      ->capture_default_str()
      ->type_name("BYTES")
      ->group("Limits");
}

CLI::Option* AddCount(CLI::App& app, const char* name, int64_t& count, const char* text, int64_t least = 1) {
  return app.add_option(name, count, text)
      ->check(CLI::Range(least, int64_t{1'000'000'000}))
      ->capture_default_str()
      ->type_name("N")
      ->group("Limits");
}

// CLI::Range lets NaN pass.
auto RealRange(double least, double most) {
  return [least, most](const std::string& value) {
    double number = 0;
    if (CLI::detail::lexical_cast(value, number) && number >= least && number <= most) return std::string();
    return absl::StrCat("'", value, "' is not a number from ", least, " to ", most);
  };
}

// gRPC would take 443 for a missing port and wrap one that is too large.
std::string IsAddress(const std::string& value) {
  if (value.starts_with("unix:")) return "";
  const size_t colon = value.rfind(':');
  int port = 0;
  if (colon != std::string::npos && colon > 0 && absl::SimpleAtoi(value.substr(colon + 1), &port) &&
      port >= 0 && port <= 65'535)
    return "";
  return "'" + value + "' is not HOST:PORT with a port from 0 to 65535";
}

// Seconds, kept as a duration.
CLI::Option* AddSeconds(CLI::App& app, const char* name, absl::Duration& duration, const char* text,
                        double least, double most) {
  return app
      .add_option_function<double>(
          name, [&duration](double seconds) { duration = absl::Seconds(seconds); }, text)
      ->check(RealRange(least, most))
      ->default_str(absl::StrCat(absl::ToDoubleSeconds(duration)))
      ->type_name("S")
      ->group("Limits");
}

void AddLimits(CLI::App& app, service::ServerOptions& o) {
  AddBytes(app, "--max-message-bytes", o.limits.max_message_bytes, "Largest message of a call", 64 << 20);
  AddBytes(app, "--max-chunk-bytes", o.limits.max_chunk_bytes, "Largest chunk of an upload", 4 << 20);
  AddBytes(app, "--max-inline-bytes", o.limits.max_inline_bytes, "Documents inside one CreateJob, together",
           64 << 20);
  AddBytes(app, "--max-document-bytes", o.store.max_document_bytes, "Largest document", int64_t{1} << 40);
  AddBytes(app, "--max-job-bytes", o.store.max_job_bytes, "All documents of a job", int64_t{1} << 50);
  AddCount(app, "--max-job-documents", o.store.max_job_documents, "Documents of a job");
  AddCount(app, "--max-queued-jobs", o.store.max_queued_jobs, "Jobs that have not ended, of all tenants");
  AddCount(app, "--max-tenant-jobs", o.store.max_tenant_jobs,
           "The same of one tenant; 0: no limit of its own", 0);
  AddCount(app, "--max-streams", o.limits.max_streams, "Open streams of watchers and readers of results");
  AddCount(app, "--max-interactive", o.limits.max_interactive,
           "Documents of Summarize that wait or are worked on");
  app.add_option("--max-attempts", o.store.max_attempts,
                 "A document whose workers were lost so often fails with ATTEMPTS_EXHAUSTED")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str()
      ->type_name("N")
      ->group("Limits");
  AddSeconds(app, "--lease", o.store.lease,
             "A worker that has not renewed for so long has lost its documents", 0.5, 86'400);
  AddSeconds(app, "--job-ttl", o.store.job_ttl, "Jobs that are not sealed or begun after it expire", 1, 1e9);
  AddSeconds(app, "--retention", o.store.retention, "Ended jobs are kept so long", 1, 1e9);
  AddSeconds(app, "--request-id-ttl", o.store.request_id_ttl, "A request_id is remembered so long", 1, 1e9);
  AddSeconds(app, "--aging", o.store.aging, "Waiting so long raises a job's priority by 1", 0.1, 1e9);
  AddSeconds(app, "--heartbeat", o.limits.heartbeat, "Silent streams get a sign of life so often", 0.1, 3600);
  AddSeconds(app, "--drain-timeout", o.drain_timeout, "After SIGTERM workers have so long to hand in results",
             0, 86'400);
}

}  // namespace

std::optional<int> ParseServerFlags(int argc, const char* const* argv, ServerFlags& flags) {
  service::ServerOptions& o = flags.options;
  o.version = SNAPKV_VERSION;
  o.listen = {"127.0.0.1:7411"};
  CLI::App app{
      "Job server: keeps jobs and documents in a durable queue, gives them to workers\n"
      "(snapkv-prefill --server), and keeps the results. See docs/service.md.",
      "snapkv-server"};
  app.set_version_flag("--version", "snapkv-server " SNAPKV_VERSION);
  std::string log_format = "text";
  int metrics_port = 0;
  std::string metrics_address;
  app.add_option("--state", o.state, "Folder of the queue; created when it is missing")
      ->required()
      ->type_name("DIR")
      ->group("Server");
  app.add_option("--listen", o.listen, "Address to serve; repeatable; port 0 takes a free one")
      ->check(IsAddress)
      ->capture_default_str()
      ->type_name("HOST:PORT")
      ->group("Server");
  app.add_option("--default-model", o.default_model,
                 "Model of jobs that name none while several or none are known")
      ->capture_default_str()
      ->type_name("models/NAME")
      ->group("Server");
  CLI::Option* port = app.add_option("--metrics-port", metrics_port,
                                     "Serve Prometheus metrics at http://127.0.0.1:PORT/metrics")
                          ->check(CLI::Range(1, 65'535))
                          ->type_name("PORT")
                          ->group("Server");
  app.add_option("--metrics-address", metrics_address, "The same on another address than 127.0.0.1")
      ->check(IsAddress)
      ->excludes(port)
      ->type_name("HOST:PORT")
      ->group("Server");
  app.add_option("--log-format", log_format, "One event a line on stderr, as text or as JSON")
      ->check(CLI::IsMember({"text", "json"}))
      ->capture_default_str()
      ->group("Server");
  app.add_option("--token-file", o.token_file,
                 "Lines of 'tenant token'; tenant 'workers' is for workers; read again on SIGHUP")
      ->type_name("FILE")
      ->group("Security");
  app.add_option("--tls-cert", o.tls_cert, "PEM file of the server's certificate chain")
      ->type_name("FILE")
      ->group("Security");
  app.add_option("--tls-key", o.tls_key, "PEM file of its key")->type_name("FILE")->group("Security");
  app.add_option("--tls-client-ca", o.tls_client_ca,
                 "PEM file of authorities; clients must show a certificate of theirs (mutual TLS)")
      ->type_name("FILE")
      ->group("Security");
  app.add_flag("--insecure", o.insecure, "Listen beyond this machine without tokens")->group("Security");
  AddLimits(app, o);
  app.footer(
      "Exit codes: 0 ended after SIGTERM or SIGINT, 2 usage, 3 a file cannot be read, 7 anything else, such "
      "as\n"
      "an address or a state folder that is in use.");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    const bool said = error.get_exit_code() == 0;
    if (said) return app.exit(error);
    std::fprintf(stderr, "snapkv-server: error: %s\nsnapkv-server --help lists all flags\n", error.what());
    return kExitUsage;
  }
  if (metrics_port != 0) o.metrics_address = absl::StrCat("127.0.0.1:", metrics_port);
  if (!metrics_address.empty()) o.metrics_address = metrics_address;
  flags.json_log = log_format == "json";
  return std::nullopt;
}

}  // namespace snapkv::launch
