// SPDX-License-Identifier: Apache-2.0
// PrefillJob: what snapkv-prefill does with its flags once the ranks are connected.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/bootstrap.h"
#include "launch/batch_run.h"
#include "launch/flags.h"
#include "launch/input/document_source.h"
#include "runtime/engine/context.h"
#include "runtime/model/gguf.h"

namespace snapkv::launch {

// SPMD: every rank makes the same calls. Rank 0 reads the input, writes the output and speaks for all.
class PrefillJob {
 public:
  PrefillJob(comm::World& world, const Flags& flags) : world_(world), flags_(flags) {}

  // The exit code all ranks end with. An error is one of communication (DEADLINE_EXCEEDED) or one that other
  // ranks may not know of: the caller ends the job with AbortJob.
  absl::StatusOr<int> Run();

 private:
  // What rank 0 decided; the others follow.
  struct Decision {
    std::optional<int> exit_code;  // end now
  };

  bool leader() const { return world_.rank() == 0; }
  // Tokens that prompt and generated text may have together.
  int64_t context() const { return flags_.context > 0 ? flags_.context : config_.context; }
  // The input is one text (or one prompt of --token-ids).
  bool one_text() const { return !source_ || source_->single_text(); }
  absl::StatusOr<Decision> OpenModel();
  absl::Status ChooseDevice();
  absl::StatusOr<Decision> Prepare();
  // Rank 0's part of it. These return the exit code if the job ends here.
  std::optional<int> PrepareOnLeader();
  std::optional<int> OpenSource();
  std::optional<int> CheckOutputFiles() const;
  std::optional<int> LoadTokenizer();
  std::optional<int> OpenOutput(std::shared_ptr<OutputLog>& log) const;
  // From the source (or --token-ids) to prompts; documents that `log` has are left out.
  std::optional<int> MakeReader(const std::shared_ptr<const OutputLog>& log, DocumentQueue::Next& next) const;
  BatchRunOptions MakeRunOptions(const OutputLog* log) const;
  // RunKeepingAlive with this job's ranks and time-out.
  absl::Status KeepingAlive(const std::function<void()>& work) const;
  absl::StatusOr<Decision> LoadModel(Allocator& allocator, runtime::RankStats& stats,
                                     std::unique_ptr<runtime::Model>& model);
  void LogStart() const;
  absl::StatusOr<int> RunDocuments();
  absl::Status ReportMemory();
  absl::Status WriteStats(const runtime::RankContext& context, int& exit_code);
  RunParams MakeRunParams() const;
  // --server: instead of source, reader and output.
  std::optional<int> PrepareWorker();

  comm::World& world_;
  const Flags& flags_;
  std::string model_path_;
  std::string fingerprint_;  // of the model's content
  std::optional<runtime::GgufFile> file_;
  runtime::ModelConfig config_;
  Stream stream_;
  DType dtype_ = DType::kF32;
  bool slow_bf16_ = false;
  // Rank 0.
  std::string params_sha256_;  // of MakeRunParams()
  std::shared_ptr<const runtime::Tokenizer> tokenizer_;
  std::shared_ptr<DocumentSource> source_;  // null with --token-ids
  std::unique_ptr<ResultWriter> writer_;
  std::unique_ptr<DocumentRun> run_;
};

}  // namespace snapkv::launch
