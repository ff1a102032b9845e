// SPDX-License-Identifier: Apache-2.0
// Progress: how far a batch is, as a bar at the foot of a terminal or as a line now and then.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <string>

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace snapkv::launch {

enum class ProgressMode : uint8_t { kAuto, kBar, kLines, kNone };

// What the batch has done up to now. All counts are of this run, but for `skipped`.
struct ProgressState {
  int64_t total = -1;       // documents of the whole batch; -1: not known (yet)
  bool total_exact = true;  // false: an estimate
  int64_t done = 0, failed = 0;
  int64_t skipped = 0;           // results of an earlier run
  int64_t active = 0;            // being prefilled or decoded
  int64_t prompt_tokens = 0;     // of finished prefills
  int64_t generated_tokens = 0;  // of all documents
  // The prefill under way: its tokens, and how many of the model's layers they have passed.
  int64_t open_tokens = 0, open_layers = 0, layers = 0;
};

// Hooks for tests; the defaults are the real things.
struct ProgressOptions {
  ProgressMode mode = ProgressMode::kAuto;
  std::function<absl::Time()> clock = absl::Now;
  std::function<void(const std::string&)> write{};  // default: write(2) to stderr
  std::function<int()> columns{};                   // default: of the terminal, else $COLUMNS, else 80
  std::optional<bool> terminal{};                   // default: whether stderr is one
  absl::Duration bar_interval = absl::Milliseconds(200);
  absl::Duration line_interval = absl::Seconds(30);
  absl::Duration rate_window = absl::Seconds(30);
};

// One per process, on rank 0. While a bar is shown log lines go through it (SetLogWriter): erased, line, and
// the bar again with the next Update. Update and Clear are called by one thread; LOG by any.
//
// The bar is ASCII without colours or escape sequences (hence NO_COLOR needs nothing, and it passes through
// mpirun), and at most as long as a line less one column. A line each `line_interval` goes to LOG(Info).
class Progress {
 public:
  explicit Progress(ProgressOptions options);
  ~Progress();  // erases the bar
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // Cheap: it draws only when the interval has passed. Call it between layers and decoding steps.
  void Update(const ProgressState& state);
  // Erases the bar, e.g. before text goes to stdout; Update draws it again.
  void Clear();
  // Erases the bar for good and stops.
  void Finish();

  ProgressMode mode() const { return mode_; }  // never kAuto
  // What a line says: "12 of 60 documents, 1 failed, ..., 3 min 05 s so far, about 12 min left".
  std::string Line() const;

 private:
  struct Sample {
    absl::Time time;
    double prompt_tokens = 0, generated_tokens = 0;
  };
  void AddSample(absl::Time now);
  // Of the last rate_window; nullopt where there is too little to tell.
  std::optional<double> PromptRate() const;
  std::optional<double> GeneratedRate() const;
  std::optional<absl::Duration> Remaining() const;
  std::string Elapsed() const;
  std::string Bar(int columns) const;
  void EraseLocked();

  ProgressOptions options_;
  ProgressMode mode_;
  absl::Time start_;
  absl::Time last_shown_;
  ProgressState state_;
  std::deque<Sample> samples_;
  std::mutex mutex_;  // of what follows: log lines come from any thread
  size_t shown_ = 0;  // columns the bar takes
};

// kAuto decided: a bar where stderr is a terminal that can move its cursor, else lines.
ProgressMode ResolveProgressMode(ProgressMode mode, bool terminal);

// "850 ms", "12.3 s", "3 min 05 s", "2 h 07 min".
std::string ShowDuration(absl::Duration duration);
// Of a duration that is a guess: "8 s", "35 s", "2 min 30 s", "12 min", "2 h 10 min", "31 h".
std::string ShowEstimate(absl::Duration duration);

}  // namespace snapkv::launch
