// SPDX-License-Identifier: Apache-2.0
// Rendering of jobs and models.
#include "launch/client/job_text.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "launch/client/text.h"

namespace snapkv::launch {
namespace {

using nlohmann::ordered_json;

std::string TimeText(const google::protobuf::Timestamp& time, const char* format) {
  return absl::FormatTime(format, absl::FromUnixSeconds(time.seconds()) + absl::Nanoseconds(time.nanos()),
                          absl::UTCTimeZone());
}

constexpr char kJsonTime[] = "%Y-%m-%d%ET%H:%M:%E3SZ";
constexpr char kShownTime[] = "%Y-%m-%d %H:%M:%S UTC";

ordered_json CountsJson(const v1::Job::Counts& c) {
  return {{"documents", c.documents()},
          {"queued", c.queued()},
          {"running", c.running()},
          {"succeeded", c.succeeded()},
          {"failed", c.failed()},
          {"cancelled", c.cancelled()},
          {"bytes", c.bytes()},
          {"prompt_tokens", c.prompt_tokens()},
          {"completion_tokens", c.completion_tokens()}};
}

ordered_json ParametersJson(const v1::Parameters& p) {
  ordered_json json = ordered_json::object();
  if (p.has_prompt()) json["prompt"] = p.prompt();
  if (p.has_system()) json["system"] = p.system();
  if (p.has_max_tokens()) json["max_tokens"] = p.max_tokens();
  if (p.has_temperature()) json["temperature"] = p.temperature();
  if (p.has_top_k()) json["top_k"] = p.top_k();
  if (p.has_top_p()) json["top_p"] = p.top_p();
  if (p.has_min_p()) json["min_p"] = p.min_p();
  if (p.has_repeat_penalty()) json["repeat_penalty"] = p.repeat_penalty();
  if (p.has_seed()) json["seed"] = p.seed();
  if (p.stop_size() > 0) json["stop"] = std::vector<std::string>(p.stop().begin(), p.stop().end());
  if (p.stop_token_ids_size() > 0)
    json["stop_token_ids"] = std::vector<int32_t>(p.stop_token_ids().begin(), p.stop_token_ids().end());
  if (p.has_capacity()) json["capacity"] = p.capacity();
  if (p.has_window()) json["window"] = p.window();
  if (p.has_kernel()) json["kernel"] = p.kernel();
  if (p.overflow() == v1::OVERFLOW_ERROR) json["overflow"] = "error";
  if (p.overflow() == v1::OVERFLOW_MIDDLE) json["overflow"] = "middle";
  return json;
}

// Characters, not columns: what is not ASCII may be off by a few.
size_t Width(const std::string& text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (c & '\xC0') != '\x80'; }));
}

using Row = std::vector<std::string>;

std::string Table(const std::vector<Row>& rows) {
  std::vector<size_t> widths;
  for (const Row& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], Width(row[i]));
  }
  std::string text;
  for (const Row& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      line += row[i];
      if (i + 1 < row.size()) line += std::string(widths[i] - Width(row[i]) + 2, ' ');
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

}  // namespace

std::string StateName(v1::Job::State state) {
  const std::string name = v1::Job::State_Name(state);
  return name.empty() ? absl::StrCat("STATE_", static_cast<int>(state)) : name;
}

bool HasEnded(v1::Job::State state) {
  return state == v1::Job::SUCCEEDED || state == v1::Job::FAILED || state == v1::Job::CANCELLED ||
         state == v1::Job::EXPIRED;
}

ordered_json JobJson(const v1::Job& job) {
  ordered_json json = {{"name", job.name()}, {"state", StateName(job.state())}};
  if (!job.display_name().empty()) json["display_name"] = job.display_name();
  json["model"] = job.model();
  json["priority"] = job.priority();
  if (!job.labels().empty()) {
    std::vector<std::pair<std::string, std::string>> labels(job.labels().begin(), job.labels().end());
    std::sort(labels.begin(), labels.end());
    for (const auto& [name, value] : labels) json["labels"][name] = value;
  }
  json["counts"] = CountsJson(job.counts());
  json["results"] = job.results();
  json["parameters"] = ParametersJson(job.parameters());
  if (job.status().code() != 0 || !job.status().reason().empty()) {
    json["status"] = {{"code", job.status().code()},
                      {"reason", job.status().reason()},
                      {"message", job.status().message()}};
  }
  json["version"] = job.version();
  if (!job.tenant().empty()) json["tenant"] = job.tenant();
  if (job.has_create_time()) json["create_time"] = TimeText(job.create_time(), kJsonTime);
  if (job.has_start_time()) json["start_time"] = TimeText(job.start_time(), kJsonTime);
  if (job.has_end_time()) json["end_time"] = TimeText(job.end_time(), kJsonTime);
  if (job.has_expire_time()) json["expire_time"] = TimeText(job.expire_time(), kJsonTime);
  return json;
}

