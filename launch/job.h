// SPDX-License-Identifier: Apache-2.0
// PrefillJob: what snapkv-prefill does with its flags once the ranks are connected.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/bootstrap.h"
#include "launch/document_input.h"
#include "launch/flags.h"
#include "launch/output/record.h"
#include "runtime/engine/context.h"
#include "runtime/engine/generate.h"
#include "runtime/model/gguf.h"

namespace snapkv::launch {

struct DocumentTimes {
  double prefill_s = 0;
  double decode_s = 0;
};

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
  absl::StatusOr<Decision> OpenModel();
  // Rank 0: checks outputs, reads and tokenizes the document. Returns the exit code if the job ends here.
  std::optional<int> PrepareOnLeader();
  std::optional<int> CheckOutputFiles() const;
  std::optional<int> ReadPrompt();
  std::optional<int> PrintPrompt() const;
  // The prompt from rank 0 to all.
  absl::StatusOr<Decision> SharePrompt();
  absl::Status ChooseDevice();
  // RunKeepingAlive with this job's ranks and time-out.
  absl::Status KeepingAlive(const std::function<void()>& work) const;
  absl::StatusOr<Decision> LoadModel(Allocator& allocator, runtime::RankStats& stats,
                                     std::unique_ptr<runtime::Model>& model);
  runtime::GenerateOptions MakeGenerateOptions() const;
  void LogStart() const;
  absl::StatusOr<int> Summarise();
  int WriteResults(const runtime::PrefillResult& prefill,
                   const absl::StatusOr<runtime::Generation>& generation, const DocumentTimes& times);
  absl::Status WriteDumps(const runtime::PrefillResult& prefill) const;
  // A failed document: its record, or a line on stderr. Returns the exit code.
  int Reject(const DocumentError& error) const;
  int Emit(const std::string& text) const;
  std::string DocumentId() const { return flags_.token_ids.empty() ? flags_.input : flags_.token_ids; }
  std::string Params() const;

  comm::World& world_;
  const Flags& flags_;
  std::string model_path_;
  std::optional<runtime::GgufFile> file_;
  runtime::ModelConfig config_;
  std::optional<runtime::Tokenizer> tokenizer_;  // rank 0
  std::vector<int32_t> tokens_;
  Stream stream_;
  DType dtype_ = DType::kF32;
  bool slow_bf16_ = false;
};

}  // namespace snapkv::launch
