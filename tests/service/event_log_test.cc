// SPDX-License-Identifier: Apache-2.0
// Structured log lines in both formats, with hostile texts and from many threads.
#include "runtime/service/event_log.h"

#include <gmock/gmock.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>
#include <set>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace snapkv::service {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::internal::CaptureStderr;
using ::testing::internal::GetCapturedStderr;
using Json = nlohmann::ordered_json;

class EventLogTest : public ::testing::Test {
 protected:
  void TearDown() override {
    SetEventFormat(EventFormat::kText);
    SetLogLevel(LogLevel::kInfo);
    SetLogPrefix("");
  }
  template <class Write>
  std::string Written(const Write& write) {
    CaptureStderr();
    write();
    return GetCapturedStderr();
  }
};

// What one event looks like as JSON; fails unless it is one line.
Json ParseLine(const std::string& written) {
  EXPECT_EQ(std::count(written.begin(), written.end(), '\n'), 1) << written;
  EXPECT_THAT(written, EndsWith("\n"));
  for (const char c : written) {
    EXPECT_TRUE(c == '\n' || (c >= 0x20 && c < 0x7F)) << "byte " << static_cast<int>(c) << " in " << written;
  }
  return Json::parse(written);
}

const std::vector<std::string>& HostileTexts() {
  using namespace std::string_literals;
  static const std::vector<std::string> texts = {
      "",
      "two words",
      "line\nend",
      "\r\n",
      "tab\there",
      "quote\"inside",
      "back\\slash",
      "a=b",
      "nul\0byte"s,
      "\x1b[31mred\x1b[0m",
      "\x7f",
      "csi \xc2\x9b"s + "31m",
      "\xff\xfe",
      "cut \xe2\x82",
      "overlong \xc0\xaf",
      "surrogate \xed\xa0\x80",
      "too high \xf4\x90\x80\x80",
      "right to left \xe2\x80\xae txt.exe",
      "line separator \xe2\x80\xa8 x",
      "\xef\xbb\xbf bom",
      "job\"} {\"level\":\"error",
      "x\nerror: forged",
      "日本語",
      "😀 smile",
      std::string(10'000, 'x'),
      std::string(1'999, 'x') + "日本",
  };
  return texts;
}

TEST_F(EventLogTest, TextOfEachKindOfValue) {
  EXPECT_EQ(EventText("job created", {{"job", "jobs/x"}, {"documents", 12}}),
            "job created job=jobs/x documents=12");
  EXPECT_EQ(EventText("e", {}), "e");
  EXPECT_EQ(EventText("e", {{"reason", ""}, {"job", "j"}}), "e job=j");
  EXPECT_EQ(EventText("e", {{"a", -1},
                            {"b", std::numeric_limits<uint64_t>::max()},
                            {"c", std::numeric_limits<int64_t>::min()},
                            {"d", 0.25},
                            {"e", true},
                            {"f", false},
                            {"g", std::string("s")},
                            {"h", std::string_view("v")},
                            {"i", 1e300},
                            {"j", std::nan("")},
                            {"k", -std::numeric_limits<double>::infinity()}}),
            "e a=-1 b=18446744073709551615 c=-9223372036854775808 d=0.25 e=true f=false g=s h=v i=1e+300 "
            "j=nan k=-inf");
}

TEST_F(EventLogTest, TextIsQuotedWhereItWouldNotBeOneWord) {
  const auto value = [](const std::string& text) { return EventText("e", {{"v", text}}).substr(4); };
  EXPECT_EQ(value("docs/a-1.txt"), "docs/a-1.txt");
  EXPECT_EQ(value("two words"), "\"two words\"");
  EXPECT_EQ(value("a=b"), "\"a=b\"");
  EXPECT_EQ(value("q\"\\"), "\"q\\\"\\\\\"");
  EXPECT_EQ(value("a\nb\rc\td"), "\"a\\nb\\rc\\td\"");
  EXPECT_EQ(value(std::string("\0", 1)), "\"\\x00\"");
  EXPECT_EQ(value("\x1b[31m"), "\"\\x1b[31m\"");
  EXPECT_EQ(value("\xc2\x9b"), "\"\\u009b\"");
  EXPECT_EQ(value("\xff"), "\"\\xff\"");
  EXPECT_EQ(value("\xe2\x80\xae"), "\"\\u202e\"");
  EXPECT_EQ(value("\xed\xa0\x80"), "\"\\xed\\xa0\\x80\"");
  EXPECT_EQ(value("日本語"), "日本語");
}

TEST_F(EventLogTest, TextStaysOneLineWhateverItHolds) {
  for (const std::string& text : HostileTexts()) {
    const std::string written = Written([&] {
      Event(LogLevel::kInfo, text, {{"job", text}, {text, 1}, {"last", "end"}});
    });
    SCOPED_TRACE(written);
    EXPECT_EQ(std::count(written.begin(), written.end(), '\n'), 1);
    EXPECT_THAT(written, EndsWith(" last=end\n"));
    EXPECT_LT(written.size(), 20'000u);
    for (const char c : written.substr(0, written.size() - 1)) {
      EXPECT_FALSE((c >= 0 && c < 0x20) || c == 0x7F) << static_cast<int>(c);
    }
    EXPECT_EQ(Json(written).dump(-1, ' ', false, Json::error_handler_t::strict).empty(),
              false);  // throws: not UTF-8
  }
}

TEST_F(EventLogTest, PrefixAndLevelsOfText) {
  SetLogPrefix("snapkv-server: ");
  EXPECT_EQ(Written([] {
              Event(LogLevel::kWarning, "disk full", {{"free_bytes", 0}});
            }),
            "snapkv-server: warning: disk full free_bytes=0\n");
  EXPECT_EQ(Written([] { Event(LogLevel::kDebug, "hidden", {}); }), "");
  SetLogLevel(LogLevel::kDebug);
  EXPECT_EQ(Written([] { Event(LogLevel::kDebug, "shown", {}); }), "snapkv-server: shown\n");
}

TEST_F(EventLogTest, JsonHasTimeLevelEventAndFieldsInTheirOrder) {
  SetEventFormat(EventFormat::kJson);
  const absl::Time before = absl::Now() - absl::Milliseconds(1);
  const Json json = ParseLine(Written([] {
    Event(LogLevel::kError, "job created",
          {{"job", "jobs/x"}, {"documents", 12}, {"ratio", 0.5}, {"ok", true}, {"nan", std::nan("")}});
  }));
  std::vector<std::string> names;
  for (const auto& [name, value] : json.items()) names.push_back(name);
  EXPECT_THAT(names,
              ::testing::ElementsAre("time", "level", "event", "job", "documents", "ratio", "ok", "nan"));
  EXPECT_EQ(json["level"], "error");
  EXPECT_EQ(json["event"], "job created");
  EXPECT_EQ(json["job"], "jobs/x");
  EXPECT_EQ(json["documents"], 12);
  EXPECT_EQ(json["ratio"], 0.5);
  EXPECT_EQ(json["ok"], true);
  EXPECT_EQ(json["nan"], "nan");
  const std::string text = json["time"];
  EXPECT_EQ(text.size(), std::string("2026-01-31T23:59:59.123Z").size()) << text;
  EXPECT_EQ(text.back(), 'Z');
  absl::Time time;
  std::string error;
  ASSERT_TRUE(absl::ParseTime(absl::RFC3339_full, text, &time, &error)) << text << ": " << error;
  EXPECT_GE(time, before - absl::Milliseconds(1));
  EXPECT_LE(time, absl::Now() + absl::Milliseconds(1));
}

TEST_F(EventLogTest, JsonIsValidWhateverItHolds) {
  SetEventFormat(EventFormat::kJson);
  for (const std::string& text : HostileTexts()) {
    SCOPED_TRACE(testing::PrintToString(text.substr(0, 100)));
    const Json json = ParseLine(Written([&] {
      Event(LogLevel::kInfo, text, {{"job", text}, {text, 1}, {"last", "end"}});
    }));
    EXPECT_EQ(json["last"], "end");
    EXPECT_EQ(json["level"], "info");
    EXPECT_EQ(json.size(), text.empty() ? 5u : 6u);
    EXPECT_EQ(json.contains("job"), !text.empty());
    if (text.empty()) continue;
    EXPECT_EQ(json["event"], json["job"]);
    if (text.size() > 2'000) {
      EXPECT_LE(json["job"].get<std::string>().size(), 2'000u);
      EXPECT_THAT(json["job"].get<std::string>(), EndsWith("x..."));
    } else if (text == "日本語" || text == "x\nerror: forged" || text == "\x1b[31mred\x1b[0m") {
      EXPECT_EQ(json["job"], text);
    }
  }
}

TEST_F(EventLogTest, RandomBytesStayOneLine) {
  constexpr int kSeed = 7;
  std::mt19937 random(kSeed);
  for (int i = 0; i < 500; ++i) {
    std::string text(random() % 40, '\0');
    for (char& c : text) c = static_cast<char>(random() % 256);
    SetEventFormat(EventFormat::kJson);
    const std::string json = Written([&] { Event(LogLevel::kInfo, "e", {{"v", text}}); });
    ASSERT_NO_THROW(ParseLine(json)) << "seed " << kSeed << ", round " << i << ": " << json;
    SetEventFormat(EventFormat::kText);
    const std::string line = Written([&] { Event(LogLevel::kInfo, "e", {{"v", text}}); });
    ASSERT_EQ(std::count(line.begin(), line.end(), '\n'), 1)
        << "seed " << kSeed << ", round " << i << ": " << line;
    ASSERT_NO_THROW(Json(line).dump()) << "seed " << kSeed << ", round " << i << ": " << line;
  }
}

TEST_F(EventLogTest, FieldsCannotReplaceTheHead) {
  SetEventFormat(EventFormat::kJson);
  const Json json = ParseLine(Written([] {
    Event(LogLevel::kInfo, "e",
          {{"level", "error"}, {"time", 0}, {"event", "x"}, {"program", "y"}, {"job", 1}, {"job", 2}});
  }));
  EXPECT_EQ(json["level"], "info");
  EXPECT_EQ(json["event"], "e");
  EXPECT_EQ(json["level_"], "error");
  EXPECT_EQ(json["time_"], 0);
  EXPECT_EQ(json["event_"], "x");
  EXPECT_EQ(json["program_"], "y");
  EXPECT_EQ(json["job"], 1);
  EXPECT_EQ(json["job_"], 2);
}

TEST_F(EventLogTest, PlainLogLinesBecomeJsonToo) {
  SetEventFormat(EventFormat::kJson);
  Json json = ParseLine(Written([] { LOG(Warning) << "no \"worker\"\n yet \xff"; }));
  EXPECT_EQ(json["level"], "warning");
  EXPECT_EQ(json["event"], "no \"worker\"\n yet \xef\xbf\xbd");
  EXPECT_EQ(json.size(), 3u);
  SetLogPrefix("snapkv-prefill: ");
  json = ParseLine(Written([] { LOG(Error) << "gone"; }));
  EXPECT_EQ(json["level"], "error");
  EXPECT_EQ(json["event"], "gone");
  EXPECT_EQ(json["program"], "snapkv-prefill");
  json = ParseLine(Written([] { LOG(Info) << "plain: text"; }));
  EXPECT_EQ(json["level"], "info");
  EXPECT_EQ(json["event"], "plain: text");
  json = ParseLine(Written([] { Event(LogLevel::kWarning, "lease lost", {{"lease", "leases/1"}}); }));
  EXPECT_EQ(json["level"], "warning");
  EXPECT_EQ(json["program"], "snapkv-prefill");
  EXPECT_EQ(json["lease"], "leases/1");
  SetEventFormat(EventFormat::kText);
  EXPECT_EQ(Written([] { LOG(Info) << "text again"; }), "snapkv-prefill: text again\n");
}

TEST_F(EventLogTest, ThreadsDoNotMix) {
  constexpr int kThreads = 8;
  constexpr int kEvents = 200;
  for (const EventFormat format : {EventFormat::kText, EventFormat::kJson}) {
    SetEventFormat(format);
    const std::string written = Written([] {
      std::vector<std::thread> threads;
      for (int t = 0; t < kThreads; ++t) {
        threads.emplace_back([t] {
          for (int i = 0; i < kEvents; ++i) {
            if (i % 2 == 0) {
              Event(LogLevel::kInfo, "event", {{"thread", t}, {"i", i}, {"pad", std::string(500, 'a' + t)}});
            } else {
              LOG(Info) << "event thread=" << t << " i=" << i << " pad=" << std::string(500, 'a' + t);
            }
          }
        });
      }
      for (std::thread& thread : threads) thread.join();
    });
    std::multiset<std::string> expected;
    std::multiset<std::string> seen;
    for (int t = 0; t < kThreads; ++t) {
      for (int i = 0; i < kEvents; ++i) {
        expected.insert(absl::StrCat("event thread=", t, " i=", i, " pad=", std::string(500, 'a' + t)));
      }
    }
    for (const absl::string_view line : absl::StrSplit(written, '\n', absl::SkipEmpty())) {
      if (format == EventFormat::kText) {
        seen.insert(std::string(line));
        continue;
      }
      const Json json = Json::parse(std::string(line));
      std::string text = json["event"];
      for (const char* name : {"thread", "i", "pad"}) {
        if (!json.contains(name)) continue;
        const Json& value = json[name];
        absl::StrAppend(&text, " ", name, "=", value.is_string() ? value.get<std::string>() : value.dump());
      }
      seen.insert(text);
    }
    EXPECT_TRUE(seen == expected) << seen.size() << " lines instead of " << expected.size();
  }
}

}  // namespace
}  // namespace snapkv::service
