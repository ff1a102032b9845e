// SPDX-License-Identifier: Apache-2.0
// WorkerRun: the decode rank's side of a worker. Documents come from the job server and results go there.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "launch/document_run.h"
#include "launch/flags.h"
#include "launch/output/progress.h"
#include "launch/worker/session.h"

namespace snapkv::launch {

struct WorkerRunOptions {
  const Flags* flags = nullptr;
  SessionOptions session;
  ProgressOptions progress;
};

// The engine's thread never waits for the network: the session does. It begins with the first Next, when the
// model is loaded: a worker that is registered can work.
class WorkerRun final : public DocumentRun {
 public:
  // What the options point to must outlive it.
  explicit WorkerRun(WorkerRunOptions options);

  Supply Next(bool idle, runtime::Prompt& prompt) override;
  void OnPrefillStarted(int64_t ticket) override;
  void OnProgress(int64_t layers_done, int64_t layers, int64_t open_documents,
                  int64_t tokens_generated) override;
  void OnPrefilled(int64_t ticket, const runtime::PrefillResult& result, double seconds) override;
  void OnFinished(int64_t ticket, absl::StatusOr<runtime::Generation> generation,
                  const runtime::DocumentTimes& times) override;
  bool Abandoned() override;
  bool Cancelled(int64_t ticket) override;
  void OnSignal(int signal) override;

  // Hands back what was not begun and hands in what there is, or gives up after a while. 128 + signal, 124
  // after --time-limit, 4 when the server could not be reached or did not let the worker in, 5 when it
  // refused it.
  int Finish() override;
  const BatchTotals& totals() const override { return totals_; }
  std::string Describe() const override { return "a worker for " + options_.session.server; }
  void LogClosing(const std::vector<int64_t>& peak_bytes) const override;

 private:
  struct OpenDocument {
    PreparedLease lease;  // without its tokens
    DocumentResult result;
    v1::Progress progress;
  };
  enum class End : uint8_t { kNone, kSignal, kTimeLimit, kFatal };

  void CheckStops();
  void StopFor(End reason);
  runtime::Prompt MakePrompt(PreparedLease lease);

  const WorkerRunOptions options_;
  const Flags& flags_;
  std::unique_ptr<WorkerSession> session_;  // from the first Next to Finish
  Progress progress_;
  const absl::Time start_;
  std::map<int64_t, OpenDocument> open_;  // by ticket
  int64_t prefilling_ = 0;                // ticket
  bool idle_shown_ = false;               // the last progress said that nothing is active
  End end_ = End::kNone;
  int signal_ = 0;
  absl::Status fatal_;  // of the session that has ended
  BatchTotals totals_;
};

}  // namespace snapkv::launch
