// SPDX-License-Identifier: Apache-2.0
// Rates, the bar, and the lines.
#include "launch/output/progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <utility>
#include <vector>

#include "kernels/base/log.h"
#include "launch/output/record_scan.h"

namespace snapkv::launch {
namespace {

constexpr absl::Duration kSampleInterval = absl::Seconds(1);

int TerminalColumns() {
  winsize size{};
  if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  const char* columns = std::getenv("COLUMNS");
  const int n = columns != nullptr ? std::atoi(columns) : 0;
  return n > 0 ? n : 80;
}

// Tokens of the prompts, with the share of the open one that its layers amount to.
double PromptTokens(const ProgressState& state) {
  const double share =
      state.layers > 0 ? static_cast<double>(state.open_layers) / static_cast<double>(state.layers) : 0;
  return static_cast<double>(state.prompt_tokens) + share * static_cast<double>(state.open_tokens);
}

std::string Rate(double per_second) {
  char text[32];
  std::snprintf(text, sizeof(text), per_second < 100 ? "%.1f" : "%.0f", per_second);
  return text;
}

std::string Percent(const ProgressState& state) {
  const int64_t handled = state.done + state.failed + state.skipped;
  char text[16];
  std::snprintf(text, sizeof(text), "%3d%%",
                static_cast<int>(100 * handled / std::max<int64_t>(1, state.total)));
  return text;
}

}  // namespace

ProgressMode ResolveProgressMode(ProgressMode mode, bool terminal) {
  if (mode != ProgressMode::kAuto) return mode;
  const char* term = std::getenv("TERM");
  const bool dumb = term != nullptr && std::string_view(term) == "dumb";
  return terminal && !dumb ? ProgressMode::kBar : ProgressMode::kLines;
}

std::string ShowDuration(absl::Duration duration) {
  const double s = std::max(0.0, absl::ToDoubleSeconds(duration));
  char text[48];
  if (s < 0.9995) {
    std::snprintf(text, sizeof(text), "%.0f ms", s * 1e3);
  } else if (s < 59.95) {
    std::snprintf(text, sizeof(text), "%.1f s", s);
  } else if (const auto seconds = std::llround(s); seconds < 3600) {
    std::snprintf(text, sizeof(text), "%lld min %02lld s", seconds / 60, seconds % 60);
  } else {
    const auto minutes = std::llround(s / 60);
    std::snprintf(text, sizeof(text), "%lld h %02lld min", minutes / 60, minutes % 60);
  }
  return text;
}

std::string ShowEstimate(absl::Duration duration) {
  const double s = std::max(0.0, absl::ToDoubleSeconds(duration));
  const auto to = [s](int64_t step) { return (std::llround(s) + step / 2) / step * step; };
  if (s < 9.5) return std::to_string(std::max<int64_t>(1, to(1))) + " s";
  if (s < 57.5) return std::to_string(to(5)) + " s";
  if (s < 595) return ShowDuration(absl::Seconds(to(10)));
  if (s < 3570) return std::to_string(to(60) / 60) + " min";
  if (s < 35'700) return ShowDuration(absl::Seconds(to(600)));
  return std::to_string(to(3600) / 3600) + " h";
}

Progress::Progress(ProgressOptions options)
    : options_(std::move(options)),
      mode_(ResolveProgressMode(options_.mode, options_.terminal.value_or(isatty(STDERR_FILENO) == 1))) {
  if (!options_.write) options_.write = [](const std::string& text) { WriteAll(STDERR_FILENO, text); };
  if (!options_.columns) options_.columns = TerminalColumns;
  start_ = options_.clock();
  last_shown_ = mode_ == ProgressMode::kBar ? absl::InfinitePast() : start_;
  samples_.push_back({start_});
  if (mode_ != ProgressMode::kBar) return;
  SetLogWriter([this](const std::string& line) {
    const std::lock_guard lock(mutex_);
    // One write, so that nothing comes between.
    const std::string erase = shown_ == 0 ? "" : "\r" + std::string(shown_, ' ') + "\r";
    shown_ = 0;
    options_.write(erase + line);
  });
}

Progress::~Progress() { Finish(); }

void Progress::Finish() {
  if (mode_ == ProgressMode::kBar) SetLogWriter(nullptr);
  Clear();
  mode_ = ProgressMode::kNone;
}

void Progress::Clear() {
  const std::lock_guard lock(mutex_);
  EraseLocked();
}

void Progress::EraseLocked() {
  if (shown_ > 0) options_.write("\r" + std::string(shown_, ' ') + "\r");
  shown_ = 0;
}

void Progress::AddSample(absl::Time now) {
  if (now - samples_.back().time < kSampleInterval) return;
  samples_.push_back({now, PromptTokens(state_), static_cast<double>(state_.generated_tokens)});
  // One sample older than the window stays, so that the window is covered.
  while (samples_.size() > 2 && now - samples_[1].time >= options_.rate_window) samples_.pop_front();
}

void Progress::Update(const ProgressState& state) {
  if (mode_ == ProgressMode::kNone) return;
  state_ = state;
  const absl::Time now = options_.clock();
  AddSample(now);
  const bool bar = mode_ == ProgressMode::kBar;
  if (now - last_shown_ < (bar ? options_.bar_interval : options_.line_interval)) return;
  last_shown_ = now;
  if (!bar) {
    LOG(Info) << Line();
    return;
  }
  const int columns = options_.columns();
  const std::string text = Bar(columns);
  const std::lock_guard lock(mutex_);
  // Over the rest of a longer one, but not beyond the edge of a window that has become narrower.
  const size_t old = std::min(shown_, static_cast<size_t>(std::max(1, columns - 1)));
  options_.write("\r" + text + std::string(old - std::min(old, text.size()), ' '));
  shown_ = text.size();
}

std::optional<double> Progress::PromptRate() const {
  const double seconds = absl::ToDoubleSeconds(samples_.back().time - samples_.front().time);
  if (seconds <= 0) return std::nullopt;
  // The share of a prompt that was given up is taken back: never below 0.
  return std::max(0.0, samples_.back().prompt_tokens - samples_.front().prompt_tokens) / seconds;
}

std::optional<double> Progress::GeneratedRate() const {
  const double seconds = absl::ToDoubleSeconds(samples_.back().time - samples_.front().time);
  if (seconds <= 0) return std::nullopt;
  return std::max(0.0, samples_.back().generated_tokens - samples_.front().generated_tokens) / seconds;
}

std::optional<absl::Duration> Progress::Remaining() const {
  const int64_t finished = state_.done + state_.failed;
  const int64_t left = state_.total - finished - state_.skipped;
  if (state_.total < 0 || finished == 0 || left <= 0) return std::nullopt;
  const absl::Duration elapsed = samples_.back().time - start_;
  if (elapsed <= absl::ZeroDuration()) return std::nullopt;
  return elapsed * static_cast<double>(left) / static_cast<double>(finished);
}

std::string Progress::Elapsed() const {
  const absl::Duration elapsed = absl::Trunc(options_.clock() - start_, absl::Seconds(1));
  return elapsed < absl::Minutes(1) ? std::to_string(absl::ToInt64Seconds(elapsed)) + " s"
                                    : ShowDuration(elapsed);
}

std::string Progress::Line() const {
  const int64_t handled = state_.done + state_.failed + state_.skipped;
  std::string text = std::to_string(handled);
  if (state_.total >= handled)
    text += (state_.total_exact ? " of " : " of about ") + std::to_string(state_.total);
  text += " documents";
  if (state_.skipped > 0) text += ", " + std::to_string(state_.skipped) + " of them before";
  if (state_.failed > 0) text += ", " + std::to_string(state_.failed) + " failed";
  if (state_.active > 0) text += ", " + std::to_string(state_.active) + " active";
  if (state_.open_tokens > 0 && state_.layers > 0) {
    text += ", layer " + std::to_string(state_.open_layers) + " of " + std::to_string(state_.layers) +
            " of " + std::to_string(state_.open_tokens) + " prompt tokens";
  }
  if (const auto rate = PromptRate()) text += ", prompt " + Rate(*rate) + " tokens/s";
  if (const auto rate = GeneratedRate()) text += ", generated " + Rate(*rate) + " tokens/s";
  text += ", " + Elapsed() + " so far";
  if (const auto left = Remaining()) text += ", about " + ShowEstimate(*left) + " left";
  return text;
}

std::string Progress::Bar(int columns) const {
  const size_t room = static_cast<size_t>(std::max(1, columns - 1));
  const int64_t handled = state_.done + state_.failed + state_.skipped;
  const bool known = state_.total > 0 && state_.total >= handled;
  std::string text = std::to_string(handled);
  if (known)
    text = Percent(state_) + " " + text + (state_.total_exact ? "/" : "/~") + std::to_string(state_.total);
  // The most important parts first: what does not fit is left out.
  std::vector<std::string> parts;
  if (state_.failed > 0) parts.push_back(std::to_string(state_.failed) + " failed");
  if (const auto left = Remaining()) parts.push_back("about " + ShowEstimate(*left) + " left");
  parts.push_back(Elapsed() + " so far");
  if (const auto rate = GeneratedRate()) parts.push_back(Rate(*rate) + " tok/s out");
  if (const auto rate = PromptRate()) parts.push_back(Rate(*rate) + " tok/s in");
  if (state_.open_tokens > 0 && state_.layers > 0)
    parts.push_back("layer " + std::to_string(state_.open_layers) + "/" + std::to_string(state_.layers));
  if (state_.active > 0) parts.push_back(std::to_string(state_.active) + " active");
  if (state_.prompt_tokens > 0) {
    parts.push_back(std::to_string(state_.prompt_tokens) + " + " + std::to_string(state_.generated_tokens) +
                    " tokens");
  }
  constexpr std::string_view kUnit = " documents";
  if (text.size() + kUnit.size() <= room) text += kUnit;
  for (const std::string& part : parts)
    if (text.size() + 2 + part.size() <= room) text += ", " + part;
  constexpr size_t kLeast = 10, kMost = 30;
  if (known && text.size() + kLeast + 3 <= room) {
    const size_t width = std::min(kMost, room - text.size() - 3);
    const size_t full = static_cast<size_t>(std::clamp<int64_t>(
        static_cast<int64_t>(width) * handled / state_.total, 0, static_cast<int64_t>(width)));
    text = "[" + std::string(full, '#') + std::string(width - full, '.') + "] " + text;
  }
  return text.substr(0, room);
}

}  // namespace snapkv::launch
