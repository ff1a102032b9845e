// SPDX-License-Identifier: Apache-2.0
// What is said at the end of a batch: one line, and a table for people.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "launch/output/record.h"

namespace snapkv::launch {

struct BatchTotals {
  int64_t done = 0, failed = 0;
  int64_t skipped = 0;  // results of an earlier run
  int64_t prompt_tokens = 0, generated_tokens = 0;
  double seconds = 0;          // from the first document to the last record
  double prefill_seconds = 0;  // of these, prefilling; 0: not known, rates are of `seconds`
  double decode_seconds = 0;
};

// "60 documents: 58 summarised, 2 failed, 40 from before; 120000 prompt tokens, 2400 generated in 12.3 s
// (9756 prompt tokens/s, 195.1 generated tokens/s)". No newline.
std::string ClosingLine(const BatchTotals& totals);

struct ClosingRow {
  std::string id{};
  bool failed = false;  // only id and error count
  std::string error{};  // reason, e.g. CONTEXT_EXCEEDED
  int64_t prompt_tokens = 0;
  int64_t rows_full = 0, rows_kept = 0;
  int64_t bytes_full = 0, bytes_kept = 0;
  double prefill_tokens_per_s = 0, decode_tokens_per_s = 0;
};
ClosingRow ToClosingRow(const DocumentResult& result);

struct RankPeak {
  int rank = 0;
  int64_t bytes = 0;  // most memory this rank held at once
};

// Aligned plain text, a header and one line per row, then one line per rank; "" without rows and ranks. Long
// ids lose their middle; characters that would break the table are shown as '?'.
std::string ClosingTable(const std::vector<ClosingRow>& rows, const std::vector<RankPeak>& ranks);

}  // namespace snapkv::launch
