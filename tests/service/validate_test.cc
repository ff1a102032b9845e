// SPDX-License-Identifier: Apache-2.0
// Checks of requests: both ends of every range, names, texts, conversations.
#include "runtime/service/validate.h"

#include <cmath>
#include <functional>
#include <limits>

#include "runtime/service/conversation.h"
#include "tests/service/store_testing.h"

namespace snapkv::service {
namespace {

constexpr int64_t kInline = 1 << 20;

using Edit = std::function<void(v1::Parameters&)>;

absl::Status Check(const Edit& edit, bool of_job = true) {
  v1::Parameters parameters;
  edit(parameters);
  return ValidateParameters("p", parameters, of_job);
}

TEST(ValidateParameters, InRange) {
  const double tiny = std::numeric_limits<double>::denorm_min();
  const std::vector<Edit> good = {
      [](auto&) {},
      [](auto& p) { p.set_prompt(std::string(65'536, 'p')); },
      [](auto& p) { p.set_prompt(""); },
      [](auto& p) { p.set_system(std::string(65'536, 'p')); },
      [](auto& p) { p.set_max_tokens(1); },
      [](auto& p) { p.set_max_tokens(1'000'000); },
      [](auto& p) { p.set_temperature(0); },
      [](auto& p) { p.set_temperature(100); },
      [](auto& p) { p.set_top_k(0); },
      [](auto& p) { p.set_top_k(INT64_MAX); },
      [=](auto& p) { p.set_top_p(tiny); },
      [](auto& p) { p.set_top_p(1); },
      [](auto& p) { p.set_min_p(0); },
      [](auto& p) { p.set_min_p(1); },
      [=](auto& p) { p.set_repeat_penalty(tiny); },
      [](auto& p) { p.set_repeat_penalty(100); },
      [](auto& p) { p.set_seed(UINT64_MAX); },
      [](auto& p) {
        for (int i = 0; i < 16; ++i) p.add_stop(std::string(i == 0 ? 1 : 1024, 's'));
      },
      [](auto& p) {
        for (int i = 0; i < 64; ++i) p.add_stop_token_ids(i);
      },
      [](auto& p) { p.set_overflow(v1::OVERFLOW_MIDDLE); },
      [](auto& p) { p.set_window(1); },
      [](auto& p) { p.set_capacity(2); },
      [](auto& p) {
        p.set_window(32);
        p.set_capacity(33);
      },
      [](auto& p) { p.set_kernel(1); },
      [](auto& p) { p.set_kernel(7); },
  };
  for (size_t i = 0; i < good.size(); ++i) {
    EXPECT_TRUE(Check(good[i]).ok()) << "case " << i << ": " << Check(good[i]);
  }
}

TEST(ValidateParameters, OutOfRange) {
  const double nan = std::nan(""), infinity = std::numeric_limits<double>::infinity();
  const std::vector<std::pair<Edit, std::string>> bad = {
      {[](auto& p) { p.set_prompt(std::string(65'537, 'p')); },
       "p.prompt has 65537 bytes: it must have 0 to 65536"},
      {[](auto& p) { p.set_system(std::string(65'537, 'p')); }, "p.system has 65537 bytes"},
      {[](auto& p) { p.set_max_tokens(0); }, "p.max_tokens is 0: it must be 1 to 1000000"},
      {[](auto& p) { p.set_max_tokens(-1); }, "p.max_tokens is -1"},
      {[](auto& p) { p.set_max_tokens(1'000'001); }, "p.max_tokens is 1000001"},
      {[](auto& p) { p.set_temperature(-0.001); }, "p.temperature is -0.001: it must be 0 to 100"},
      {[](auto& p) { p.set_temperature(100.1); }, "p.temperature is 100.1"},
      {[=](auto& p) { p.set_temperature(nan); }, "p.temperature is nan"},
      {[=](auto& p) { p.set_temperature(infinity); }, "p.temperature is inf"},
      {[](auto& p) { p.set_top_k(-1); }, "p.top_k is -1: it must be at least 0"},
      {[](auto& p) { p.set_top_p(0); }, "p.top_p is 0: it must be above 0, at most 1"},
      {[](auto& p) { p.set_top_p(1.001); }, "p.top_p is 1.001"},
      {[=](auto& p) { p.set_top_p(nan); }, "p.top_p is nan"},
      {[](auto& p) { p.set_min_p(-0.1); }, "p.min_p is -0.1"},
      {[](auto& p) { p.set_min_p(1.1); }, "p.min_p is 1.1"},
      {[](auto& p) { p.set_repeat_penalty(0); }, "p.repeat_penalty is 0"},
      {[](auto& p) { p.set_repeat_penalty(101); }, "p.repeat_penalty is 101"},
      {[](auto& p) {
         for (int i = 0; i < 17; ++i) p.add_stop("s");
       },
       "p.stop has 17 texts: at most 16"},
      {[](auto& p) { p.add_stop(""); }, "p.stop[0] has 0 bytes: it must have 1 to 1024"},
      {[](auto& p) { p.add_stop(std::string(1025, 's')); }, "p.stop[0] has 1025 bytes"},
      {[](auto& p) {
         for (int i = 0; i < 65; ++i) p.add_stop_token_ids(i);
       },
       "p.stop_token_ids has 65 tokens"},
      {[](auto& p) { p.add_stop_token_ids(-1); }, "p.stop_token_ids[0] is -1"},
      {[](auto& p) { p.set_overflow(static_cast<v1::Overflow>(3)); }, "p.overflow is 3"},
      {[](auto& p) { p.set_window(0); }, "p.window is 0: it must be at least 1"},
      {[](auto& p) { p.set_capacity(1); }, "p.capacity is 1: it must be at least 2"},
      {[](auto& p) {
         p.set_window(32);
         p.set_capacity(32);
       },
       "p.capacity is 32: it must be more than the window, 32"},
      {[](auto& p) { p.set_kernel(0); }, "p.kernel is 0: it must be odd"},
      {[](auto& p) { p.set_kernel(4); }, "p.kernel is 4: it must be odd"},
      {[](auto& p) { p.set_kernel(-1); }, "p.kernel is -1"},
  };
  for (const auto& [edit, text] : bad) EXPECT_REASON(Check(edit), Reason::kParameterInvalid, text);
  EXPECT_REASON(Check([](auto& p) { p.set_capacity(64); }, false), Reason::kParameterInvalid,
                "p.capacity may be set");
  EXPECT_REASON(Check([](auto& p) { p.set_window(64); }, false), Reason::kParameterInvalid,
                "p.window may be set");
  EXPECT_REASON(Check([](auto& p) { p.set_kernel(5); }, false), Reason::kParameterInvalid,
                "p.kernel may be set");
}

TEST(ValidateDocumentId, Ids) {
  for (const std::string& id :
       {std::string("a"), std::string("docs/a b.txt"), std::string("\xC3\xA9"), std::string(512, 'x')}) {
    EXPECT_TRUE(ValidateDocumentId(id).ok()) << id;
  }
  const std::vector<std::pair<std::string, std::string>> bad = {
      {"", "has 0 bytes: it must have 1 to 512"},
      {std::string(513, 'x'), "has 513 bytes"},
      {"a\nb", "offset 1"},
      {std::string("ab\0", 3), "offset 2"},
      {"\x7F", "offset 0"},
      {"a\xC2\x85", "offset 1"},
      {"caf\xE9", "offset 3"},
  };
  for (const auto& [id, text] : bad) EXPECT_REASON(ValidateDocumentId(id), Reason::kDocumentIdInvalid, text);
}

TEST(ValidateContent, PlainText) {
  const auto check = [](const std::string& text) { return ValidateContent("document 'a'", "", text); };
  for (const char* text : {"a", " a ",
                           "\xEF\xBB\xBF"
                           "a",
                           "\xF0\x9F\x98\x80"}) {
    EXPECT_TRUE(check(text).ok()) << text;
  }
  for (const char* text : {"", " ", "\n\r\t\v\f ", "\xEF\xBB\xBF", "\xEF\xBB\xBF \n"}) {
    EXPECT_REASON(check(text), Reason::kDocumentEmpty, "document 'a': the document is empty");
  }
  EXPECT_REASON(check(std::string("a\0", 2)), Reason::kDocumentNotUtf8, "document 'a': NUL byte at offset 1");
  EXPECT_REASON(check("caf\xE9 au lait"), Reason::kDocumentNotUtf8, "not UTF-8 at byte offset 3");
  EXPECT_REASON(check("ab\xC3"), Reason::kDocumentNotUtf8, "byte offset 2");
  EXPECT_REASON(check("\xFF\xFEx"), Reason::kDocumentNotUtf8, "byte offset 0");
  EXPECT_REASON(check(std::string(70'000, 'x') + "\xED\xA0\x80"), Reason::kDocumentNotUtf8,
                "byte offset 70000");
}

TEST(Conversation, Read) {
  auto messages = ParseConversation(
      "\xEF\xBB\xBF [ {\"role\": \"system\", \"content\": \"Be brief.\"},\n"
      "{\"content\":[{\"type\":\"text\",\"text\":\"a\"},{\"text\":\"b\",\"type\":\"text\"}],\"role\":"
      "\"user\"},"
      "{\"role\":\"assistant\",\"content\":\"\\u00e9\\ud83d\\ude00 \\\"\\\\\\/\\b\\f\\n\\r\\t \xC3\xA9\"}] "
      "\n");
  ASSERT_OK(messages);
  ASSERT_EQ(messages->size(), 3u);
  EXPECT_EQ((*messages)[0].role, "system");
  EXPECT_EQ((*messages)[0].content, "Be brief.");
  EXPECT_EQ((*messages)[1].role, "user");
  EXPECT_EQ((*messages)[1].content, "a\nb");
  EXPECT_EQ((*messages)[2].content, "\xC3\xA9\xF0\x9F\x98\x80 \"\\/\b\f\n\r\t \xC3\xA9");
}

TEST(Conversation, Refused) {
  const std::string good = "{\"role\":\"user\",\"content\":\"x\"}";
  const std::vector<std::pair<std::string, std::string>> bad = {
      {"{}", "byte offset 0: expected '['"},
      {"[]", "byte offset 1: expected '{'"},
      {"[" + good, "byte offset 30: expected ',' or ']'"},
      {"[" + good + ",]", "byte offset 31: expected '{'"},
      {"[" + good + "]x", "byte offset 31: expected the end"},
      {"[{}]", "byte offset 2: expected a string"},
      {"[{\"role\":\"user\"}]", "byte offset 1: expected a message with \"role\" and \"content\""},
      {"[{\"content\":\"x\"}]", "byte offset 1: expected a message"},
      {"[{\"role\":\"tool\",\"content\":\"x\"}]", "byte offset 9: expected \"system\""},
      {"[{\"role\":\"user\",\"role\":\"user\",\"content\":\"x\"}]", "each once"},
      {"[{\"role\":\"user\",\"content\":\"x\",\"name\":\"y\"}]", "the members \"role\" and \"content\""},
      {"[{\"role\":\"user\",\"content\":7}]", "byte offset 26: expected a string"},
      {"[{\"role\":\"user\",\"content\":null}]", "expected a string"},
      {"[{\"role\":\"user\",\"content\":[]}]", "expected '{'"},
      {"[{\"role\":\"user\",\"content\":[{\"type\":\"image_url\",\"text\":\"\"}]}]",
       "byte offset 27: expected a part"},
      {"[{\"role\":\"user\",\"content\":[{\"type\":\"text\"}]}]", "expected a part"},
      {"[{'role':\"user\",\"content\":\"x\"}]", "expected a string"},
      {"[{\"role\" \"user\"}]", "expected ':'"},
      {"[{\"role\":\"user\" \"content\":\"x\"}]", "expected ',' or '}'"},
      {"[{\"role\":\"user\",\"content\":\"x\ny\"}]", "no control character"},
      {"[{\"role\":\"user\",\"content\":\"\\x\"}]", "an escape"},
      {"[{\"role\":\"user\",\"content\":\"\\u12g4\"}]", "four hexadecimal digits"},
      {"[{\"role\":\"user\",\"content\":\"\\u12", "four hexadecimal digits"},
      {"[{\"role\":\"user\",\"content\":\"x", "'\"' at the end"},
      {"[{\"role\":\"user\",\"content\":\"x\\", "an escape"},
  };
  for (const auto& [text, part] : bad) {
    EXPECT_REASON(ParseConversation(text), Reason::kParameterInvalid, part) << text;
  }
  const auto content = [](const std::string& text) {
    return "[{\"role\":\"user\",\"content\":\"" + text + "\"}]";
  };
  for (const char* escape :
       {"\\ud83d", "\\ud83dx", "\\ud83d\\n", "\\ud83d\\u0041", "\\ude00", "\\ud83d\\ud83d"}) {
    EXPECT_REASON(ParseConversation(content(escape)), Reason::kDocumentNotUtf8, "byte offset 27") << escape;
  }
  EXPECT_REASON(ParseConversation(content("a\\u0000")), Reason::kDocumentNotUtf8,
                "byte offset 28: \\u0000 is a NUL");
  EXPECT_REASON(ParseConversation(content(" \\n\\t")), Reason::kDocumentEmpty, "no message has any text");
  EXPECT_REASON(ValidateContent("document 'a'", "application/json", "[]"), Reason::kParameterInvalid,
                "document 'a': byte offset 1");
}

v1::CreateJobRequest Good() {
  v1::CreateJobRequest request = JobOf(2);
  request.set_request_id("Run-7._:x");
  return request;
}

TEST(ValidateCreateJob, Good) {
  const StoreLimits limits;
  EXPECT_OK(ValidateCreateJob(Good(), limits, kInline));
  v1::CreateJobRequest request = Good();
  request.set_request_id("");
  request.mutable_job()->clear_model();
  request.mutable_job()->set_display_name(std::string(256, 'n'));
  request.mutable_job()->set_priority(-100);
  for (int i = 0; i < 64; ++i)
    (*request.mutable_job()->mutable_labels())[absl::StrCat("k", i)] = std::string(256, 'v');
  request.mutable_job()->mutable_parameters()->set_capacity(64);
  EXPECT_OK(ValidateCreateJob(request, limits, kInline));
  request.clear_documents();
  request.set_open(true);
  EXPECT_OK(ValidateCreateJob(request, limits, kInline));
}

TEST(ValidateCreateJob, Bad) {
  using Change = std::function<void(v1::CreateJobRequest&)>;
  struct Case {
    Change change;
    Reason reason;
    std::string text;
  };
  const Reason parameter = Reason::kParameterInvalid;
  const std::vector<Case> cases = {
      {[](auto& r) { r.set_request_id(std::string(129, 'r')); }, parameter, "request_id has 129 bytes"},
      {[](auto& r) { r.set_request_id("a b"); }, parameter, "[A-Za-z0-9._:-] at offset 1"},
      {[](auto& r) { r.mutable_job()->set_display_name(std::string(257, 'n')); }, parameter,
       "job.display_name has 257"},
      {[](auto& r) { r.mutable_job()->set_display_name("a\x1B[31m"); }, parameter,
       "job.display_name has a control"},
      {[](auto& r) { r.mutable_job()->set_model("m"); }, parameter,
       "job.model is 'm': it must be models/ and an id"},
      {[](auto& r) { r.mutable_job()->set_model("models/"); }, parameter,
       "job.model: the id behind models/ has 0 bytes"},
      {[](auto& r) { r.mutable_job()->set_priority(101); }, parameter,
       "job.priority is 101: it must be -100 to 100"},
      {[](auto& r) { r.mutable_job()->set_priority(-101); }, parameter, "job.priority is -101"},
      {[](auto& r) { r.mutable_job()->mutable_parameters()->set_max_tokens(0); }, parameter,
       "job.parameters.max_tokens"},
      {[](auto& r) {
         for (int i = 0; i < 65; ++i) (*r.mutable_job()->mutable_labels())[absl::StrCat(i)] = "";
       },
       parameter, "job.labels has 65 pairs"},
      {[](auto& r) { (*r.mutable_job()->mutable_labels())[""] = "v"; }, parameter,
       "a key of job.labels has 0 bytes"},
      {[](auto& r) { (*r.mutable_job()->mutable_labels())["k"] = std::string(257, 'v'); }, parameter,
       "job.labels['k'] has 257 bytes"},
      {[](auto& r) { r.clear_documents(); }, parameter, "the job has no documents"},
      {[](auto& r) { r.mutable_documents(1)->set_document_id(""); }, Reason::kDocumentIdInvalid,
       "documents[1]: document_id has 0 bytes"},
      {[](auto& r) { r.mutable_documents(1)->set_document_id("d0"); }, Reason::kDocumentIdDuplicate,
       "documents[1]: document_id 'd0'"},
      {[](auto& r) { r.mutable_documents(1)->set_content(""); }, Reason::kDocumentEmpty, "document 'd1'"},
      {[](auto& r) { r.mutable_documents(1)->set_content(" \n"); }, Reason::kDocumentEmpty, "document 'd1'"},
      {[](auto& r) { r.mutable_documents(1)->set_content("\xE9"); }, Reason::kDocumentNotUtf8,
       "document 'd1': not UTF-8 at byte offset 0"},
      {[](auto& r) { r.mutable_documents(1)->set_media_type("text/html"); }, parameter,
       "document 'd1': media_type is 'text/html'"},
      {[](auto& r) { r.mutable_documents(1)->set_media_type("application/json"); }, parameter,
       "document 'd1': byte offset 0"},
      {[](auto& r) { r.mutable_documents(1)->mutable_parameters()->set_window(3); }, parameter,
       "document 'd1': parameters.window may be set for a whole job only"},
      {[](auto& r) { r.mutable_documents(1)->set_content(std::string(kInline, 'x')); }, Reason::kJobTooLarge,
       "inline documents have 1048586 bytes together, more than 1048576"},
  };
  for (const Case& c : cases) {
    v1::CreateJobRequest request = Good();
    c.change(request);
    EXPECT_REASON(ValidateCreateJob(request, StoreLimits(), kInline), c.reason, c.text);
  }
  StoreLimits limits;
  limits.max_job_documents = 1;
  EXPECT_REASON(ValidateCreateJob(Good(), limits, kInline), Reason::kJobTooLarge, "2 documents, more than 1");
  limits = StoreLimits();
  limits.max_job_bytes = 19;
  EXPECT_REASON(ValidateCreateJob(Good(), limits, kInline), Reason::kJobTooLarge, "20 bytes, more than 19");
  limits = StoreLimits();
  limits.max_document_bytes = 9;
  EXPECT_REASON(ValidateCreateJob(Good(), limits, kInline), Reason::kDocumentTooLarge,
                "10 bytes, more than 9");
}

TEST(ValidateUpload, HeaderAndChunk) {
  const StoreLimits limits;
  const v1::UploadHeader good = HeaderOf("jobs/1", "a", "text");
  EXPECT_OK(ValidateUploadHeader(good, limits));
  const auto bad = [&](const std::function<void(v1::UploadHeader&)>& change) {
    v1::UploadHeader header = good;
    change(header);
    return ValidateUploadHeader(header, limits);
  };
  EXPECT_REASON(bad([](auto& h) { h.set_job("1"); }), Reason::kParameterInvalid, "header.job is '1'");
  EXPECT_REASON(bad([](auto& h) { h.set_document_id(""); }), Reason::kDocumentIdInvalid,
                "header: document_id");
  EXPECT_REASON(bad([](auto& h) { h.set_size_bytes(0); }), Reason::kDocumentEmpty, "has 0 bytes");
  EXPECT_REASON(bad([](auto& h) { h.set_size_bytes(-1); }), Reason::kDocumentEmpty, "has -1 bytes");
  EXPECT_REASON(bad([](auto& h) { h.set_size_bytes((16 << 20) + 1); }), Reason::kDocumentTooLarge,
                "16777217 bytes, more than 16777216");
  EXPECT_REASON(bad([](auto& h) { h.set_sha256("abc"); }), Reason::kParameterInvalid,
                "header.sha256 has 3 bytes");
  EXPECT_REASON(bad([](auto& h) { h.set_media_type("x"); }), Reason::kParameterInvalid, "media_type is 'x'");
  EXPECT_REASON(bad([](auto& h) { h.mutable_parameters()->set_top_p(2); }), Reason::kParameterInvalid,
                "header.parameters.top_p is 2");
  EXPECT_OK(ValidateChunk(ChunkOf(0, "x"), 4));
  EXPECT_OK(ValidateChunk(ChunkOf(9, "xxxx"), 4));
  EXPECT_REASON(ValidateChunk(ChunkOf(0, ""), 4), Reason::kParameterInvalid, "chunk.data has 0 bytes");
  EXPECT_REASON(ValidateChunk(ChunkOf(0, "xxxxx"), 4), Reason::kParameterInvalid, "chunk.data has 5 bytes");
  EXPECT_REASON(ValidateChunk(ChunkOf(-1, "x"), 4), Reason::kParameterInvalid, "chunk.offset is -1");
}

TEST(ValidateOthers, Requests) {
  v1::CancelJobRequest cancel;
  cancel.set_reason(std::string(1024, 'r'));
  EXPECT_OK(ValidateCancelJob(cancel));
  cancel.set_reason(std::string(1025, 'r'));
  EXPECT_REASON(ValidateCancelJob(cancel), Reason::kParameterInvalid, "reason has 1025 bytes");

  v1::SummarizeRequest summarize;
  summarize.set_content("text");
  EXPECT_OK(ValidateSummarize(summarize, kInline));
  summarize.mutable_parameters()->set_capacity(5);
  EXPECT_REASON(ValidateSummarize(summarize, kInline), Reason::kParameterInvalid, "parameters.capacity");
  summarize.clear_parameters();
  summarize.set_content(std::string(kInline + 1, 'x'));
  EXPECT_REASON(ValidateSummarize(summarize, kInline), Reason::kDocumentTooLarge, "1048577 bytes");
  summarize.set_content("");
  EXPECT_REASON(ValidateSummarize(summarize, kInline), Reason::kDocumentEmpty, "the document");
  summarize.set_content("x");
  summarize.set_model("x");
  EXPECT_REASON(ValidateSummarize(summarize, kInline), Reason::kParameterInvalid, "model is 'x'");

  v1::RegisterWorkerRequest worker;
  worker.mutable_worker()->set_model("models/m");
  worker.mutable_worker()->set_model_fingerprint("f");
  worker.mutable_worker()->set_max_context(8192);
  worker.mutable_worker()->set_max_batch(4);
  worker.mutable_worker()->set_ranks(2);
  EXPECT_OK(ValidateRegisterWorker(worker));
  for (const auto& change : std::vector<std::function<void(v1::Worker&)>>{
           [](auto& w) { w.set_model(""); }, [](auto& w) { w.set_model_fingerprint(""); },
           [](auto& w) { w.set_max_context(0); }, [](auto& w) { w.set_max_batch(0); },
           [](auto& w) { w.set_ranks(-1); }, [](auto& w) { w.set_version(std::string(300, 'v')); }}) {
    v1::RegisterWorkerRequest changed = worker;
    change(*changed.mutable_worker());
    EXPECT_REASON(ValidateRegisterWorker(changed), Reason::kParameterInvalid, "worker.");
  }

  v1::AcquireLeaseRequest acquire;
  acquire.set_worker("workers/w");
  acquire.set_max_leases(64);
  acquire.mutable_wait()->set_seconds(30);
  EXPECT_OK(ValidateAcquireLease(acquire));
  acquire.mutable_wait()->set_nanos(1'000'000);
  EXPECT_REASON(ValidateAcquireLease(acquire), Reason::kParameterInvalid, "wait in seconds is 30.001");
  acquire.mutable_wait()->set_seconds(-1);
  EXPECT_REASON(ValidateAcquireLease(acquire), Reason::kParameterInvalid, "wait in seconds");
  acquire.clear_wait();
  for (const int leases : {0, 65, -1}) {
    acquire.set_max_leases(leases);
    EXPECT_REASON(ValidateAcquireLease(acquire), Reason::kParameterInvalid,
                  absl::StrCat("max_leases is ", leases));
  }
  acquire.set_max_leases(1);
  acquire.set_worker("w");
  EXPECT_REASON(ValidateAcquireLease(acquire), Reason::kParameterInvalid, "worker is 'w'");

  v1::RenewLeaseRequest renew;
  renew.set_worker("workers/w");
  for (int i = 0; i < 65; ++i) renew.add_leases();
  EXPECT_REASON(ValidateRenewLease(renew), Reason::kParameterInvalid, "number of leases is 65");
  renew.mutable_leases()->RemoveLast();
  EXPECT_OK(ValidateRenewLease(renew));
}

TEST(Meaning, OutputOnlyFieldsAreTheServers) {
  v1::Job job;
  job.set_name("jobs/1");
  job.set_display_name("kept");
  job.set_model("models/m");
  job.mutable_parameters()->set_seed(1);
  job.set_priority(1);
  (*job.mutable_labels())["k"] = "v";
  const std::string given_without_name = [&] {
    v1::Job copy = job;
    copy.clear_name();
    return copy.SerializeAsString();
  }();
  job.set_state(v1::Job::FAILED);
  job.mutable_counts()->set_failed(1);
  job.mutable_status()->set_code(1);
  job.set_version(3);
  job.set_tenant("t");
  job.mutable_create_time()->set_seconds(1);
  job.mutable_start_time()->set_seconds(1);
  job.mutable_end_time()->set_seconds(1);
  job.mutable_expire_time()->set_seconds(1);
  job.set_results(4);
  ClearOutputOnly(job);
  EXPECT_EQ(job.SerializeAsString(), given_without_name);
  EXPECT_EQ(MediaTypeOf(""), "text/plain");
  EXPECT_EQ(MediaTypeOf("application/json"), "application/json");
  EXPECT_EQ(PageSizeOf(0), 50);
  EXPECT_EQ(PageSizeOf(7), 7);
  EXPECT_EQ(PageSizeOf(1001), 1000);
}

}  // namespace
}  // namespace snapkv::service
