// SPDX-License-Identifier: Apache-2.0
// Workers by name; models by those who serve them.
#include "runtime/service/server/worker_registry.h"

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_join.h"
#include "google/protobuf/util/time_util.h"
#include "kernels/base/log.h"
#include "runtime/service/server/ids.h"

namespace snapkv::service {
namespace {

constexpr char kPrefix[] = "models/";

bool IsModelName(const std::string& name) {
  const std::string id = name.starts_with(kPrefix) ? name.substr(sizeof(kPrefix) - 1) : "";
  return !id.empty() && id.size() <= 128 && std::all_of(id.begin(), id.end(), [](unsigned char c) {
    return absl::ascii_isalnum(c) || c == '_' || c == '-' || c == '.';
  });
}

}  // namespace

WorkerRegistry::WorkerRegistry(std::string models_file, absl::Duration lease, absl::Duration lifetime)
    : models_file_(std::move(models_file)), lease_(lease), lifetime_(lifetime) {
  std::ifstream in(models_file_);
  for (std::string line; std::getline(in, line);) {
    if (IsModelName(line)) models_.insert(line);
  }
}

void WorkerRegistry::Remember(const std::string& model) {
  if (!models_.insert(model).second || models_file_.empty()) return;
  // Losing it costs a check, not data: no fsync.
  const std::string temporary = models_file_ + ".new";
  std::ofstream out(temporary);
  for (const std::string& name : models_) out << name << "\n";
  out.close();
  if (!out || std::rename(temporary.c_str(), models_file_.c_str()) != 0)
    LOG(Warning) << "cannot write " << models_file_
                 << "; after a restart models are unknown until they register";
}

absl::StatusOr<v1::Worker> WorkerRegistry::Register(const v1::Worker& worker, absl::Time now) {
  if (!IsModelName(worker.model()))
    return ServiceError(Reason::kParameterInvalid,
                        "worker.model: expected models/NAME of up to 128 letters, digits, "
                        "'_', '-', '.'");
  const std::lock_guard lock(mutex_);
  for (const auto& [name, entry] : workers_) {
    const v1::Worker& other = entry.worker;
    if (other.model() != worker.model() || other.model_fingerprint() == worker.model_fingerprint()) continue;
    return ServiceError(Reason::kModelMismatch, worker.model(), " is already served by ",
                        other.display_name(), " (", name,
                        ") with another content: give all workers the same file, or another --model-name");
  }
  Remember(worker.model());
  // Who registers again under the same name of host and process has lost its connection.
  std::erase_if(workers_, [&](const auto& item) {
    return !worker.display_name().empty() && item.second.worker.display_name() == worker.display_name();
  });
  v1::Worker registered = worker;
  registered.set_name("workers/" + RandomId());
  *registered.mutable_lease_duration() =
      google::protobuf::util::TimeUtil::MillisecondsToDuration(absl::ToInt64Milliseconds(lease_));
  workers_[registered.name()] = {registered, now, {}};
  return registered;
}

absl::StatusOr<v1::Worker> WorkerRegistry::Seen(const std::string& name, absl::Time now) {
  const std::lock_guard lock(mutex_);
  const auto found = workers_.find(name);
  if (found == workers_.end())
    return ServiceError(Reason::kWorkerUnknown, "worker '", name,
                        "' is not registered here (the server may have been "
                        "restarted): register again");
  found->second.seen = now;
  return found->second.worker;
}

void WorkerRegistry::SetSink(const std::string& name, const std::weak_ptr<LeaseEventSink>& sink) {
  const std::lock_guard lock(mutex_);
  if (const auto found = workers_.find(name); found != workers_.end()) found->second.sink = sink;
}

void WorkerRegistry::Send(const std::string& name, const v1::LeaseEvent& event) {
  std::shared_ptr<LeaseEventSink> sink;
  {
    const std::lock_guard lock(mutex_);
    const auto found = workers_.find(name);
    if (found != workers_.end()) sink = found->second.sink.lock();
  }
  if (sink) sink->Put(event);
}

void WorkerRegistry::SendToAll(const v1::LeaseEvent& event) {
  std::vector<std::shared_ptr<LeaseEventSink>> sinks;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [name, entry] : workers_) {
      if (auto sink = entry.sink.lock()) sinks.push_back(std::move(sink));
    }
  }
  for (const auto& sink : sinks) sink->Put(event);
}

absl::StatusOr<std::string> WorkerRegistry::DefaultModel(const std::string& fallback) const {
  const std::lock_guard lock(mutex_);
  if (models_.size() == 1) return *models_.begin();
  if (models_.empty() || models_.contains(fallback)) return fallback;
  return ServiceError(Reason::kModelNotFound, "several models are served (", absl::StrJoin(models_, ", "),
                      ") and the request names none: name one of them");
}

absl::Status WorkerRegistry::CheckModel(const std::string& model) const {
  if (!IsModelName(model))
    return ServiceError(Reason::kModelNotFound, "model '", model,
                        "' is no name of a model: expected models/NAME");
  const std::lock_guard lock(mutex_);
  if (models_.empty() || models_.contains(model)) return absl::OkStatus();
  return ServiceError(Reason::kModelNotFound, "no worker has ever served ", model,
                      "; known: ", absl::StrJoin(models_, ", "));
}

bool WorkerRegistry::Ready(const std::string& model) const {
  const std::lock_guard lock(mutex_);
  return std::any_of(workers_.begin(), workers_.end(),
                     [&](const auto& item) { return item.second.worker.model() == model; });
}

v1::Model WorkerRegistry::Describe(const std::string& name) const {
  v1::Model model;
  model.set_name(name);
  for (const auto& [unused, entry] : workers_) {
    const v1::Worker& worker = entry.worker;
    if (worker.model() != name) continue;
    model.set_ready(true);
    model.set_workers(model.workers() + 1);
    model.set_fingerprint(worker.model_fingerprint());
    const int64_t context = worker.max_context();
    model.set_max_context(model.max_context() == 0 ? context : std::min(model.max_context(), context));
  }
  return model;
}

absl::StatusOr<v1::Model> WorkerRegistry::GetModel(const std::string& model) const {
  const std::lock_guard lock(mutex_);
  if (!models_.contains(model))
    return ServiceError(Reason::kModelNotFound, "no worker has ever served '", model,
                        "'; snapkv models lists what is known");
  return Describe(model);
}

std::vector<v1::Model> WorkerRegistry::Models() const {
  const std::lock_guard lock(mutex_);
  std::vector<v1::Model> models;
  for (const std::string& name : models_) models.push_back(Describe(name));
  return models;
}

std::vector<std::string> WorkerRegistry::Tick(absl::Time now) {
  std::vector<std::string> dead;
  std::vector<std::shared_ptr<LeaseEventSink>> sinks;
  {
    const std::lock_guard lock(mutex_);
    for (auto it = workers_.begin(); it != workers_.end();) {
      if (now - it->second.seen > lifetime_) {
        dead.push_back(it->first);
        it = workers_.erase(it);
        continue;
      }
      if (auto sink = it->second.sink.lock()) sinks.push_back(std::move(sink));
      ++it;
    }
  }
  for (const auto& sink : sinks) sink->OnTick(now);
  return dead;
}

int64_t WorkerRegistry::size() const {
  const std::lock_guard lock(mutex_);
  return static_cast<int64_t>(workers_.size());
}

}  // namespace snapkv::service
