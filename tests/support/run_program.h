// SPDX-License-Identifier: Apache-2.0
// Runs a program as a user would: arguments, environment, standard streams, a time limit, and its whole
// output back.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "kernels/base/status.h"

namespace snapkv::testing {

struct ProgramOptions {
  std::vector<std::string> argv{};                   // argv[0] is looked up in PATH unless it has a slash
  std::map<std::string, std::string> environment{};  // replaces or adds to this process's
  std::vector<std::string> unset{};                  // removed from it
  std::string folder{};                              // working folder; empty: this process's
  std::string input{};                               // what stdin delivers before its end
  std::chrono::milliseconds timeout{60'000};         // from the start
};

struct ProgramResult {
  int exit_code = -1;      // -1 when a signal ended it
  int signal = 0;          // 0 when it exited
  bool timed_out = false;  // it was ended by us: SIGTERM, SIGKILL 2 s later, both to its process group
  // Two seconds after its end some process still held its stdout or stderr: it left somebody running.
  bool left_running = false;
  std::string out;
  std::string err;
  double seconds = 0;
  int64_t peak_rss_bytes = 0;  // of the program and the children it waited for

  // Everything at once, for a failing assertion's message.
  std::string ToString() const;
};

// A running program in a process group of its own. Ignores SIGPIPE in this process. One thread uses it.
class Program {
 public:
  static absl::StatusOr<std::unique_ptr<Program>> Start(ProgramOptions options);
  // Kills the group if it still runs.
  ~Program();
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  pid_t pid() const { return pid_; }
  // Every process below it, itself not included, parents first.
  std::vector<pid_t> Descendants() const;
  // What it has written so far (see Poll).
  const std::string& out() const { return result_.out; }
  const std::string& err() const { return result_.err; }

  // Feeds stdin and collects output for at most `wait`. False once the program has ended and its output is
  // complete.
  bool Poll(std::chrono::milliseconds wait);
  // Polls until stdout or stderr contains `text`. False when the program ends or times out without it.
  bool WaitForOutput(const std::string& text);
  // Polls to the end or the time limit.
  ProgramResult Wait();

 private:
  explicit Program(ProgramOptions options);
  absl::Status Spawn();
  void Transfer(std::chrono::milliseconds wait);
  void Reap();
  void CloseStreams();

  using Clock = std::chrono::steady_clock;
  ProgramOptions options_;
  ProgramResult result_;
  pid_t pid_ = -1;
  bool reaped_ = false;
  Clock::time_point start_, ended_;
  int in_ = -1, out_ = -1, err_ = -1;  // our ends of the pipes; -1 when closed
  size_t input_sent_ = 0;
};

// Alive and no zombie.
bool IsRunning(pid_t pid);

// Start and Wait in one. An error only when it could not be started.
absl::StatusOr<ProgramResult> RunProgram(ProgramOptions options);

}  // namespace snapkv::testing
