// SPDX-License-Identifier: Apache-2.0
// Subcommands and their flags by CLI11.
#include "launch/client/client_flags.h"

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <utility>

#include "absl/strings/str_join.h"
#include "launch/client/text.h"
#include "launch/exit_codes.h"
#include "launch/flag_types.h"
#include "launch/output/output_files.h"
#include "launch/param_flags.h"

#ifndef SNAPKV_VERSION
#error "SNAPKV_VERSION comes from CMake"
#endif

namespace snapkv::launch {
namespace {

constexpr char kJobGroup[] = "Job";
constexpr char kInputGroup[] = "Input";
constexpr char kOutputGroup[] = "Output";

// A subcommand and what its flags write to. The values are CLI11's until Collect.
struct Command {
  CLI::App* app = nullptr;
  ClientFlags flags;
  double timeout_s = 30, connect_timeout_s = 30;
  std::string model, display_name, state;
  int64_t capacity = 0, window = 0, kernel = 0;
  v1::Overflow overflow = v1::OVERFLOW_UNSPECIFIED;
  std::vector<std::string> labels;

  bool given(const char* name) const {
    const CLI::Option* const option = app->get_option_no_throw(name);
    return option != nullptr && option->count() > 0;
  }
};

// Checks of one value, see flag_types.h.
std::string IsRequestId(const std::string& value) {
  constexpr char kAllowed[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._:-";
  const bool good =
      !value.empty() && value.size() <= 128 && value.find_first_not_of(kAllowed) == std::string::npos;
  return good ? "" : "must be 1 to 128 of A-Z a-z 0-9 . _ : -";
}

std::string IsLabel(const std::string& value) {
  const size_t equals = value.find('=');
  if (equals == std::string::npos || equals == 0) return "'" + Printable(value, 80) + "' is not KEY=VALUE";
  return IsUtf8(value);
}

std::string IsResourceName(const std::string& value) {
  constexpr char kAllowed[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._:-/";
  const bool good =
      !value.empty() && value.size() <= 256 && value.find_first_not_of(kAllowed) == std::string::npos;
  return good ? "" : "'" + Printable(value, 80) + "' is no name; names look like jobs/abc or models/smollm2";
}

std::string IsState(const std::string& value) {
  v1::Job::State state;
  if (v1::Job::State_Parse(value, &state) && state != v1::Job::STATE_UNSPECIFIED) return "";
  return "'" + Printable(value, 80) +
         "' is not one of UPLOADING, QUEUED, RUNNING, CANCELLING, SUCCEEDED, FAILED, CANCELLED, EXPIRED";
}

void AddCommonFlags(Command& c) {
  AddServerFlags(*c.app, c.flags.session.address);
  c.app->add_option("--timeout", c.timeout_s, "seconds that the server may take for one answer")
      ->check(RealRange(0.01, 1e6))
      ->capture_default_str()
      ->group("Server");
  c.app
      ->add_option("--connect-timeout", c.connect_timeout_s,
                   "seconds to try to reach the server; given, it also holds while waiting for a job, "
                   "which else goes on for ever")
      ->check(RealRange(0, 1e6))
      ->capture_default_str()
      ->group("Server");
  c.app->add_flag("--json", c.flags.json, "JSON on stdout, an object a line")->group(kOutputGroup);
  AddProgressFlag(*c.app, kOutputGroup, c.flags.progress);
  c.app->add_flag("--quiet", c.flags.quiet, "no progress and no notes on stderr, only warnings and errors")
      ->group(kOutputGroup);
}

void AddJobFlags(Command& c) {
  const std::string group = kJobGroup;
  c.app->add_option("--model", c.model, "model of the job (default: the server's, if it has exactly one)")
      ->check(IsResourceName)
      ->group(group);
  c.app
      ->add_option(
          "--priority",
          [&c](const CLI::results_t& values) {
            int32_t priority = 0;
            if (!CLI::detail::lexical_cast(values[0], priority)) return false;
            c.flags.job.set_priority(priority);
            return true;
          },
          "-100 to 100; higher goes first")
      ->check(CLI::Range(-100, 100))
      ->type_name("INT")
      ->group(group);
  AddTexts(*c.app, "--label", c.labels, "KEY=VALUE, for you to find the job by; repeatable")
      ->check(IsLabel)
      ->type_name("KEY=VALUE")
      ->group(group);
  c.app->add_option("--display-name", c.display_name, "for people")->check(IsUtf8)->group(group);
  c.app->add_option("--upload-parallel", c.flags.parallel, "documents that are sent at the same time")
      ->check(CLI::Range(1, 64))
      ->capture_default_str()
      ->group(group);
}

void AddParameterFlags(Command& c) {
  const std::string group = "Parameters (default: the worker's)";
  DocumentParams& p = c.flags.params;
  c.app->add_option("--prompt", p.prompt, "the question; it stands after the document")
      ->check(IsUtf8)
      ->group(group);
  c.app->add_option("--system", p.system, "system message")->check(IsUtf8)->group(group);
  AddSamplingFlags(*c.app, group, p, /*show_defaults=*/false);
  AddStopFlags(*c.app, group, p);
  c.app->add_option("--capacity", c.capacity, "cache rows kept per layer and KV head, window included")
      ->check(CLI::Range(int64_t{1}, int64_t{INT32_MAX}))
      ->group(group);
  c.app->add_option("--window", c.window, "prompt tokens at the end that observe the rest")
      ->check(CLI::Range(int64_t{1}, int64_t{INT32_MAX}))
      ->group(group);
  c.app->add_option("--kernel", c.kernel, "pooling width, odd")->check(CLI::Range(1, 1 << 20))->group(group);
  AddChoice(*c.app, group, "--overflow", c.overflow,
            "a document over the context is an error, or its middle is left out",
            {{"error", v1::OVERFLOW_ERROR}, {"middle", v1::OVERFLOW_MIDDLE}});
}

void AddInputFlags(Command& c) {
  AddInputFormatFlag(*c.app, kInputGroup, c.flags.input_format);
  AddEncodingFlag(*c.app, kInputGroup, c.flags.encoding);
  AddInputLimitFlags(*c.app, kInputGroup, c.flags.max_document_bytes, c.flags.max_line_bytes);
}

void AddOutputFlag(Command& c, const std::string& names, const std::string& help) {
  c.app->add_option(names, c.flags.output, help)->check(NotEmpty)->group(kOutputGroup);
  c.app->add_flag("--force", c.flags.force, "overwrite an existing file")->group(kOutputGroup);
  c.app->add_flag("--return-token-ids", c.flags.return_token_ids, "add token_ids to the records")
      ->group(kOutputGroup);
}

void AddName(Command& c) {
  c.app->add_option("NAME", c.flags.name, "the job: jobs/JOB, or JOB alone")
      ->required()
      ->check(IsResourceName);
}

void AddSubmit(Command& c) {
  c.app->add_option("INPUT", c.flags.inputs, "text files, JSONL files, folders, patterns, - for stdin")
      ->check(NotEmpty);
  AddInputFlags(c);
  AddParameterFlags(c);
  AddJobFlags(c);
  c.app
      ->add_option("--request-id", c.flags.request_id,
                   "a call with the same id and content gives the same job (default: a new one, printed)")
      ->check(IsRequestId)
      ->group(kJobGroup);
  c.app
      ->add_option("--resume-job", c.flags.resume_job,
                   "go on with a job whose upload was cut short; its parameters stay as they are")
      ->check(IsResourceName)
      ->group(kJobGroup);
  c.app->add_flag("--wait", c.flags.wait, "wait for the job and write its records")->group(kOutputGroup);
  AddOutputFlag(c, "-o,--output", "file for the records of --wait; - is stdout");
}

void AddBatch(Command& c) {
  c.flags.input_format = InputFormat::kJsonl;
  AddTexts(*c.app, "-i,--input", c.flags.inputs,
           "JSONL file: OpenAI batch lines or {\"id\", \"text\"}; - for stdin; repeatable")
      ->group(kInputGroup);
  AddInputFlags(c);
  AddParameterFlags(c);
  AddJobFlags(c);
  AddOutputFlag(c, "-o,--output", "file for the records; - is stdout");
  c.app->add_flag("--resume", c.flags.resume, "go on with an existing --output")->group(kOutputGroup);
  c.app->add_flag("--retry-errors", c.flags.retry_errors, "with --resume: do the documents again that failed")
      ->group(kOutputGroup);
  c.app->add_flag("--ordered", c.flags.ordered, "records in the order of the input")->group(kOutputGroup);
  c.app->add_flag("--strict", c.flags.strict, "the first bad line or document ends the batch (exit code 7)")
      ->group(kInputGroup);
  c.app->add_flag("--dry-run", c.flags.dry_run, "check the input, send nothing; needs no server")
      ->group(kInputGroup);
}

void AddList(Command& c) {
  c.app->add_option("--state", c.state, "only jobs in this state")->check(IsState)->group("Jobs");
  c.app
      ->add_option("--filter", c.flags.filter,
                   "terms joined by ' AND ': model = \"models/m\", display_name = \"n\", labels.KEY = \"v\"")
      ->check(NotEmpty)
      ->group("Jobs");
  c.app->add_option("--page-size", c.flags.page_size, "jobs per call")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str()
      ->group("Jobs");
  c.app->add_flag("--all", c.flags.all, "all pages, not only the first")->group("Jobs");
}

struct Entry {
  const char* name;
  const char* help;
  void (*add)(Command&);
};

const Entry kCommands[] = {
    {"submit", "Submits documents as one job.", AddSubmit},
    {"batch", "Sends a JSONL file through the server and writes a record for each line; can be resumed.",
     AddBatch},
    {"status", "Shows a job.", AddName},
    {"watch", "Shows the progress of a job until it has ended.", AddName},
    {"results", "Writes the records of a job.",
     [](Command& c) {
       AddName(c);
       AddOutputFlag(c, "-o,--output", "file for the records; - is stdout");
       c.app->add_flag("--follow", c.flags.follow, "go on until the job has ended")->group(kOutputGroup);
       c.app->add_option("--after", c.flags.after, "only results behind this sequence number")
           ->check(CLI::Range(int64_t{0}, INT64_MAX))
           ->group(kOutputGroup);
     }},
    {"cancel", "Cancels a job; results that are there stay.",
     [](Command& c) {
       AddName(c);
       c.app->add_option("--reason", c.flags.reason, "for people")->check(IsUtf8)->group(kJobGroup);
     }},
    {"delete", "Deletes a job that has ended, with its results.", AddName},
    {"list", "Lists jobs, newest first.", AddList},
    {"models", "Lists models and their workers.", [](Command&) {}},
    {"health", "Asks whether the server is serving; exit code 0 only then.",
     [](Command& c) {
       c.app->add_option("--service", c.flags.service, "one service of the server, e.g. snapkv.v1.Jobs")
           ->check(NotEmpty)
           ->group("Server");
     }},
};

void CollectParameters(const Command& c, v1::Parameters& out) {
  const DocumentParams& p = c.flags.params;
  if (c.given("--prompt")) out.set_prompt(p.prompt);
  if (c.given("--system")) out.set_system(p.system);
  if (c.given("--max-tokens")) out.set_max_tokens(p.max_tokens);
  if (c.given("--temperature")) out.set_temperature(p.temperature);
  if (c.given("--top-k")) out.set_top_k(p.top_k);
  if (c.given("--top-p")) out.set_top_p(p.top_p);
  if (c.given("--min-p")) out.set_min_p(p.min_p);
  if (c.given("--repeat-penalty")) out.set_repeat_penalty(p.repeat_penalty);
  if (c.given("--seed")) out.set_seed(p.seed);
  for (const std::string& stop : p.stops) out.add_stop(stop);
  for (const int32_t id : p.stop_token_ids) out.add_stop_token_ids(id);
  if (c.given("--capacity")) out.set_capacity(c.capacity);
  if (c.given("--window")) out.set_window(c.window);
  if (c.given("--kernel")) out.set_kernel(c.kernel);
  out.set_overflow(c.overflow);
}

absl::Status CheckOutputFlags(const ClientFlags& f) {
  if (f.force && f.output.empty()) return InvalidArgument("--force has no meaning without --output");
  if (f.resume && f.force)
    return InvalidArgument("--resume goes on with --output, --force overwrites it: choose one");
  if (f.resume && f.to_stdout()) return InvalidArgument("--resume needs the --output FILE to go on with");
  if (f.retry_errors && !f.resume) return InvalidArgument("--retry-errors has no meaning without --resume");
  if (f.command == "submit" && !f.wait && !f.output.empty())
    return InvalidArgument("--output has no meaning without --wait; `snapkv results` fetches records later");
  return absl::OkStatus();
}

// From CLI11's values to flags; what no single flag can know.
absl::Status Collect(Command& c) {
  ClientFlags& f = c.flags;
  f.command = c.app->get_name();
  f.session.call_timeout = absl::Seconds(c.timeout_s);
  f.session.connect_timeout = absl::Seconds(c.connect_timeout_s);
  f.session.bounded_waits = c.given("--connect-timeout");
  const bool submits = f.command == "submit" || f.command == "batch";
  if (submits) {
    f.inputs = c.app->get_option(f.command == "submit" ? "INPUT" : "--input")->results();
    f.params.stops = c.app->get_option("--stop")->results();
    c.labels = c.app->get_option("--label")->results();
    if (f.inputs.empty()) {
      return f.command == "submit"
                 ? InvalidArgument("submit: name files, folders or patterns, or - for stdin")
                 : InvalidArgument("--input FILE is required (- for stdin)");
    }
    if (c.given("--kernel") && c.kernel % 2 == 0)
      return InvalidArgument("--kernel ", c.kernel, ": the pooling width must be odd");
    CollectParameters(c, *f.job.mutable_parameters());
    if (!c.model.empty()) f.job.set_model(FullName("models", c.model));
    f.job.set_display_name(c.display_name);
    for (const std::string& label : c.labels) {
      const size_t equals = label.find('=');
      if (!f.job.mutable_labels()->insert({label.substr(0, equals), label.substr(equals + 1)}).second)
        return InvalidArgument("--label ", label.substr(0, equals), " is given twice");
    }
  }
  if (!f.name.empty()) f.name = FullName("jobs", f.name);
  if (!f.resume_job.empty()) {
    f.resume_job = FullName("jobs", f.resume_job);
    if (!f.request_id.empty())
      return InvalidArgument("--resume-job names a job that exists, --request-id makes one: choose one");
  }
  if (!c.state.empty()) {
    const std::string term = "state = " + c.state;
    f.filter = f.filter.empty() ? term : absl::StrCat(term, " AND ", f.filter);
  }
  if (f.quiet) f.progress = ProgressMode::kNone;
  return CheckOutputFlags(f);
}

int ShowText(const std::string& text) {
  const absl::Status status = WriteStdout(text);
  if (status.ok()) return kExitOk;
  std::fprintf(stderr, "snapkv: error: %s\n", std::string(status.message()).c_str());
  return kExitOutputNotWritable;
}

}  // namespace

std::string FullName(const std::string& kind, const std::string& name) {
  return name.find('/') == std::string::npos ? kind + "/" + name : name;
}

std::optional<int> ParseClientFlags(int argc, const char* const* argv, ClientFlags& flags) {
  CLI::App app("Submits long documents to a snapkv-server and fetches their summaries.", "snapkv");
  app.footer(
      "Examples:\n  snapkv submit --server 127.0.0.1:7411 docs/*.txt --prompt \"Who signed?\" --capacity "
      "1024 --wait\n"
      "  snapkv batch --server 127.0.0.1:7411 -i in.jsonl -o out.jsonl --resume\n"
      "The server can also be given as SNAPKV_SERVER, a token as SNAPKV_TOKEN. `snapkv COMMAND --help` lists "
      "flags.\n"
      "Exit codes: 0 done, 1 some documents failed, 2 usage, 3 input unreadable, 4 server not reached or "
      "token not\n"
      "accepted, 5 refused by the server, 6 output not writable, 7 the job failed or was cancelled, 130 "
      "SIGINT, 143 SIGTERM.");
  app.require_subcommand(1);
  app.set_version_flag("--version", std::string("snapkv ") + SNAPKV_VERSION, "print the version and end");
  app.set_help_flag("-h,--help", "this text");
  std::map<std::string, std::unique_ptr<Command>> commands;
  std::vector<std::string> names;
  for (const Entry& entry : kCommands) {
    auto& command = commands[entry.name] = std::make_unique<Command>();
    command->app = app.add_subcommand(entry.name, entry.help);
    command->app->set_help_flag("-h,--help", "this text");
    entry.add(*command);
    AddCommonFlags(*command);
    names.emplace_back(entry.name);
  }
  absl::Status status;
  std::string help = "snapkv";
  try {
    app.parse(argc, argv);
    Command& chosen = *commands.at(app.get_subcommands().at(0)->get_name());
    help += " " + chosen.app->get_name();
    status = Collect(chosen);
    if (status.ok()) flags = std::move(chosen.flags);
  } catch (const CLI::CallForHelp&) {
    return ShowText(app.help());
  } catch (const CLI::CallForVersion& e) {
    return ShowText(std::string(e.what()) + "\n");
  } catch (const CLI::RequiredError& e) {
    const bool none = app.get_subcommands().empty();
    status = none ? InvalidArgument("give one of the commands ", absl::StrJoin(names, ", "))
                  : InvalidArgument(std::string(e.what()));
  } catch (const CLI::ExtrasError& e) {
    const bool none = app.get_subcommands().empty();
    status = InvalidArgument(std::string(e.what()), none ? "; commands are " : "",
                             none ? absl::StrJoin(names, ", ") : "");
  } catch (const CLI::ParseError& e) {
    status = InvalidArgument(std::string(e.what()));
  }
  if (status.ok()) return std::nullopt;
  if (!app.get_subcommands().empty() && help == "snapkv")
    help += " " + app.get_subcommands().at(0)->get_name();
  std::fprintf(stderr, "snapkv: error: %s\nRun %s --help for all flags.\n",
               Printable(std::string(status.message())).c_str(), help.c_str());
  return kExitUsage;
}

}  // namespace snapkv::launch
