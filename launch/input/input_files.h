// SPDX-License-Identifier: Apache-2.0
// What the --input flags name: files, folders, globs and stdin, as one list of files.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace snapkv::launch {

enum class InputFormat : uint8_t { kAuto, kText, kJsonl };

struct InputFile {
  std::string path = {};  // as it is opened; "-": stdin
  std::string
      name;  // the path, lexically normalised, for ids and messages: always UTF-8 without control characters
  bool exact = true;  // false: `name` had to be altered for that, so other files may have the same
  bool jsonl = false;
  bool regular = false;    // a regular file when it was found: must still be one when it is opened
  std::string fault = {};  // of something in a folder that cannot be read: the reason
};

// A folder or a pattern that files were looked for in.
struct SearchedPlace {
  std::string input;     // as --input has it
  std::string folder{};  // a folder's path without symbolic links, "" for a pattern
};

struct InputFiles {
  std::vector<InputFile> files;
  std::vector<SearchedPlace> places;
  InputFormat format = InputFormat::kAuto;
  bool direct = false;  // one input, which is a file or stdin itself: no folder, no glob
};

// Finds the files of `inputs`, in their order; of a folder or a glob ascending bytewise by path. Under kAuto,
// names ending in .jsonl or .ndjson are JSONL, all else (stdin too) is text.
//   folder: *.txt and *.md (under kJsonl *.jsonl and *.ndjson) with all folders below it. Symbolic links to
//   folders
//     are not followed, names that begin with a dot are skipped. What cannot be read there gets a `fault`.
//   glob: when no such file exists and the name has * ? or [; may match files and folders, by the rules of
//   glob(7).
// A file that is named twice, by overlapping inputs, is listed once, and one line of the log says so.
// Errors name the input and say what to do: INVALID_ARGUMENT for no input and for a second `-`; else
// NOT_FOUND: no such file, not readable, no match, no document in a folder, stdin closed.
// A folder or a pattern without any document is an error, too.
absl::StatusOr<InputFiles> FindInputFiles(const std::vector<std::string>& inputs, InputFormat format);

// The input by whose rules a file `path`, if it existed, would be found again; "" if none would.
std::string FoundBy(const InputFiles& files, const std::string& path);

}  // namespace snapkv::launch
