// SPDX-License-Identifier: Apache-2.0
// The Grafana dashboard and the alert rules in launch/: valid, and about metrics that the server has.
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>
#include <regex>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "runtime/service/metrics.h"
#include "tests/service/metrics_testing.h"
#include "tests/support/test_folder.h"

namespace snapkv::service {
namespace {

using ::snapkv::testing::Slurp;
using ::snapkv::testing::TestFolder;
using Json = nlohmann::json;

const std::string kSource = SNAPKV_SOURCE_DIR;
const std::string kDashboard = kSource + "/launch/grafana/snapkv.json";
const std::string kAlerts = kSource + "/launch/prometheus/alerts.yml";

// Names of families, with the suffixes of histograms.
struct Families {
  std::set<std::string> names;
  std::map<std::string, std::string> family_of;  // name in a query -> family
};

Families ServerFamilies() {
  Families families;
  const std::string text = Metrics("0").Text();
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    if (!absl::ConsumePrefix(&line, "# TYPE ")) continue;
    const std::vector<std::string> words = absl::StrSplit(line, ' ');
    families.names.insert(words[0]);
    if (words[1] != "histogram") families.family_of[words[0]] = words[0];
    for (const char* suffix : {"_bucket", "_sum", "_count"}) {
      if (words[1] == "histogram") families.family_of[words[0] + suffix] = words[0];
    }
  }
  return families;
}

std::vector<std::string> NamesIn(const std::string& text) {
  static const std::regex name("\\bsnapkv_\\w+");
  std::vector<std::string> names;
  for (std::sregex_iterator i(text.begin(), text.end(), name); i != std::sregex_iterator(); ++i) {
    names.push_back(i->str());
  }
  return names;
}

// Every "expr" of a panel.
std::vector<std::string> Expressions(const Json& dashboard) {
  std::vector<std::string> expressions;
  for (const Json& panel : dashboard.at("panels")) {
    for (const Json& target : panel.value("targets", Json::array())) expressions.push_back(target.at("expr"));
  }
  return expressions;
}

TEST(DashboardsTest, EveryMetricNamedExistsAndEveryMetricIsNamed) {
  const Families families = ServerFamilies();
  std::set<std::string> used;
  int queries = 0;
  for (const std::string& path : {kDashboard, kAlerts}) {
    for (const std::string& name : NamesIn(Slurp(path))) {
      const auto found = families.family_of.find(name);
      if (found == families.family_of.end()) {
        ADD_FAILURE() << path << " names " << name << ", which the server does not expose";
      } else {
        used.insert(found->second);
      }
      ++queries;
    }
  }
  EXPECT_GT(queries, 30);
  for (const std::string& family : families.names) {
    EXPECT_EQ(used.count(family), 1u) << family << " is in no panel and no alert";
  }
}

TEST(DashboardsTest, EveryMetricIsInTheTableOfTheDocs) {
  const std::string docs = Slurp(kSource + "/docs/operations.md");
  for (const std::string& family : ServerFamilies().names) {
    EXPECT_NE(docs.find("`" + family + "`"), docs.npos) << family << " is not in docs/operations.md";
  }
}

TEST(DashboardsTest, EveryAlertIsExplainedInTheDocs) {
  static const std::regex alert("- alert: (\\w+)");
  const std::string docs = Slurp(kSource + "/docs/operations.md");
  const std::string tests = Slurp(kSource + "/tests/service/alerts_test.yml");
  const std::string rules = Slurp(kAlerts);
  int alerts = 0;
  for (std::sregex_iterator i(rules.begin(), rules.end(), alert); i != std::sregex_iterator();
       ++i, ++alerts) {
    const std::string name = (*i)[1];
    EXPECT_NE(docs.find("`" + name + "`"), docs.npos) << name << " is not in docs/operations.md";
    EXPECT_NE(tests.find("alertname: " + name + "}"), tests.npos)
        << name << " has no quiet case in alerts_test.yml";
    EXPECT_NE(tests.find("alertname: " + name + "\n"), tests.npos) << name << " has no case that raises it";
  }
  EXPECT_GE(alerts, 7);
}

TEST(DashboardsTest, TheDashboardCanBeImported) {
  const Json dashboard = Json::parse(Slurp(kDashboard));
  EXPECT_EQ(dashboard.at("title"), "SnapKV job service");
  EXPECT_EQ(dashboard.at("templating").at("list").at(0).at("type"), "datasource");
  EXPECT_EQ(dashboard.at("templating").at("list").at(0).at("name"), "datasource");
  std::set<int> ids;
  std::vector<std::vector<int>> grid;  // [row][column] id of the panel there
  for (const Json& panel : dashboard.at("panels")) {
    const int id = panel.at("id");
    EXPECT_TRUE(ids.insert(id).second) << "two panels have the id " << id;
    const Json& at = panel.at("gridPos");
    const int x = at.at("x"), y = at.at("y"), w = at.at("w"), h = at.at("h");
    ASSERT_LE(x + w, 24) << panel.at("title");
    for (int row = y; row < y + h; ++row) {
      grid.resize(std::max<size_t>(grid.size(), static_cast<size_t>(row) + 1), std::vector<int>(24, 0));
      for (int column = x; column < x + w; ++column) {
        int& cell = grid[static_cast<size_t>(row)][static_cast<size_t>(column)];
        EXPECT_EQ(cell, 0) << "panels " << cell << " and " << id << " overlap";
        cell = id;
      }
    }
    if (panel.at("type") == "row") continue;
    EXPECT_FALSE(panel.at("description").get<std::string>().empty()) << panel.at("title");
    EXPECT_FALSE(panel.at("targets").empty()) << panel.at("title");
    for (const Json& target : panel.at("targets")) {
      EXPECT_EQ(target.at("datasource").at("uid"), "${datasource}") << panel.at("title");
    }
  }
}

TEST(DashboardsTest, PromtoolAcceptsTheQueriesOfTheDashboard) {
  if (!HasPromtool()) GTEST_SKIP() << kNoPromtool;
  const std::vector<std::string> expressions = Expressions(Json::parse(Slurp(kDashboard)));
  ASSERT_GT(expressions.size(), 20u);
  const TestFolder folder;
  const auto rules = [&](const std::vector<std::string>& queries) {
    Json file;
    for (size_t i = 0; i < queries.size(); ++i) {
      const std::string query =
          absl::StrReplaceAll(queries[i], {{"$__rate_interval", "5m"}, {"$instance", ".*"}});
      file["groups"][0]["rules"].push_back({{"record", absl::StrCat("panel:", i)}, {"expr", query}});
    }
    file["groups"][0]["name"] = "dashboard";
    return folder.Write("rules.yml", file.dump(1));  // JSON is YAML
  };
  const auto result = Promtool({"check", "rules", rules(expressions)});
  EXPECT_EQ(result.exit_code, 0) << result.ToString();
  EXPECT_NE(Promtool({"check", "rules", rules({"rate(snapkv_rpcs_total)"})}).exit_code, 0);
}

TEST(DashboardsTest, PromtoolAcceptsTheAlerts) {
  if (!HasPromtool()) GTEST_SKIP() << kNoPromtool;
  const auto result = Promtool({"check", "rules", kAlerts});
  EXPECT_EQ(result.exit_code, 0) << result.ToString();
}

TEST(DashboardsTest, AlertsRiseWhenTheyShouldAndOnlyThen) {
  if (!HasPromtool()) GTEST_SKIP() << kNoPromtool;
  const TestFolder folder;
  const std::string cases = Slurp(kSource + "/tests/service/alerts_test.yml");
  const auto run = [&](const std::string& rules) {
    return Promtool(
        {"test", "rules",
         folder.Write("cases.yml", absl::StrReplaceAll(cases, {{"[RULES]", "['" + rules + "']"}}))});
  };
  const auto result = run(kAlerts);
  EXPECT_EQ(result.exit_code, 0) << result.ToString();
  // The cases notice a threshold that is off.
  const std::string changed = absl::StrReplaceAll(Slurp(kAlerts), {{"> 0.1 ", "> 0.3 "}});
  EXPECT_NE(run(folder.Write("changed.yml", changed)).exit_code, 0);
}

}  // namespace
}  // namespace snapkv::service
