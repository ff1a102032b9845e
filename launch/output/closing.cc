// SPDX-License-Identifier: Apache-2.0
// Rendering of the closing line and table.
#include "launch/output/closing.h"

#include <algorithm>
#include <cstdio>

#include "launch/output/progress.h"

namespace snapkv::launch {
namespace {

std::string Fixed(double value, int digits) {
  char text[64];
  std::snprintf(text, sizeof(text), "%.*f", digits, value);
  return text;
}

std::string Rate(double per_second) { return Fixed(per_second, per_second < 100 ? 1 : 0); }

std::string MiB(int64_t bytes) { return Fixed(static_cast<double>(bytes) / (1 << 20), 1); }

double PerSecond(int64_t tokens, double seconds) {
  return seconds > 0 && tokens > 0 ? static_cast<double>(tokens) / seconds : 0;
}

// Characters of UTF-8 text, each cut off from what may follow; control characters and broken bytes as '?'.
std::vector<std::string> Characters(const std::string& text) {
  std::vector<std::string> characters;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if ((byte & 0xC0) == 0x80 && !characters.empty()) {
      characters.back() += c;
    } else {
      characters.emplace_back(1, byte < 0x20 || byte == 0x7F || (byte & 0xC0) == 0x80 ? '?' : c);
    }
  }
  return characters;
}

size_t Columns(const std::string& text) { return Characters(text).size(); }

std::string ShortId(const std::string& id) {
  constexpr size_t kMost = 40, kTail = 18;
  const std::vector<std::string> characters = Characters(id);
  std::string text;
  for (size_t i = 0; i < characters.size(); ++i) {
    const bool cut = characters.size() > kMost;
    if (cut && i >= kMost - kTail - 3 && i < characters.size() - kTail) {
      if (i == kMost - kTail - 3) text += "...";
      continue;
    }
    text += characters[i];
  }
  return text;
}

struct TableLine {
  std::vector<std::string> cells;
  bool spills = false;  // the last cell is a message that runs over the columns behind it
};

// The first column is flush left, the others flush right.
std::string Align(const std::vector<TableLine>& lines) {
  std::vector<size_t> width;
  for (const TableLine& line : lines) {
    width.resize(std::max(width.size(), line.cells.size()));
    for (size_t i = 0; i + (line.spills ? 1 : 0) < line.cells.size(); ++i)
      width[i] = std::max(width[i], Columns(line.cells[i]));
  }
  std::string text;
  for (const TableLine& line : lines) {
    for (size_t i = 0; i < line.cells.size(); ++i) {
      const bool last = i + 1 == line.cells.size();
      const std::string pad(width[i] - std::min(width[i], Columns(line.cells[i])), ' ');
      const bool left = i == 0 || (line.spills && last);
      text += i == 0 ? "" : "  ";
      text += left ? line.cells[i] + (last ? "" : pad) : pad + line.cells[i];
    }
    text += "\n";
  }
  return text;
}

}  // namespace

std::string ClosingLine(const BatchTotals& totals) {
  const int64_t documents = totals.done + totals.failed + totals.skipped;
  std::string text = absl::StrCat(documents, documents == 1 ? " document: " : " documents: ", totals.done,
                                  " summarised, ", totals.failed, " failed");
  if (totals.skipped > 0) absl::StrAppend(&text, ", ", totals.skipped, " from before");
  const int64_t tokens = totals.prompt_tokens + totals.generated_tokens;
  if (tokens == 0) return text;
  absl::StrAppend(&text, "; ", totals.prompt_tokens, " prompt tokens, ", totals.generated_tokens,
                  " generated in ", ShowDuration(absl::Seconds(totals.seconds)), " (",
                  Rate(PerSecond(tokens, totals.seconds)), " tokens/s)");
  if (totals.prefill_seconds > 0) {
    absl::StrAppend(&text, "; prefill ", Rate(PerSecond(totals.prompt_tokens, totals.prefill_seconds)),
                    " tokens/s for ", ShowDuration(absl::Seconds(totals.prefill_seconds)));
  }
  if (const int64_t steps = totals.generated_tokens - totals.done; steps > 0 && totals.decode_seconds > 0) {
    absl::StrAppend(&text, ", decode ", Rate(PerSecond(steps, totals.decode_seconds)), " tokens/s for ",
                    ShowDuration(absl::Seconds(totals.decode_seconds)));
  }
  return text;
}

std::string NothingToDoLine(int64_t records, int64_t failed) {
  std::string text = absl::StrCat("nothing to do: ", records,
                                  records == 1 ? " document has a record" : " documents have records");
  if (failed > 0) absl::StrAppend(&text, ", ", failed, " of them failed; --retry-errors does those again");
  return text;
}

ClosingRow ToClosingRow(const DocumentResult& result) {
  ClosingRow row{.id = result.id, .failed = !result.error.ok(), .error = result.error.reason};
  if (row.failed) return row;
  row.prompt_tokens = result.prompt_tokens;
  row.rows_full = result.rows_full;
  row.rows_kept = result.rows_kept;
  row.bytes_full = result.bytes_full;
  row.bytes_kept = result.bytes_kept;
  row.prefill_tokens_per_s = PerSecond(result.prompt_tokens, result.prefill_s);
  row.decode_tokens_per_s = PerSecond(static_cast<int64_t>(result.token_ids.size()) - 1, result.decode_s);
  return row;
}

std::string ClosingTable(const std::vector<ClosingRow>& rows, const std::vector<RankPeak>& ranks) {
  std::vector<TableLine> lines;
  if (!rows.empty()) {
    lines.push_back(
        {{"document", "prompt tokens", "rows kept", "cache MiB", "prefill tokens/s", "decode tokens/s"}});
  }
  for (const ClosingRow& row : rows) {
    if (row.failed) {
      lines.push_back({{ShortId(row.id), "failed: " + row.error}, /*spills=*/true});
      continue;
    }
    lines.push_back({{ShortId(row.id), std::to_string(row.prompt_tokens),
                      absl::StrCat(row.rows_kept, " of ", row.rows_full),
                      MiB(row.bytes_full) + " -> " + MiB(row.bytes_kept), Rate(row.prefill_tokens_per_s),
                      Rate(row.decode_tokens_per_s)}});
  }
  std::string text = Align(lines);
  if (ranks.empty()) return text;
  if (!rows.empty()) text += "\n";
  std::vector<TableLine> peaks = {{{"rank", "peak memory MiB"}}};
  for (const RankPeak& rank : ranks) peaks.push_back({{std::to_string(rank.rank), MiB(rank.bytes)}});
  return text + Align(peaks);
}

std::string FailedList(const std::vector<ClosingRow>& rows, int64_t failed) {
  std::vector<TableLine> lines;
  for (const ClosingRow& row : rows)
    if (row.failed) lines.push_back({{"  " + ShortId(row.id), row.error}, /*spills=*/true});
  if (lines.empty()) return "";
  const int64_t more = failed - static_cast<int64_t>(lines.size());
  return absl::StrCat("failed:\n", Align(lines), more > 0 ? absl::StrCat("  and ", more, " more\n") : "");
}

}  // namespace snapkv::launch
