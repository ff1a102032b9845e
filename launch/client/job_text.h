// SPDX-License-Identifier: Apache-2.0
// Jobs and models as JSON for programs and as lines for people.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "snapkv/v1/jobs.pb.h"
#include "snapkv/v1/models.pb.h"

namespace snapkv::launch {

namespace v1 = snapkv::v1;

// "QUEUED"; "STATE_99" for one this program does not know.
std::string StateName(v1::Job::State state);
bool HasEnded(v1::Job::State state);

// Fields by their names in the proto; numbers as numbers, times as RFC 3339, absent ones left out.
nlohmann::ordered_json JobJson(const v1::Job& job);
nlohmann::ordered_json ModelJson(const v1::Model& model);
// One line with its newline, safe on a terminal.
std::string JsonLine(const nlohmann::ordered_json& json);

// Several lines about one job.
std::string JobText(const v1::Job& job);
// A table with a header; "" without rows.
std::string JobTable(const google::protobuf::RepeatedPtrField<v1::Job>& jobs, bool header);
std::string ModelTable(const google::protobuf::RepeatedPtrField<v1::Model>& models);
// "1 document", "12 documents"
std::string DocumentsText(int64_t count);
// "12 of 60 documents done, 1 failed"
std::string CountsText(const v1::Job::Counts& counts);

}  // namespace snapkv::launch
