// SPDX-License-Identifier: Apache-2.0
// ListJobs: order, pages, tokens that are bound to their list, filters.
#include "absl/strings/escaping.h"
#include "tests/service/store_testing.h"

namespace snapkv::service {
namespace {

using ::testing::ElementsAre;

class ListTest : public StoreTest {
 protected:
  std::string Named(const std::string& name, const std::string& model = kModel,
                    const std::map<std::string, std::string>& labels = {}) {
    v1::CreateJobRequest request = JobOf(1, model);
    request.mutable_job()->set_display_name(name);
    request.mutable_job()->mutable_labels()->insert(labels.begin(), labels.end());
    return Create(request).name();
  }
  absl::StatusOr<v1::ListJobsResponse> List(int page_size, const std::string& token = "",
                                            const std::string& filter = "",
                                            const std::string& tenant = kTenant) {
    v1::ListJobsRequest request;
    request.set_page_size(page_size);
    request.set_page_token(token);
    request.set_filter(filter);
    return store_->ListJobs(tenant, request);
  }
  // Display names of one page.
  std::vector<std::string> Names(const std::string& filter) {
    std::vector<std::string> names;
    auto page = List(0, "", filter);
    EXPECT_TRUE(page.ok()) << filter << ": " << page.status();
    if (!page.ok()) return names;
    EXPECT_EQ(page->next_page_token(), "");
    for (const v1::Job& job : page->jobs()) names.push_back(job.display_name());
    return names;
  }
};

TEST_F(ListTest, NewestFirstInPages) {
  EXPECT_EQ(List(10)->jobs_size(), 0);
  EXPECT_EQ(List(10)->next_page_token(), "");
  for (int i = 0; i < 7; ++i) Named(absl::StrCat("n", i));
  std::vector<std::string> seen;
  std::string token;
  int pages = 0;
  do {
    auto page = List(3, token);
    ASSERT_OK(page);
    for (const v1::Job& job : page->jobs()) seen.push_back(job.display_name());
    token = page->next_page_token();
    // Jobs that come meanwhile do not move the others.
    Named("new");
    ++pages;
  } while (!token.empty());
  EXPECT_THAT(seen, ElementsAre("n6", "n5", "n4", "n3", "n2", "n1", "n0"));
  EXPECT_EQ(pages, 3);
  EXPECT_EQ(List(10)->jobs_size(), 10);
  EXPECT_EQ(List(10)->next_page_token(), "") << "a full page may be the last one";
}

TEST_F(ListTest, ADeletedJobDoesNotBreakThePages) {
  std::vector<std::string> jobs;
  for (int i = 0; i < 6; ++i) jobs.push_back(Named(absl::StrCat("n", i)));
  auto page = List(2);
  ASSERT_OK(page);
  for (const int i : {4, 3}) {
    ASSERT_OK(store_->CancelJob(kTenant, jobs[i], ""));
    ASSERT_OK(store_->DeleteJob(kTenant, jobs[i]));
  }
  Sweep();
  page = List(2, page->next_page_token());
  ASSERT_OK(page);
  ASSERT_EQ(page->jobs_size(), 2);
  EXPECT_EQ(page->jobs(0).display_name(), "n2");
}

TEST_F(ListTest, PageSizes) {
  for (int i = 0; i < 60; ++i) Named("n");
  EXPECT_EQ(List(0)->jobs_size(), 50);
  EXPECT_EQ(List(2000)->jobs_size(), 60);
  EXPECT_REASON(List(-1), Reason::kParameterInvalid, "page_size is -1");
}

TEST_F(ListTest, APageEndsBeforeItOutgrowsAMessage) {
  v1::CreateJobRequest request = JobOf(1);
  request.mutable_job()->mutable_parameters()->set_prompt(std::string(65'536, 'p'));
  request.mutable_job()->mutable_parameters()->set_system(std::string(65'536, 's'));
  for (int i = 0; i < 30; ++i) Create(request);
  int seen = 0;
  std::string token;
  do {
    auto page = List(1000, token);
    ASSERT_OK(page);
    EXPECT_LT(page->ByteSizeLong(), size_t{2} << 20);
    seen += page->jobs_size();
    token = page->next_page_token();
  } while (!token.empty());
  EXPECT_EQ(seen, 30);
}

TEST_F(ListTest, TokensAreBoundToTheirList) {
  for (int i = 0; i < 5; ++i) Named("n");
  auto page = List(2, "", "display_name = \"n\"");
  ASSERT_OK(page);
  const std::string token = page->next_page_token();
  ASSERT_NE(token, "");
  EXPECT_OK(List(2, token, "display_name = \"n\""));
  EXPECT_OK(List(1, token, "display_name = \"n\"")) << "the page size may change";
  EXPECT_REASON(List(2, token), Reason::kPageTokenInvalid, "same filter");
  EXPECT_REASON(List(2, token, "display_name = \"m\""), Reason::kPageTokenInvalid, "same filter");
  EXPECT_REASON(List(2, token, "display_name = \"n\"", "bob"), Reason::kPageTokenInvalid, "page token");
  EXPECT_REASON(List(2, "1"), Reason::kPageTokenInvalid, "page token");
  EXPECT_REASON(List(2, "not base64 !"), Reason::kPageTokenInvalid, "page token");
  EXPECT_REASON(List(2, std::string(2000, 'A')), Reason::kPageTokenInvalid, "page token");
  EXPECT_REASON(List(2, absl::WebSafeBase64Escape("3.0123456789abcdef0123456789abcdef")),
                Reason::kPageTokenInvalid, "page token");
  for (size_t i = 0; i < token.size(); ++i) {
    std::string forged = token;
    forged[i] = forged[i] == 'A' ? 'B' : 'A';
    EXPECT_REASON(List(2, forged, "display_name = \"n\""), Reason::kPageTokenInvalid, "page token") << i;
  }
  Open();
  EXPECT_OK(List(2, token, "display_name = \"n\"")) << "after a restart";
}

TEST_F(ListTest, Filters) {
  Named("a", "models/x", {{"team", "red"}, {"k y", "v\"\\w"}});
  const std::string b = Named("b", "models/y", {{"team", "red"}});
  Named("c", "models/x", {{"team", "blue"}});
  ASSERT_OK(store_->CancelJob(kTenant, b, ""));
  EXPECT_THAT(Names(""), ElementsAre("c", "b", "a"));
  EXPECT_THAT(Names("  "), ElementsAre("c", "b", "a"));
  EXPECT_THAT(Names("state = QUEUED"), ElementsAre("c", "a"));
  EXPECT_THAT(Names("state=\"CANCELLED\""), ElementsAre("b"));
  EXPECT_THAT(Names("model = \"models/x\""), ElementsAre("c", "a"));
  EXPECT_THAT(Names("display_name = \"a\""), ElementsAre("a"));
  EXPECT_THAT(Names("labels.team = \"red\""), ElementsAre("b", "a"));
  EXPECT_THAT(Names("labels.\"k y\" = \"v\\\"\\\\w\""), ElementsAre("a"));
  EXPECT_THAT(Names("labels.team = \"red\" AND state = QUEUED AND model = \"models/x\""), ElementsAre("a"));
  EXPECT_THAT(Names("labels.team = \"red\" AND labels.team = \"blue\""), ElementsAre());
  EXPECT_THAT(Names("labels.none = \"\""), ElementsAre());
}

TEST_F(ListTest, FiltersThatCannotBeRead) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"x", "column 1: expected state, model"},
      {"state", "column 6: expected '='"},
      {"state QUEUED", "column 7: expected '='"},
      {"state = ", "column 9: expected a state"},
      {"state = WAITING", "column 9: expected a state"},
      {"state = STATE_UNSPECIFIED", "column 9: expected a state"},
      {"state = 2", "column 9: expected a state"},
      {"model = models/x", "column 9: expected a value in double quotes"},
      {"model = \"models/x", "column 18: expected a closing double quote"},
      {"model = \"a\\n\"", "column 12: expected \\\" or \\\\"},
      {"labels. = \"a\"", "column 8: expected a name or a text in double quotes"},
      {"state = QUEUED state = RUNNING", "column 21: expected ' AND '"},
      {"model = \"a\"AND state = QUEUED", "column 12: expected ' AND '"},
      {"state = QUEUED AND", "column 19: expected state, model"},
      {"state = QUEUED OR state = RUNNING", "column 18: expected ' AND '"},
  };
  for (const auto& [filter, text] : cases) {
    EXPECT_REASON(List(1, "", filter), Reason::kParameterInvalid, text) << filter;
  }
  std::string many = "state = QUEUED";
  for (int i = 0; i < 16; ++i) many += " AND state = QUEUED";
  EXPECT_REASON(List(1, "", many), Reason::kParameterInvalid, "at most 16 terms");
}

}  // namespace
}  // namespace snapkv::service
