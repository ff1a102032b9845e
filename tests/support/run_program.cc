// SPDX-License-Identifier: Apache-2.0
// posix_spawn, three pipes and one poll loop.
#include "tests/support/run_program.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <fstream>
#include <utility>

#include "kernels/base/log.h"

namespace snapkv::testing {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kSlice{10};
constexpr milliseconds kGrace{2'000};

void Close(int& fd) {
  if (fd >= 0) ::close(fd);
  fd = -1;
}

// This process's environment with the options' changes, as "NAME=value" lines.
std::vector<std::string> EnvironmentLines(const ProgramOptions& options) {
  std::map<std::string, std::string> values;
  for (char** e = environ; *e != nullptr; ++e) {
    const std::string line = *e;
    const size_t equals = line.find('=');
    if (equals != std::string::npos) values[line.substr(0, equals)] = line.substr(equals + 1);
  }
  for (const std::string& name : options.unset) values.erase(name);
  for (const auto& [name, value] : options.environment) values[name] = value;
  std::vector<std::string> lines;
  for (const auto& [name, value] : values) lines.push_back(absl::StrCat(name, "=", value));
  return lines;
}

std::vector<char*> Pointers(std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  for (std::string& s : strings) pointers.push_back(s.data());
  pointers.push_back(nullptr);
  return pointers;
}

// Appends what `fd` has; closes it at the end of the stream.
void Drain(int& fd, std::string& text) {
  char buffer[65536];
  const ssize_t n = ::read(fd, buffer, sizeof(buffer));
  if (n > 0) {
    text.append(buffer, static_cast<size_t>(n));
  } else if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
    Close(fd);
  }
}

}  // namespace

std::string ProgramResult::ToString() const {
  std::string s =
      signal != 0 ? absl::StrCat("ended by signal ", signal) : absl::StrCat("exit code ", exit_code);
  if (timed_out) s += " (timed out)";
  if (left_running) s += " (left processes running)";
  return absl::StrCat(s, " after ", seconds, " s\n--- stdout\n", out, "\n--- stderr\n", err, "\n---");
}

Program::Program(ProgramOptions options) : options_(std::move(options)) {}

absl::StatusOr<std::unique_ptr<Program>> Program::Start(ProgramOptions options) {
  if (options.argv.empty()) return InvalidArgument("no program to run");
  std::unique_ptr<Program> program(new Program(std::move(options)));
  RETURN_IF_ERROR(program->Spawn());
  return program;
}

absl::Status Program::Spawn() {
  ::signal(SIGPIPE, SIG_IGN);  // a program that does not read its stdin must not end the test
  std::array<std::array<int, 2>, 3> pipes;
  for (auto& p : pipes) {
    if (::pipe2(p.data(), O_CLOEXEC) != 0) return absl::ErrnoToStatus(errno, "pipe");
  }
  std::array<int, 3> theirs = {pipes[0][0], pipes[1][1], pipes[2][1]};
  in_ = pipes[0][1];
  out_ = pipes[1][0];
  err_ = pipes[2][0];
  for (const int fd : {in_, out_, err_}) ::fcntl(fd, F_SETFL, O_NONBLOCK);

  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  for (int i = 0; i < 3; ++i) ::posix_spawn_file_actions_adddup2(&actions, theirs[static_cast<size_t>(i)], i);
  if (!options_.folder.empty()) ::posix_spawn_file_actions_addchdir_np(&actions, options_.folder.c_str());
  posix_spawnattr_t attributes;
  ::posix_spawnattr_init(&attributes);
  ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGDEF);
  ::posix_spawnattr_setpgroup(&attributes, 0);
  sigset_t defaults;
  ::sigemptyset(&defaults);
  ::sigaddset(&defaults, SIGPIPE);
  ::posix_spawnattr_setsigdefault(&attributes, &defaults);

  std::vector<std::string> environment = EnvironmentLines(options_);
  std::vector<std::string> arguments = options_.argv;
  start_ = Clock::now();
  const int error = ::posix_spawnp(&pid_, arguments[0].c_str(), &actions, &attributes,
                                   Pointers(arguments).data(), Pointers(environment).data());
  ::posix_spawn_file_actions_destroy(&actions);
  ::posix_spawnattr_destroy(&attributes);
  for (int& fd : theirs) Close(fd);
  if (error == 0) return absl::OkStatus();
  pid_ = -1;
  reaped_ = true;
  CloseStreams();
  return absl::ErrnoToStatus(error, "cannot run '" + options_.argv[0] + "'");
}

