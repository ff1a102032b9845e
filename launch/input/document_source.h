// SPDX-License-Identifier: Apache-2.0
// DocumentSource: the documents of all inputs, one after another, each with an id of its own.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "launch/ids/id_set.h"
#include "launch/input/document.h"
#include "launch/input/input_files.h"
#include "launch/input/jsonl.h"
#include "launch/input/line_reader.h"
#include "launch/input/read_fd.h"
#include "launch/input/text_file.h"

namespace snapkv::launch {

struct SourceOptions {
  std::vector<std::string> inputs = {};  // FindInputFiles says what they may be
  DocumentParams defaults = {};          // of what a record does not set
  std::string encoding = "utf-8";        // or "latin1": of text files and of "path"; JSONL is always UTF-8
  InputFormat format = InputFormat::kAuto;
  int64_t max_document_bytes = kMaxDocumentBytes;
  int64_t max_line_bytes = int64_t{32} << 20;
  StopFn stop = nullptr;  // true ends the input: pipes are then not waited for any longer
};

struct ItemCount {
  int64_t items = -1;  // -1: no idea
  bool exact = false;  // else an estimate
};

// Holds the list of files, a hash of each id, and the document at hand; no more, whatever the inputs hold.
// One thread uses it; CountItems may be called by any.
class DocumentSource {
 public:
  // Checks every input that is named, and reads nothing. Errors: those of FindInputFiles, and
  // INVALID_ARGUMENT for options out of range.
  static absl::StatusOr<std::unique_ptr<DocumentSource>> Open(SourceOptions options);

  // The next document, or the error in its place; nullopt at the end. Reads one document or line and not
  // beyond (but for the 64 KiB that a file is read in). Blank lines give nothing. Whatever is in the files is
  // no error of this function.
  //
  // Ids are unique, UTF-8, without control characters, and the same in each run on the same files:
  //   a text file: its path as given, lexically normalised (what is not UTF-8 or a control character becomes
  //   U+FFFD);
  //     `-` for stdin.
  //   a JSONL line: its id or custom_id, else its path as written, else line-N, or FILE:line-N when there is
  //   more than
  //     the one JSONL file that --input names.
  // An id that was used before makes the document an error, DOCUMENT_ID_DUPLICATE, with an id of its own:
  // line-N or FILE:line-N (a text file: its path). Should these, which nobody wrote, be taken, #2, #3 ... is
  // appended.
  //
  // Reasons: LINE_INVALID, DOCUMENT_ID_INVALID, DOCUMENT_ID_DUPLICATE, PARAMETER_INVALID, DOCUMENT_EMPTY,
  // DOCUMENT_NOT_UTF8, DOCUMENT_TOO_LARGE, and DOCUMENT_NOT_FOUND for a file that cannot be read (also one of
  // the inputs, when it cannot be read any more). The code is NOT_FOUND for the last, else INVALID_ARGUMENT.
  absl::StatusOr<std::optional<InputItem>> Next();

  // One input, which is one text: what the program may answer with plain text.
  bool single_text() const { return files_.direct && !has_jsonl_; }
  bool has_jsonl() const { return has_jsonl_; }
  // Paths of all regular files and pipes that the inputs name or that were found, without those that a JSONL
  // line may name.
  const std::vector<std::string>& files() const { return regular_files_; }
  // How many items there are: known without JSONL and at the end, else from the bytes read so far of files
  // whose sizes are known.
  ItemCount CountItems() const;
  // Whether the inputs, found again, would include `path`, which need not exist: it lies in a folder that was
  // searched or matches a pattern, and has the right name. Then the folder or pattern, else "".
  std::string WouldFind(const std::string& path) const { return FoundBy(files_, path); }

 private:
  DocumentSource(SourceOptions options, InputFiles files);

  // A JSONL file that is being read.
  struct OpenJsonl {
    const InputFile* file;
    UniqueFd fd;
    LineReader lines;
    LineContext context;
    int64_t records = 0;
  };

  absl::StatusOr<UniqueFd> OpenFile(const InputFile& file) const;
  ReadOptions read_options() const;
  DocumentError StartJsonl(const InputFile& file);
  // nullopt: the file has no more lines, or reading was stopped.
  std::optional<InputItem> NextLine();
  std::optional<InputItem> ReadTextItem(const InputFile& file);
  InputItem FaultItem(const InputFile& file, DocumentError error);
  std::string GeneratedId(const InputFile& file, int64_t line) const;
  void End();
  absl::StatusOr<std::optional<InputItem>> NextItem();

  SourceOptions options_;
  InputFiles files_;
  std::vector<std::string> regular_files_;
  bool has_jsonl_ = false;
  int64_t bytes_total_ = 0;   // of all files, -1: not known
  int64_t bytes_before_ = 0;  // of the files that are done
  std::atomic<int64_t> bytes_read_{0}, items_read_{0};
  std::atomic<bool> all_read_{false};
  size_t next_file_ = 0;
  std::unique_ptr<OpenJsonl> jsonl_;
  IdSet ids_;
};

}  // namespace snapkv::launch
