// SPDX-License-Identifier: Apache-2.0
// Documents in pieces: where an upload goes on, what is refused, what is left of files after errors and
// restarts.
#include <fstream>
#include <sstream>

#include "tests/service/store_testing.h"

namespace snapkv::service {
namespace {

namespace fs = std::filesystem;

class UploadTest : public StoreTest {
 protected:
  void SetUp() override {
    StoreTest::SetUp();
    job_ = CreateOpen().name();
  }
  absl::StatusOr<v1::UploadStatus> Begin(const std::string& id, const std::string& text) {
    return store_->BeginUpload(kTenant, HeaderOf(job_, id, text));
  }
  absl::StatusOr<v1::UploadStatus> Append(const std::string& id, int64_t offset, const std::string& data) {
    return store_->Append(kTenant, job_, id, ChunkOf(offset, data));
  }
  int64_t Committed(const std::string& id) {
    auto status = store_->GetUpload(kTenant, job_, id);
    EXPECT_TRUE(status.ok()) << status.status();
    return status.ok() ? status->committed_size() : -1;
  }
  std::string File(const std::string& sub, int64_t document) {
    return absl::StrCat(folder_.path(), "/state/", sub, "/", document);
  }
  // The text as a worker gets it.
  std::string Leased() {
    EXPECT_OK(store_->SealJob(kTenant, job_));
    const auto leases = Acquire(1);
    EXPECT_EQ(leases.size(), 1u);
    return leases.empty() ? "" : ReadAll(leases[0], 7);
  }

