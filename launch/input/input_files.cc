// SPDX-License-Identifier: Apache-2.0
// Finding the files that inputs name.
#include "launch/input/input_files.h"

#include <fcntl.h>
#include <fnmatch.h>
#include <glob.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "kernels/base/log.h"
#include "kernels/base/status.h"
#include "launch/input/read_fd.h"
#include "runtime/text/utf8.h"

namespace snapkv::launch {
namespace {

namespace fs = std::filesystem;

constexpr char kStdin[] = "-";

bool IsJsonlName(const std::string& path) { return path.ends_with(".jsonl") || path.ends_with(".ndjson"); }
bool IsTextName(const std::string& path) { return path.ends_with(".txt") || path.ends_with(".md"); }
// What a folder is searched for.
bool IsWanted(InputFormat format, const std::string& name) {
  return format == InputFormat::kJsonl ? IsJsonlName(name) : IsTextName(name);
}

// UTF-8 without control characters: what is neither becomes U+FFFD.
std::string PrintableName(const std::string& path) {
  std::string name;
  for (size_t pos = 0; pos < path.size();) {
    const runtime::Utf8Step step = runtime::ReadUtf8(path, pos);
    const bool control = step.code_point < 0x20 || (step.code_point >= 0x7F && step.code_point < 0xA0);
    runtime::AppendUtf8(control ? runtime::kReplacementCharacter : step.code_point, &name);
    pos += static_cast<size_t>(step.length);
  }
  return name;
}

class Finder {
 public:
  explicit Finder(InputFormat format) : format_(format) {}

  absl::Status AddInput(const std::string& input);
  std::vector<InputFile> TakeFiles() { return std::move(files_); }
  std::vector<SearchedPlace> TakePlaces() { return std::move(places_); }
  bool direct() const { return direct_; }
  void LogRepeated() const;

 private:
  absl::Status AddStdin();
  absl::Status AddGlob(const std::string& pattern);
  // Appends what a folder holds; false: the folder itself cannot be listed, errno in `error`.
  // `input` is what named it.
  bool AddFolder(const fs::path& folder, const std::string& input, std::error_code& error);
  void List(const fs::path& folder, std::error_code& error, std::vector<InputFile>& found) const;
  void Add(InputFile file);
  InputFile MakeFile(const std::string& path, mode_t mode) const;
  const char* WantedNames() const {
    return format_ == InputFormat::kJsonl ? "*.jsonl or *.ndjson" : "*.txt or *.md";
  }

