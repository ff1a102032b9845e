// SPDX-License-Identifier: Apache-2.0
// Where records and progress go: one lock keeps the bar, the records and several threads apart.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "launch/output/closing.h"
#include "launch/output/ordered_writer.h"
#include "launch/output/output_log.h"
#include "launch/output/progress.h"
#include "launch/output/record.h"

namespace snapkv::launch {

// The progress of a client. Thread-safe.
class Display {
 public:
  explicit Display(ProgressMode mode);
  void Update(const ProgressState& state);
  // To stdout, with the bar out of the way.
  absl::Status Print(const std::string& text);
  void Finish();

 private:
  std::mutex mutex_;
  Progress progress_;
};

// Records of one run. Thread-safe.
class RecordSink {
 public:
  // `log`: null for stdout. `ordered`: in the order of ordinals, see OrderedWriter.
  RecordSink(std::shared_ptr<OutputLog> log, bool ordered, bool token_ids, Display& display);

  // models/{model}, as OpenAI records name it without the prefix.
  void SetModel(const std::string& model);

  // `params_sha256`: of the record. Errors are also said on stderr, the first 20 of them.
  absl::Status Put(int64_t ordinal, const DocumentResult& result, const std::string& params_sha256);
  // No record for this ordinal: the file has it already.
  absl::Status Skip(int64_t ordinal);
  // A record that has no place in the order.
  absl::Status PutUnplaced(const DocumentResult& result, const std::string& params_sha256);
  // All that was put is on the disk. False: some records wait for their turn.
  absl::StatusOr<bool> Sync();
  // Writes what waits, and closes.
  absl::Status Finish(bool discard_if_empty);

  // The first failure to write.
  absl::Status status() const;
  BatchTotals totals() const;

 private:
  std::string LineLocked(const DocumentResult& result, const std::string& params_sha256);
  absl::Status Write(const std::string& line);
  absl::Status NoteLocked(const absl::Status& status);

  mutable std::mutex mutex_;
  std::shared_ptr<OutputLog> log_;
  OrderedWriter ordered_;
  RecordContext context_;
  Display& display_;
  absl::Status status_;
  BatchTotals totals_;
  int64_t errors_shown_ = 0;
};

}  // namespace snapkv::launch