  std::string job_;
};

TEST_F(UploadTest, InPieces) {
  auto begun = Begin("a", "one two three");
  ASSERT_OK(begun);
  EXPECT_EQ(begun->committed_size(), 0);
  EXPECT_EQ(begun->size_bytes(), 13);
  EXPECT_EQ(begun->job(), job_);
  EXPECT_FALSE(begun->complete());
  auto status = Append("a", 0, "one ");
  ASSERT_OK(status);
  EXPECT_EQ(status->committed_size(), 4);
  EXPECT_FALSE(status->complete());
  ASSERT_OK(Append("a", 4, "two "));
  EXPECT_EQ(Committed("a"), 8);
  EXPECT_EQ(Get(job_).counts().documents(), 1);
  EXPECT_EQ(Get(job_).counts().queued(), 0);
  EXPECT_EQ(Get(job_).counts().bytes(), 13);
  // Again with the same header: it goes on.
  begun = Begin("a", "one two three");
  ASSERT_OK(begun);
  EXPECT_EQ(begun->committed_size(), 8);
  EXPECT_EQ(Get(job_).counts().documents(), 1);
  status = Append("a", 8, "three");
  ASSERT_OK(status);
  EXPECT_TRUE(status->complete());
  EXPECT_EQ(Get(job_).counts().queued(), 1);
  begun = Begin("a", "one two three");
  ASSERT_OK(begun);
  EXPECT_TRUE(begun->complete());
  EXPECT_TRUE(store_->GetUpload(kTenant, job_, "a")->complete());
  EXPECT_EQ(Files("uploads"), 0u);
  EXPECT_EQ(Leased(), "one two three");
}

TEST_F(UploadTest, GoesOnAfterARestart) {
  ASSERT_OK(Begin("a", "one two three"));
  ASSERT_OK(Append("a", 0, "one "));
  Open();
  EXPECT_EQ(Committed("a"), 4);
  ASSERT_OK(Append("a", 4, "two three"));
  Open();
  EXPECT_EQ(Leased(), "one two three");
}

TEST_F(UploadTest, BytesBehindTheCommittedOnesAreCutOff) {
  ASSERT_OK(Begin("a", "one two three"));
  ASSERT_OK(Append("a", 0, "one "));
  Close();
  // As if the process had ended between the write and its commit.
  std::ofstream(File("uploads", 1), std::ios::app) << "never committed, and longer than the document";
  Open();
  EXPECT_EQ(Committed("a"), 4);
  ASSERT_OK(Append("a", 4, "two "));
  ASSERT_OK(Append("a", 8, "three"));
  EXPECT_EQ(Leased(), "one two three");
}

TEST_F(UploadTest, APublishedFileWithoutItsCommitIsTakenBack) {
  ASSERT_OK(Begin("a", "one two three"));
  ASSERT_OK(Append("a", 0, "one "));
  Close();
  std::ofstream(File("uploads", 1), std::ios::app) << "two three";
  fs::rename(File("uploads", 1), File("blobs", 1));
  Open();
  EXPECT_EQ(Committed("a"), 4);
  ASSERT_OK(Append("a", 4, "two three"));
  EXPECT_EQ(Leased(), "one two three");
}

TEST_F(UploadTest, OrphansAreRemovedAtTheStart) {
  ASSERT_OK(Begin("a", "one"));
  ASSERT_OK(Append("a", 0, "o"));
  ASSERT_OK(Upload(job_, "b", "two"));
  Close();
  for (const char* sub : {"uploads", "blobs"}) {
    std::ofstream(File(sub, 77)) << "orphan";
    std::ofstream(folder_.path() + "/state/" + sub + "/README") << "not ours";
  }
  Open();
  EXPECT_TRUE(fs::exists(File("uploads", 1)));
  EXPECT_TRUE(fs::exists(File("blobs", 2)));
  EXPECT_FALSE(fs::exists(File("uploads", 77)));
  EXPECT_FALSE(fs::exists(File("blobs", 77)));
  EXPECT_TRUE(fs::exists(folder_.path() + "/state/blobs/README"));
}

TEST_F(UploadTest, ALostFileIsNamed) {
  ASSERT_OK(Begin("a", "one two three"));
  ASSERT_OK(Append("a", 0, "one "));
  fs::remove(File("uploads", 1));
  const absl::Status lost = Append("a", 4, "two ").status();
  EXPECT_TRUE(absl::IsDataLoss(lost)) << lost;
  EXPECT_THAT(std::string(lost.message()), ::testing::HasSubstr("has 0 of the 4 bytes that were committed"));
}

TEST_F(UploadTest, WrongOffsets) {
  ASSERT_OK(Begin("a", "one two three"));
  ASSERT_OK(Append("a", 0, "one "));
  for (const int64_t offset : {int64_t{0}, int64_t{3}, int64_t{5}, int64_t{13}, int64_t{1} << 40}) {
    const absl::Status status = Append("a", offset, "x").status();
    EXPECT_REASON(status, Reason::kOffsetMismatch, "4 bytes are committed");
    EXPECT_EQ(FiguresOf(status), (std::vector<std::pair<std::string, std::string>>{{"committed_size", "4"}}));
  }
  EXPECT_EQ(Committed("a"), 4);
  auto empty = Append("a", 4, "");
  ASSERT_OK(empty);
  EXPECT_EQ(empty->committed_size(), 4);
  ASSERT_OK(Append("a", 4, "two three"));
  EXPECT_REASON(Append("a", 13, "more"), Reason::kOffsetMismatch, "complete with 13 bytes");
  EXPECT_REASON(Append("a", 0, "one "), Reason::kOffsetMismatch, "13 bytes are committed");
  EXPECT_EQ(Leased(), "one two three");
}

TEST_F(UploadTest, AWrongChecksumDropsTheData) {
  v1::UploadHeader header = HeaderOf(job_, "a", "one two three");
  ASSERT_OK(store_->BeginUpload(kTenant, header));
  ASSERT_OK(Append("a", 0, "one "));
  EXPECT_REASON(Append("a", 4, "too three"), Reason::kChecksumMismatch, "document 'a'");
  EXPECT_REASON(store_->GetUpload(kTenant, job_, "a"), Reason::kDocumentNotFound, "'a'");
  EXPECT_REASON(Append("a", 4, "two three"), Reason::kDocumentNotFound, "'a'");
  EXPECT_EQ(Get(job_).counts().documents(), 0);
  EXPECT_EQ(Get(job_).counts().bytes(), 0);
  EXPECT_EQ(Files("uploads") + Files("blobs"), 0u);
  // The same id, another header: the first one may have been at fault.
  ASSERT_OK(Upload(job_, "a", "one two four"));
  EXPECT_EQ(Leased(), "one two four");
}

TEST_F(UploadTest, MoreThanTheHeaderSaidDropsTheData) {
  ASSERT_OK(Begin("a", "one two three"));
  ASSERT_OK(Append("a", 0, "one "));
  EXPECT_REASON(Append("a", 4, "two three and more"), Reason::kChecksumMismatch,
                "has at least 22 bytes, its header says 13");
  EXPECT_REASON(store_->GetUpload(kTenant, job_, "a"), Reason::kDocumentNotFound, "'a'");
  EXPECT_EQ(Files("uploads"), 0u);
  EXPECT_EQ(Get(job_).counts().documents(), 0);
}

TEST_F(UploadTest, TextThatIsNoTextIsDropped) {
  EXPECT_REASON(Upload(job_, "blank", " \n\t "), Reason::kDocumentEmpty, "document 'blank'");
  EXPECT_REASON(Upload(job_, "latin1", "caf\xE9 au lait"), Reason::kDocumentNotUtf8, "byte offset 3");
  EXPECT_REASON(Upload(job_, "nul", std::string("a\0b", 3)), Reason::kDocumentNotUtf8,
                "NUL byte at offset 1");
  v1::UploadHeader json = HeaderOf(job_, "json", "{}");
  json.set_media_type("application/json");
  ASSERT_OK(store_->BeginUpload(kTenant, json));
  EXPECT_REASON(Append("json", 0, "{}"), Reason::kParameterInvalid, "document 'json': byte offset 0");
  EXPECT_EQ(Get(job_).counts().documents(), 0);
  EXPECT_EQ(Files("uploads") + Files("blobs"), 0u);
}

TEST_F(UploadTest, AnotherHeaderForTheSameId) {
  ASSERT_OK(Begin("a", "one two three"));
  EXPECT_REASON(Begin("a", "one two four!"), Reason::kDocumentIdDuplicate, "'a'");
  v1::UploadHeader header = HeaderOf(job_, "a", "one two three");
  header.set_media_type("text/plain");
  EXPECT_OK(store_->BeginUpload(kTenant, header)) << "the default, written out";
  header.set_media_type("application/json");
  EXPECT_REASON(store_->BeginUpload(kTenant, header), Reason::kDocumentIdDuplicate, "'a'");
  header.set_media_type("");
  header.mutable_parameters()->set_max_tokens(3);
  EXPECT_REASON(store_->BeginUpload(kTenant, header), Reason::kDocumentIdDuplicate, "'a'");
}

TEST_F(UploadTest, AnInlineDocumentHasItsIdAsWell) {
  v1::CreateJobRequest request = JobOf(1);
  request.set_open(true);
  const v1::Job job = Create(request);
  EXPECT_REASON(Upload(job.name(), "d0", "other"), Reason::kDocumentIdDuplicate, "'d0'");
  auto same = store_->BeginUpload(kTenant, HeaderOf(job.name(), "d0", "text of d0"));
  ASSERT_OK(same);
  EXPECT_TRUE(same->complete());
  ASSERT_OK(Upload(job.name(), "d1", "uploaded"));
  ASSERT_OK(store_->SealJob(kTenant, job.name()));
  const auto leases = Acquire();
  ASSERT_EQ(leases.size(), 2u);
  EXPECT_EQ(ReadAll(leases[0], 100), "text of d0");
  EXPECT_EQ(ReadAll(leases[1], 100), "uploaded");
}

TEST_F(UploadTest, LimitsAreCheckedAtTheHeader) {
  limits_.max_document_bytes = 10;
  limits_.max_job_bytes = 15;
  limits_.max_job_documents = 2;
  Open();
  EXPECT_REASON(Begin("a", "12345678901"), Reason::kDocumentTooLarge, "11 bytes, more than 10");
  ASSERT_OK(Begin("a", "1234567890"));
  EXPECT_REASON(Begin("b", "123456"), Reason::kJobTooLarge, "16 bytes, more than 15");
  ASSERT_OK(Begin("b", "12345"));
  EXPECT_REASON(Begin("c", "1"), Reason::kJobTooLarge, "3 documents, more than 2");
  EXPECT_OK(Begin("a", "1234567890")) << "known ones may go on";
  EXPECT_EQ(Get(job_).counts().documents(), 2);
}

TEST_F(UploadTest, OnlyWhileUploading) {
  ASSERT_OK(Upload(job_, "a", "one"));
  ASSERT_OK(store_->SealJob(kTenant, job_));
  EXPECT_REASON(Begin("b", "two"), Reason::kJobState, "is QUEUED");
  EXPECT_REASON(Begin("a", "one"), Reason::kJobState, "is QUEUED");
  EXPECT_REASON(Append("a", 3, "x"), Reason::kJobState, "is QUEUED");
  EXPECT_TRUE(store_->GetUpload(kTenant, job_, "a")->complete());
  EXPECT_REASON(store_->GetUpload(kTenant, job_, "b"), Reason::kDocumentNotFound, "'b'");
}

TEST_F(UploadTest, A16MibDocument) {
  std::string text;
  while (text.size() < (size_t{16} << 20)) absl::StrAppend(&text, "line ", text.size(), "\n");
  text.resize(size_t{16} << 20);
  ASSERT_OK(Begin("large", text));
  constexpr size_t kPiece = size_t{1} << 20;
  for (size_t at = 0; at < text.size(); at += kPiece) {
    ASSERT_OK(Append("large", static_cast<int64_t>(at), text.substr(at, kPiece)));
  }
  ASSERT_OK(store_->SealJob(kTenant, job_));
  const auto leases = Acquire(1);
  ASSERT_EQ(leases.size(), 1u);
  EXPECT_TRUE(ReadAll(leases[0], 1'000'003) == text) << "the text read differs from the text sent";
  auto middle = store_->ReadDocument(leases[0].name(), 1, 12'345'678, 10);
  ASSERT_OK(middle);
  EXPECT_EQ(*middle, text.substr(12'345'678, 10));
}

}  // namespace
}  // namespace snapkv::service