  InputFormat format_;
  std::vector<InputFile> files_;
  std::vector<SearchedPlace> places_;
  absl::flat_hash_set<std::string> seen_;  // absolute paths
  bool direct_ = false;
  int64_t repeated_ = 0;
  std::string first_repeated_;
};

InputFile Finder::MakeFile(const std::string& path, mode_t mode) const {
  InputFile file;
  file.path = path;
  const std::string normal = fs::path(path).lexically_normal().string();
  file.name = PrintableName(normal);
  file.exact = file.name == normal;
  file.jsonl = format_ == InputFormat::kJsonl || (format_ == InputFormat::kAuto && IsJsonlName(path));
  file.regular = S_ISREG(mode);
  return file;
}

void Finder::Add(InputFile file) {
  std::error_code ignored;  // the working folder is gone: relative paths still differ
  const fs::path absolute = fs::current_path(ignored) / file.path;
  if (file.path != kStdin && !seen_.insert(absolute.lexically_normal().string()).second) {
    if (++repeated_ == 1) first_repeated_ = file.name;
    return;
  }
  files_.push_back(std::move(file));
}

void Finder::LogRepeated() const {
  if (repeated_ == 0) return;
  LOG(Warning) << repeated_ << (repeated_ == 1 ? " file is" : " files are")
               << " named by more than one --input and read once: " << first_repeated_
               << (repeated_ == 1 ? "" : ", ...");
}

absl::Status Finder::AddStdin() {
  struct stat info = {};
  // A closed stdin has been replaced by something that cannot be read (ReserveStandardStreams).
  const int mode = ::fcntl(STDIN_FILENO, F_GETFL);
  if (mode == -1 || (mode & O_ACCMODE) == O_WRONLY || ::fstat(STDIN_FILENO, &info) != 0) {
    return NotFound("--input -: stdin is closed; give it a file or a pipe");
  }
  if (S_ISDIR(info.st_mode)) return NotFound("--input -: stdin is a directory; use --input FOLDER");
  for (const InputFile& file : files_) {
    if (file.path == kStdin)
      return InvalidArgument("--input -: stdin is named twice, but can be read only once");
  }
  Add({.path = kStdin, .name = kStdin, .jsonl = format_ == InputFormat::kJsonl});
  direct_ = true;
  return absl::OkStatus();
}

void Finder::List(const fs::path& folder, std::error_code& error, std::vector<InputFile>& found) const {
  std::vector<fs::path> pending = {folder};
  for (bool top = true; !pending.empty(); top = false) {
    const fs::path current = std::move(pending.back());
    pending.pop_back();
    std::error_code failed;
    fs::directory_iterator at(current, failed);
    for (; !failed && at != fs::directory_iterator(); at.increment(failed)) {
      const std::string name = at->path().filename().string();
      if (name.starts_with(".")) continue;
      std::error_code unknown;
      if (at->symlink_status(unknown).type() == fs::file_type::directory) {
        pending.push_back(at->path());
      } else if (IsWanted(format_, name) && at->status(unknown).type() != fs::file_type::directory) {
        found.push_back(MakeFile(at->path().string(), S_IFREG));
      }
    }
    if (!failed) continue;
    if (top) {
      error = failed;
      return;
    }
    found.push_back(MakeFile(current.string(), S_IFDIR));
    found.back().fault = "this folder cannot be read: " + failed.message();
  }
}

bool Finder::AddFolder(const fs::path& folder, const std::string& input, std::error_code& error) {
  std::vector<InputFile> found;
  List(folder, error, found);
  if (error) return false;
  std::error_code unknown;
  if (const fs::path real = fs::canonical(folder, unknown); !unknown)
    places_.push_back({input, real.string()});
  std::sort(found.begin(), found.end(),
            [](const InputFile& a, const InputFile& b) { return a.path < b.path; });
  for (InputFile& file : found) Add(std::move(file));
  return !found.empty();
}

absl::Status Finder::AddGlob(const std::string& pattern) {
  glob_t matches = {};
  const int result = ::glob(pattern.c_str(), GLOB_NOSORT, nullptr, &matches);
  std::vector<std::string> paths;
  for (size_t i = 0; i < matches.gl_pathc; ++i) paths.emplace_back(matches.gl_pathv[i]);
  ::globfree(&matches);
  if (result == GLOB_NOSPACE)
    return ResourceExhausted("--input ", PrintableName(pattern), ": too many matches");
  std::sort(paths.begin(), paths.end());
  places_.push_back({pattern});
  bool any = false;
  for (const std::string& path : paths) {
    struct stat info = {};
    const bool known = ::stat(path.c_str(), &info) == 0;
    if (known && S_ISDIR(info.st_mode)) {
      std::error_code error;
      any = AddFolder(path, pattern, error) || any;
      if (!error) continue;
      Add(MakeFile(path, S_IFDIR));
      files_.back().fault = "this folder cannot be read: " + error.message();
    } else {
      Add(MakeFile(path, S_IFREG));
    }
    any = true;
  }
  if (any) return absl::OkStatus();
  return NotFound("--input ", PrintableName(pattern), ": ",
                  paths.empty() ? "no file matches" : "matches only folders without documents",
                  "; check the pattern, and quote it for the shell");
}

absl::Status Finder::AddInput(const std::string& input) {
  if (input == kStdin) return AddStdin();
  const std::string flag = "--input " + PrintableName(input);
  struct stat info = {};
  if (::stat(input.c_str(), &info) != 0) {
    const int error = errno;
    if (error == ENOENT && input.find_first_of("*?[") != std::string::npos) return AddGlob(input);
    return NotFound(flag, ": cannot be read: ", std::strerror(error), "; check the path");
  }
  if (S_ISDIR(info.st_mode)) {
    std::error_code error;
    if (AddFolder(input, input, error)) return absl::OkStatus();
    if (error) return NotFound(flag, ": this folder cannot be read: ", error.message());
    return NotFound(flag, ": no document (", WantedNames(), ") in this folder or below it");
  }
  if (S_ISREG(info.st_mode)) {
    const absl::StatusOr<UniqueFd> fd = OpenRegular(input);
    if (!fd.ok()) return Annotate(fd.status(), flag);
  } else if (!S_ISFIFO(info.st_mode) && !S_ISCHR(info.st_mode)) {
    return NotFound(flag, ": is neither a file, nor a folder, nor a pipe");
  }
  Add(MakeFile(input, info.st_mode));
  direct_ = true;
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<InputFiles> FindInputFiles(const std::vector<std::string>& inputs, InputFormat format) {
  if (inputs.empty()) return InvalidArgument("--input is missing: name a file, a folder, or - for stdin");
  Finder finder(format);
  for (const std::string& input : inputs) RETURN_IF_ERROR(finder.AddInput(input));
  finder.LogRepeated();
  return InputFiles{finder.TakeFiles(), finder.TakePlaces(), format, inputs.size() == 1 && finder.direct()};
}

std::string FoundBy(const InputFiles& files, const std::string& path) {
  std::error_code error;
  const fs::path real = fs::weakly_canonical(fs::absolute(path, error), error);
  const std::string normal = fs::path(path).lexically_normal().string();
  for (const SearchedPlace& place : files.places) {
    if (place.folder.empty()) {
      const std::string pattern = fs::path(place.input).lexically_normal().string();
      if (::fnmatch(pattern.c_str(), normal.c_str(), FNM_PATHNAME | FNM_PERIOD) == 0) return place.input;
      continue;
    }
    const fs::path below = error ? fs::path() : real.lexically_relative(place.folder);
    const bool inside = !below.empty() && *below.begin() != "..";
    const bool hidden = std::any_of(below.begin(), below.end(),
                                    [](const fs::path& part) { return part.string().starts_with("."); });
    if (inside && !hidden && IsWanted(files.format, real.filename().string())) return place.input;
  }
  return "";
}

}  // namespace snapkv::launch
