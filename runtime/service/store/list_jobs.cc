// SPDX-License-Identifier: Apache-2.0
// ListJobs: filters in SQL, pages by the job's number, page tokens that only this server can make.
#include <cstdint>
#include <optional>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "runtime/hash/sha256.h"
#include "runtime/service/job_filter.h"
#include "runtime/service/store/sqlite_job_store.h"
#include "runtime/service/validate.h"

namespace snapkv::service {
namespace {

// Jobs may have prompts of 128 KiB: a page ends before it outgrows a message.
constexpr size_t kMaxPageBytes = size_t{1} << 20;

// Binds a token to what it continues. The secret at both ends keeps others from extending it.
std::string Seal(const std::string& secret, const std::string& tenant, const std::string& filter,
                 int64_t last) {
  std::string text = secret;
  for (const std::string& part : {tenant, filter, absl::StrCat(last)}) {
    absl::StrAppend(&text, part.size(), ":", part);
  }
  return runtime::Sha256Hex(text + secret).substr(0, 32);
}

std::string MakeToken(const std::string& secret, const std::string& tenant, const std::string& filter,
                      int64_t last) {
  return absl::WebSafeBase64Escape(absl::StrCat(last, ".", Seal(secret, tenant, filter, last)));
}

std::optional<int64_t> ReadToken(const std::string& secret, const std::string& tenant,
                                 const std::string& filter, const std::string& token) {
  std::string text;
  if (!absl::WebSafeBase64Unescape(token, &text)) return std::nullopt;
  const std::pair<std::string, std::string> parts = absl::StrSplit(text, absl::MaxSplits('.', 1));
  int64_t last = 0;
  if (!absl::SimpleAtoi(parts.first, &last) || MakeToken(secret, tenant, filter, last) != token) {
    return std::nullopt;
  }
  return last;
}

std::string SqlOf(const FilterTerm& term) {
  switch (term.field) {
    case FilterTerm::Field::kState:
      return " AND state = ?";
    case FilterTerm::Field::kModel:
      return " AND model = ?";
    case FilterTerm::Field::kDisplayName:
      return " AND display_name = ?";
    case FilterTerm::Field::kLabel:
      return " AND EXISTS (SELECT 1 FROM labels WHERE job = jobs.id AND key = ? AND value = ?)";
  }
  return "";
}

absl::Status Bind(Rows& rows, const FilterTerm& term) {
  if (term.field == FilterTerm::Field::kState) return rows.Bind(int64_t{term.state});
  if (term.field == FilterTerm::Field::kLabel) RETURN_IF_ERROR(rows.Bind(term.key));
  return rows.Bind(term.value);
}

}  // namespace

absl::StatusOr<v1::ListJobsResponse> SqliteJobStore::ListJobs(const std::string& tenant,
                                                              const v1::ListJobsRequest& request) {
  RETURN_IF_ERROR(ValidateListJobs(request));
  const int page_size = PageSizeOf(request.page_size());
  ASSIGN_OR_RETURN(const std::vector<FilterTerm> terms, ParseFilter(request.filter()));
  int64_t last = INT64_MAX;
  if (!request.page_token().empty()) {
    const auto read = ReadToken(token_secret_, tenant, request.filter(), request.page_token());
    if (!read.has_value()) {
      return ServiceError(
          Reason::kPageTokenInvalid,
          "the page token does not continue this list: it must be the next_page_token of the page ",
          "before, with the same filter; begin again without one");
    }
    last = *read;
  }
  std::string sql =
      absl::StrCat("SELECT ", kJobColumns, " FROM jobs WHERE tenant = ? AND deleted = 0 AND id < ?");
  for (const FilterTerm& term : terms) sql += SqlOf(term);
  sql += " ORDER BY id DESC LIMIT ?";
  v1::ListJobsResponse response;
  RETURN_IF_ERROR(Read([&](Database& database) -> absl::Status {
    ASSIGN_OR_RETURN(Rows rows, database.QueryOnce(sql));
    RETURN_IF_ERROR(rows.Bind(tenant));
    RETURN_IF_ERROR(rows.Bind(last));
    for (const FilterTerm& term : terms) RETURN_IF_ERROR(Bind(rows, term));
    // One more tells whether another page follows.
    RETURN_IF_ERROR(rows.Bind(int64_t{page_size} + 1));
    size_t bytes = 0;
    while (true) {
      ASSIGN_OR_RETURN(const bool found, rows.Next());
      if (!found) return absl::OkStatus();
      if (response.jobs_size() == page_size || bytes >= kMaxPageBytes) {
        response.set_next_page_token(MakeToken(token_secret_, tenant, request.filter(), last));
        return absl::OkStatus();
      }
      const JobRow job = ReadJob(rows);
      last = job.id;
      ASSIGN_OR_RETURN(*response.add_jobs(), ToProto(database, job));
      bytes += response.jobs().rbegin()->ByteSizeLong();
    }
  }));
  return response;
}

}  // namespace snapkv::service