ordered_json ModelJson(const v1::Model& model) {
  const v1::Limits& l = model.limits();
  return {{"name", model.name()},
          {"ready", model.ready()},
          {"max_context", model.max_context()},
          {"workers", model.workers()},
          {"fingerprint", model.fingerprint()},
          {"limits",
           {{"max_message_bytes", l.max_message_bytes()},
            {"max_chunk_bytes", l.max_chunk_bytes()},
            {"max_document_bytes", l.max_document_bytes()},
            {"max_inline_bytes", l.max_inline_bytes()},
            {"max_job_documents", l.max_job_documents()},
            {"max_job_bytes", l.max_job_bytes()},
            {"max_queued_jobs", l.max_queued_jobs()},
            {"max_tenant_jobs", l.max_tenant_jobs()}}}};
}

std::string JsonLine(const ordered_json& json) {
  return SafeJson(json.dump(-1, ' ', false, ordered_json::error_handler_t::replace)) + "\n";
}

std::string DocumentsText(int64_t count) {
  return absl::StrCat(count, count == 1 ? " document" : " documents");
}

std::string CountsText(const v1::Job::Counts& c) {
  std::string text = absl::StrCat(c.succeeded() + c.failed(), " of ", DocumentsText(c.documents()), " done");
  if (c.failed() > 0) absl::StrAppend(&text, ", ", c.failed(), " failed");
  if (c.running() > 0) absl::StrAppend(&text, ", ", c.running(), " running");
  if (c.queued() > 0) absl::StrAppend(&text, ", ", c.queued(), " waiting");
  if (c.cancelled() > 0) absl::StrAppend(&text, ", ", c.cancelled(), " cancelled");
  return text;
}

std::string JobText(const v1::Job& job) {
  std::vector<Row> rows = {{Printable(job.name()), StateName(job.state())}};
  if (!job.display_name().empty()) rows.push_back({"display name", Printable(job.display_name())});
  rows.push_back({"model", Printable(job.model())});
  rows.push_back({"documents", CountsText(job.counts())});
  rows.push_back({"tokens", absl::StrCat(job.counts().prompt_tokens(), " prompt, ",
                                         job.counts().completion_tokens(), " generated")});
  if (job.priority() != 0) rows.push_back({"priority", std::to_string(job.priority())});
  std::vector<std::string> labels;
  for (const auto& [name, value] : job.labels()) labels.push_back(Printable(name) + "=" + Printable(value));
  std::sort(labels.begin(), labels.end());
  for (const std::string& label : labels) rows.push_back({"label", label});
  if (job.has_create_time()) rows.push_back({"created", TimeText(job.create_time(), kShownTime)});
  if (job.has_start_time()) rows.push_back({"started", TimeText(job.start_time(), kShownTime)});
  if (job.has_end_time()) rows.push_back({"ended", TimeText(job.end_time(), kShownTime)});
  if (job.has_expire_time())
    rows.push_back(
        {HasEnded(job.state()) ? "kept until" : "expires", TimeText(job.expire_time(), kShownTime)});
  if (!job.status().message().empty() || !job.status().reason().empty())
    rows.push_back({"why", Printable(job.status().reason()) + ": " + Printable(job.status().message())});
  return Table(rows);
}

std::string JobTable(const google::protobuf::RepeatedPtrField<v1::Job>& jobs, bool header) {
  if (jobs.empty()) return "";
  std::vector<Row> rows;
  if (header) rows.push_back({"JOB", "STATE", "DONE", "FAILED", "CREATED", "DISPLAY NAME"});
  for (const v1::Job& job : jobs) {
    const v1::Job::Counts& c = job.counts();
    rows.push_back({Printable(job.name()), StateName(job.state()),
                    absl::StrCat(c.succeeded() + c.failed(), "/", c.documents()), std::to_string(c.failed()),
                    TimeText(job.create_time(), kShownTime), Printable(job.display_name(), 60)});
  }
  return Table(rows);
}

std::string ModelTable(const google::protobuf::RepeatedPtrField<v1::Model>& models) {
  if (models.empty()) return "";
  std::vector<Row> rows = {{"MODEL", "READY", "WORKERS", "CONTEXT"}};
  for (const v1::Model& model : models) {
    rows.push_back({Printable(model.name()), model.ready() ? "yes" : "no", std::to_string(model.workers()),
                    std::to_string(model.max_context())});
  }
  return Table(rows);
}

}  // namespace snapkv::launch
