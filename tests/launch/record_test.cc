// SPDX-License-Identifier: Apache-2.0
// Records: every key of both forms, HTTP status codes, text, and what the hash of the parameters depends on.
#include "launch/output/record.h"

#include <gmock/gmock.h>

#include <functional>
#include <set>

#include "runtime/hash/sha256.h"
#include "tests/launch/output_testing.h"

namespace snapkv::launch {
namespace {

using nlohmann::ordered_json;

ordered_json Parsed(const std::string& line) {
  EXPECT_EQ(line.find('\n'), line.size() - 1) << "one line: " << line;
  return ordered_json::parse(line);
}

TEST(Record, ShortFormOfASummary) {
  EXPECT_EQ(
      Line(Summarised("a.txt", "Two\nlines \"quoted\"")),
      R"({"id":"a.txt","summary":"Two\nlines \"quoted\"","finish_reason":"stop",)"
      R"("usage":{"prompt_tokens":100,"completion_tokens":3,"total_tokens":103},)"
      R"("timings":{"queue_ms":500.0,"prefill_ms":2000.0,"decode_ms":250.0,)"
      R"("prefill_tokens_per_s":50.0,"decode_tokens_per_s":8.0},)"
      R"("cache":{"policy":"snapkv","rows_full":100,"rows_kept":64,"bytes_full":1000,"bytes_kept":640},)"
      R"("params_sha256":")" +
          Params() + R"(","error":null})" + "\n");
}

TEST(Record, ShortFormOfAnError) {
  const std::string beginning =
      R"({"id":"line-7","summary":null,"finish_reason":"error","usage":null,"timings":null,"cache":null,)"
      R"("params_sha256":")" +
      Params() +
      R"(","error":{"code":"INVALID_ARGUMENT","reason":"DOCUMENT_EMPTY",)"
      R"("message":"d.jsonl line 7: the document is empty",)";
  EXPECT_EQ(Line(Failed("line-7")), beginning + R"("line":7,"column":3}})" + "\n");
  DocumentResult elsewhere = Failed("line-7");
  elsewhere.error.line = elsewhere.error.column = 0;
  EXPECT_EQ(Line(elsewhere), beginning + R"("line":null,"column":null}})" + "\n");
}

TEST(Record, OptionalKeys) {
  DocumentResult result = Summarised("a");
  result.truncated = Truncation{.tokens_full = 900, .tokens_removed = 800, .bytes_removed = 3210};
  for (const RecordForm form : {RecordForm::kShort, RecordForm::kOpenAi}) {
    result.form = form;
    const ordered_json plain = Record(Summarised("a", "t", form), {});
    EXPECT_FALSE(plain.contains("truncated"));
    EXPECT_FALSE(plain.contains("token_ids"));
    const ordered_json full = Record(result, {.token_ids = true});
    EXPECT_EQ(full["truncated"].dump(), R"({"tokens_full":900,"tokens_removed":800,"bytes_removed":3210})");
    EXPECT_EQ(full["token_ids"].dump(), "[5,6,7]");
    EXPECT_FALSE(Record(Failed("b", form), {.token_ids = true}).contains("token_ids"));
  }
}

TEST(Record, OpenAiFormOfASummary) {
  const ordered_json record = Parsed(Line(Summarised("my id", "Text", RecordForm::kOpenAi)));
  const std::string hash = runtime::Sha256Hex("my id").substr(0, 16);
  const std::string expected =
      R"({"id":"batch_req_HASH","custom_id":"my id","response":{"status_code":200,"request_id":"req_HASH",)"
      R"("body":{"id":"chatcmpl-HASH","object":"chat.completion","created":1700000000,"model":"tiny",)"
      R"("choices":[{"index":0,"message":{"role":"assistant","content":"Text"},"logprobs":null,)"
      R"("finish_reason":"stop"}],)"
      R"("usage":{"prompt_tokens":100,"completion_tokens":3,"total_tokens":103}}},"error":null,)"
      R"("cache":{"policy":"snapkv","rows_full":100,"rows_kept":64,"bytes_full":1000,"bytes_kept":640},)"
      R"("timings":{"queue_ms":500.0,"prefill_ms":2000.0,"decode_ms":250.0,)"
      R"("prefill_tokens_per_s":50.0,"decode_tokens_per_s":8.0},"params_sha256":")" +
      Params() + "\"}";
  std::string filled = expected;
  for (size_t at; (at = filled.find("HASH")) != std::string::npos;) filled.replace(at, 4, hash);
  EXPECT_EQ(record.dump(), filled);
}

TEST(Record, OpenAiFormOfAnError) {
  const ordered_json record = Parsed(Line(Failed("my id", RecordForm::kOpenAi)));
  EXPECT_EQ(record["response"]["status_code"], 400);
  EXPECT_EQ(record["response"]["body"].dump(),
            R"({"error":{"code":"DOCUMENT_EMPTY","message":"d.jsonl line 7: the document is empty",)"
            R"("type":"invalid_request_error","param":null}})");
  EXPECT_EQ(
      record["error"].dump(),
      R"({"code":"DOCUMENT_EMPTY","message":"d.jsonl line 7: the document is empty","line":7,"column":3})");
  EXPECT_TRUE(record["cache"].is_null());
  EXPECT_TRUE(record["timings"].is_null());
  EXPECT_EQ(record["params_sha256"], Params());
}

