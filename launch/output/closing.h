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
  double seconds = 0;          // from the start to the last record, loading of the weights included
  double prefill_seconds = 0;  // spent on prefills
  double decode_seconds = 0;   // and on decoding steps, of however many documents
};

// "60 documents: 58 summarised, 2 failed, 40 from before; 120000 prompt tokens, 2400 generated in 12.3 s
// (9951 tokens/s); prefill 15000 tokens/s for 8.0 s, decode 585 tokens/s for 4.0 s". The first rate is of
// both kinds of tokens over all the time; that of decode leaves out the first token of each document, which
// comes from its prefill. What did not happen is not said. No newline.
std::string ClosingLine(const BatchTotals& totals);

// "nothing to do: 60 documents have records, 2 of them failed; --retry-errors does those again". No newline.
std::string NothingToDoLine(int64_t records, int64_t failed);

struct ClosingRow {
  std::string id{};
  bool failed = false;  // only id and error count
  std::string error{};  // reason, e.g. CONTEXT_EXCEEDED
  int64_t prompt_tokens = 0;
  int64_t rows_full = 0, rows_kept = 0;
  int64_t bytes_full = 0, bytes_kept = 0;
  double prefill_tokens_per_s = 0, decode_tokens_per_s = 0;  // as in the record
};
ClosingRow ToClosingRow(const DocumentResult& result);

struct RankPeak {
  int rank = 0;
  int64_t bytes = 0;  // most memory this rank held at once
};

// Aligned plain text, a header and one line per row, then one line per rank; "" without rows and ranks. Long
// ids lose their middle; characters that would break the table are shown as '?'.
std::string ClosingTable(const std::vector<ClosingRow>& rows, const std::vector<RankPeak>& ranks);

// The failed ones among `rows` with their reasons, a line each under a heading; `failed` is how many there
// are in all. "" if none failed.
std::string FailedList(const std::vector<ClosingRow>& rows, int64_t failed);

}  // namespace snapkv::launch