Program::~Program() {
  if (!reaped_) {
    ::kill(-pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  CloseStreams();
}

void Program::CloseStreams() {
  Close(in_);
  Close(out_);
  Close(err_);
}

std::vector<pid_t> Program::Descendants() const {
  std::vector<pid_t> all;
  if (!reaped_) all.push_back(pid_);
  for (size_t i = 0; i < all.size(); ++i) {
    const std::string pid = std::to_string(all[i]);
    std::ifstream children("/proc/" + pid + "/task/" + pid + "/children");
    for (pid_t child = 0; children >> child;) all.push_back(child);
  }
  if (!all.empty()) all.erase(all.begin());
  return all;
}

void Program::Transfer(milliseconds wait) {
  if (in_ >= 0 && input_sent_ == options_.input.size()) Close(in_);
  std::array<struct pollfd, 3> fds = {{{in_, POLLOUT, 0}, {out_, POLLIN, 0}, {err_, POLLIN, 0}}};
  if (::poll(fds.data(), fds.size(), static_cast<int>(wait.count())) <= 0) return;
  if (in_ >= 0 && fds[0].revents != 0) {
    const ssize_t n = ::write(in_, options_.input.data() + input_sent_, options_.input.size() - input_sent_);
    if (n > 0) input_sent_ += static_cast<size_t>(n);
    if (n < 0 && errno != EAGAIN && errno != EINTR) Close(in_);
  }
  if (out_ >= 0 && fds[1].revents != 0) Drain(out_, result_.out);
  if (err_ >= 0 && fds[2].revents != 0) Drain(err_, result_.err);
}

void Program::Reap() {
  int status = 0;
  struct rusage usage;
  if (reaped_ || ::wait4(pid_, &status, WNOHANG, &usage) != pid_) return;
  reaped_ = true;
  ended_ = Clock::now();
  if (WIFEXITED(status)) result_.exit_code = WEXITSTATUS(status);
  if (WIFSIGNALED(status)) result_.signal = WTERMSIG(status);
  result_.seconds = std::chrono::duration<double>(ended_ - start_).count();
  result_.peak_rss_bytes = int64_t{usage.ru_maxrss} * 1024;
  Close(in_);
}

bool Program::Poll(milliseconds wait) {
  const Clock::time_point end = Clock::now() + wait;
  do {
    const bool streaming = out_ >= 0 || err_ >= 0;
    if (reaped_ && !streaming) return false;
    Transfer(kSlice);
    Reap();
    if (reaped_ && streaming && Clock::now() > ended_ + kGrace) {
      result_.left_running = out_ >= 0 || err_ >= 0;
      CloseStreams();
      ::kill(-pid_, SIGKILL);  // whoever is left in its group has been reported and must not outlive the test
    }
    const Clock::duration age = Clock::now() - start_;
    if (reaped_ || age < options_.timeout) continue;
    if (!result_.timed_out) ::kill(-pid_, SIGTERM);
    if (age >= options_.timeout + kGrace) ::kill(-pid_, SIGKILL);
    result_.timed_out = true;
  } while (Clock::now() < end);
  return true;
}

bool Program::WaitForOutput(const std::string& text) {
  const auto found = [&] {
    return result_.out.find(text) != std::string::npos || result_.err.find(text) != std::string::npos;
  };
  bool running = true;
  while (!found() && running && !result_.timed_out) running = Poll(kSlice);
  return found();
}

ProgramResult Program::Wait() {
  while (Poll(milliseconds(100))) {
  }
  return result_;
}

bool IsRunning(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  const size_t name_end = text.rfind(')');
  return name_end != std::string::npos && name_end + 2 < text.size() && text[name_end + 2] != 'Z';
}

absl::StatusOr<ProgramResult> RunProgram(ProgramOptions options) {
  ASSIGN_OR_RETURN(const std::unique_ptr<Program> program, Program::Start(std::move(options)));
  return program->Wait();
}

}  // namespace snapkv::testing
