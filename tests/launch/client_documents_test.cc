// SPDX-License-Identifier: Apache-2.0
// Documents as messages, results as records, and what is remembered in between.
#include "launch/client/documents.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "launch/client/job_text.h"
#include "launch/input/jsonl.h"
#include "runtime/service/reason.h"

namespace snapkv::launch {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

Document Parse(const std::string& line) {
  LineContext context;
  context.defaults.max_tokens = 77;
  context.defaults.seed = 5;
  InputItem item = ParseRecord(line, 1, context);
  EXPECT_TRUE(item.error.ok()) << item.error.status;
  return item.document;
}

TEST(ToProto, OnlyWhatTheRecordItselfGives) {
  const v1::Document plain = ToProto(Parse(R"({"id":"a","text":"hello","metadata":{"seed":1}})"));
  EXPECT_EQ(plain.document_id(), "a");
  EXPECT_EQ(plain.content(), "hello");
  EXPECT_EQ(plain.media_type(), "");
  EXPECT_FALSE(plain.has_parameters()) << plain.DebugString();

  const v1::Parameters all =
      ToProto(
          Parse(R"({"id":"a","text":"t","prompt":"p","system":"","max_tokens":77,"temperature":0,"top_k":0,)"
                R"("top_p":1,"min_p":0,"repeat_penalty":1,"seed":5,"stop":"s","stop_token_ids":[1,2]})"))
          .parameters();
  EXPECT_EQ(all.prompt(), "p");
  EXPECT_TRUE(all.has_system()) << "an empty one is one";
  EXPECT_EQ(all.max_tokens(), 77) << "also where it is the default";
  EXPECT_TRUE(all.has_temperature());
  EXPECT_TRUE(all.has_top_k());
  EXPECT_EQ(all.top_p(), 1);
  EXPECT_TRUE(all.has_min_p());
  EXPECT_EQ(all.repeat_penalty(), 1);
  EXPECT_EQ(all.seed(), 5U);
  EXPECT_EQ(all.stop(0), "s");
  EXPECT_EQ(all.stop_token_ids_size(), 2);
  EXPECT_FALSE(all.has_capacity());
}

TEST(ToProto, OpenAiLine) {
  const v1::Document chat = ToProto(
      Parse(R"({"custom_id":"c","method":"POST","url":"/v1/chat/completions","body":{"messages":[)"
            R"({"role":"user","content":"say \"\u00e9\""}],"max_completion_tokens":9,"temperature":null}})"));
  EXPECT_EQ(chat.media_type(), "application/json");
  EXPECT_EQ(chat.content(), "[{\"role\":\"user\",\"content\":\"say \\\"\xc3\xa9\\\"\"}]");
  EXPECT_EQ(chat.parameters().max_tokens(), 9);
  EXPECT_FALSE(chat.parameters().has_temperature()) << "null is the same as absent";
}

TEST(DocumentIndex, FinishesEachOnce) {
  DocumentIndex index;
  index.Add("a", {.ordinal = 3, .line = 4, .form = RecordForm::kOpenAi});
  index.Add("a", {.ordinal = 9});
  EXPECT_EQ(index.Find("a")->ordinal, 3) << "the first note stays";
  EXPECT_FALSE(index.Find("b").has_value());
  EXPECT_EQ(index.unfinished(), 1);
  EXPECT_TRUE(index.Finish("a"));
  EXPECT_FALSE(index.Finish("a"));
  EXPECT_FALSE(index.Finish("b"));
  EXPECT_EQ(index.unfinished(), 0);
  index.Add("c", {.finished = true});
  EXPECT_EQ(index.unfinished(), 0);
  EXPECT_EQ(index.size(), 2);
}

TEST(ToDocumentResult, ErrorsKeepCodeReasonAndLine) {
  v1::Result result;
  result.set_document_id("a");
  result.mutable_status()->set_code(3);
  result.mutable_status()->set_reason("CONTEXT_EXCEEDED");
  result.mutable_status()->set_message("too long");
  const DocumentResult r = ToDocumentResult(result, {.line = 12});
  EXPECT_EQ(r.error.reason, "CONTEXT_EXCEEDED");
  EXPECT_EQ(r.error.status, absl::InvalidArgumentError("too long"));
  EXPECT_EQ(r.error.line, 12);
  result.mutable_status()->clear_reason();
  EXPECT_EQ(ToDocumentResult(result, {}).error.reason, "INVALID_ARGUMENT");
}

TEST(ToDocumentResult, CountsWithoutTokenIds) {
  v1::Result result;
  result.set_document_id("a");
  result.set_summary("text");
  result.set_finish_reason(v1::FINISH_REASON_LENGTH);
  result.mutable_usage()->set_prompt_tokens(10);
  result.mutable_usage()->set_completion_tokens(4);
  result.mutable_truncation()->set_tokens_removed(5);
  const auto record = Record(ToDocumentResult(result, {}), {});
  EXPECT_EQ(record["usage"]["completion_tokens"], 4);
  EXPECT_EQ(record["usage"]["total_tokens"], 14);
  EXPECT_EQ(record["finish_reason"], "length");
  EXPECT_EQ(record["truncated"]["tokens_removed"], 5);
  EXPECT_EQ(record["cache"]["policy"], "full") << "all rows were kept";
}

TEST(IsDocumentRefusal, SparesTheJob) {
  EXPECT_TRUE(IsDocumentRefusal(service::ServiceError(service::Reason::kDocumentTooLarge, "x")));
  EXPECT_TRUE(IsDocumentRefusal(service::ServiceError(service::Reason::kParameterInvalid, "x")));
  EXPECT_FALSE(IsDocumentRefusal(service::ServiceError(service::Reason::kJobTooLarge, "x")));
  EXPECT_FALSE(IsDocumentRefusal(service::ServiceError(service::Reason::kJobState, "x")));
  EXPECT_FALSE(IsDocumentRefusal(absl::InvalidArgumentError("x")));
  EXPECT_FALSE(IsDocumentRefusal(absl::OkStatus()));
}

TEST(JobText, TablesAndJsonAreSafe) {
  v1::Job job;
  job.set_name("jobs/a");
  job.set_state(static_cast<v1::Job::State>(77));
  job.set_display_name("x\x1b[0m");
  (*job.mutable_labels())["k\x1b"] = "v\n";
  job.mutable_counts()->set_documents(5);
  job.mutable_counts()->set_succeeded(2);
  job.mutable_counts()->set_failed(1);
  job.mutable_create_time()->set_seconds(1'700'000'000);
  EXPECT_EQ(StateName(job.state()), "STATE_77");
  const std::string text = JobText(job);
  EXPECT_THAT(text, Not(HasSubstr("\x1b")));
  EXPECT_THAT(text, HasSubstr("k?=v\n"));
  EXPECT_THAT(text, HasSubstr("3 of 5 documents done, 1 failed"));
  EXPECT_THAT(text, HasSubstr("2023-11-14 22:13:20 UTC"));
  google::protobuf::RepeatedPtrField<v1::Job> jobs;
  EXPECT_EQ(JobTable(jobs, true), "");
  *jobs.Add() = job;
  EXPECT_THAT(JobTable(jobs, true), Not(HasSubstr("\x1b")));
  const auto json = nlohmann::json::parse(JsonLine(JobJson(job)));
  EXPECT_EQ(json["create_time"], "2023-11-14T22:13:20.000Z");
  EXPECT_EQ(json["counts"]["documents"], 5);
  EXPECT_EQ(json["labels"]["k\x1b"], "v\n");
  EXPECT_FALSE(json.contains("status"));
}

}  // namespace
}  // namespace snapkv::launch