TEST(Record, AnErrorNeverHasStatus200) {
  for (int code = 1; code <= 16; ++code) {
    DocumentResult result = Failed("a", RecordForm::kOpenAi);
    result.error = {absl::Status(static_cast<absl::StatusCode>(code), "x"), "REASON"};
    const int status = Record(result, {})["response"]["status_code"];
    EXPECT_GE(status, 400) << "code " << code;
    EXPECT_LT(status, 600) << "code " << code;
    const std::string type = Record(result, {})["response"]["body"]["error"]["type"];
    EXPECT_EQ(type, status < 500 ? "invalid_request_error" : "server_error");
  }
  const auto status = [](const absl::Status& s, const char* reason) { return HttpStatus({s, reason}); };
  EXPECT_EQ(status(InvalidArgument("x"), "CONTEXT_EXCEEDED"), 400);
  EXPECT_EQ(status(InvalidArgument("x"), "DOCUMENT_TOO_LARGE"), 413);
  EXPECT_EQ(status(NotFound("x"), "DOCUMENT_NOT_FOUND"), 404);
  EXPECT_EQ(status(ResourceExhausted("x"), "CACHE_BYTES"), 413);
  EXPECT_EQ(status(ResourceExhausted("x"), "QUEUE_FULL"), 429);
  EXPECT_EQ(status(Internal("x"), "INTERNAL"), 500);
  EXPECT_EQ(status(absl::UnavailableError("x"), "DRAINING"), 503);
  EXPECT_EQ(status(DeadlineExceeded("x"), "TIME_LIMIT"), 504);
}

TEST(Record, TimesAreRoundedToTenths) {
  DocumentResult result = Summarised("a");
  result.queue_s = 0.00012345;
  result.prefill_s = 0.0123456;
  result.decode_s = 0.0333333;
  EXPECT_EQ(Record(result, {})["timings"].dump(),
            R"({"queue_ms":0.1,"prefill_ms":12.3,"decode_ms":33.3,"prefill_tokens_per_s":8100.1,)"
            R"("decode_tokens_per_s":60.0})");
}

TEST(Record, FiguresWithoutTime) {
  DocumentResult result = Summarised("a");
  result.prefill_s = result.decode_s = 0;
  result.token_ids.clear();
  const ordered_json timings = Record(result, {})["timings"];
  EXPECT_EQ(timings["prefill_tokens_per_s"], 0.0);
  EXPECT_EQ(timings["decode_tokens_per_s"], 0.0);
  result.decode_s = 1;
  EXPECT_EQ(Record(result, {})["timings"]["decode_tokens_per_s"], 0.0) << "not -1";
}

TEST(Record, BytesThatAreNotUtf8AreReplaced) {
  DocumentResult result = Failed("caf\xE9.txt");
  result.error.status = InvalidArgument("caf\xE9.txt: bad");
  const ordered_json record = Parsed(Line(result));
  EXPECT_EQ(record["id"], "caf\xEF\xBF\xBD.txt");
}

TEST(Record, Text) {
  EXPECT_EQ(TextRecord(Summarised("a", "Some text."), false), "Some text.\n");
  EXPECT_EQ(TextRecord(Summarised("a", "Some text."), true), "== a ==\nSome text.\n\n");
  EXPECT_EQ(TextRecord(Failed("b"), false), "error: d.jsonl line 7: the document is empty\n");
  EXPECT_EQ(TextRecord(Failed("b"), true), "== b ==\nerror: d.jsonl line 7: the document is empty\n\n");
}

TEST(ParamsSha256, EveryFieldCounts) {
  const std::vector<std::function<void(RunParams&)>> changes = {
      [](RunParams&) {},
      [](RunParams& p) { p.model_name = "m.gguf"; },
      [](RunParams& p) { p.model_bytes = 1; },
      [](RunParams& p) { p.model_fingerprint = "f"; },
      [](RunParams& p) { p.dtype = "f32"; },
      [](RunParams& p) { p.defaults.prompt = "x"; },
      [](RunParams& p) { p.defaults.system = "x"; },
      [](RunParams& p) { p.defaults.max_tokens = 7; },
      [](RunParams& p) { p.defaults.temperature = 0.5; },
      [](RunParams& p) { p.defaults.top_k = 7; },
      [](RunParams& p) { p.defaults.top_p = 0.5; },
      [](RunParams& p) { p.defaults.min_p = 0.5; },
      [](RunParams& p) { p.defaults.repeat_penalty = 1.5; },
      [](RunParams& p) { p.defaults.seed = 7; },
      [](RunParams& p) {
        p.defaults.stops = {"a", "b"};
      },
      [](RunParams& p) { p.defaults.stops = {"a,b"}; },
      [](RunParams& p) { p.defaults.stop_token_ids = {7}; },
      [](RunParams& p) { p.policy = "full"; },
      [](RunParams& p) { p.capacity = 7; },
      [](RunParams& p) { p.window = 7; },
      [](RunParams& p) { p.kernel = 7; },
      [](RunParams& p) { p.pool = "max"; },
      [](RunParams& p) { p.group = "max"; },
      [](RunParams& p) { p.raw = true; },
      [](RunParams& p) { p.encoding = "latin1"; },
      [](RunParams& p) { p.context = 7; },
      [](RunParams& p) { p.overflow = "middle"; },
      [](RunParams& p) { p.ignore_eos = true; },
  };
  std::set<std::string> seen;
  for (size_t i = 0; i < changes.size(); ++i) {
    RunParams params;
    changes[i](params);
    const std::string hash = ParamsSha256(params);
    EXPECT_EQ(hash.size(), 64U);
    EXPECT_EQ(hash, ParamsSha256(params));
    EXPECT_TRUE(seen.insert(hash).second) << "change " << i << " makes no difference";
  }
}

TEST(Sha256Hex, KnownAnswers) {
  EXPECT_EQ(runtime::Sha256Hex(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(runtime::Sha256Hex("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

}  // namespace
}  // namespace snapkv::launch
