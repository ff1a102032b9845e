// SPDX-License-Identifier: Apache-2.0
// BatchRun: the decode rank's side of a batch. Takes documents from the queue, gives their prompts to the
// engine, and makes a record of everything that happens to them.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "launch/document_queue.h"
#include "launch/document_run.h"
#include "launch/flags.h"
#include "launch/input/document_source.h"
#include "launch/output/closing.h"
#include "launch/output/progress.h"
#include "launch/output/record.h"
#include "launch/result_writer.h"
#include "runtime/engine/batch.h"

namespace snapkv::launch {

struct BatchRunOptions {
  const Flags* flags = nullptr;
  const runtime::ModelConfig* config = nullptr;
  DType dtype = DType::kF32;
  RecordContext record;
  // The only document is one text: no headings, and on stdout it appears as it is made.
  bool one_text = false;
  ProgressOptions progress;
  // How many documents there are; called now and then by the thread that runs the batch.
  std::function<ItemCount()> count_documents;
  int64_t skipped = 0;        // that --resume found
  int64_t failed_before = 0;  // of these
  bool resumable = false;     // the output can be gone on with
};

class BatchRun final : public DocumentRun {
 public:
  // `writer` and what the options point to must outlive it.
  BatchRun(const BatchRunOptions& options, std::unique_ptr<DocumentQueue> queue, ResultWriter& writer);

  // Waits for the first document that can be prefilled; bad ones before it get their records. False when
  // there is none. For before the weights are loaded.
  bool Prime();

  Supply Next(bool idle, runtime::Prompt& prompt) override;
  void OnPrefillStarted(int64_t ticket) override;
  void OnProgress(int64_t layers_done, int64_t layers, int64_t open_documents,
                  int64_t tokens_generated) override;
  void OnPrefilled(int64_t ticket, const runtime::PrefillResult& result, double seconds) override;
  void OnFinished(int64_t ticket, absl::StatusOr<runtime::Generation> generation,
                  const runtime::DocumentTimes& times) override;
  bool Abandoned() override { return !writer_.status().ok(); }
  bool Cancelled(int64_t) override { return false; }
  void OnSignal(int signal) override;

  // After the last document: waits for the writer and says how it went. The exit code; 6 takes precedence,
  // and 1 is for a batch that came to its end.
  int Finish() override;

  const BatchTotals& totals() const override { return totals_; }
  // The first prompt's length if it is the only one.
  std::string Describe() const override;
  // After Finish: a line and, for a few documents, a table with the peak memory of each rank, for many a list
  // of those that failed; nothing for one text, unless there was nothing to do.
  void LogClosing(const std::vector<int64_t>& peak_bytes) const override;

 private:
  struct OpenDocument {
    Document document;
    DocumentResult result;
    absl::Time read;
  };
  enum class End : uint8_t { kNone, kInput, kSignal, kTimeLimit, kStrict, kOutput };

  // Takes the next document from the queue; errors become records on the way. False when there is none now.
  bool TakeDocument(absl::Duration wait);
  // Stops taking documents, for the first reason given.
  void StopFor(End reason);
  DocumentError CheckCache(const PreparedDocument& prepared) const;
  // The text goes to stdout while it is made.
  bool streams() const {
    return options_.one_text && flags_.to_stdout() && flags_.output_format() == OutputFormat::kText;
  }
  void CheckStops();
  void Reject(int64_t sequence, const Document& document, const DocumentError& error);
  void LogTruncated(const std::string& id, const Truncation& cut);
  // " for the rest start again with --resume" where that can be done.
  std::string ResumeAdvice() const;
  absl::Status WriteDumps(const runtime::PrefillResult& result) const;
  runtime::Prompt MakePrompt(PreparedDocument prepared, int64_t sequence);
  std::string Render(const DocumentResult& result) const;

  const BatchRunOptions options_;
  const Flags& flags_;
  std::unique_ptr<DocumentQueue> queue_;
  ResultWriter& writer_;
  Progress progress_;
  const absl::Time start_;
  std::optional<PreparedDocument> next_;  // taken and not yet handed out
  int64_t next_sequence_ = 0;             // of next_, else of the next document to be taken
  std::map<int64_t, OpenDocument> open_;  // by sequence
  End end_ = End::kNone;
  bool queue_ended_ = false;
  int signal_ = 0;
  absl::Status failure_;  // of the input or a dump
  int64_t errors_shown_ = 0;
  int64_t cuts_shown_ = 0;
  int64_t prefilling_ = 0;  // ticket
  BatchTotals totals_;
  std::map<int64_t, ClosingRow> rows_;    // by sequence, of a few documents
  std::map<int64_t, ClosingRow> failed_;  // of the first that failed
};

}  // namespace snapkv::launch
