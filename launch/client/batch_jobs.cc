// SPDX-License-Identifier: Apache-2.0
// The side file as JSON.
#include "launch/client/batch_jobs.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "kernels/base/log.h"
#include "kernels/base/status.h"
#include "launch/client/text.h"
#include "launch/input/read_fd.h"
#include "launch/output/output_files.h"

namespace snapkv::launch {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

constexpr int kVersion = 1;
constexpr size_t kMostBytes = size_t{16} << 20;

absl::StatusOr<std::string> ReadAll(const std::string& path) {
  ASSIGN_OR_RETURN(const UniqueFd fd, OpenRegular(path));
  std::string text;
  for (;;) {
    constexpr size_t kBlock = size_t{64} << 10;
    const size_t held = text.size();
    if (held > kMostBytes) return NotFound("is far too large");
    text.resize(held + kBlock);
    ASSIGN_OR_RETURN(const size_t n, ReadSome(fd.get(), text.data() + held, kBlock, nullptr));
    text.resize(held + n);
    if (n == 0) return text;
  }
}

std::optional<BatchJob> ParseJob(const ordered_json& json) {
  const auto text = [&](const char* key) {
    return json.contains(key) && json[key].is_string() ? std::optional(json[key].get<std::string>())
                                                       : std::nullopt;
  };
  const auto number = [&](const char* key) {
    return json.contains(key) && json[key].is_number_integer() ? std::optional(json[key].get<int64_t>())
                                                               : std::nullopt;
  };
  if (!json.is_object()) return std::nullopt;
  const auto request_id = text("request_id"), name = text("name");
  const auto first = number("first"), end = number("end"), after = number("after");
  if (!request_id || !name || !first || !end || !after || *first < 0 || *after < 0) return std::nullopt;
  return BatchJob{*request_id, *name, *first, *end, *after};
}

// nullopt: not a file of this program.
std::optional<std::vector<BatchJob>> Parse(const std::string& text, std::string& params_sha256) {
  const auto json = ordered_json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("version") || json["version"] != kVersion ||
      !json.contains("params_sha256") || !json["params_sha256"].is_string() || !json.contains("jobs") ||
      !json["jobs"].is_array()) {
    return std::nullopt;
  }
  params_sha256 = json["params_sha256"].get<std::string>();
  std::vector<BatchJob> jobs;
  for (const ordered_json& element : json["jobs"]) {
    const auto job = ParseJob(element);
    if (!job.has_value()) return std::nullopt;
    jobs.push_back(*job);
  }
  return jobs;
}

}  // namespace

BatchJobs::BatchJobs(std::string path, std::string params_sha256)
    : path_(std::move(path)), params_sha256_(std::move(params_sha256)) {}

std::string BatchJobs::PathFor(const std::string& output) {
  std::error_code error;
  const fs::file_status status = fs::status(output, error);
  if (output.empty() || output == "-") return "";
  if (fs::exists(status) && !fs::is_regular_file(status)) return "";
  return output + ".snapkv-job";
}

absl::Status BatchJobs::Load() {
  const std::lock_guard lock(mutex_);
  jobs_.clear();
  if (path_.empty() || access(path_.c_str(), F_OK) != 0) return absl::OkStatus();
  const auto text = ReadAll(path_);
  if (!text.ok()) return Annotate(text.status(), path_);
  std::string params;
  auto jobs = Parse(*text, params);
  if (!jobs.has_value()) {
    LOG(Warning) << path_ << ": is damaged or of another version and not used; documents without a record "
                 << "are submitted again";
    return absl::OkStatus();
  }
  if (params != params_sha256_) {
    LOG(Warning) << path_ << ": is of a batch with other parameters and not used";
    return absl::OkStatus();
  }
  jobs_ = *std::move(jobs);
  return absl::OkStatus();
}

std::vector<BatchJob> BatchJobs::All() const {
  const std::lock_guard lock(mutex_);
  return jobs_;
}

absl::Status BatchJobs::Put(const BatchJob& job) {
  const std::lock_guard lock(mutex_);
  const auto it = std::find_if(jobs_.begin(), jobs_.end(),
                               [&](const BatchJob& known) { return known.request_id == job.request_id; });
  if (it == jobs_.end()) {
    jobs_.push_back(job);
  } else {
    *it = job;
  }
  return SaveLocked();
}

absl::Status BatchJobs::Remove(const std::string& request_id) {
  const std::lock_guard lock(mutex_);
  std::erase_if(jobs_, [&](const BatchJob& job) { return job.request_id == request_id; });
  return SaveLocked();
}

absl::Status BatchJobs::SaveLocked() const {
  if (path_.empty()) return absl::OkStatus();
  if (jobs_.empty()) {
    if (unlink(path_.c_str()) == 0 || errno == ENOENT) return absl::OkStatus();
    return FailedPrecondition(path_, ": cannot be removed: ", std::strerror(errno));
  }
  ordered_json json = {{"version", kVersion}, {"params_sha256", params_sha256_}};
  json["jobs"] = ordered_json::array();
  for (const BatchJob& job : jobs_) {
    json["jobs"].push_back({{"request_id", job.request_id},
                            {"name", job.name},
                            {"first", job.first},
                            {"end", job.end},
                            {"after", job.after}});
  }
  return WriteFile(path_, json.dump(1, ' ', false, ordered_json::error_handler_t::replace) + "\n");
}

}  // namespace snapkv::launch
