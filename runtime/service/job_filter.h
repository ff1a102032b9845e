// SPDX-License-Identifier: Apache-2.0
// The filter of ListJobs.
#pragma once

#include <string>
#include <vector>

#include "kernels/base/status.h"
#include "snapkv/v1/jobs.pb.h"

namespace snapkv::service {

// One term; all of a filter must hold.
struct FilterTerm {
  enum class Field : uint8_t { kState, kModel, kDisplayName, kLabel };
  Field field = Field::kState;
  v1::Job::State state = v1::Job::STATE_UNSPECIFIED;  // kState
  std::string key;                                    // kLabel
  std::string value;                                  // the others
};

// `state = QUEUED AND model = "models/m" AND display_name = "n" AND labels.KEY = "v"`, at most 16 terms. A
// KEY with other characters than letters, digits, '_', '-', '.', '/', ':' is quoted as well; in quotes \" and
// \\ stand for " and \. Empty: no terms. PARAMETER_INVALID names the column (from 1) and what is expected.
absl::StatusOr<std::vector<FilterTerm>> ParseFilter(const std::string& filter);

}  // namespace snapkv::service
