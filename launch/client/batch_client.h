// SPDX-License-Identifier: Apache-2.0
// BatchClient: one run of `snapkv batch`. The input is read once from front to back and sent as one or more
// jobs, while another thread fetches the results of those that are sealed.
//
// Nothing lost, nothing doubled, whatever dies: a document has its record in the output, or is in a job of
// the side file (BatchJobs), or neither, and then it is submitted. A record is written only for a document
// that has none.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "launch/client/batch_jobs.h"
#include "launch/client/client_flags.h"
#include "launch/client/documents.h"
#include "launch/client/record_sink.h"
#include "launch/client/submission.h"

namespace snapkv::launch {

class BatchClient {
 public:
  BatchClient(const ClientFlags& flags, Session& session);
  // The exit code.
  int Run();

 private:
  // A job whose results are fetched, in the order in which they were sealed.
  struct Fetch {
    BatchJob job;
    bool ended_before = false;  // without success, before this run: what it lacks is submitted again
  };

  std::optional<int> Prepare();
  absl::Status LoadJobs();
  int End(const absl::Status& status);

  // --- The reading thread.
  // All items of the input; those without a record and without a job are submitted.
  absl::Status Pass();
  absl::Status TakeItem(int64_t ordinal, InputItem item);
  absl::Status Submit(int64_t ordinal, Document document);
  absl::Status Begin(int64_t ordinal);
  absl::Status FinishJob(int64_t end);
  // A job of an earlier run that the input does not fit any more: it is given up, its documents go again.
  absl::Status GiveUp(const BatchJob& job);
  void EnqueueEarlier(int64_t ordinal);
  SubmissionOptions MakeOptions();

  // --- The fetching thread.
  void FetchAll();
  absl::Status FetchJob(const Fetch& fetch);
  absl::Status Take(const v1::Result& result, BatchJob& job);
  absl::Status NoteProgress(const v1::Result& result, BatchJob& job);

  // --- Any thread.
  void Cancel(const std::string& job, const std::string& reason);
  void Refuse(const std::string& id, const absl::Status& status);
  void Enqueue(Fetch fetch);
  void Fail(const absl::Status& status);  // the first counts; stops the session
  void StopForStrict();
  void ShowProgress();
  bool WaitIdle();  // until all that is enqueued has been fetched

  const ClientFlags& flags_;
  Session& session_;
  const std::string params_sha256_;
  Display display_;
  BatchJobs jobs_;
  v1::Limits limits_;
  std::shared_ptr<DocumentSource> source_;
  std::shared_ptr<OutputLog> log_;
  std::unique_ptr<RecordSink> sink_;
  DocumentIndex index_;
  const absl::Time start_;

  // Of the reading thread.
  std::vector<Fetch> earlier_;        // sealed jobs of an earlier run, not enqueued yet
  std::optional<BatchJob> unsealed_;  // of an earlier run
  std::vector<BatchJob> covering_;    // sealed jobs of an earlier run: their items are not submitted
  std::unique_ptr<Submission> current_;
  BatchJob current_job_;
  bool current_is_earlier_ = false;
  int64_t seen_ = 0;  // items [0, seen_) have been taken in some pass

  std::atomic<int64_t> total_ = -1;   // items, once they are counted
  std::atomic<int64_t> skipped_ = 0;  // had a record before
  std::atomic<bool> strict_ended_ = false;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  // All guarded by mutex_.
  std::deque<Fetch> queue_;
  bool fetching_ = false;
  bool input_ended_ = false;
  absl::Status failure_;
  std::vector<std::string> problems_;             // jobs that ended without success
  absl::Time last_saved_ = absl::InfinitePast();  // of the fetching thread
};

}  // namespace snapkv::launch
