// SPDX-License-Identifier: Apache-2.0
// DocumentRun: the decode rank's side of a run of documents, and what all kinds of it do alike.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "launch/input/document.h"
#include "launch/output/closing.h"
#include "launch/output/record.h"
#include "runtime/engine/batch.h"

namespace snapkv::launch {

// A batch of files (BatchRun), or what the job server hands out (WorkerRun).
class DocumentRun : public runtime::BatchDriver {
 public:
  // After the last document: brings the results where they belong. The exit code.
  virtual int Finish() = 0;
  virtual const BatchTotals& totals() const = 0;
  // What LOG says at the start.
  virtual std::string Describe() const = 0;
  // What is said at the end, with the peak memory of each rank.
  virtual void LogClosing(const std::vector<int64_t>& peak_bytes) const = 0;
};

// How a document's text is generated. Draws differ between documents, and are the same for a document (its
// id) wherever it stands in a run. Without on_text and on_token.
runtime::GenerateOptions MakeGenerateOptions(const DocumentParams& params, const std::string& id,
                                             bool ignore_eos);

// The error of a document that the engine could not finish: OUT_OF_MEMORY or INTERNAL.
DocumentError EngineError(const absl::Status& status, int64_t line);

// A cache that --cache-bytes never allows is CACHE_EXCEEDED; `limit` 0: there is none.
DocumentError CheckCacheBytes(int64_t cache_bytes, int64_t limit, int64_t line);

// Fills a result with what its prefill, or its end, has brought.
void SetPrefill(const runtime::PrefillResult& prefill, double seconds, DocumentResult& result);
void SetGeneration(runtime::Generation generation, const runtime::DocumentTimes& times,
                   runtime::CachePolicy policy, DocumentResult& result);

}  // namespace snapkv::launch
